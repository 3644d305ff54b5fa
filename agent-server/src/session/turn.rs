//! The course of a turn: hear, think, call, speak, and how each is cut short.

use std::time::Duration;

use proto::{
    audio::AudioFormat,
    frame::{
        AgentAudio, ErrorCode, FRAME_MS, FRAME_US, ResponseStatus, ResponseWish, ServerEvent, SessionError, SpeechMarker, ToolChoice,
        TurnHint,
    },
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
        tts::Voice,
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
    Thinking {
        reply: Box<Reply>,
        until: Micros,
    },
    /// `answered`: the result is there, and the client will ask for the answer.
    ToolCalling {
        reply: Box<Reply>,
        call: CallNumber,
        until: Micros,
        answered: bool,
    },
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
    pub(super) response: ResponseId,
    /// As they were when it began: a change holds from the next answer on.
    voice: Voice,
    format: AudioFormat,
    pub(super) composition: Composition,
    start: Micros,
    pub(super) sent: u32,
}

impl Speaking {
    /// Begins at `start`.
    pub(super) const fn new(response: ResponseId, (voice, format): (Voice, AudioFormat), composition: Composition, start: Micros) -> Self {
        Self { response, voice, format, composition, start, sent: 0 }
    }

    /// When frame `sent` is due: an absolute schedule, so that lateness never adds up.
    fn next_frame(&self) -> Micros {
        Micros(self.start.0.saturating_add(u64::from(self.sent) * FRAME_US))
    }

    /// Milliseconds that a client which plays at once has heard.
    fn played_ms(&self, now: Micros) -> u32 {
        now.since(self.start).as_millis().min(u128::from(self.sent_ms())) as u32
    }

    pub(super) fn sent_ms(&self) -> u32 {
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
        matches!(self, Self::ToolCalling { call: open, answered: false, .. } if *open == call)
    }

    /// The result of the open call is there.
    pub(super) fn take_result(&mut self) {
        if let Self::ToolCalling { answered, .. } = self {
            *answered = true;
        }
    }

    /// Tells the client that something is no longer under way. `heard_ms` is what the client says it played.
    pub(super) fn close(self, status: ResponseStatus, heard_ms: Option<u32>, now: Micros, out: &mut Vec<Effect>) {
        match self {
            Listening | UserSpeaking(_) | ToolCalling { answered: true, .. } | Ended => {}
            Thinking { mut reply, .. } => {
                reply.transcribe(out);
                out.push(Effect::Send(ServerEvent::AnswerDropped { turn: reply.turn, status }));
            }
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
            UserSpeaking(turn) if !self.detecting() => turn.recogniser.next_partial(),
            UserSpeaking(turn) => turn.recogniser.next_partial().min(self.vad.end_due()),
            Thinking { reply, until } => reply.last_transcript.min(*until),
            ToolCalling { until, .. } => *until,
            AgentSpeaking(speaking) if self.overlap.is_some() && self.detecting() => speaking.next_frame().min(self.vad.end_due()),
            AgentSpeaking(speaking) => speaking.next_frame(),
        }
    }

    /// The server finds the turns.
    pub(super) fn detecting(&self) -> bool {
        self.turn_taking.detect && !self.markers
    }

    /// What the session is in when nothing is answered: perhaps the user speaks.
    pub(super) fn idle(&mut self) -> State {
        self.overlap.take().map_or(Listening, UserSpeaking)
    }

