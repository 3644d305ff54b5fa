//! The task of an HTTP/2 stream.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll};

use tokio::time::{Sleep, sleep};

use crate::shard::{Lane, Shard};

tokio::task_local! {
    static LANE: Lane;
}

/// The lane of the stream whose task this is.
pub fn lane() -> Lane {
    LANE.try_with(Clone::clone).unwrap_or_default()
}

/// Runs a stream's task to its end, or to the moment at which its client has let the last words of its session lie for the keepalive timeout.
/// Dropping the task resets the stream: one that nobody reads would else stay for as long as its connection.
pub(super) fn carry<F: Future>(shard: Arc<Shard>, task: F) -> impl Future<Output = ()> + use<F> {
    let lane = Lane::default();
    let mut task = Box::pin(LANE.scope(lane.clone(), task));
    let mut patience: Option<Pin<Box<Sleep>>> = None;
    poll_fn(move |cx| {
        if task.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !lane.closing(cx) {
            return Poll::Pending;
        }
        let patience = patience.get_or_insert_with(|| Box::pin(sleep(shard.shared().config.keepalive_timeout)));
        patience.as_mut().poll(cx).map(|()| shard.count_unread())
    })
}
