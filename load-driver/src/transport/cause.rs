//! Errors of the network as causes from the ledger's closed list.

use std::{error::Error, io};

use proto::frame::ErrorCode;

use crate::ledger::{FailureCause, is_about_credentials};

/// The peer drains: "going away".
pub(super) const CLOSE_GOING_AWAY: u16 = 1001;

/// Why a dial failed.
pub fn of_dial(error: &io::Error) -> FailureCause {
    match error.kind() {
        _ if is_tls(error) => FailureCause::Tls,
        io::ErrorKind::ConnectionRefused => FailureCause::ConnectionRefused,
        io::ErrorKind::TimedOut => FailureCause::ConnectTimeout,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => FailureCause::Reset,
        io::ErrorKind::UnexpectedEof => FailureCause::Eof,
        _ if no_descriptors(error) => FailureCause::TooManyFiles,
        _ => FailureCause::Unreachable,
    }
}

/// Why an established connection broke.
pub fn of_io(error: &io::Error) -> FailureCause {
    match error.kind() {
        _ if is_tls(error) => FailureCause::Tls,
        io::ErrorKind::UnexpectedEof => FailureCause::Eof,
        io::ErrorKind::InvalidData => FailureCause::Protocol,
        _ => FailureCause::Reset,
    }
}

/// With TLS 1.3 a server that does not like the driver's certificate says so after the handshake.
fn is_tls(error: &io::Error) -> bool {
    // HTTP/2 passes on what an error says, and not what it was.
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<tokio_rustls::rustls::Error>)
        || error.to_string().starts_with("received fatal alert")
}

fn no_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(rustix::io::Errno::MFILE.raw_os_error()) || code == Some(rustix::io::Errno::NFILE.raw_os_error())
}

/// Why an HTTP/2 stream broke.
pub(super) fn of_h2(error: &h2::Error) -> FailureCause {
    if let Some(io) = error.get_io() {
        // h2 calls the end of a connection with streams on it a broken pipe.
        return if io.kind() == io::ErrorKind::BrokenPipe { FailureCause::Eof } else { of_io(io) };
    }
    match error.reason() {
        Some(h2::Reason::NO_ERROR) if error.is_go_away() => FailureCause::Draining,
        Some(h2::Reason::REFUSED_STREAM) => FailureCause::Draining,
        Some(h2::Reason::NO_ERROR) => FailureCause::Eof,
        Some(_) if error.is_remote() => FailureCause::Reset,
        _ => FailureCause::Protocol,
    }
}

/// Why an HTTP/2 handshake failed: what does not speak HTTP/2 is no agent.
pub(super) fn of_h2_handshake(error: &h2::Error) -> FailureCause {
    match error.get_io() {
        Some(io) if is_tls(io) => FailureCause::Tls,
        Some(io) if io.kind() == io::ErrorKind::InvalidData => FailureCause::NotAnAgent,
        Some(_) => of_h2(error),
        None => FailureCause::NotAnAgent,
    }
}

/// What a `grpc-status` says of the stream's end.
pub(super) fn of_grpc_status(code: u32) -> FailureCause {
    match code {
        // The goodbye of an orderly session is a message; a status without it is only an end.
        0 => FailureCause::Eof,
        1 => FailureCause::Reset,
        3 => FailureCause::ServerError(ErrorCode::InvalidArgument),
        4 => FailureCause::ServerError(ErrorCode::Deadline),
        5 | 12 => FailureCause::NotFound,
        7 | 16 => FailureCause::Unauthorized,
        8 => FailureCause::Rejected,
        14 => FailureCause::Draining,
        _ => FailureCause::ServerError(ErrorCode::Internal),
    }
}

/// What a WebSocket close says. The codes from 3000 on are registered, or a service's own; many follow the numbers of HTTP.
pub(super) fn of_close(code: u16, reason: &str) -> FailureCause {
    match code {
        1000 | 1005 => FailureCause::Eof,
        CLOSE_GOING_AWAY | 1012 => FailureCause::Draining,
        1011 => FailureCause::ServerError(ErrorCode::Internal),
        1013 | 4429 => FailureCause::Rejected,
        3000 | 3003 | 4401 | 4403 => FailureCause::Unauthorized,
        3008 | 4408 => FailureCause::ServerError(ErrorCode::Deadline),
        4404 => FailureCause::NotFound,
        1008 | 3001..=4999 if is_about_credentials(reason) => FailureCause::Unauthorized,
        1008 | 3001..=4999 => FailureCause::Policy,
        _ => FailureCause::Protocol,
    }
}

