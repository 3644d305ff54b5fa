//! What the caller hears: sequence, responses, and playout as a person's loudspeaker would do it.

use proto::{
    frame::{FRAME_MS, FRAME_US, ResponseStatus},
    ids::{ResponseId, TurnId},
    time::Micros,
};

use super::mouth::after;

/// Playout begins so long after a response's first frame: two frames, the least that hides the jitter of a paced sender.
pub(crate) const JITTER_BUFFER_US: u64 = 2 * FRAME_US;

/// What a frame turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Belongs to a response that was interrupted or cancelled, after its end.
    Stale,
    /// Belongs to a response that is over, overtaken or unheard of.
    Old,
    /// Of the response under way.
    Current {
        /// The first of it.
        first: bool,
        /// Came after its playout deadline, which was this.
        late: Option<Micros>,
    },
}

/// The agent's side of the line.
#[derive(Debug, Default)]
pub(super) struct Ear {
    /// Next sequence number.
    expected: u64,
    /// Highest response announced or heard; the one under way unless it ended.
    response: ResponseIdOrNone,
    /// Highest response that ended.
    ended: ResponseIdOrNone,
    /// Last response that ended by interruption or cancel.
    cancelled: ResponseIdOrNone,
    /// Highest user turn that the server spoke of.
    turn: u64,
    /// Frames of the response under way.
    frames: u32,
    /// Playout deadline of its next frame, so that what came is played by then.
    deadline: Micros,
    /// The user talks over it: nothing of it is played any more.
    muted: bool,
}

/// Ids count from 1; 0 is none.
type ResponseIdOrNone = u64;

impl Ear {
    /// A frame's sequence number; true when it is not the next one.
    pub(super) fn gap(&mut self, sequence: u64) -> bool {
        let gap = sequence != self.expected;
        self.expected = self.expected.max(sequence.saturating_add(1));
        gap
    }

    /// A response was announced; false when it is not a new one.
    pub(super) fn announce(&mut self, response: ResponseId, turn: TurnId) -> bool {
        if response.0 <= self.response {
            return false;
        }
        self.response = response.0;
        self.frames = 0;
        self.muted = false;
        self.understood(turn);
        true
    }

    /// The server spoke of this user turn.
    pub(super) fn understood(&mut self, turn: TurnId) {
        self.turn = self.turn.max(turn.0);
    }

    /// A frame of agent audio.
    pub(super) fn hear(&mut self, response: ResponseId, now: Micros) -> Heard {
        if !self.knows(response) {
            return Heard::Old;
        }
        if response.0 == self.cancelled {
            return Heard::Stale;
        }
        if response.0 != self.response || response.0 <= self.ended {
            return Heard::Old;
        }
        let first = self.frames == 0;
        self.frames = self.frames.saturating_add(1);
        let due = if first { after(now, JITTER_BUFFER_US).max(self.deadline) } else { self.deadline };
        let late = (now > due && !self.muted).then_some(due);
        self.deadline = after(due.max(now), FRAME_US);
        Heard::Current { first, late }
    }

    /// A response ended; false when there was none such under way.
    pub(super) fn end(&mut self, response: ResponseId, status: ResponseStatus, now: Micros) -> bool {
        if response.0 <= self.ended || response.0 > self.response {
            return false;
        }
        self.ended = response.0;
        if matches!(status, ResponseStatus::Interrupted | ResponseStatus::Cancelled) {
            self.cancelled = response.0;
            self.deadline = self.deadline.min(now);
        }
        true
    }

    /// The user talks over the response: what waits to be played is thrown away. Gives the milliseconds that were played.
    pub(super) fn mute(&mut self, now: Micros) -> u32 {
        let played = self.played_ms(now);
        self.muted = true;
        self.deadline = self.deadline.min(now);
        played
    }

    /// Milliseconds of the response that were played at `now`.
    pub(super) fn played_ms(&self, now: Micros) -> u32 {
        let unplayed = self.deadline.since(now).as_micros() as u64;
        let received = u64::from(self.frames) * FRAME_MS * 1_000;
        (received.saturating_sub(unplayed) / 1_000) as u32
    }

    /// When the last frame that came was played.
    pub(super) fn play_end(&self) -> Micros {
        self.deadline
    }

    /// Highest user turn that the server spoke of.
    pub(super) fn last_turn(&self) -> u64 {
        self.turn
    }

    /// The response was announced or heard.
    pub(super) fn knows(&self, response: ResponseId) -> bool {
        (1..=self.response).contains(&response.0)
    }
}
