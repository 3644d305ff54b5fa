//! gRPC straight over h2: pooled connections with many streams each, and connections of their own for sessions that take theirs down.
//!
//! Not tonic's client: a tick hands its frames to h2 itself, without a task or a channel between, and h2 tells resets, ends and
//! errors of the connection apart, which a status does not.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    rc::Rc,
};

use bytes::Bytes;
use h2::{Ping, client};
use tokio::{sync::OnceCell, task::JoinHandle, time::timeout};

use super::{
    Connector, Dial, Net, Reasons, Stream, TransportOptions, cause,
    socket::Socket,
    tls::{self, Speaks},
};
use crate::{dialect::Channel, ledger::FailureCause, plan::Protocol};

mod stream;

/// Bytes of one stream that h2 may buffer; a message always fits.
const SEND_BUFFER: usize = 2 * proto::frame::MAX_MESSAGE_BYTES;
/// Streams that were cancelled here and may still receive: frames for forgotten ones would be an error of the peer.
const REMEMBERED_RESETS: usize = 16 * 1024;

/// One a shard.
pub(super) struct GrpcConnector {
    net: Net,
    options: TransportOptions,
    reasons: Reasons,
    pool: RefCell<BTreeMap<usize, Vec<Rc<Connection>>>>,
}

/// A connection, from the moment somebody decides to dial it.
pub(super) struct Connection {
    streams: Cell<usize>,
    limit: Cell<usize>,
    closed: Rc<Cell<bool>>,
    ready: OnceCell<Result<Ready, FailureCause>>,
}

/// A connection that works.
struct Ready {
    requests: client::SendRequest<Bytes>,
    socket: Socket,
    driver: RefCell<Option<Driver>>,
}

/// The task that moves a connection's bytes; dropping it drops the connection.
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    /// Waits until the connection is over.
    pub(super) async fn finished(mut self) {
        // A panic in it would show as a broken stream; there is nothing more to say here.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A place on a connection, given back when dropped.
pub(super) struct Place(Rc<Connection>);

impl Place {
    fn take(connection: &Rc<Connection>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        Self(Rc::clone(connection))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
    }
}

impl Connection {
    fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { streams: Cell::new(0), limit: Cell::new(limit), closed: Rc::new(Cell::new(false)), ready: OnceCell::new() })
    }

    fn full(&self) -> bool {
        self.streams.get() >= self.limit.get()
    }

    /// Dials once, whoever comes first; everybody gets the same answer. True when this call dialled.
    async fn ready(&self, to: &Dial, connector: &GrpcConnector) -> (Result<&Ready, FailureCause>, bool) {
        let options = &connector.options;
        let mut fresh = false;
        let result = self
            .ready
            .get_or_init(|| {
                fresh = true;
                async {
                    let dialled = timeout(options.connect_timeout, dial(to, connector, &self.closed)).await;
                    let result = dialled.unwrap_or(Err(FailureCause::ConnectTimeout));
                    match &result {
                        // The peer's limit is known by now. A stream beyond it would wait inside h2 and nobody could tell.
                        Ok(ready) => self.limit.set(self.limit.get().min(ready.requests.current_max_send_streams()).max(1)),
                        Err(_) => self.closed.set(true),
                    }
                    result
                }
            })
            .await;
        (result.as_ref().map_err(|cause| *cause), fresh)
    }
}

