//! What is heard of responses: stale audio, holes, missing ends, doubles, and what answers nobody.

use std::time::Duration;

use proto::{
    frame::{AgentAudio, FRAME_US, ResponseStatus, ServerEvent},
    time::Micros,
};

use super::{super::mouth::after, Response, Watch};
use crate::voice::{Occurrence, VoiceFault};

/// Audio of a stopped response this long after its end is stale: more than a frame that was in flight.
const STALE: Duration = Duration::from_millis(300);
/// Frames of it, at least.
const STALE_FRAMES: u32 = 5;
/// Shortest hole.
const HOLE_US: u64 = 100_000;
/// A longer one is no hole but a stop.
const HOLE_MAX_US: u64 = 3_000_000;
/// The driver's own stalls in a hole: with so much of them it says nothing of the agent, whose machine it may share, microseconds.
const OWN_US: u64 = 50_000;
/// A response must be so long to be judged for holes, microseconds.
const LONG_US: u64 = 400_000;
/// A second response this soon after the first one's end answers nobody.
const AGAIN: Duration = Duration::from_millis(1_500);
/// Who listens for less after a response cannot have heard a second one.
const AGAIN_HEARD: Duration = Duration::from_millis(500);
/// So much must be heard in a session for as many holes as are a fault, microseconds.
const HOLES_US: u64 = 1_200_000;

impl Watch {
    pub(super) fn response_begins(&mut self, number: u64, speaking: bool, now: Micros) {
        if number <= self.response.number {
            return;
        }
        self.begins_anew();
        self.confirm_unended(now);
        self.edge_survived |= std::mem::take(&mut self.edge);
        if !self.spoken {
            self.unasked(now);
        } else if self.terms.named {
            let before = self.response;
            let heard_out = match before.ended {
                Some((ResponseStatus::Completed, at)) => now.since(at) <= AGAIN,
                Some(_) => false,
                // Two at once.
                None => before.audio_us > 0 && now.since(before.play_end) <= AGAIN,
            };
            if before.number > 0 && before.user > 0 && before.user == self.user && heard_out && !speaking {
                self.found(VoiceFault::DoubleResponse, 1, 0, (self.asked, now));
            }
        }
        self.response = Response { number, user: self.user, heard: self.heard, ..Response::default() };
    }

    /// Where responses have no names of the backend's, what comes after a long pause is a new one only if the user was heard meanwhile. Else it goes
    /// on with what was said before, whose end is due yet.
    fn begins_anew(&mut self) {
        let heard = if self.shown { self.heard.since(self.response.heard) > 0 } else { self.user > self.response.user };
        if !self.terms.tells_old && !heard && self.unended.take().is_some() {
            self.unclear = true;
        }
    }

    /// From here on a response answers something else.
    pub(super) fn double_passed(&mut self, now: Micros) {
        if self.heard_out.take().is_some_and(|at| now.since(at) >= AGAIN_HEARD) {
            self.verdict.tested.insert(VoiceFault::DoubleResponse);
        }
    }

    /// What was stopped has been listened for.
    pub(super) fn stale_passed(&mut self, now: Micros) {
        let least = STALE + Duration::from_micros(u64::from(STALE_FRAMES) * FRAME_US);
        if self.stopped_first.is_some_and(|at| now.since(at) >= least) {
            self.verdict.tested.insert(VoiceFault::StaleAudioAfterBargeIn);
        }
    }

    /// An answer was given up before it began. Nothing of it may come.
    pub(super) fn answer_dropped(&mut self, now: Micros) {
        if self.terms.tells_old && self.terms.named {
            self.stopped_first.get_or_insert(now);
        }
    }

