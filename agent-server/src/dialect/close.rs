//! How a stream closes on each transport.
//!
//! | why | gRPC status | WebSocket close code |
//! |---|---|---|
//! | the session ended in order | `OK` | 1000 |
//! | malformed message | `INVALID_ARGUMENT` | 1007 |
//! | message before the start, second start, message after the end | `FAILED_PRECONDITION` | 1008 |
//! | format not served, bad audio, bad argument, sequence, unknown tool call | `INVALID_ARGUMENT` | 1008 |
//! | message too large | `OUT_OF_RANGE` | 1009 |
//! | cap reached | `RESOURCE_EXHAUSTED` | 1013 |
//! | draining | `UNAVAILABLE` | 1001 |
//! | deadline, idle | `DEADLINE_EXCEEDED` | 1008 |
//! | fault of the server | `INTERNAL` | 1011 |

use proto::frame::{ErrorCode, Outcome};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, coding::CloseCode};
use tonic::{Code, Status};

use crate::shard::Close;

/// Longest reason that a close frame takes: a control frame has 125 bytes, its code 2.
const REASON_MAX: usize = 123;

/// None closes with `OK`.
pub(super) fn grpc_status(close: &Close) -> Option<Status> {
    let (code, message) = why(close)?;
    Some(Status::new(codes(code).0, message))
}

/// None for an end in order. A drained session is told so by its last event; whoever looks at the status alone must not take it for complete.
fn why(close: &Close) -> Option<(ErrorCode, &str)> {
    match (&close.error, close.outcome) {
        (Some(error), _) => Some((error.code, &error.message)),
        (None, Some(Outcome::Drained)) => Some((ErrorCode::Draining, "the server went away before the session was done")),
        (None, _) => None,
    }
}

pub(super) fn websocket_frame(close: &Close) -> CloseFrame {
    let (code, reason) = match why(close) {
        None => (CloseCode::Normal, close.outcome.map_or("", |o| o.name())),
        Some((code, message)) => (codes(code).1, message),
    };
    frame(code, reason)
}

/// With as much of the reason as fits.
pub(super) fn frame(code: CloseCode, reason: &str) -> CloseFrame {
    let end = (0..=reason.len().min(REASON_MAX)).rev().find(|&i| reason.is_char_boundary(i)).unwrap_or(0);
    CloseFrame { code, reason: reason[..end].to_owned().into() }
}

const fn codes(code: ErrorCode) -> (Code, CloseCode) {
    match code {
        ErrorCode::MalformedMessage => (Code::InvalidArgument, CloseCode::Invalid),
        ErrorCode::NotStarted | ErrorCode::AlreadyStarted | ErrorCode::AfterEnd => (Code::FailedPrecondition, CloseCode::Policy),
        ErrorCode::UnsupportedFormat
        | ErrorCode::BadAudio
        | ErrorCode::SequenceGap
        | ErrorCode::UnknownToolCall
        | ErrorCode::InvalidArgument => (Code::InvalidArgument, CloseCode::Policy),
        ErrorCode::MessageTooLarge => (Code::OutOfRange, CloseCode::Size),
        ErrorCode::Overloaded => (Code::ResourceExhausted, CloseCode::Again),
        ErrorCode::Draining => (Code::Unavailable, CloseCode::Away),
        ErrorCode::Deadline | ErrorCode::Idle => (Code::DeadlineExceeded, CloseCode::Policy),
        ErrorCode::Internal => (Code::Internal, CloseCode::Error),
    }
}

#[cfg(test)]
mod tests {
    use proto::frame::SessionError;

    use super::*;

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let close = Close { outcome: None, error: Some(SessionError::fatal(ErrorCode::Internal, "\u{e9}".repeat(100))) };
        let frame = websocket_frame(&close);
        assert_eq!(frame.reason.as_str(), "\u{e9}".repeat(61));
        assert_eq!(frame.code, CloseCode::Error);
    }
}
