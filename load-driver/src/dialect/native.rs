//! `voiceagent.v1`: the same protobuf messages over gRPC and in binary WebSocket frames.

use prost::Message;
use proto::{
    frame::{ClientEvent, ErrorCode, ServerEvent, SessionError},
    native,
    voiceagent::v1,
};

use super::{Dialect, Wire};

/// Stateless.
#[derive(Debug)]
pub(super) struct Native {
    /// Of the request.
    pub(super) path: &'static str,
}

impl Dialect for Native {
    fn path(&self) -> &'static str {
        self.path
    }

    fn encode(&mut self, event: ClientEvent) -> Wire {
        Wire::Binary(native::client_message(event).encode_to_vec().into())
    }

    fn decode(&mut self, message: Wire) -> Result<ServerEvent, SessionError> {
        let Wire::Binary(bytes) = message else {
            return Err(SessionError::fatal(ErrorCode::MalformedMessage, "text frame from the server where binary is due"));
        };
        let message = v1::ServerMessage::decode(bytes)
            .map_err(|e| SessionError::fatal(ErrorCode::MalformedMessage, format!("undecodable server message: {e}")))?;
        native::server_event(message)
    }
}
