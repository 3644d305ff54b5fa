//! What a server says before it has accepted the session.
//!
//! Real services begin to speak when they like; a caller takes nothing before the acceptance. So all but errors and ends waits for it, in order
//! and bounded. Not in the harness's own protocol: there it is a fault of the server.

use std::collections::VecDeque;

use proto::frame::{ErrorCode, ServerEvent, SessionError};

use super::Exchange;
use crate::plan;

/// Most events that wait, and most bytes of audio and words in them: 20 s of the largest audio.
const MAX_EVENTS: usize = 2_048;
const MAX_BYTES: usize = 1024 * 1024;

/// Of one session.
#[derive(Debug)]
pub(super) struct Early {
    /// The session is accepted, or whatever comes is passed on at once.
    open: bool,
    waiting: VecDeque<ServerEvent>,
    bytes: usize,
}

impl Early {
    /// For this dialect.
    pub(super) fn new(dialect: plan::Dialect) -> Self {
        Self { open: dialect == plan::Dialect::Native, waiting: VecDeque::new(), bytes: 0 }
    }

    /// Something that waited may be told now.
    pub(super) fn waits(&self) -> bool {
        self.open && !self.waiting.is_empty()
    }

    /// The next thing that may be told.
    pub(super) fn next(&mut self, from: &mut Exchange) -> Option<Result<ServerEvent, SessionError>> {
        if self.open {
            return self.waiting.pop_front().map(Ok).or_else(|| from.next_event());
        }
        loop {
            let event = match from.next_event()? {
                Ok(ServerEvent::Accepted(accepted)) => {
                    self.open = true;
                    return Some(Ok(ServerEvent::Accepted(accepted)));
                }
                told @ (Err(_) | Ok(ServerEvent::Error(_) | ServerEvent::Ended(_))) => return Some(told),
                Ok(event) => event,
            };
            self.bytes = self.bytes.saturating_add(bytes(&event));
            if self.waiting.len() >= MAX_EVENTS || self.bytes > MAX_BYTES {
                self.waiting.clear();
                let message = "the server says more before it accepts the session than is kept";
                return Some(Err(SessionError::fatal(ErrorCode::MalformedMessage, message)));
            }
            self.waiting.push_back(event);
        }
    }
}

/// What it holds beside its fixed size.
fn bytes(event: &ServerEvent) -> usize {
    match event {
        ServerEvent::Audio(audio) => audio.payload.len(),
        ServerEvent::Transcript { text, .. } | ServerEvent::ResponseStart { text, .. } | ServerEvent::Context { text, .. } => text.len(),
        ServerEvent::ToolCall { call_id, name, arguments } => call_id.len() + name.len() + arguments.len(),
        ServerEvent::ToolCancel { call_id } => call_id.len(),
        ServerEvent::Mark { name } => name.len(),
        ServerEvent::Resumable { handle } => handle.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto::{
        frame::{AgentAudio, SessionAccepted},
        ids::{ResponseId, TurnId},
    };

    use super::*;

    fn audio(length: usize) -> ServerEvent {
        let payload = Bytes::from(vec![0; length]);
        ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload, response: ResponseId(1) })
    }

    fn accepted() -> ServerEvent {
        ServerEvent::Accepted(SessionAccepted {
            session_id: "s".to_owned(),
            backend_id: String::new(),
            boot_id: String::new(),
            input: proto::audio::AudioFormat::Pcm16k,
            output: proto::audio::AudioFormat::Pcm16k,
            max_duration_ms: 0,
            idle_timeout_ms: 0,
        })
    }

    #[test]
    fn all_but_errors_waits_for_the_acceptance_and_keeps_its_order() {
        let (mut early, mut from) = (Early::new(plan::Dialect::OpenaiRealtime), Exchange::default());
        let warning = ServerEvent::Error(SessionError::warning(ErrorCode::Internal, "hm"));
        let answering = ServerEvent::Answering { turn: TurnId(0) };
        for event in [answering.clone(), audio(2), warning.clone()] {
            from.event(event);
        }
        assert_eq!(early.next(&mut from), Some(Ok(warning)));
        assert_eq!((early.next(&mut from), early.waits()), (None, false));
        for event in [accepted(), audio(4)] {
            from.event(event);
        }
        for due in [accepted(), answering, audio(2), audio(4)] {
            assert_eq!(early.next(&mut from), Some(Ok(due)));
        }
        assert_eq!((early.next(&mut from), early.waits()), (None, false));
    }

    #[test]
    fn what_waits_is_bounded() {
        for (length, most) in [(0, MAX_EVENTS), (64 * 1024, MAX_BYTES / (64 * 1024))] {
            let (mut early, mut from) = (Early::new(plan::Dialect::Custom), Exchange::default());
            for _ in 0..most {
                from.event(audio(length));
            }
            assert_eq!(early.next(&mut from), None);
            from.event(audio(length.max(1)));
            assert!(matches!(early.next(&mut from), Some(Err(error)) if error.fatal), "{length}");
            assert!(early.waiting.is_empty());
        }
    }

    #[test]
    fn in_the_harnesss_own_protocol_nothing_waits() {
        let (mut early, mut from) = (Early::new(plan::Dialect::Native), Exchange::default());
        from.event(audio(2));
        assert_eq!(early.next(&mut from), Some(Ok(audio(2))));
    }
}
