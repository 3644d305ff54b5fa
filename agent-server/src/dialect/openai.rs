//! OpenAI Realtime: JSON in text frames.

use http::StatusCode;

use super::{Refused, WebSocketDialect};

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "OpenAI Realtime: JSON in text frames",
    paths: "/v1/realtime",
    serves: |path| path.ends_with("/realtime"),
    starts_at_once: true,
    max_message: 16 * 1024 * 1024,
    open: |_| Err(Refused { status: StatusCode::NOT_IMPLEMENTED, body: "not served yet".to_owned() }),
};
