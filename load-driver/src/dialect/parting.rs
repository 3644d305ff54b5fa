//! How a session ends whose dialect has no word for it but the close of its WebSocket.

use proto::frame::{ErrorCode, Outcome, ServerEvent, SessionEnded, SessionError};

use super::{Exchange, Wire};

/// "Normal closure".
const CLOSE_NORMAL: u16 = 1000;

/// Who ends it.
#[derive(Debug, Default)]
pub(super) struct Parting {
    /// We said goodbye.
    leaving: bool,
    /// The server said that the session's time is over.
    expired: bool,
}

impl Parting {
    /// Says goodbye.
    pub(super) fn leave(&mut self, to: &mut Exchange) {
        self.leaving = true;
        to.send(Wire::Close(CLOSE_NORMAL));
    }

    /// Passes on what the server says is wrong.
    pub(super) fn error(&mut self, error: SessionError, to: &mut Exchange) {
        self.expired |= error.fatal && matches!(error.code, ErrorCode::Deadline | ErrorCode::Idle);
        to.event(ServerEvent::Error(error));
    }

    /// The server closed in order: the session ended in order too when that was due.
    pub(super) fn closed(&self, to: &mut Exchange) {
        let outcome = match self {
            Self { leaving: true, .. } => Outcome::Completed,
            Self { expired: true, .. } => Outcome::TimedOut,
            Self { .. } => return,
        };
        to.event(ServerEvent::Ended(SessionEnded { outcome, duration_ms: 0, frames_in: 0, frames_out: 0 }));
    }
}
