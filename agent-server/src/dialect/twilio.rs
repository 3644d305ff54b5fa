//! Twilio Media Streams (and Telnyx, Plivo, Exotel): the server is the bot.

use http::StatusCode;

use super::{Refused, WebSocketDialect};

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "Twilio Media Streams (and Telnyx, Plivo, Exotel): the server is the bot",
    paths: "/twilio",
    serves: |path| path == "/twilio",
    starts_at_once: false,
    max_message: 0,
    open: |_| Err(Refused { status: StatusCode::NOT_IMPLEMENTED, body: "not served yet".to_owned() }),
};
