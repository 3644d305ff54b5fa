//! The loudspeaker: what came is played in order and in real time, until it is thrown away.
//!
//! All arithmetic is in microseconds of audio: a message may hold any length, and messages may come in bursts.

use std::collections::VecDeque;

use proto::{audio::AudioFormat, frame::FRAME_US, time::Micros};

use super::mouth::after;

/// Playout begins so long after a response's first audio: two frames, the least that hides the jitter of a paced sender.
pub(crate) const JITTER_BUFFER_US: u64 = 2 * FRAME_US;
/// RMS (of 16-bit samples) from which a frame can be heard: -50 dBFS, over the noise floor of any codec and under any voice.
const AUDIBLE_RMS: f32 = 100.0;
/// Marks that wait for their audio to be played; a backend that sets one with every frame has 80 s of it waiting then.
const MAX_MARKS: usize = 4_096;

/// Some frame of it can be heard.
pub(super) fn audible(format: AudioFormat, payload: &[u8]) -> bool {
    payload.chunks(format.frame_bytes()).any(|frame| format.rms(frame) >= AUDIBLE_RMS)
}

/// What is played, and when.
#[derive(Debug, Default)]
pub(super) struct Playout {
    /// Of the response under way: what was played and what waits.
    received_us: u64,
    begun: bool,
    /// All that came is played by then: the deadline of what comes next.
    end: Micros,
    /// The user talks over it: it is no underrun when nothing comes.
    muted: bool,
    marks: VecDeque<(Micros, String)>,
    /// The voice in it, as far as it is known.
    voice_from: Micros,
    voice_end: Micros,
    /// Since when the user speaks, where that was not yet held against the voice.
    user_from: Option<Micros>,
    talk_over_us: u64,
}

impl Playout {
    /// Another response follows what is still being played.
    pub(super) fn begin(&mut self) {
        self.received_us = 0;
        self.begun = false;
        self.muted = false;
    }

    /// Audio of the response under way. Gives the deadline if it comes after it.
    pub(super) fn take(&mut self, duration_us: u64, now: Micros) -> Option<Micros> {
        let due = if self.begun { self.end } else { after(now, JITTER_BUFFER_US).max(self.end) };
        self.begun = true;
        self.received_us = self.received_us.saturating_add(duration_us);
        self.end = after(due.max(now), duration_us);
        (now > due && !self.muted).then_some(due)
    }

    /// The silence of a line that is never still.
    pub(super) fn idle(&mut self, duration_us: u64, now: Micros) {
        self.end = after(self.end.max(now), duration_us);
    }

    /// What was taken last holds voice.
    pub(super) fn voiced(&mut self, duration_us: u64, now: Micros) {
        let from = Micros(self.end.0.saturating_sub(duration_us));
        if from > self.voice_end {
            self.hold(now);
            // A pause between words is no end of the voice, but a hole in the playout is.
            self.voice_from = from;
        }
        self.voice_end = self.end;
    }

    /// What waits is thrown away.
    pub(super) fn clear(&mut self, now: Micros) {
        self.received_us = self.received_us.saturating_sub(self.end.since(now).as_micros() as u64);
        self.end = self.end.min(now);
        self.voice_end = self.voice_end.min(now);
        for mark in &mut self.marks {
            mark.0 = mark.0.min(now);
        }
    }

    /// From here on, nothing that fails to come is missed.
    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Milliseconds of the response that were played at `now`.
    pub(super) fn played_ms(&self, now: Micros) -> u32 {
        let unplayed = self.end.since(now).as_micros() as u64;
        u32::try_from(self.received_us.saturating_sub(unplayed) / 1_000).unwrap_or(u32::MAX)
    }

    /// When all that came was played.
    pub(super) fn end(&self) -> Micros {
        self.end
    }

    /// When the last of the voice was played.
    pub(super) fn voice_end(&self) -> Micros {
        self.voice_end
    }

    /// The backend wants to know when all before this was played; false when too many wait.
    pub(super) fn mark(&mut self, name: String, now: Micros) -> bool {
        let room = self.marks.len() < MAX_MARKS;
        if room {
            self.marks.push_back((self.end.max(now), name));
        }
        room
    }

    /// When [`Self::reached`] is due.
    pub(super) fn mark_due(&self) -> Micros {
        self.marks.front().map_or(Micros::NEVER, |(at, _)| *at)
    }

    /// The mark that has been played.
    pub(super) fn reached(&mut self) -> Option<String> {
        self.marks.pop_front().map(|(_, name)| name)
    }

    /// Nobody waits for marks any more.
    pub(super) fn forget_marks(&mut self) {
        self.marks = VecDeque::new();
    }

    /// The user begins to speak.
    pub(super) fn user_begins(&mut self, at: Micros) {
        self.user_from = Some(at);
    }

    /// The user has spoken. Gives how long both spoke, in microseconds.
    pub(super) fn user_ends(&mut self, at: Micros) -> u64 {
        self.hold(at);
        self.user_from = None;
        std::mem::take(&mut self.talk_over_us)
    }

    /// Adds up how long the user spoke over the voice, up to `to`.
    fn hold(&mut self, to: Micros) {
        if let Some(from) = &mut self.user_from {
            let end = self.voice_end.min(to);
            let begin = self.voice_from.max(*from);
            if end > begin {
                self.talk_over_us += end.0 - begin.0;
                *from = end;
            }
        }
    }
}
