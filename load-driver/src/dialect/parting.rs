//! How a session ends whose dialect has no word for it but the close of its WebSocket.
//!
//! | code | after our goodbye | else |
//! |---|---|---|
//! | 1000, 1005 (none given) | completed | a loss |
//! | 1001 | drained: it crossed our goodbye, and is how the server counts it | a loss |
//! | all others | a loss, for what the code says | a loss |
//!
//! A server that said before that the session's time is over closes with whatever code: it timed out.

use proto::frame::{ErrorCode, Outcome, ServerEvent, SessionEnded, SessionError};

use super::{Exchange, Wire};

/// "Normal closure".
const CLOSE_NORMAL: u16 = 1000;
/// "Going away".
const CLOSE_AWAY: u16 = 1001;
/// A close without a code.
const CLOSE_NO_CODE: u16 = 1005;

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

    /// The server closed with this code: the session ended in order too when that was due.
    pub(super) fn closed(&self, code: u16, to: &mut Exchange) {
        let outcome = match (self.leaving, code) {
            (true, CLOSE_NORMAL | CLOSE_NO_CODE) => Outcome::Completed,
            _ if self.expired => Outcome::TimedOut,
            (true, CLOSE_AWAY) => Outcome::Drained,
            _ => return,
        };
        to.event(ServerEvent::Ended(SessionEnded { outcome, duration_ms: 0, frames_in: 0, frames_out: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        dialect::{ClientEvent, of},
        plan::{Dialect, Protocol, Service},
    };

    /// What a close comes to in a session that was accepted.
    fn closed(dialect: Dialect, goodbye: bool, code: u16) -> Option<Outcome> {
        let service = Service { dialect, ..Service::default() };
        let mut talk = of(&Arc::new(service), Protocol::Websocket);
        let mut to = Exchange::default();
        if dialect == Dialect::GeminiLive {
            talk.decode(Wire::Text(r#"{"setupComplete":{}}"#.to_owned()), &mut to);
        }
        if goodbye {
            talk.encode(ClientEvent::End { reason: String::new() }, &mut to);
            assert!(std::iter::from_fn(|| to.next_wire()).any(|wire| wire == Wire::Close(1000)), "{dialect:?}");
        }
        talk.closed(code, &mut to);
        std::iter::from_fn(|| to.next_event()).find_map(|event| match event {
            Ok(ServerEvent::Ended(ended)) => Some(ended.outcome),
            _ => None,
        })
    }

    #[test]
    fn only_a_normal_close_answers_a_goodbye_in_every_dialect() {
        use Dialect::{Custom, Deepgram, Elevenlabs, GeminiLive, OpenaiRealtime, Pipecat, Twilio};
        for dialect in [OpenaiRealtime, Twilio, Pipecat, GeminiLive, Elevenlabs, Deepgram, Custom] {
            for code in [1000, 1001, 1002, 1005, 1006, 1007, 1008, 1011, 1013, 3000, 4001] {
                let due = match code {
                    1000 | 1005 => Some(Outcome::Completed),
                    1001 => Some(Outcome::Drained),
                    _ => None,
                };
                assert_eq!(closed(dialect, true, code), due, "{dialect:?} {code}");
                assert_eq!(closed(dialect, false, code), None, "{dialect:?} {code}");
            }
        }
    }
}
