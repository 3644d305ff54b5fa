//! Errors of the network as causes from the ledger's closed list.

use std::{error::Error, io};

use proto::frame::ErrorCode;

use crate::ledger::FailureCause;

/// The peer drains: "going away".
pub(super) const CLOSE_GOING_AWAY: u16 = 1001;

/// Why a dial failed.
pub fn of_dial(error: &io::Error) -> FailureCause {
    match error.kind() {
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
        io::ErrorKind::UnexpectedEof => FailureCause::Eof,
        io::ErrorKind::InvalidData => FailureCause::Protocol,
        _ => FailureCause::Reset,
    }
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
        8 => FailureCause::Rejected,
        12 => FailureCause::NotAnAgent,
        14 => FailureCause::Draining,
        _ => FailureCause::ServerError(ErrorCode::Internal),
    }
}

/// What a WebSocket close code says.
pub(super) fn of_close_code(code: u16) -> FailureCause {
    match code {
        1000 | 1005 => FailureCause::Eof,
        CLOSE_GOING_AWAY | 1012 => FailureCause::Draining,
        1011 => FailureCause::ServerError(ErrorCode::Internal),
        1013 => FailureCause::Rejected,
        _ => FailureCause::Protocol,
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
        WsError::Io(io) => of_dial(io),
        WsError::Http(response) if response.status().as_u16() == 503 => FailureCause::Draining,
        WsError::Http(response) if response.status().as_u16() == 429 => FailureCause::Rejected,
        WsError::Protocol(ProtocolError::HandshakeIncomplete) => FailureCause::Eof,
        _ => FailureCause::NotAnAgent,
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
