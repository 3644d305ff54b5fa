//! Wire dialects. Each turns messages of its own into [`ClientEvent`]s and [`ServerEvent`]s into its own messages; sessions know none of it.
//!
//! To add one, write a file with a [`Dialect`] and add a line: to [`WEBSOCKET`] for one over WebSocket, to [`routes`] for one over gRPC.

mod close;
mod grpc;
mod native;
mod orca;
mod websocket;

use proto::frame::{ClientEvent, ServerEvent, SessionError};

pub use self::{
    grpc::{Grpc, HEALTH_NAME, WithPeer, routes},
    websocket::{Frame, close_gently, serve as serve_websocket},
};

/// One stream's translator. It may keep state, such as the form that its client speaks.
pub trait Dialect: Send + 'static {
    /// A message of the client.
    type In;
    /// A message to the client.
    type Out;

    /// Says what a message means: no event, one or several, or what is wrong with it.
    fn decode(&mut self, message: Self::In, events: &mut dyn FnMut(Result<ClientEvent, SessionError>));

    /// Writes an event as no message, one or several.
    fn encode(&mut self, event: ServerEvent, messages: &mut dyn FnMut(Self::Out));
}

/// A dialect over WebSocket, and where it is found.
#[derive(Debug)]
pub struct WebSocketDialect {
    /// For people.
    pub name: &'static str,
    /// Of the upgrade request.
    pub path: &'static str,
    /// For each connection.
    pub open: fn() -> Box<dyn Dialect<In = Frame, Out = Frame>>,
}

/// The dialects over WebSocket.
pub const WEBSOCKET: &[WebSocketDialect] = &[native::WEBSOCKET];
