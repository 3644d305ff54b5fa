//! gRPC over HTTP/2: one hyper connection, watched from outside.

use std::{pin::pin, sync::Arc};

use hyper::server::conn::http2;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::time::{Instant, sleep_until};

use super::{Heard, Peer, Silent, carry::carry};
use crate::{
    dialect::{Admitted, Grpc},
    shard::Shard,
};

/// Bytes of a stream that may wait in the library for the network.
const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of headers of a request.
const HEADERS_MAX: u32 = 16 * 1024;
/// Streams that a peer may have cancelled before we even looked at them. The library's default of 20 turns a burst of cancels into the death
/// of the connection, bystanders included.
const CANCELLED_UNSEEN_MAX: usize = 65_536;

pub(super) async fn serve(shard: Arc<Shard>, grpc: Grpc, io: Heard, peer: Arc<Peer>) {
    let shared = Arc::clone(shard.shared());
    let config = &shared.config;
    let silence = config.keepalive_interval + config.keepalive_timeout;
    let mut builder = http2::Builder::new(Owned(Arc::clone(&shard)));
    builder
        .timer(TokioTimer::new())
        // Its length depends on the digits of the time of day, and nothing else does where time is simulated.
        .auto_date_header(shared.clock.simulated_tick().is_none())
        .initial_stream_window_size(config.http2_stream_window)
        .initial_connection_window_size(config.http2_connection_window)
        .max_concurrent_streams(config.http2_max_streams)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADERS_MAX)
        .max_pending_accept_reset_streams(CANCELLED_UNSEEN_MAX)
        // No limit: our own resets answer what clients do to their streams, and one client must not cost another its connection.
        .max_local_error_reset_streams(None)
        .keep_alive_interval(config.keepalive_interval)
        // Later than our own watch, which alone knows a silent peer from a broken one.
        .keep_alive_timeout(silence * 2);
    let service = TowerToHyperService::new(Admitted::new(grpc, Arc::clone(&peer), Arc::clone(&shared)));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    let mut watch = pin!(sleep_until(Instant::from_std(shared.clock.instant(peer.heard() + silence))));
    // Who connects while we drain wants to know our health; it is told goodbye with the rest.
    let mut goodbye = shared.draining();
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!("HTTP/2 connection ended: {error:?}");
                }
                return;
            }
            () = watch.as_mut() => match peer.check(silence) {
                Ok(again) => watch.as_mut().reset(Instant::from_std(shared.clock.instant(again))),
                Err(Silent) => return shard.count_silent(),
            },
            () = shared.drain.cancelled(), if !goodbye => {
                goodbye = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Spawns onto the shard's own tasks, so that none outlives it.
#[derive(Debug, Clone)]
struct Owned(Arc<Shard>);

impl<F> hyper::rt::Executor<F> for Owned
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.tasks().spawn(carry(Arc::clone(&self.0), task));
    }
}
