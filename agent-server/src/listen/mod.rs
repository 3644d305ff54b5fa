//! The session ports, plain and TLS: their connections are dealt round the shards, and what is spoken on each is found out by its first bytes.

mod admission;
mod auth;
mod carry;
mod frames;
mod http1;
mod http2;
mod open;
mod peer;
mod tls;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::{
    admission::{Admission, Admitted},
    auth::{WANTED, admits, beside_token},
    carry::ending,
    peer::{Heard, Io, Peer, Silent},
    tls::{ADMIN, SESSIONS, Tls},
};
use crate::{
    dialect::Grpc,
    runtime::wire::{Listen, Parked},
    shard::Shard,
};

/// Connections that the kernel holds for us: a driver opens thousands at once.
const BACKLOG: i32 = 4096;
/// Connections that wait for a busy shard before the next shard is tried, and before accepting waits.
const HANDED: usize = 1024;
/// For a connection to write what is left when the server stops.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Files that are open beside connections: standard streams, listeners, runtimes.
const FILES_BESIDE: u64 = 64;
/// Failures to accept for each line in the log; out of files they come a hundred a second.
const FAILURES_A_LINE: u64 = 500;
/// Refusals of connections for each line in the log.
const REFUSALS_A_LINE: u64 = 10_000;

/// Binds a session port.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted backend takes its port back at once.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Raises the soft limit of open files to the hard one: a connection is a file, and the usual soft limit of 1,024 is a cap that nobody set.
/// Says what is needed when `sessions` of them cannot fit.
pub fn raise_fd_limit(sessions: Option<u64>) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!("failed to raise the limit of open files from {:?} to {:?}: {error}", limit.current, limit.maximum);
    }
    let needed = sessions.map(|sessions| sessions.saturating_add(FILES_BESIDE));
    if let (Some(needed), Some(limit)) = (needed, getrlimit(Resource::Nofile).current)
        && needed > limit
    {
        tracing::warn!(
            "max_sessions may need {needed} open files, this process may have {limit}: raise the hard limit (ulimit -Hn, LimitNOFILE), \
             or let clients share connections"
        );
    }
}

/// Files that the process may have open beside its own and those of `admins` connections to the admin port; none where there is no limit.
pub fn files_for_connections(admins: usize) -> Option<u64> {
    Some(getrlimit(Resource::Nofile).current?.saturating_sub(FILES_BESIDE + admins as u64))
}

/// A connection that was accepted.
pub struct Accepted {
    stream: Parked,
    /// Of the port that it came by, when that speaks TLS.
    tls: Option<TlsAcceptor>,
    /// Given back when the connection is over.
    place: Admitted,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("stream", &self.stream).field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Where accepted connections go: one end for each shard.
pub type Inbox = mpsc::Receiver<Accepted>;

/// Deals connections; each port has one of its own.
#[derive(Debug, Clone)]
pub struct Dealer {
    shards: Vec<mpsc::Sender<Accepted>>,
    next: usize,
}

impl Dealer {
    /// With the inboxes of `shards` shards.
    pub fn new(shards: usize) -> (Self, Vec<Inbox>) {
        let (shards, inboxes) = (0..shards).map(|_| mpsc::channel(HANDED)).unzip();
        (Self { shards, next: 0 }, inboxes)
    }

    async fn deal(&mut self, mut connection: Accepted) {
        for _ in 0..self.shards.len() {
            self.next = (self.next + 1) % self.shards.len();
            match self.shards[self.next].try_send(connection) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) => connection = back,
            }
        }
        // All are behind: the backlog holds what comes meanwhile. A closed inbox means that the server stops.
        let _ = self.shards[self.next].send(connection).await;
    }
}

/// Accepts until `stop`, for TLS where there is an acceptor.
pub async fn accept(
    listener: impl Listen,
    tls: Option<TlsAcceptor>,
    mut dealer: Dealer,
    admission: Arc<Admission>,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut failures = 0u64;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        match accepted.and_then(|(wire, from)| Ok((wire.park()?, from))) {
            Ok((stream, from)) => match admission.admit(from) {
                Some(place) => dealer.deal(Accepted { stream, tls: tls.clone(), place }).await,
                // Closed by its drop. What it would be told costs more than it is worth, and by TLS cannot be told at all.
                None => complain(&admission),
            },
            Err(error) => {
                // Out of file descriptors, or a peer that was gone before we looked; neither is a reason to spin or to stop.
                if failures.is_multiple_of(FAILURES_A_LINE) {
                    tracing::warn!("failed to accept a connection: {error}; {} failures before this one", failures);
                }
                failures += 1;
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

fn complain(admission: &Admission) {
    let refused = admission.refused();
    if refused % REFUSALS_A_LINE == 1 {
        tracing::warn!(
            "refused a connection, the {refused}. since the start: {} are open; see --max-connections and --max-connections-per-ip",
            admission.open()
        );
    }
}

/// Serves the connections of one inbox, each in a task of its own, until the server stops.
pub async fn serve(shard: Arc<Shard>, grpc: Grpc, mut inbox: Inbox) {
    let stop = shard.shared().stop.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = inbox.recv() => accepted,
            () = stop.cancelled() => return,
        };
        let Some(accepted) = accepted else { return };
        shard.count_connection();
        let (shard, grpc, stop) = (Arc::clone(&shard), grpc.clone(), stop.clone());
        let tasks = shard.tasks().clone();
        tasks.spawn(async move {
            let mut connection = pin!(connection(shard, grpc, accepted));
            tokio::select! {
                biased;
                () = connection.as_mut() => {}
                // Sessions have ended; their last words may still be on the way to the kernel.
                () = stop.cancelled() => drop(timeout(LAST_WORDS, connection).await),
            }
        });
    }
}

async fn connection(shard: Arc<Shard>, grpc: Grpc, accepted: Accepted) {
    // Whoever connects and says nothing costs a socket for this long and no more.
    let limit = shard.shared().config.start_timeout;
    let Accepted { stream, tls, place: _place } = accepted;
    let Ok(opened) = timeout(limit, open::open(stream, tls)).await else {
        return tracing::debug!("connection closed: nothing was said within {limit:?}");
    };
    let Some((io, http2)) = opened else { return };
    let peer = Peer::new(shard.shared().clock, shard.shared().config.idle_timeout);
    let io = Heard::new(io, Arc::clone(&peer));
    if http2 {
        let max_streams = shard.shared().config.http2_max_streams;
        http2::serve(shard, grpc, io.with_frames(max_streams), peer).await;
    } else {
        http1::serve(shard, io, peer).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum }).unwrap();
        raise_fd_limit(None);
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
