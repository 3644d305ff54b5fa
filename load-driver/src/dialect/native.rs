//! `voiceagent.v1`: the same protobuf messages over gRPC and in binary WebSocket frames.

use std::borrow::Cow;

use prost::Message;
use proto::{
    frame::{ClientEvent, ErrorCode, SessionError},
    native,
    voiceagent::v1,
};

use super::{Dialect, Exchange, Wire};
use crate::plan::Protocol;

/// Stateless.
#[derive(Debug)]
pub(super) struct Native {
    /// What carries it.
    pub(super) protocol: Protocol,
}

impl Dialect for Native {
    fn path(&self) -> Cow<'static, str> {
        match self.protocol {
            Protocol::Grpc => "/voiceagent.v1.VoiceAgent/Session".into(),
            Protocol::Websocket => native::WEBSOCKET_PATH.into(),
        }
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        let last = matches!(event, ClientEvent::End { .. });
        if let Some(message) = native::client_message(event) {
            to.send(Wire::Binary(message.encode_to_vec().into()));
        }
        // A goodbye ends the client's side of a gRPC stream; on WebSocket the server closes.
        if last && self.protocol == Protocol::Grpc {
            to.send(Wire::Close(0));
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        let Wire::Binary(bytes) = message else {
            return to.malformed(SessionError::fatal(ErrorCode::MalformedMessage, "text frame from the server where binary is due"));
        };
        let event = v1::ServerMessage::decode(bytes)
            .map_err(|e| SessionError::fatal(ErrorCode::MalformedMessage, format!("undecodable server message: {e}")))
            .and_then(native::server_event);
        match event {
            Ok(event) => to.event(event),
            Err(error) => to.malformed(error),
        }
    }
}
