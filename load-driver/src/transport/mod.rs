//! Streams that carry sessions, over connections that can be killed.
//!
//! A [`Connector`] (one a protocol and shard) opens a [`Stream`] for a session: its [`Link`] takes what the caller says, written at
//! once by the tick that says it; its [`Inbound`] is polled by the session's one task. Everything here lives on the shard's thread.
//!
//! Lock order: the shard's core, then a link's cell. Neither is ever held over an await; an inbound poll holds only its own cell.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use agent_server::runtime::wire::Parked;
use proto::{
    frame::{ClientEvent, ServerEvent},
    orca::OrcaLoadReport,
};

use crate::{
    ledger::FailureCause,
    plan::{EndKind, Protocol, Service},
};

mod carrier;
pub mod cause;
pub mod fds;
mod grpc;
mod net;
mod orca;
mod reasons;
mod request;
mod socket;
mod tls;
mod websocket;

pub use self::{
    net::{Dialling, Net, Simulated},
    reasons::{About, Reasons, one_line},
    request::{RequestError, given_headers, unsendable},
    tls::{TlsClient, TlsError, TlsHost},
};

/// Messages of one stream that may wait for the peer's flow control; more are dropped and counted.
const MAX_QUEUED: usize = 64;
/// Longest wait for the peer to finish a close: its trailers, its close frame, its FIN.
pub const CLOSE_BOUND: Duration = Duration::from_secs(2);

/// How connectors dial.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct TransportOptions {
    /// gRPC connections to each backend that a shard begins with.
    pub connections: usize,
    /// Streams on one connection; when all are full, another connection is dialled. A lower limit of the peer's holds.
    pub streams_per_connection: usize,
    /// Longest wait for TCP and the handshake together.
    pub connect_timeout: Duration,
    /// HTTP/2: bytes that an agent may send on one stream before the driver reads. More hides a slow reader.
    pub stream_window: u32,
    /// HTTP/2: the same for a connection. h2 closes connections whose unread small frames exceed half of it, so thousands of streams
    /// need a large one.
    pub connection_window: u32,
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            connections: 4,
            streams_per_connection: 1_000,
            connect_timeout: Duration::from_secs(10),
            stream_window: 64 * 1024,
            connection_window: 32 * 1024 * 1024,
        }
    }
}

/// What a session wants to be connected to.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Index into the targets.
    pub backend: usize,
    /// Its address now.
    pub address: SocketAddr,
    /// For the `host` header.
    pub authority: String,
    /// How the backend is spoken to beyond its address.
    pub endpoint: Endpoint,
    /// What is spoken to it.
    pub service: Arc<Service>,
    /// The caller's name for the session.
    pub client_ref: String,
    /// A connection for this session alone.
    pub own_connection: bool,
}

/// What of a target is no address.
#[derive(Debug, Clone, Default)]
pub struct Endpoint {
    /// How TLS is spoken to it; none where it is not.
    pub tls: Option<TlsHost>,
    /// Path, instead of the dialect's own.
    pub path: Option<String>,
    /// Query, over the dialect's own.
    pub query: Option<String>,
}

/// Opens streams.
pub trait Connector {
    /// Connects, or takes a connection that is there. Bounded by the connect timeout.
    fn open(&self, dial: Dial) -> Pin<Box<dyn Future<Output = Result<Stream, FailureCause>> + '_>>;
}

/// The connector of a protocol over a network.
pub fn connector(protocol: Protocol, net: Net, options: TransportOptions, reasons: Reasons) -> Box<dyn Connector> {
    match protocol {
        Protocol::Grpc => Box::new(grpc::GrpcConnector::new(net, options, reasons)),
        Protocol::Websocket => Box::new(websocket::WebSocketConnector::new(net, options, reasons)),
    }
}

/// A session's stream, ready.
pub struct Stream {
    /// To the peer.
    pub link: Box<dyn Link>,
    /// From the peer.
    pub inbound: Box<dyn Inbound>,
    /// A connection was dialled for it.
    pub fresh: bool,
}

/// The message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// The peer does not read and the queue is full: dropped.
    Full,
    /// The stream is gone; the inbound side tells why.
    Closed,
}

/// The outbound half of a stream.
pub trait Link {
    /// Writes now what the peer's flow control lets through, and queues the rest.
    fn send(&mut self, event: ClientEvent) -> Result<(), Unsent>;

    /// What the peer said before it accepted the session, where that explains why it did not.
    fn heard(&self) -> Option<String>;

    /// Ends the stream, at once as far as the peer can tell.
    fn end(self: Box<Self>, how: How) -> Remains;
}

/// The inbound half of a stream.
pub trait Inbound {
    /// The next thing from the peer. Not to be polled after [`Received::Closed`].
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Received>;

    /// Moves on what waits to be sent, and reads nothing: the peer finds a reader that does not read.
    fn poll_unread(&mut self, cx: &mut Context<'_>);
}

/// Something from the peer.
#[derive(Debug)]
pub enum Received {
    /// It said this.
    Event(ServerEvent),
    /// Its load, from the head or the trailers of the stream.
    Report(Box<OrcaLoadReport>),
    /// It is gone.
    Closed(FailureCause),
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Goodbyes were said, or the peer ended it: nothing is forced.
    Done,
    /// `RST_STREAM`, or a close frame without goodbye.
    Cancel,
    /// `Cancel` and `Rst` in the same moment.
    Race,
    /// FIN.
    Fin,
    /// RST.
    Rst,
    /// Silence: nothing is read or written any more, the socket stays.
    Silent,
}

impl How {
    /// None for the kinds that only the controller can do.
    pub fn of(kind: EndKind) -> Option<Self> {
        match kind {
            EndKind::Graceful => Some(Self::Done),
            EndKind::Cancel => Some(Self::Cancel),
            EndKind::TcpFin => Some(Self::Fin),
            EndKind::TcpRst => Some(Self::Rst),
            EndKind::HalfOpen => Some(Self::Silent),
            EndKind::KillWorker | EndKind::KillBackend => None,
        }
    }
}

/// What is left of a stream after its end.
pub enum Remains {
    /// Nothing.
    Nothing,
    /// To be driven for [`CLOSE_BOUND`] at most, then dropped.
    Closing(Pin<Box<dyn Future<Output = ()>>>),
    /// A silent socket, to be held and then reset.
    Held(Parked),
}
