//! Faults of real voice backends, on purpose ([`crate::fault`]). What goes wrong in a session is decided when it begins ([`SessionFates`]); a
//! session without any has no [`Trouble`], and nothing here does anything.

use std::time::Duration;

use proto::{
    audio::AudioFormat,
    frame::{AgentAudio, FRAME_US, Outcome, ResponseStatus, ResponseWish, ServerEvent},
    ids::{ResponseId, TurnId},
    time::Micros,
};

use super::{
    Effect, Session,
    turn::{Reply, Speaking, State},
};
use crate::{
    fault::{FaultKind, SessionFates},
    pipeline::{
        mix, scramble,
        think::{Composition, compose},
        tts::Voice,
    },
};

/// Speech that begins so soon after a response is not heard by a detector that drops the boundary.
const BOUNDARY: Duration = Duration::from_millis(900);
/// A second response to a turn begins so long after the first one's end.
const AGAIN_AFTER: Duration = Duration::from_millis(150);
/// What is heard of another session's response.
const TAIL_FRAMES: u32 = 40;
/// From hole to hole, frames.
const HOLE_EVERY: u32 = 20;
/// Shortest hole, and the room above it, microseconds.
const HOLE_US: (u64, u64) = (110_000, 240_000);
/// Shortest time that stale audio goes on, and the room above it, microseconds.
const STALE_US: (u64, u64) = (1_000_000, 2_000_000);
/// From one thing that a ghost does to the next.
const HAUNT_EVERY: Duration = Duration::from_millis(300);
/// Turn numbers of made-up responses: apart from those of real turns.
const MADE_UP: u64 = 1 << 40;

/// What goes wrong, and how far it has come.
#[derive(Debug)]
pub(super) struct Trouble {
    fates: SessionFates,
    /// Nothing is heard or said any more.
    silent: bool,
    /// When a response ended last.
    boundary: Option<Micros>,
    /// Frames that go on after their response.
    leftover: Option<Leftover>,
    /// The turn that was answered last, and whether a second answer to it has begun.
    answered: (TurnId, bool),
    /// The last response that was stopped, and how much of it was sent, ms.
    stopped: (ResponseId, u32),
    /// The peer is gone, and the session is not.
    ghost: Option<Ghost>,
}

#[derive(Debug)]
struct Leftover {
    /// Of an answer that was dropped before it began: what it answers, until it begins all the same.
    dropped: Option<TurnId>,
    response: ResponseId,
    phrase: u32,
    sent: u32,
    next: Micros,
    until: Micros,
}

#[derive(Debug, Clone, Copy)]
struct Ghost {
    outcome: Outcome,
    until: Micros,
    acts: Micros,
}

impl Trouble {
    fn new(fates: SessionFates) -> Self {
        Self {
            fates,
            silent: false,
            boundary: None,
            leftover: None,
            answered: (TurnId(0), false),
            stopped: (ResponseId(0), 0),
            ghost: None,
        }
    }

    /// The hole after so many frames of a response.
    pub(super) fn hole(&self, sent: u32, seed: u64, out: &mut Vec<Effect>) -> Duration {
        if !self.fates.has(FaultKind::OutputGaps) || !sent.is_multiple_of(HOLE_EVERY) {
            return Duration::ZERO;
        }
        out.push(Effect::Fault(FaultKind::OutputGaps));
        Duration::from_micros(HOLE_US.0 + scramble(seed) % HOLE_US.1)
    }

    /// When it has something to do by itself.
    fn due(&self) -> Micros {
        let ghost = self.ghost.map_or(Micros::NEVER, |ghost| ghost.until.min(ghost.acts));
        self.leftover.as_ref().map_or(Micros::NEVER, |leftover| leftover.next).min(ghost)
    }
}

impl Session {
    /// This goes wrong from now on; to be called before anything else of the session. `begins` is when its client hears of it.
    pub fn doom(&mut self, fates: SessionFates, begins: Micros, out: &mut Vec<Effect>) {
        self.trouble = Some(Box::new(Trouble::new(fates)));
        if fates.has(FaultKind::CrossTalk) {
            self.speak_unasked(begins, out);
        }
    }

    /// The peer is gone; the session goes on by itself until then, and only then ends so.
    pub fn haunt(&mut self, outcome: Outcome, until: Micros, now: Micros) {
        if !self.ended() {
            let trouble = self.trouble.get_or_insert_with(|| Box::new(Trouble::new(SessionFates::default())));
            trouble.ghost.get_or_insert(Ghost { outcome, until, acts: now });
        }
    }