    /// Audio that goes on after an interruption, where nobody says whose it is.
    pub(super) fn listen_for_overrun(&mut self, event: &ServerEvent, speaking: bool, now: Micros) {
        match event {
            ServerEvent::ResponseEnd { status: ResponseStatus::Interrupted, .. } => {
                self.stale = false;
                self.overrun.signal(speaking, now);
            }
            ServerEvent::Audio(audio) => {
                if let Some(lasts) = self.overrun.audio(audio, self.terms.output, speaking, now) {
                    self.found(VoiceFault::StaleAudioAfterBargeIn, u32::from(!self.stale), lasts.as_micros() as u64, (self.asked, now));
                    self.stale = true;
                }
            }
            ServerEvent::Committed { .. }
            | ServerEvent::Answering { .. }
            | ServerEvent::ToolCall { .. }
            | ServerEvent::Transcript { last: true, .. } => self.overrun.taken(),
            ServerEvent::Speech(marker) if !marker.started => self.overrun.taken(),
            _ => {}
        }
    }

    /// A response begins that was given up at `at`: what comes of it is stale.
    pub(super) fn begins_all_the_same(&mut self, number: u64, at: Micros) {
        self.stopped = Some((number, at));
        (self.stale_frames, self.stale) = (0, false);
    }

    /// The agent speaks, and nobody has spoken to it.
    fn unasked(&mut self, now: Micros) {
        if self.terms.named && !self.terms.greets && self.verdict.found.iter().all(|found| found.kind != VoiceFault::CrossTalk) {
            self.found(VoiceFault::CrossTalk, 1, 0, (self.accepted, now));
        }
    }

    pub(super) fn audio(&mut self, audio: &AgentAudio, now: Micros) {
        let stall_us = self.stall_us;
        let number = audio.response.0;
        // Where one response ends and the next begins is a guess then: nothing is judged by it.
        if number == 0 || !self.terms.named {
            self.terms.named = false;
            return;
        }
        self.unended = self.unended.filter(|(of, _)| *of != number);
        if let Some((_, at)) = self.stopped.filter(|(of, _)| *of == number) {
            self.stale_frames = self.stale_frames.saturating_add(1);
            let lasts = now.since(at);
            if self.stale_frames >= STALE_FRAMES && lasts >= STALE {
                self.found(VoiceFault::StaleAudioAfterBargeIn, u32::from(!self.stale), lasts.as_micros() as u64, (self.asked, now));
                self.stale = true;
            }
            return;
        }
        if number > self.response.number {
            self.response_begins(number, false, now);
        }
        let response = &mut self.response;
        if number != response.number || response.ended.is_some() {
            return;
        }
        let length_us = match self.terms.output.duration_us(audio.payload.len()) {
            0 => FRAME_US,
            us => us,
        };
        if response.play_end > Micros::ZERO && now > response.play_end {
            let own_us = stall_us.saturating_sub(response.stall_us);
            let hole_us = (now.0 - response.play_end.0).saturating_sub(own_us);
            if own_us < OWN_US && (HOLE_US..=HOLE_MAX_US).contains(&hole_us) {
                self.holes.add(Occurrence { from_us: response.play_end.0, to_us: now.0, size: 1, worst_us: hole_us });
            }
        }
        response.play_end = after(response.play_end.max(now), length_us);
        response.audio_us += length_us;
        response.stall_us = stall_us;
        self.audio_us += length_us;
        if response.audio_us >= LONG_US && self.audio_us >= HOLES_US {
            self.verdict.tested.insert(VoiceFault::OutputGaps);
        }
    }

    pub(super) fn response_ends(&mut self, number: u64, status: ResponseStatus, now: Micros) {
        if self.unended.is_some_and(|(of, _)| of == number) {
            self.unended = None;
            // Interrupted before it could end, or as one whose end was lost: nobody knows.
            self.unclear |= status != ResponseStatus::Completed;
        }
        if number != self.response.number {
            return;
        }
        self.response.ended = Some((status, now));
        match status {
            ResponseStatus::Interrupted | ResponseStatus::Cancelled => {
                self.stopped = Some((number, now));
                (self.stale_frames, self.stale) = (0, false);
                self.answer_dropped(now);
            }
            ResponseStatus::Completed => {
                self.ended = true;
                if self.terms.ends {
                    self.verdict.tested.insert(VoiceFault::NoTurnEnd);
                }
                if self.terms.named && self.spoken {
                    self.heard_out = Some(now);
                }
            }
            ResponseStatus::Failed => {}
        }
    }
}
