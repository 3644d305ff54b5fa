//! What waits for a client: bounded, so that one that does not read costs memory that is known and time to nobody else.

use std::collections::VecDeque;

use proto::frame::ServerEvent;

/// Keeps order; drops audio first, the words of a session's end never.
#[derive(Debug)]
pub(super) struct SendQueue {
    events: VecDeque<ServerEvent>,
    limit: usize,
}

impl SendQueue {
    pub(super) const fn new(limit: usize) -> Self {
        Self { events: VecDeque::new(), limit }
    }

    /// False when the event was dropped. Audio, acknowledgements and partial transcripts are dropped from `limit` events on, everything from
    /// twice `limit` on but errors and the end, of which a session has few: what can come without bound is bounded.
    pub(super) fn push(&mut self, event: ServerEvent) -> bool {
        let room = match &event {
            ServerEvent::Audio(_) | ServerEvent::Ack { .. } | ServerEvent::Transcript { last: false, .. } => self.limit,
            ServerEvent::Ended(_) => usize::MAX,
            ServerEvent::Error(error) if error.fatal => usize::MAX,
            _ => self.limit * 2,
        };
        let fits = self.events.len() < room;
        if fits {
            self.events.push_back(event);
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<ServerEvent> {
        let event = self.events.pop_front();
        if self.events.is_empty() && self.events.capacity() > 16 {
            // A burst is over: an idle session keeps no room for the next one.
            self.events.shrink_to(4);
        }
        event
    }

    pub(super) fn clear(&mut self) {
        self.events = VecDeque::new();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proto::frame::{AgentAudio, ErrorCode, Outcome, SessionEnded, SessionError};

    use super::*;

    fn audio(sequence: u64) -> ServerEvent {
        ServerEvent::Audio(AgentAudio { sequence, timestamp_us: 0, payload: bytes::Bytes::new(), response: proto::ids::ResponseId(1) })
    }

    #[test]
    fn audio_is_dropped_at_the_limit_and_the_end_is_not() {
        let mut queue = SendQueue::new(4);
        assert_eq!((0..10).filter(|i| queue.push(audio(*i))).count(), 4);
        let word = || ServerEvent::Error(SessionError::warning(ErrorCode::SequenceGap, "gap"));
        assert_eq!((0..10).filter(|_| queue.push(word())).count(), 4);
        let ended = ServerEvent::Ended(SessionEnded { outcome: Outcome::Drained, duration_ms: 0, frames_in: 0, frames_out: 0 });
        assert!(queue.push(ended.clone()));
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all.len(), 9);
        assert_eq!(all[..4], [audio(0), audio(1), audio(2), audio(3)]);
        assert_eq!(all[8], ended);
        assert!(queue.is_empty());
    }
}
