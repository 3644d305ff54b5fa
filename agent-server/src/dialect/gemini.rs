//! Gemini Live: JSON.

use http::StatusCode;

use super::{Refused, WebSocketDialect};

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "Gemini Live: JSON",
    paths: "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
    serves: |path| path.ends_with("BidiGenerateContent"),
    starts_at_once: false,
    max_message: 0,
    open: |_| Err(Refused { status: StatusCode::NOT_IMPLEMENTED, body: "not served yet".to_owned() }),
};