/// What the status of an answer that opens nothing says; none where only the protocol knows.
pub(super) fn of_http(status: http::StatusCode, headers: &http::HeaderMap, body: &str) -> FailureCause {
    match status.as_u16() {
        401 | 403 => FailureCause::Unauthorized,
        404 | 410 => FailureCause::NotFound,
        429 => FailureCause::Rejected,
        // Whoever goes away may say when to try again as well: somebody else will be there by then.
        503 if headers.contains_key(http::header::RETRY_AFTER) && !body.contains("going away") => FailureCause::Rejected,
        503 => FailureCause::Draining,
        500..=599 => FailureCause::ServerError(ErrorCode::Internal),
        _ => FailureCause::NotAnAgent,
    }
}

/// Why a WebSocket broke.
pub(super) fn of_websocket(error: &tokio_tungstenite::tungstenite::Error) -> FailureCause {
    use tokio_tungstenite::tungstenite::{Error as WsError, error::ProtocolError};
    match error {
        WsError::Io(io) => of_io(io),
        // Without the handshake: the end of the socket came before a close frame.
        WsError::ConnectionClosed | WsError::AlreadyClosed | WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            FailureCause::Eof
        }
        _ => FailureCause::Protocol,
    }
}

/// Why a WebSocket handshake failed: an answer that is no upgrade comes from no agent.
pub(super) fn of_upgrade(error: &tokio_tungstenite::tungstenite::Error) -> FailureCause {
    use tokio_tungstenite::tungstenite::{Error as WsError, error::ProtocolError};
    match error {
        // The connection stood: whatever broke it, the peer may have read the request, and its answer may be what was lost.
        WsError::Io(io) if io.kind() == io::ErrorKind::TimedOut => FailureCause::ConnectTimeout,
        WsError::Io(io) => of_io(io),
        WsError::Http(response) => of_http(response.status(), response.headers(), &body(response)),
        WsError::Protocol(ProtocolError::HandshakeIncomplete) => FailureCause::Eof,
        _ => FailureCause::NotAnAgent,
    }
}

/// What came of the body with the head of an answer.
fn body(response: &http::Response<Option<Vec<u8>>>) -> String {
    String::from_utf8_lossy(response.body().as_deref().unwrap_or_default()).into_owned()
}

/// What an upgrade's failure is told as.
pub(super) fn told_of_upgrade(error: &tokio_tungstenite::tungstenite::Error) -> String {
    use tokio_tungstenite::tungstenite::{
        Error as WsError,
        error::{ProtocolError, SubProtocolError},
    };
    match error {
        WsError::Http(response) => format!("{}: {}", response.status(), body(response)),
        WsError::Protocol(ProtocolError::SecWebSocketSubProtocolError(SubProtocolError::NoSubProtocol)) => {
            "the server selected none of the subprotocols offered; offer one that it knows beside a key, such as `realtime`".to_owned()
        }
        other => chain(other),
    }
}

/// The whole chain of an error, for logs.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode, header};

    use super::*;

    #[test]
    fn close_codes_have_their_causes() {
        for (code, reason, cause) in [
            (1000, "", FailureCause::Eof),
            (1001, "", FailureCause::Draining),
            (1008, "", FailureCause::Policy),
            (1008, "models/x is not found for API version v1beta", FailureCause::Policy),
            (1008, "Method doesn't allow unregistered callers: API key is missing", FailureCause::Unauthorized),
            (1011, "", FailureCause::ServerError(ErrorCode::Internal)),
            (1013, "", FailureCause::Rejected),
            (3000, "invalid_request_error.invalid_api_key", FailureCause::Unauthorized),
            (3003, "", FailureCause::Unauthorized),
            (3008, "", FailureCause::ServerError(ErrorCode::Deadline)),
            (4000, "", FailureCause::Policy),
            (4001, "Unauthorized", FailureCause::Unauthorized),
            (4401, "", FailureCause::Unauthorized),
            (4404, "", FailureCause::NotFound),
            (4429, "", FailureCause::Rejected),
            (1003, "", FailureCause::Protocol),
        ] {
            assert_eq!(of_close(code, reason), cause, "{code} {reason}");
        }
    }

    #[test]
    fn refused_handshakes_have_their_causes() {
        let later: HeaderMap = [(header::RETRY_AFTER, HeaderValue::from_static("1"))].into_iter().collect();
        let none = HeaderMap::new();
        for (status, headers, body, cause) in [
            (401, &none, "", FailureCause::Unauthorized),
            (403, &none, "", FailureCause::Unauthorized),
            (404, &none, "", FailureCause::NotFound),
            (429, &none, "", FailureCause::Rejected),
            (503, &later, "the server is full", FailureCause::Rejected),
            (503, &later, "the server is going away", FailureCause::Draining),
            (503, &none, "", FailureCause::Draining),
            (500, &none, "", FailureCause::ServerError(ErrorCode::Internal)),
            (200, &none, "", FailureCause::NotAnAgent),
            (426, &none, "", FailureCause::NotAnAgent),
        ] {
            assert_eq!(of_http(StatusCode::from_u16(status).expect("a status"), headers, body), cause, "{status}");
        }
    }
}