/// TCP, HTTP/2 preface, and one ping, so that the peer's settings are known and the peer is known to speak HTTP/2.
async fn dial(to: &Dial, connector: &GrpcConnector, closed: &Rc<Cell<bool>>) -> Result<Ready, FailureCause> {
    let GrpcConnector { net, options, reasons, .. } = connector;
    let address = to.address;
    let failed = |cause, said: String| {
        reasons.note(cause, &to.service.connection, || said);
        cause
    };
    let of_handshake = |error: &h2::Error| failed(cause::of_h2_handshake(error), cause::chain(error));
    let socket = Socket::connect(net, address).await.map_err(|e| cause::of_dial(&e))?;
    let carrier = tls::carry(to.endpoint.tls.as_ref(), &socket, Speaks::Grpc).await.map_err(|(cause, said)| failed(cause, said))?;
    let (requests, mut connection) = client::Builder::new()
        .initial_window_size(options.stream_window)
        .initial_connection_window_size(options.connection_window)
        .initial_max_send_streams(options.streams_per_connection)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_reset_streams(REMEMBERED_RESETS)
        .max_local_error_reset_streams(None)
        .enable_push(false)
        .handshake::<_, Bytes>(carrier)
        .await
        .map_err(|e| of_handshake(&e))?;
    let mut pings = connection.ping_pong();
    let over = Rc::new(Cell::new(None));
    let driver = Driver(tokio::task::spawn_local({
        let (closed, over) = (Rc::clone(closed), Rc::clone(&over));
        async move {
            if let Err(error) = connection.await {
                tracing::debug!(%address, error = cause::chain(&error), "connection failed");
                over.set(Some((cause::of_h2_handshake(&error), cause::chain(&error))));
            }
            closed.set(true);
        }
    }));
    if let Some(pings) = pings.as_mut()
        && let Err(error) = pings.ping(Ping::opaque()).await
    {
        // The ping only knows that the connection is over; its task knows why.
        driver.finished().await;
        let (cause, said) = over.take().unwrap_or_else(|| (cause::of_h2_handshake(&error), cause::chain(&error)));
        // No session was asked for yet. With TLS 1.3 a server that misses a certificate goes away after the handshake.
        return Err(match cause {
            FailureCause::Eof | FailureCause::Reset if to.endpoint.tls.is_some() => failed(
                FailureCause::Tls,
                format!("the server closed right after the TLS handshake ({said}): does it ask for a certificate?"),
            ),
            cause => failed(cause, said),
        });
    }
    Ok(Ready { requests, socket, driver: RefCell::new(Some(driver)) })
}

impl GrpcConnector {
    /// No connection yet.
    pub(super) fn new(net: Net, options: TransportOptions, reasons: Reasons) -> Self {
        Self { net, options, reasons, pool: RefCell::default() }
    }

    /// The least loaded connection; a new one while there are fewer than wanted, or when all are full.
    fn place(&self, backend: usize) -> Place {
        let mut pool = self.pool.borrow_mut();
        let connections = pool.entry(backend).or_default();
        connections.retain(|connection| !connection.closed.get());
        let best = connections.iter().filter(|connection| !connection.full()).min_by_key(|connection| connection.streams.get());
        match best {
            Some(best) if connections.len() >= self.options.connections.max(1) => Place::take(best),
            _ => {
                let connection = Connection::new(self.options.streams_per_connection.max(1));
                connections.push(Rc::clone(&connection));
                Place::take(&connection)
            }
        }
    }

    async fn connect(&self, dial: Dial) -> Result<Stream, FailureCause> {
        let mut fresh = false;
        loop {
            let place = if dial.own_connection { Place::take(&Connection::new(1)) } else { self.place(dial.backend) };
            let connection = Rc::clone(&place.0);
            let (ready, dialled) = connection.ready(&dial, self).await;
            fresh |= dialled;
            let ready = ready?;
            if connection.streams.get() > connection.limit.get() {
                // The peer allows fewer streams than were let in while the connection was dialled.
                continue;
            }
            let own = dial.own_connection.then(|| ready.driver.borrow_mut().take()).flatten();
            return stream::open(stream::Opening {
                requests: ready.requests.clone(),
                socket: ready.socket.clone(),
                place,
                own,
                channel: Channel::new(&dial.service, Protocol::Grpc, dial.client_ref.clone()),
                dial: &dial,
                reasons: self.reasons.clone(),
                fresh,
            })
            .await;
        }
    }
}

impl Connector for GrpcConnector {
    fn open(&self, dial: Dial) -> Pin<Box<dyn Future<Output = Result<Stream, FailureCause>> + '_>> {
        Box::pin(self.connect(dial))
    }
}
