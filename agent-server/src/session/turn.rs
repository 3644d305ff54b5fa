//! The course of a turn: hear, think, call, speak, and how each is cut short.

use std::time::Duration;

use proto::{
    frame::{AgentAudio, FRAME_MS, FRAME_US, ResponseStatus, ServerEvent, SpeechMarker, TurnHint},
    ids::{ResponseId, TurnId},
    time::Micros,
};

use super::{Effect, Session};
use crate::{
    pipeline::{
        mix,
        think::{Composition, compose, heard_words},
        tool::{CallNumber, arguments},
        transcript::{FINAL_AFTER, Recogniser, made_up},
    },
    tracker::Phase,
};

/// Frames of a phase without audio that are charged at once, at most.
const CATCH_UP: u64 = 1_000 / FRAME_MS;

use State::{AgentSpeaking, Ended, Listening, Thinking, ToolCalling, UserSpeaking};

/// What is under way. Whatever belongs to it lives in it, so that leaving it cancels it whole.
#[derive(Debug)]
pub(super) enum State {
    Listening,
    UserSpeaking(Box<UserTurn>),
    Thinking { reply: Box<Reply>, until: Micros },
    ToolCalling { reply: Box<Reply>, call: CallNumber, until: Micros },
    AgentSpeaking(Box<Speaking>),
    Ended,
}

#[derive(Debug)]
pub(super) struct UserTurn {
    /// Media time, microseconds.
    onset_us: u64,
    /// When it was noticed.
    since: Micros,
    recogniser: Recogniser,
}

/// An answer that has not begun.
#[derive(Debug)]
pub(super) struct Reply {
    turn: TurnId,
    composition: Composition,
    /// What the turn was asked to be; given back when the same turn goes on.
    hint: Option<Box<TurnHint>>,
    said: String,
    /// When the final transcript is due; [`Micros::NEVER`] once it was sent.
    last_transcript: Micros,
}

/// An answer that is being spoken.
#[derive(Debug)]
pub(super) struct Speaking {
    response: ResponseId,
    composition: Composition,
    start: Micros,
    sent: u32,
}

impl Speaking {
    /// When frame `sent` is due: an absolute schedule, so that lateness never adds up.
    fn next_frame(&self) -> Micros {
        Micros(self.start.0.saturating_add(u64::from(self.sent) * FRAME_US))
    }

    /// Milliseconds that a client which plays at once has heard.
    fn played_ms(&self, now: Micros) -> u32 {
        now.since(self.start).as_millis().min(u128::from(self.sent_ms())) as u32
    }

    fn sent_ms(&self) -> u32 {
        self.sent.saturating_mul(FRAME_MS as u32)
    }
}

impl State {
    pub(super) fn phase(&self) -> Option<Phase> {
        match self {
            Self::Listening => Some(Phase::Listening),
            Self::UserSpeaking(_) => Some(Phase::UserSpeaking),
            Self::Thinking { .. } => Some(Phase::Thinking),
            Self::ToolCalling { .. } => Some(Phase::ToolCalling),
            Self::AgentSpeaking(_) => Some(Phase::AgentSpeaking),
            Self::Ended => None,
        }
    }

    /// Something that an interrupt would stop.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::ToolCalling { .. } | Self::AgentSpeaking(_))
    }

    pub(super) fn is_speaking(&self, response: ResponseId) -> bool {
        matches!(self, Self::AgentSpeaking(speaking) if speaking.response == response)
    }

    pub(super) fn is_waiting_for(&self, call: CallNumber) -> bool {
        matches!(self, Self::ToolCalling { call: open, .. } if *open == call)
    }

    /// Tells the client that something is no longer under way. `heard_ms` is what the client says it played.
    pub(super) fn close(self, status: ResponseStatus, heard_ms: Option<u32>, now: Micros, out: &mut Vec<Effect>) {
        match self {
            Listening | UserSpeaking(_) | Ended => {}
            Thinking { mut reply, .. } => reply.transcribe(out),
            ToolCalling { call, .. } => out.push(Effect::Send(ServerEvent::ToolCancel { call_id: call.id() })),
            AgentSpeaking(speaking) => {
                let Speaking { response, sent, .. } = *speaking;
                out.push(Effect::Send(ServerEvent::ResponseEnd { response, status, frames: sent }));
                if status == ResponseStatus::Interrupted {
                    let heard_ms = heard_ms.unwrap_or_else(|| speaking.played_ms(now)).min(speaking.sent_ms());
                    out.push(Effect::Send(ServerEvent::Context {
                        role: "agent".to_owned(),
                        text: made_up(speaking.composition.seed, heard_words(heard_ms)),
                        response: Some(response),
                        heard_ms,
                    }));
                }
            }
        }
    }
}

