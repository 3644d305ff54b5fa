//! The native dialect: `voiceagent.v1` messages to events and back.

use crate::{
    frame::{ClientEvent, ServerEvent, SessionError},
    voiceagent::v1,
};

/// What a client message says, or what is wrong with it.
pub fn client_event(_message: v1::ClientMessage) -> Result<ClientEvent, SessionError> {
    todo!()
}

/// The message of a client event.
pub fn client_message(_event: ClientEvent) -> v1::ClientMessage {
    todo!()
}

/// What a server message says, or what is wrong with it.
pub fn server_event(_message: v1::ServerMessage) -> Result<ServerEvent, SessionError> {
    todo!()
}

/// The message of a server event.
pub fn server_message(_event: ServerEvent) -> v1::ServerMessage {
    todo!()
}

/// Decodes a client message from protobuf-JSON.
pub fn client_from_json(_text: &str) -> Result<v1::ClientMessage, SessionError> {
    todo!()
}

/// Decodes a server message from protobuf-JSON.
pub fn server_from_json(_text: &str) -> Result<v1::ServerMessage, SessionError> {
    todo!()
}

/// A client message as protobuf-JSON.
pub fn client_to_json(_message: &v1::ClientMessage) -> String {
    todo!()
}

/// A server message as protobuf-JSON.
pub fn server_to_json(_message: &v1::ServerMessage) -> String {
    todo!()
}