    /// It goes on although its peer is gone.
    pub fn haunts(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.ghost.is_some())
    }

    /// When trouble has something to do.
    pub(super) fn trouble_due(&self) -> Micros {
        self.trouble.as_ref().map_or(Micros::NEVER, |trouble| trouble.due())
    }

    /// Does what is due of it.
    pub(super) fn step_trouble(&mut self, now: Micros, out: &mut Vec<Effect>) {
        if self.trouble_due() > now {
            return;
        }
        self.trail(now, out);
        let Some(ghost) = self.trouble.as_ref().and_then(|trouble| trouble.ghost) else { return };
        if ghost.until <= now {
            return self.finish_silently(ghost.outcome, out);
        }
        if let Some(ghost) = self.trouble.as_mut().and_then(|trouble| trouble.ghost.as_mut()) {
            ghost.acts = now + HAUNT_EVERY;
        }
        match self.state {
            // An answer that was never asked for cannot be refused: nothing is under way.
            State::Listening => drop(self.respond(ResponseWish::default(), now, out)),
            State::UserSpeaking(_) => self.speech_stopped(0, now, out),
            State::ToolCalling { .. } => self.think_again(now, out),
            State::Thinking { .. } | State::AgentSpeaking(_) | State::Ended => {}
        }
    }

    /// Speech begins: true when it is not heard.
    pub(super) fn misses_speech(&mut self, now: Micros, out: &mut Vec<Effect>) -> bool {
        if self.trouble.is_none() {
            return false;
        }
        if self.falls_silent(out) {
            return true;
        }
        let finds_turns = self.detecting() || self.markers;
        let listening = matches!(self.state, State::Listening);
        let Some(trouble) = self.trouble.as_deref_mut() else { return false };
        let at_boundary = trouble.boundary.is_some_and(|at| now.since(at) < BOUNDARY);
        let dropped = trouble.fates.has(FaultKind::VadDrop) && finds_turns && listening && at_boundary;
        if dropped {
            // Once a boundary: what is said again is heard.
            trouble.boundary = None;
            out.push(Effect::Fault(FaultKind::VadDrop));
        }
        dropped
    }

    /// Something would be answered: true when nothing is any more.
    pub(super) fn falls_silent(&mut self, out: &mut Vec<Effect>) -> bool {
        let answered = self.responses > 0;
        let Some(trouble) = self.trouble.as_deref_mut() else { return false };
        if !trouble.silent && trouble.ghost.is_none() && answered && trouble.fates.has(FaultKind::SilentSession) {
            trouble.silent = true;
            out.push(Effect::Fault(FaultKind::SilentSession));
        }
        trouble.silent
    }

    /// Something under way is closed before its time, by an interruption or a cancel. What is played of it after that is stale, be it an
    /// answer that had not begun.
    pub(super) fn close_early(&mut self, old: State, status: ResponseStatus, heard_ms: Option<u32>, now: Micros, out: &mut Vec<Effect>) {
        let lasts = Duration::from_micros(STALE_US.0 + scramble(mix(self.config.seed, self.number, self.responses)) % STALE_US.1);
        let (leftover, sent_ms) = match &old {
            State::AgentSpeaking(speaking) => {
                let Speaking { response, ref composition, sent, .. } = **speaking;
                let leftover = Leftover { dropped: None, response, phrase: composition.phrase, sent, next: now, until: now + lasts };
                (Some(leftover), speaking.sent_ms())
            }
            State::Thinking { reply, until } => {
                let of = |(turn, phrase)| {
                    let next = (*until).max(now);
                    Leftover { dropped: Some(turn), response: ResponseId(0), phrase, sent: 0, next, until: next + lasts }
                };
                (reply.would_say().map(of), 0)
            }
            _ => (None, 0),
        };
        old.close(status, heard_ms, now, out);
        let (Some(trouble), Some(leftover)) = (self.trouble.as_deref_mut(), leftover) else { return };
        let (response, begun) = (leftover.response, leftover.dropped.is_none());
        if begun {
            trouble.stopped = (response, sent_ms);
        }
        if trouble.fates.has(FaultKind::StaleAudioAfterBargeIn) && trouble.ghost.is_none() {
            trouble.leftover = Some(leftover);
            if begun {
                out.push(Effect::Fault(FaultKind::StaleAudioAfterBargeIn));
            }
        }
        if !begun {
            return;
        }
        if let Some(heard_ms) = heard_ms {
            self.truncated(response, heard_ms, now, out);
        }
    }

    /// The client says how much of a response was heard. At the edges that wedges a session so fated.
    pub(super) fn truncated(&mut self, response: ResponseId, heard_ms: u32, now: Micros, out: &mut Vec<Effect>) {
        let Some(trouble) = self.trouble.as_deref_mut() else { return };
        let at_edge = trouble.stopped.0 == response && (heard_ms == 0 || heard_ms > trouble.stopped.1);
        if trouble.fates.has(FaultKind::TruncateEdge) && at_edge && !trouble.silent {
            trouble.silent = true;
            out.push(Effect::Fault(FaultKind::TruncateEdge));
            if !matches!(self.state, State::Ended) {
                self.overlap = None;
                self.enter(State::Listening, now, out);
            }
        }
    }

    /// A response begins: what was left of the one before is thrown away at last, and the words that it answers may come twice.
    pub(super) fn begins_to_answer(&mut self, turn: TurnId, said: &str, out: &mut Vec<Effect>) {
        let Some(trouble) = self.trouble.as_deref_mut() else { return };
        trouble.leftover = None;
        if trouble.answered.0 != turn {
            trouble.answered = (turn, false);
        }
        if trouble.fates.has(FaultKind::NoTurnEnd) && turn.0 > 0 {
            out.push(Effect::Send(ServerEvent::Transcript { turn, text: said.to_owned(), last: true }));
        }
    }

    /// A response was said in full: true when its end is kept back.
    pub(super) fn keeps_end(&mut self, now: Micros, out: &mut Vec<Effect>) -> bool {
        let Some(trouble) = self.trouble.as_deref_mut() else { return false };
        trouble.boundary = Some(now);
        let kept = trouble.fates.has(FaultKind::NoTurnEnd);
        if kept {
            out.push(Effect::Fault(FaultKind::NoTurnEnd));
        }
        kept
    }

    /// A response is over, and perhaps there is another one to the same turn.
    pub(super) fn answer_again(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let listening = matches!(self.state, State::Listening);
        let Some(trouble) = self.trouble.as_deref_mut() else { return };
        let (turn, again) = trouble.answered;
        if !listening || again || turn.0 == 0 || !trouble.fates.has(FaultKind::DoubleResponse) || trouble.ghost.is_some() {
            return;
        }
        trouble.answered.1 = true;
        out.push(Effect::Fault(FaultKind::DoubleResponse));
        let composition = self.made_up(turn.0);
        let reply = Box::new(Reply::to(turn, composition));
        self.enter(State::Thinking { reply, until: now + AGAIN_AFTER }, now, out);
        out.push(Effect::Send(ServerEvent::Answering { turn }));
    }

    /// Begins with the tail of a response that is not of this session.
    fn speak_unasked(&mut self, begins: Micros, out: &mut Vec<Effect>) {
        let mut composition = self.made_up(self.number);
        composition.frames = TAIL_FRAMES;
        self.responses += 1;
        let (response, turn) = (ResponseId(self.responses), TurnId(0));
        let speaking = Speaking::new(response, (self.voice, self.output), composition, begins);
        self.enter(State::AgentSpeaking(Box::new(speaking)), begins, out);
        out.push(Effect::Fault(FaultKind::CrossTalk));
        out.push(Effect::Send(ServerEvent::Answering { turn }));
        out.push(Effect::Send(ServerEvent::ResponseStart { response, turn, text: "as I said to the other caller".to_owned() }));
    }

    /// A response that nobody asked for.
    fn made_up(&self, number: u64) -> Composition {
        let mut composition = compose(&self.config, self.number, MADE_UP + number, &[], None);
        composition.tool = None;
        composition
    }

    /// Sends frames of a response that is over.
    fn trail(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let (voice, format, accepted) = (self.voice, self.output, self.accepted);
        let Some(trouble) = self.trouble.as_deref_mut() else { return };
        let Some(leftover) = &mut trouble.leftover else { return };
        if leftover.next <= now
            && let Some(turn) = leftover.dropped.take()
        {
            self.responses += 1;
            leftover.response = ResponseId(self.responses);
            out.push(Effect::Fault(FaultKind::StaleAudioAfterBargeIn));
            out.push(Effect::Send(ServerEvent::ResponseStart { response: leftover.response, turn, text: String::new() }));
        }
        while leftover.next <= now && leftover.next < leftover.until {
            out.push(Effect::Send(ServerEvent::Audio(frame(leftover, voice, format, accepted, self.frames_out))));
            leftover.sent += 1;
            leftover.next += Duration::from_micros(FRAME_US);
            self.frames_out += 1;
        }
        if leftover.next >= leftover.until {
            trouble.leftover = None;
        }
    }
}

fn frame(leftover: &Leftover, voice: Voice, format: AudioFormat, accepted: Micros, sequence: u64) -> AgentAudio {
    AgentAudio {
        sequence,
        timestamp_us: leftover.next.0.saturating_sub(accepted.0),
        payload: voice.frame(format, leftover.phrase, leftover.sent),
        response: leftover.response,
    }
}