impl Session {
    /// When the thing under way has something to do.
    pub(super) fn stage_due(&self) -> Micros {
        match &self.state {
            Listening | Ended => Micros::NEVER,
            UserSpeaking(turn) if self.markers => turn.recogniser.next_partial(),
            UserSpeaking(turn) => turn.recogniser.next_partial().min(self.vad.end_due()),
            Thinking { reply, until } => reply.last_transcript.min(*until),
            ToolCalling { until, .. } => *until,
            AgentSpeaking(speaking) => speaking.next_frame(),
        }
    }

    /// Does one thing that is due.
    pub(super) fn advance(&mut self, now: Micros, out: &mut Vec<Effect>) {
        match &mut self.state {
            Listening | Ended => {}
            UserSpeaking(turn) => {
                if !self.markers
                    && let Some(heard) = self.vad.on_time(now)
                {
                    return self.on_heard(Some(heard), now, out);
                }
                let speech_us = if self.markers { now.since(turn.since).as_micros() as u64 } else { self.vad.speech_us() };
                let said = self.hint.as_ref().and_then(|h| h.text.as_deref());
                if let Some(text) = turn.recogniser.partial(said, speech_us, now) {
                    out.push(Effect::Send(ServerEvent::Transcript { turn: TurnId(self.turns), text, last: false }));
                }
            }
            Thinking { reply, until } => {
                let done = *until <= now;
                reply.transcribe(out);
                if done {
                    self.act(now, out);
                }
            }
            ToolCalling { call, .. } => {
                let call_id = call.id();
                self.think_again(now, out);
                out.push(Effect::Send(ServerEvent::ToolCancel { call_id }));
            }
            AgentSpeaking(_) => self.speak(now, out),
        }
    }

