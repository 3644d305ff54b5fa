//! Numbers for turns and responses of a wire that tells their begin and end and does not name them.

use bytes::Bytes;
use proto::{
    audio::AudioFormat,
    frame::{AgentAudio, ResponseStatus, ServerEvent},
    ids::{ResponseId, TurnId},
};

use super::Exchange;

/// The course of one conversation.
#[derive(Debug)]
pub(super) struct Course {
    response: Response,
    /// Responses and user turns so far.
    responses: u64,
    turns: u64,
    /// The turn that began was not taken yet.
    speaking: bool,
    /// And the user fell silent in it.
    silent: bool,
    /// The agent's audio: its format, messages so far, media time.
    output: AudioFormat,
    sequence: u64,
    media_us: u64,
}

/// What the agent says now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Response {
    /// Nothing.
    None,
    /// The last one, so many messages of audio of it.
    Open(u32),
    /// The last one was interrupted: what still comes belongs to it.
    Interrupted,
    /// The end of the last one, with so many messages of audio, is waited for no longer and may still come.
    GivenUp(u32),
}

impl Course {
    /// Audio of the agent will be of this format.
    pub(super) const fn new(output: AudioFormat) -> Self {
        Self { response: Response::None, responses: 0, turns: 0, speaking: false, silent: false, output, sequence: 0, media_us: 0 }
    }

    /// The turn that was heard of last; 0 when the wire tells of none.
    pub(super) const fn turn(&self) -> TurnId {
        TurnId(self.turns)
    }

    /// The user begins to speak: another turn, also when the last one was never understood.
    pub(super) const fn start_speaking(&mut self) {
        self.speaking &= !self.silent;
        self.silent = false;
        self.begin_turn();
    }

    /// The user stops; what was said may still be told.
    pub(super) const fn stop_speaking(&mut self) {
        self.silent = true;
    }

    /// There is a turn of the user.
    pub(super) const fn begin_turn(&mut self) -> TurnId {
        if !self.speaking {
            self.speaking = true;
            self.turns += 1;
        }
        TurnId(self.turns)
    }

    /// The user's turn is over; it began, whether that was told or not.
    pub(super) const fn take_turn(&mut self) -> TurnId {
        let turn = self.begin_turn();
        self.speaking = false;
        turn
    }

    /// The agent begins to answer, unless it has.
    pub(super) fn begin_response(&mut self, text: &str, to: &mut Exchange) {
        if !matches!(self.response, Response::Open(_)) {
            self.responses += 1;
            self.response = Response::Open(0);
            let (response, turn) = (ResponseId(self.responses), TurnId(self.turns));
            to.event(ServerEvent::ResponseStart { response, turn, text: text.to_owned() });
        }
    }

    /// The agent's answer is over, if there is one.
    pub(super) fn end_response(&mut self, status: ResponseStatus, to: &mut Exchange) {
        if let Response::Open(frames) | Response::GivenUp(frames) = self.response {
            self.response = if status == ResponseStatus::Completed { Response::None } else { Response::Interrupted };
            to.event(ServerEvent::ResponseEnd { response: ResponseId(self.responses), status, frames });
        }
    }

    /// The end of this answer is waited for no longer: what is said from here on is of another. An end that still comes is its own.
    pub(super) const fn give_up(&mut self, response: ResponseId) {
        if let Response::Open(frames) = self.response
            && response.0 == self.responses
        {
            self.response = Response::GivenUp(frames);
        }
    }

    /// What was given up was over, or is being interrupted: where nobody can tell, no end of it is told.
    pub(super) fn forget_given_up(&mut self) {
        if matches!(self.response, Response::GivenUp(_)) {
            self.response = Response::None;
        }
    }

    /// What comes from here on is no longer of the response that was interrupted.
    pub(super) fn forget_interrupted(&mut self) {
        if self.response == Response::Interrupted {
            self.response = Response::None;
        }
    }

    /// Audio of the agent: of the answer under way or interrupted, else the begin of one.
    pub(super) fn audio(&mut self, payload: Bytes, to: &mut Exchange) {
        if payload.is_empty() {
            return;
        }
        if matches!(self.response, Response::None | Response::GivenUp(_)) {
            self.begin_response("", to);
        }
        if let Response::Open(frames) = &mut self.response {
            *frames = frames.saturating_add(1);
        }
        self.pass_on(payload, ResponseId(self.responses), to);
    }

    /// Audio of the agent where the wire tells of no ends: whose it is is left to the caller.
    pub(super) fn unnamed_audio(&mut self, payload: Bytes, to: &mut Exchange) {
        if !payload.is_empty() {
            self.pass_on(payload, ResponseId(0), to);
        }
    }

    fn pass_on(&mut self, payload: Bytes, response: ResponseId, to: &mut Exchange) {
        let length_us = self.output.duration_us(payload.len());
        let (sequence, timestamp_us) = (self.sequence, self.media_us);
        self.sequence += 1;
        self.media_us = self.media_us.saturating_add(length_us);
        to.event(ServerEvent::Audio(AgentAudio { sequence, timestamp_us, payload, response }));
    }
}
