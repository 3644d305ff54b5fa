//! The loudspeaker: what came is played in order and in real time, until it is thrown away.
//!
//! All arithmetic is in microseconds of audio: a message may hold any length, and messages may come in bursts.

use std::collections::VecDeque;

use proto::{audio::AudioFormat, frame::FRAME_US, time::Micros};

use super::mouth::after;
use crate::record::Sample;

/// Playout begins so long after a response's first audio: two frames, the least that hides the jitter of a paced sender.
pub(crate) const JITTER_BUFFER_US: u64 = 2 * FRAME_US;
/// RMS (of 16-bit samples) from which a frame can be heard: -50 dBFS, over the noise floor of any codec and under any voice.
const AUDIBLE_RMS: f32 = 100.0;
/// Marks that wait for their audio to be played; a backend that sets one with every frame has 80 s of it waiting then.
const MAX_MARKS: usize = 4_096;

/// How far into it the first frame is that can be heard, microseconds; none when there is none.
pub(super) fn audible(format: AudioFormat, payload: &[u8]) -> Option<u64> {
    let frames = payload.chunks(format.frame_bytes()).position(|frame| format.rms(frame) >= AUDIBLE_RMS)?;
    Some(frames as u64 * FRAME_US)
}

/// What is played, and when.
#[derive(Debug, Default)]
pub(super) struct Playout {
    /// Of the response under way: what was played and what waits.
    received_us: u64,
    begun: bool,
    /// All that came is played by then: the deadline of what comes next.
    end: Micros,
    /// The same without the jitter buffer: the queue that the sender itself has made.
    queued: Micros,
    /// When the silence of a line came last.
    still: Micros,
    /// The user talks over it: it is no underrun when nothing comes.
    muted: bool,
    marks: VecDeque<(Micros, String)>,
    /// What came and is heard only when what waits before it was played; thrown away with that, it is never heard.
    unheard: Vec<Sample>,
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
        self.queue(duration_us, now);
        (now > due && !self.muted).then_some(due)
    }

    /// What came last begins to be played here, but for the jitter buffer: when it came, or behind what waits before it. To be asked before it is taken.
    pub(super) fn place(&self, now: Micros) -> Micros {
        self.queued.max(now)
    }

    fn queue(&mut self, duration_us: u64, now: Micros) {
        self.queued = after(self.place(now), duration_us);
    }

    /// The silence of a line that is never still.
    pub(super) fn idle(&mut self, duration_us: u64, now: Micros) {
        // In silence that comes in real time a player catches up: else the worst jitter of a call, the driver's own too, would be in all that follows.
        if now.since(self.still).as_micros() as u64 * 2 >= duration_us {
            self.queued = self.queued.min(now);
        }
        self.still = now;
        self.append(duration_us, now);
    }

    /// Audio of no response that is known.
    pub(super) fn append(&mut self, duration_us: u64, now: Micros) {
        self.end = after(self.end.max(now), duration_us);
        self.queue(duration_us, now);
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
        self.queued = self.queued.min(now);
        self.unheard.retain(|sample| sample.to <= now);
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

    /// This is known once it was played.
    pub(super) fn will_be_heard(&mut self, sample: Sample) {
        self.unheard.push(sample);
    }

    /// When [`Self::heard`] is due.
    pub(super) fn heard_due(&self) -> Micros {
        self.unheard.iter().map(|sample| sample.to).min().unwrap_or(Micros::NEVER)
    }

    /// What was heard by `now`.
    pub(super) fn heard(&mut self, now: Micros) -> impl Iterator<Item = Sample> {
        let (heard, unheard) = std::mem::take(&mut self.unheard).into_iter().partition::<Vec<_>, _>(|sample| sample.to <= now);
        self.unheard = unheard;
        heard.into_iter()
    }

    /// Nobody listens any more.
    pub(super) fn forget(&mut self) {
        self.unheard = Vec::new();
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