    /// Does one thing that is due.
    pub(super) fn advance(&mut self, now: Micros, out: &mut Vec<Effect>) {
        match &mut self.state {
            Listening | Ended => {}
            UserSpeaking(turn) => {
                if self.turn_taking.detect
                    && !self.markers
                    && let Some(heard) = self.vad.on_time(now)
                {
                    return self.on_heard(Some(heard), now, out);
                }
                let speech_us =
                    if self.markers || !self.turn_taking.detect { now.since(turn.since).as_micros() as u64 } else { self.vad.speech_us() };
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
            ToolCalling { call, answered: false, .. } => {
                let call_id = call.id();
                self.think_again(now, out);
                out.push(Effect::Send(ServerEvent::ToolCancel { call_id }));
            }
            ToolCalling { .. } => self.think_again(now, out),
            AgentSpeaking(_) => {
                if self.overlap.is_some() && self.detecting() {
                    let heard = self.vad.on_time(now);
                    self.on_heard(heard, now, out);
                }
                self.speak(now, out);
            }
        }
    }

    pub(super) fn speech_started(&mut self, onset_us: u64, now: Micros, out: &mut Vec<Effect>) {
        if matches!(self.state, UserSpeaking(_) | Ended) || self.overlap.is_some() {
            return;
        }
        if self.misses_speech(now, out) {
            return;
        }
        self.turns += 1;
        let recogniser = Recogniser::new(mix(self.config.seed, self.number, self.turns), now);
        let turn = Box::new(UserTurn { onset_us, since: now, recogniser });
        if !self.turn_taking.interrupt && self.state.is_answering() {
            self.overlap = Some(turn);
            if self.detecting() {
                out.push(Effect::Send(ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: onset_us })));
            }
            return;
        }
        let mut old = self.enter(UserSpeaking(turn), now, out);
        if self.detecting() {
            out.push(Effect::Send(ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: onset_us })));
            // The detector took a pause for the end, and nothing was done about the turn yet: what it was to be still holds.
            if let Thinking { reply, .. } = &mut old
                && self.hint.is_none()
            {
                self.hint = reply.hint.take();
            }
        }
        self.close_early(old, ResponseStatus::Interrupted, None, now, out);
    }

    pub(super) fn speech_stopped(&mut self, at_us: u64, now: Micros, out: &mut Vec<Effect>) {
        if let Some(turn) = self.overlap.take() {
            return self.take_turn(&turn, at_us, now, out);
        }
        if !self.turn_taking.respond {
            let old = std::mem::replace(&mut self.state, Listening);
            let UserSpeaking(turn) = old else {
                self.state = old;
                return;
            };
            self.enter(Listening, now, out);
            return self.take_turn(&turn, at_us, now, out);
        }
        let UserSpeaking(turn) = &self.state else { return };
        self.heard_us = 0;
        let hint = self.hint.take();
        let said = turn.recogniser.last(hint.as_ref().and_then(|h| h.text.as_deref()), at_us.saturating_sub(turn.onset_us));
        let composition = compose(&self.config, self.number, self.turns, &self.tools, hint.as_deref());
        let until = now + composition.think + self.backlog;
        let last_transcript = (now + FINAL_AFTER).min(until);
        let turn = TurnId(self.turns);
        let reply = Box::new(Reply { turn, composition, hint, said, last_transcript });
        self.enter(Thinking { reply, until }, now, out);
        if self.detecting() {
            out.push(Effect::Send(ServerEvent::Speech(SpeechMarker { started: false, timestamp_us: at_us })));
        }
        out.push(Effect::Send(ServerEvent::Committed { turn }));
        out.push(Effect::Send(ServerEvent::Answering { turn }));
    }

    /// A turn is over and is not answered unasked.
    fn take_turn(&mut self, turn: &UserTurn, at_us: u64, now: Micros, out: &mut Vec<Effect>) {
        let said = self.hint.as_ref().and_then(|h| h.text.as_deref());
        let text = turn.recogniser.last(said, at_us.saturating_sub(turn.onset_us));
        if self.detecting() {
            out.push(Effect::Send(ServerEvent::Speech(SpeechMarker { started: false, timestamp_us: at_us })));
        }
        self.committed(text, now, out);
    }

    fn committed(&mut self, text: String, _now: Micros, out: &mut Vec<Effect>) {
        self.heard_us = 0;
        let turn = TurnId(self.turns);
        out.push(Effect::Send(ServerEvent::Committed { turn }));
        out.push(Effect::Send(ServerEvent::Transcript { turn, text, last: true }));
    }

    /// The client says that its turn is over.
    pub(super) fn commit(&mut self, now: Micros, out: &mut Vec<Effect>) -> Result<(), SessionError> {
        if self.heard_us == 0 {
            return Err(SessionError::warning(
                ErrorCode::InvalidArgument,
                "nothing was heard since the last turn: send audio before a commit",
            ));
        }
        if self.falls_silent(out) {
            return Ok(());
        }
        let said = self.hint.as_ref().and_then(|h| h.text.as_deref());
        let text = if let UserSpeaking(turn) = &self.state {
            let text = turn.recogniser.last(said, self.heard_us);
            self.vad.forget();
            self.enter(Listening, now, out);
            text
        } else {
            self.turns += 1;
            Recogniser::new(mix(self.config.seed, self.number, self.turns), now).last(said, self.heard_us)
        };
        self.committed(text, now, out);
        Ok(())
    }

    /// What was heard since the last turn is forgotten.
    pub(super) fn discard(&mut self, now: Micros, out: &mut Vec<Effect>) {
        self.heard_us = 0;
        self.vad.forget();
        self.overlap = None;
        if matches!(self.state, UserSpeaking(_)) {
            self.enter(Listening, now, out);
        }
    }

    /// The client asks for an answer.
    pub(super) fn respond(&mut self, wish: ResponseWish, now: Micros, out: &mut Vec<Effect>) -> Result<(), SessionError> {
        if self.falls_silent(out) {
            return Ok(());
        }
        match &self.state {
            Ended => return Ok(()),
            Thinking { .. } | AgentSpeaking(_) => {
                return Err(SessionError::warning(
                    ErrorCode::InvalidArgument,
                    "an answer is under way: cancel it before you ask for another",
                ));
            }
            ToolCalling { .. } => {
                self.think_again(now, out);
                return Ok(());
            }
            Listening | UserSpeaking(_) => {}
        }
        let turn = TurnId(self.turns);
        let mut hint = self.hint.take();
        if let Some(text) = wish.text {
            hint.get_or_insert_default().text = Some(text);
        }
        let said = hint.as_ref().and_then(|hint| hint.text.clone()).unwrap_or_default();
        let mut composition = compose(
            &self.config,
            self.number,
            turn.0,
            &self.tools,
            hint.as_deref().filter(|h| h.tool.is_some() || h.response_ms.is_some()),
        );
        composition.tool = match wish.tool {
            ToolChoice::Auto => composition.tool.or_else(|| self.tools.iter().position(|tool| names(&said, tool))),
            ToolChoice::Never => None,
            ToolChoice::Any => (!self.tools.is_empty()).then_some(0),
            ToolChoice::Named(name) => self.tools.iter().position(|tool| *tool == name),
        };
        let until = now + composition.think + self.backlog;
        let reply = Box::new(Reply { turn, composition, hint, said, last_transcript: Micros::NEVER });
        match self.enter(Thinking { reply, until }, now, out) {
            UserSpeaking(turn) if self.detecting() => self.overlap = Some(turn),
            _ => {}
        }
        out.push(Effect::Send(ServerEvent::Answering { turn }));
        Ok(())
    }

    /// From the tool's result, or from giving it up, to the answer.
    pub(super) fn think_again(&mut self, now: Micros, out: &mut Vec<Effect>) {
        self.charge(now, out);
        match std::mem::replace(&mut self.state, Listening) {
            ToolCalling { reply, .. } => {
                let until = now + reply.composition.think_again;
                let turn = reply.turn;
                self.enter(Thinking { reply, until }, now, out);
                out.push(Effect::Send(ServerEvent::Answering { turn }));
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
            let until = if self.turn_taking.resume { now + self.config.tool_timeout } else { Micros::NEVER };
            self.enter(ToolCalling { reply, call, until, answered: false }, now, out);
            out.push(Effect::Send(ServerEvent::ToolCall { call_id: call.id(), name, arguments }));
            return;
        }
        self.responses += 1;
        let response = ResponseId(self.responses);
        self.begins_to_answer(reply.turn, &reply.said, out);
        let Reply { turn, composition, .. } = *reply;
        let text = made_up(composition.seed, heard_words(composition.frames.saturating_mul(FRAME_MS as u32)).max(1));
        let speaking = Speaking::new(response, (self.voice, self.output), composition, now);
        self.enter(AgentSpeaking(Box::new(speaking)), now, out);
        out.push(Effect::Send(ServerEvent::ResponseStart { response, turn, text }));
        self.speak(now, out);
    }

    /// Sends the frames that are due, and the end after the last.
    fn speak(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let AgentSpeaking(speaking) = &mut self.state else { return };
        let Speaking { response, voice, format, ref composition, .. } = **speaking;
        while speaking.sent < composition.frames && speaking.next_frame() <= now {
            let due = Duration::from_micros(speaking.next_frame().0.saturating_sub(self.accepted.0));
            out.push(Effect::Cost(Phase::AgentSpeaking));
            out.push(Effect::Send(ServerEvent::Audio(AgentAudio {
                sequence: self.frames_out,
                timestamp_us: due.as_micros() as u64,
                payload: voice.frame(format, composition.phrase, speaking.sent),
                response,
            })));
            speaking.sent += 1;
            self.frames_out += 1;
            if let Some(trouble) = &self.trouble {
                speaking.start += trouble.hole(speaking.sent, mix(self.config.seed, self.number, self.frames_out), out);
            }
        }
        if speaking.sent == composition.frames {
            let next = self.idle();
            let old = self.enter(next, now, out);
            if !self.keeps_end(now, out) {
                old.close(ResponseStatus::Completed, None, now, out);
            }
            self.answer_again(now, out);
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

/// `said` names the tool, as in "please call `get_weather`".
fn names(said: &str, tool: &str) -> bool {
    said.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).any(|word| word == tool)
}

impl Reply {
    /// To a turn whose words were told before.
    pub(super) fn to(turn: TurnId, composition: Composition) -> Self {
        Self { turn, composition, hint: None, said: String::new(), last_transcript: Micros::NEVER }
    }

    /// What would be spoken next, and the turn that it answers; none when a tool comes first, or the user's words were not told yet: who goes on so
    /// soon only paused.
    pub(super) fn would_say(&self) -> Option<(TurnId, u32)> {
        let told = self.last_transcript == Micros::NEVER;
        (told && self.composition.tool.is_none()).then_some((self.turn, self.composition.phrase))
    }

    /// Sends the final transcript, once.
    fn transcribe(&mut self, out: &mut Vec<Effect>) {
        if self.last_transcript != Micros::NEVER {
            self.last_transcript = Micros::NEVER;
            out.push(Effect::Send(ServerEvent::Transcript { turn: self.turn, text: self.said.clone(), last: true }));
        }
    }
}
