//! The task of an HTTP/2 stream.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll};

use tokio::time::{Sleep, sleep};

use crate::shard::{Ending, Shard};

tokio::task_local! {
    static ENDING: Ending;
}

/// What tells the task that runs this of its stream's end.
pub fn ending() -> Ending {
    ENDING.try_with(Clone::clone).unwrap_or_default()
}

/// Runs a stream's task to its end, or to the moment at which its client has let the last words of its session lie for the keepalive timeout.
/// Dropping the task resets the stream: one that nobody reads would else stay for as long as its connection.
pub(super) fn carry<F: Future>(shard: Arc<Shard>, task: F) -> impl Future<Output = ()> + use<F> {
    let ending = Ending::default();
    let mut task = Box::pin(ENDING.scope(ending.clone(), task));
    let mut patience: Option<Pin<Box<Sleep>>> = None;
    poll_fn(move |cx| {
        if task.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !ending.closing(cx) {
            return Poll::Pending;
        }
        let patience = patience.get_or_insert_with(|| Box::pin(sleep(shard.shared().config.keepalive_timeout)));
        patience.as_mut().poll(cx).map(|()| shard.count_unread())
    })
}
