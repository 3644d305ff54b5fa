//! Pipecat: protobuf in binary frames, RTVI messages.

use http::StatusCode;

use super::{Refused, WebSocketDialect};

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "Pipecat: protobuf in binary frames, RTVI messages",
    paths: "/pipecat",
    serves: |path| path == "/pipecat",
    starts_at_once: false,
    max_message: 0,
    open: |_| Err(Refused { status: StatusCode::NOT_IMPLEMENTED, body: "not served yet".to_owned() }),
};
