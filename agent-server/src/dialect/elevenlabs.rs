//! ElevenLabs Agents: JSON in text frames.

use http::StatusCode;

use super::{Refused, WebSocketDialect};

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "ElevenLabs Agents: JSON in text frames",
    paths: "/v1/convai/conversation",
    serves: |path| path == "/v1/convai/conversation",
    starts_at_once: true,
    max_message: 0,
    open: |_| Err(Refused { status: StatusCode::NOT_IMPLEMENTED, body: "not served yet".to_owned() }),
};
