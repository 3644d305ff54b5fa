//! The client side of the dialects: events to wire messages and back, whatever carries them.
//!
//! A dialect is one file here and one line in [`of`].

use std::{cell::RefCell, rc::Rc};

use bytes::Bytes;
use proto::frame::{ClientEvent, ServerEvent, SessionError};

use crate::plan::Protocol;

mod native;

/// One message as a transport carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wire {
    /// A gRPC message or a binary WebSocket frame.
    Binary(Bytes),
    /// A text WebSocket frame.
    Text(String),
}

/// Translates one session; it may keep state.
pub trait Dialect {
    /// Where the sessions of this dialect are served: the path of the request.
    fn path(&self) -> &'static str;

    /// The message that says `event`.
    fn encode(&mut self, event: ClientEvent) -> Wire;

    /// What the peer's message says, or that it is no message of this dialect.
    fn decode(&mut self, message: Wire) -> Result<ServerEvent, SessionError>;
}

/// The dialect of one session, used by both directions of its stream.
pub type SharedDialect = Rc<RefCell<dyn Dialect>>;

/// The dialect of a protocol, for one session.
pub fn of(protocol: Protocol) -> SharedDialect {
    match protocol {
        Protocol::Grpc => Rc::new(RefCell::new(native::Native { path: "/voiceagent.v1.VoiceAgent/Session" })),
        Protocol::Websocket => Rc::new(RefCell::new(native::Native { path: "/voiceagent.v1" })),
    }
}
