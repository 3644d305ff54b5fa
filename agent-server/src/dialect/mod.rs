//! Wire dialects. Each turns messages of its own into [`ClientEvent`]s and [`ServerEvent`]s into its own messages; sessions know none of it.
//!
//! To add one, write a file with a [`Dialect`] and add a line: to [`WEBSOCKET`] for one over WebSocket, to [`routes`] for one over gRPC.
//!
//! What only the wire knows (names of items, acknowledgements of settings, pings) stays in the dialect: it may answer a message itself, and it
//! may say things to the session in the client's name, such as the start that a connection implies.

mod body;
mod calls;
mod ces;
mod close;
mod deepgram;
mod elevenlabs;
mod gemini;
mod grpc;
mod intake;
mod json;
mod native;
mod openai;
mod orca;
mod pipecat;
mod twilio;
mod websocket;
mod words;
mod written;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proto::frame::{ClientEvent, ServerEvent, SessionError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::shard::Close;

pub use self::{
    body::Whole,
    ces::Ces,
    grpc::{Admitted, Grpc, HEALTH_NAME, routes},
    websocket::{Frame, close_gently, serve as serve_websocket},
};

/// Where a dialect puts what comes of a message or an event, in order.
pub struct Exchange<'a, M> {
    events: &'a mut dyn FnMut(Result<ClientEvent, SessionError>),
    messages: &'a mut dyn FnMut(M),
}

impl<'a, M> Exchange<'a, M> {
    /// Into these.
    pub fn new(events: &'a mut dyn FnMut(Result<ClientEvent, SessionError>), messages: &'a mut dyn FnMut(M)) -> Self {
        Self { events, messages }
    }

    /// The client said this.
    pub fn event(&mut self, event: ClientEvent) {
        (self.events)(Ok(event));
    }

    /// The client said what it must not, or what cannot be read. Also errors that the session survives go this way when the session shall
    /// know of them; others are just a [`Self::message`].
    pub fn error(&mut self, error: SessionError) {
        (self.events)(Err(error));
    }

    /// To the client.
    pub fn message(&mut self, message: M) {
        (self.messages)(message);
    }
}

impl<M> std::fmt::Debug for Exchange<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

/// Longest message that a dialect over WebSocket may write, bytes.
pub const WRITTEN_MAX: usize = 1024 * 1024;

/// One stream's translator. It may keep state, such as the form that its client speaks.
pub trait Dialect: Send + 'static {
    /// A message of the client.
    type In;
    /// A message to the client.
    type Out;

    /// The stream is open and nothing was read yet: the place for a start that the connection implies, or for a first word.
    fn open(&mut self, _to: &mut Exchange<'_, Self::Out>) {}

    /// The client's messages must wait, unread, for what the session says next.
    fn must_wait(&self) -> bool {
        false
    }

    /// Says what a message means: no event, one or several, or what is wrong with it.
    fn decode(&mut self, message: Self::In, to: &mut Exchange<'_, Self::Out>);

    /// Writes an event as no message, one or several.
    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Self::Out>);

    /// The client closed its side in order, with this code (1005: none given; 0: half-closed a gRPC stream). A dialect whose goodbye that is
    /// says [`ClientEvent::End`]; else the session is lost.
    fn closed(&mut self, _code: u16, _to: &mut Exchange<'_, Self::Out>) {}

    /// The close frame of a WebSocket, where the dialect has codes of its own; none takes the common table.
    fn close(&self, _close: &Close) -> Option<CloseFrame> {
        None
    }
}

/// The boxed form of a dialect over WebSocket.
pub type Socket = Box<dyn Dialect<In = Frame, Out = Frame>>;

/// What an upgrade asks for, beside the path.
#[derive(Debug, Clone, Copy)]
pub struct Upgrade<'a> {
    /// Of the request, slashes collapsed.
    pub path: &'a str,
    /// Raw, without the question mark; empty when there is none.
    pub query: &'a str,
    /// Of the request.
    pub headers: &'a HeaderMap,
}

impl Upgrade<'_> {
    /// A parameter of the query, percent-decoded; the first of its name.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then(|| percent_decoded(value))
        })
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The client's name for the session, where the dialect has no field for one ([`proto::frame::CLIENT_REF_HEADER`]).
    pub fn client_ref(&self) -> String {
        self.header(proto::frame::CLIENT_REF_HEADER).unwrap_or_default().to_owned()
    }

    /// The subprotocols offered, in order.
    pub fn subprotocols(&self) -> impl Iterator<Item = &str> {
        let all = self.headers.get_all(http::header::SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|value| value.to_str().ok());
        all.flat_map(|value| value.split(',')).map(str::trim).filter(|value| !value.is_empty())
    }
}

/// `+` and `%41` as what they stand for.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, after) = match (first, tail) {
            (b'%', [a, b, after @ ..]) => match (char::from(*a).to_digit(16), char::from(*b).to_digit(16)) {
                (Some(a), Some(b)) => ((a * 16 + b) as u8, after),
                _ => (b'%', tail),
            },
            (b'+', after) => (b' ', after),
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An upgrade that is taken.
pub struct Opened {
    /// For the connection.
    pub dialect: Socket,
    /// The subprotocol that is selected, of those offered.
    pub subprotocol: Option<HeaderValue>,
    /// Further headers of the answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl From<Socket> for Opened {
    fn from(dialect: Socket) -> Self {
        Self { dialect, subprotocol: None, headers: Vec::new() }
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("subprotocol", &self.subprotocol).finish_non_exhaustive()
    }
}

/// An upgrade that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Of the answer.
    pub status: StatusCode,
    /// Its body: plain text, or JSON where it begins with a brace.
    pub body: String,
}

/// A dialect over WebSocket, and where it is found.
#[derive(Debug)]
pub struct WebSocketDialect {
    /// For people.
    pub name: &'static str,
    /// Paths as people write them, for the list of what is served.
    pub paths: &'static str,
    /// Whether the path of an upgrade is one of them.
    pub serves: fn(path: &str) -> bool,
    /// The connection is the start: a server that would refuse the session refuses the upgrade (503, `Retry-After`), and one that takes the
    /// upgrade holds a place for the session until its start.
    pub starts_at_once: bool,
    /// Largest message of a client, bytes; 0 takes the server's limit.
    pub max_message: usize,
    /// For each connection.
    pub open: fn(&Upgrade<'_>) -> Result<Opened, Refused>,
}

/// The dialects over WebSocket.
pub const WEBSOCKET: &[WebSocketDialect] = &[
    native::WEBSOCKET,
    openai::WEBSOCKET,
    twilio::WEBSOCKET,
    pipecat::WEBSOCKET,
    gemini::WEBSOCKET,
    elevenlabs::WEBSOCKET,
    deepgram::WEBSOCKET,
];