    pub(super) fn speech_started(&mut self, onset_us: u64, now: Micros, out: &mut Vec<Effect>) {
        if matches!(self.state, UserSpeaking(_) | Ended) {
            return;
        }
        self.turns += 1;
        let recogniser = Recogniser::new(mix(self.config.seed, self.number, self.turns), now);
        let mut old = self.enter(UserSpeaking(Box::new(UserTurn { onset_us, since: now, recogniser })), now, out);
        if !self.markers {
            out.push(Effect::Send(ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: onset_us })));
            // The detector took a pause for the end, and nothing was done about the turn yet: what it was to be still holds.
            if let Thinking { reply, .. } = &mut old
                && self.hint.is_none()
            {
                self.hint = reply.hint.take();
            }
        }
        old.close(ResponseStatus::Interrupted, None, now, out);
    }

    pub(super) fn speech_stopped(&mut self, at_us: u64, now: Micros, out: &mut Vec<Effect>) {
        let UserSpeaking(turn) = &self.state else { return };
        let hint = self.hint.take();
        let said = turn.recogniser.last(hint.as_ref().and_then(|h| h.text.as_deref()), at_us.saturating_sub(turn.onset_us));
        let composition = compose(&self.config, self.number, self.turns, &self.tools, hint.as_deref());
        let until = now + composition.think + self.backlog;
        let last_transcript = (now + FINAL_AFTER).min(until);
        let reply = Box::new(Reply { turn: TurnId(self.turns), composition, hint, said, last_transcript });
        self.enter(Thinking { reply, until }, now, out);
        if !self.markers {
            out.push(Effect::Send(ServerEvent::Speech(SpeechMarker { started: false, timestamp_us: at_us })));
        }
    }

    /// From the tool's result, or from giving it up, to the answer.
    pub(super) fn think_again(&mut self, now: Micros, out: &mut Vec<Effect>) {
        self.charge(now, out);
        match std::mem::replace(&mut self.state, Listening) {
            ToolCalling { reply, .. } => {
                let until = now + reply.composition.think_again;
                self.enter(Thinking { reply, until }, now, out);
            }
            other => self.state = other,
        }
    }

    /// Thinking is over: calls the tool that the turn wants, or begins to speak.
    fn act(&mut self, now: Micros, out: &mut Vec<Effect>) {
        self.charge(now, out);
        let mut reply = match std::mem::replace(&mut self.state, Listening) {
            Thinking { reply, .. } => reply,
            other => {
                self.state = other;
                return;
            }
        };
        if let Some(name) = reply.composition.tool.take().and_then(|index| self.tools.get(index).cloned()) {
            // Once a tool was called the turn has had its effect: speech after this is a new turn, with its own hint.
            reply.hint = None;
            self.calls += 1;
            let call = CallNumber(self.calls);
            let arguments = arguments(reply.turn.0, &reply.said);
            let until = now + self.config.tool_timeout;
            self.enter(ToolCalling { reply, call, until }, now, out);
            out.push(Effect::Send(ServerEvent::ToolCall { call_id: call.id(), name, arguments }));
            return;
        }
        self.responses += 1;
        let response = ResponseId(self.responses);
        let Reply { turn, composition, .. } = *reply;
        self.enter(AgentSpeaking(Box::new(Speaking { response, composition, start: now, sent: 0 })), now, out);
        out.push(Effect::Send(ServerEvent::ResponseStart { response, turn }));
        self.speak(now, out);
    }

    /// Sends the frames that are due, and the end after the last.
    fn speak(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let AgentSpeaking(speaking) = &mut self.state else { return };
        let Speaking { response, ref composition, .. } = **speaking;
        while speaking.sent < composition.frames && speaking.next_frame() <= now {
            let due = Duration::from_micros(speaking.next_frame().0.saturating_sub(self.accepted.0));
            out.push(Effect::Cost(Phase::AgentSpeaking));
            out.push(Effect::Send(ServerEvent::Audio(AgentAudio {
                sequence: self.frames_out,
                timestamp_us: due.as_micros() as u64,
                payload: self.voice.frame(self.format, composition.phrase, speaking.sent),
                response,
            })));
            speaking.sent += 1;
            self.frames_out += 1;
        }
        if speaking.sent == composition.frames {
            let old = self.enter(Listening, now, out);
            old.close(ResponseStatus::Completed, None, now, out);
        }
    }

    /// Changes what is under way; the caller closes what was.
    pub(super) fn enter(&mut self, state: State, now: Micros, out: &mut Vec<Effect>) -> State {
        self.charge(now, out);
        out.extend(state.phase().map(Effect::Phase));
        let old = std::mem::replace(&mut self.state, state);
        self.charge_from(now);
        old
    }

    /// Charges what a phase without audio has cost by `now`. What a stalled shell missed beyond a second is let go: paying for it would only
    /// stall the shell again.
    pub(super) fn charge(&mut self, now: Micros, out: &mut Vec<Effect>) {
        if self.cost_due > now {
            return;
        }
        if let Some(phase) = self.state.phase() {
            let frames = now.since(self.cost_due).as_micros() as u64 / FRAME_US + 1;
            out.extend((0..frames.min(CATCH_UP)).map(|_| Effect::Cost(phase)));
            self.cost_due = Micros(self.cost_due.0.saturating_add(frames * FRAME_US));
        }
    }

    /// The phase that begins now is charged by time, unless its audio is what is charged, or nothing is.
    pub(super) fn charge_from(&mut self, now: Micros) {
        let timed = match self.state {
            Listening | Thinking { .. } | ToolCalling { .. } => self.state.phase(),
            UserSpeaking(_) | AgentSpeaking(_) | Ended => None,
        };
        self.cost_due = match timed {
            Some(phase) if !self.config.cost.of(phase).is_zero() => now + Duration::from_micros(FRAME_US),
            _ => Micros::NEVER,
        };
    }
}

impl Reply {
    /// Sends the final transcript, once.
    fn transcribe(&mut self, out: &mut Vec<Effect>) {
        if self.last_transcript != Micros::NEVER {
            self.last_transcript = Micros::NEVER;
            out.push(Effect::Send(ServerEvent::Transcript { turn: self.turn, text: self.said.clone(), last: true }));
        }
    }
}
