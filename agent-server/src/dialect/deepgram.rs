//! Deepgram Voice Agent: JSON in text frames, audio in binary frames.

use http::StatusCode;

use super::{Refused, WebSocketDialect};

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "Deepgram Voice Agent: JSON in text frames, audio in binary frames",
    paths: "/v1/agent/converse",
    serves: |path| path == "/v1/agent/converse",
    starts_at_once: true,
    max_message: 0,
    open: |_| Err(Refused { status: StatusCode::NOT_IMPLEMENTED, body: "not served yet".to_owned() }),
};
