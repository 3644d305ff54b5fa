//! Turns and responses of a wire that names neither.
//!
//! A turn of the user begins with the first word understood after something else happened, a response with its first audio. Words that come late,
//! when the answer has begun, are told as if of another turn, and are still of one after those that were heard before.

use bytes::Bytes;
use proto::{
    audio::AudioFormat,
    frame::{AgentAudio, ResponseStatus, ServerEvent},
    ids::{ResponseId, TurnId},
};

use super::Exchange;

/// One session's.
#[derive(Debug)]
pub(super) struct Dialogue {
    output: AudioFormat,
    turn: u64,
    /// More words belong to this turn.
    turn_open: bool,
    /// The last turn that a response began after.
    answered: u64,
    response: u64,
    speaking: bool,
    /// The end of the last response is waited for no longer, and may still come.
    given_up: bool,
    frames: u32,
    sequence: u64,
    media_us: u64,
}

impl Dialogue {
    /// With an agent whose audio is of this format.
    pub(super) const fn new(output: AudioFormat) -> Self {
        Self {
            output,
            turn: 0,
            turn_open: false,
            answered: 0,
            response: 0,
            speaking: false,
            given_up: false,
            frames: 0,
            sequence: 0,
            media_us: 0,
        }
    }

    /// Words of the user were understood: of this turn, and whether they are its first.
    pub(super) fn understood(&mut self) -> (TurnId, bool) {
        let first = !std::mem::replace(&mut self.turn_open, true);
        self.turn += u64::from(first);
        (TurnId(self.turn), first)
    }

    /// Words that come from here on are of another turn.
    pub(super) const fn close_turn(&mut self) {
        self.turn_open = false;
    }

    /// A response is under way.
    pub(super) const fn speaking(&self) -> bool {
        self.speaking
    }

    /// The agent said this: more of the response under way, or the first of the next one; `stale` where it belongs to the one that is over.
    pub(super) fn audio(&mut self, payload: Bytes, stale: bool, to: &mut Exchange) {
        if !self.speaking && !stale {
            self.speaking = true;
            self.given_up = false;
            self.frames = 0;
            self.response += 1;
            self.turn_open = false;
            let turn = TurnId(if self.turn > self.answered { self.turn } else { 0 });
            self.answered = self.turn;
            to.event(ServerEvent::ResponseStart { response: ResponseId(self.response), turn, text: String::new() });
        }
        let length_us = self.output.duration_us(payload.len());
        self.frames = self.frames.saturating_add(1);
        let audio = AgentAudio { sequence: self.sequence, timestamp_us: self.media_us, payload, response: ResponseId(self.response) };
        self.sequence += 1;
        self.media_us = self.media_us.saturating_add(length_us);
        to.event(ServerEvent::Audio(audio));
    }

    /// The end of this response is waited for no longer: what is said from here on is of another. An end that still comes is its own.
    pub(super) const fn give_up(&mut self, response: ResponseId) {
        if self.speaking && response.0 == self.response {
            self.speaking = false;
            self.given_up = true;
        }
    }

    /// The response under way is over, if there is one, or the one that was given up.
    pub(super) fn end(&mut self, status: ResponseStatus, to: &mut Exchange) {
        if std::mem::take(&mut self.speaking) | std::mem::take(&mut self.given_up) {
            to.event(ServerEvent::ResponseEnd { response: ResponseId(self.response), status, frames: self.frames });
        }
    }

    /// The backend broke off whatever was said, and so is what is still being played.
    pub(super) fn interrupt(&mut self, to: &mut Exchange) {
        self.turn_open = false;
        if self.speaking || self.given_up {
            self.end(ResponseStatus::Interrupted, to);
        } else {
            // No response is under way that could be named.
            to.event(ServerEvent::ResponseEnd { response: ResponseId(0), status: ResponseStatus::Interrupted, frames: 0 });
        }
    }
}
