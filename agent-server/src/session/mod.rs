//! The session as a pure state machine: events and time in, effects out.
//!
//! # Transitions
//!
//! | phase | on | to | effects |
//! |---|---|---|---|
//! | `listening` | speech begins (detector or marker) | `user_speaking` | `Speech` (detector only) |
//! | `user_speaking` | every 300 ms while words come | same | partial `Transcript` |
//! | `user_speaking` | speech ends | `thinking` | `Speech` (detector only) |
//! | `thinking` | 40 ms later, or with the next row | same | final `Transcript` |
//! | `thinking` | thought, a tool is wanted | `tool_calling` | `ToolCall` |
//! | `thinking` | thought, no tool is wanted | `agent_speaking` | `ResponseStart`, first `Audio` |
//! | `tool_calling` | result of this call | `thinking` | |
//! | `tool_calling` | tool timeout | `thinking` | `ToolCancel` |
//! | `agent_speaking` | every 20 ms on an absolute schedule | same | `Audio` |
//! | `agent_speaking` | last frame sent | `listening` | `ResponseEnd(Completed)` |
//! | thinking, tool, speaking | speech begins | `user_speaking` | `Speech`, then *stop* as interrupted |
//! | thinking, tool, speaking | `BargeIn` of this response | `listening` | *stop* as interrupted |
//! | thinking, tool, speaking | `Cancel` of this response | `listening` | *stop* as cancelled |
//! | `listening`, `user_speaking` | `BargeIn`, `Cancel` | same | none: nothing is under way |
//! | any | end, deadline, idle, drain, disconnect, keepalive, fatal error | ended | *stop*, then as below |
//!
//! That is how turns are taken unless the client wants it otherwise ([`TurnTaking`]):
//!
//! - without `detect` only markers, `Commit` and `Respond` move it; loud audio alone brings `listening` to `user_speaking`;
//! - without `respond` a turn ends in `listening` with its final `Transcript`, and `Respond` begins to think;
//! - without `interrupt` speech during an answer is a turn beside it, transcribed and not answered unasked;
//! - without `resume` a tool's result changes nothing, and `Respond` goes on from it, however late.
//!
//! Dialects that name more steps than the native one are told of them: `Committed` when a turn was taken, `Answering` when thinking begins,
//! `AnswerDropped` when it ends in nothing.
//!
//! *stop* sends what closes the thing under way: the final transcript if it was still due, `ToolCancel`, or `ResponseEnd` with its frames;
//! after an interruption `Context` with the words that were heard. Dropping the state is the epoch bump that cancels every later stage:
//! nothing else refers to the old answer, and response numbers never come back. An interrupt that names an old response, or finds nothing
//! under way, changes nothing. `Phase` comes before the events that tell the client, so that counters are never behind what it knows.
//!
//! | end | outcome | events before `End` | `End.error` |
//! |---|---|---|---|
//! | `ClientEvent::End` | completed | `Ended` | |
//! | deadline, idle timeout | timed out | `Error`, `Ended` | the error |
//! | drain | drained | `Ended` | |
//! | fatal error | failed | `Error` | the error |
//! | disconnect | cancelled | none: nobody listens | |
//! | keepalive | timed out | none | |
//!
//! What goes wrong on purpose is apart from all this (`trouble`), and hooked in where it changes the course.
//!
//! # Errors
//!
//! What breaks the order or framing of the protocol is fatal; what is wrong with one message costs that message and a warning.
//!
//! | code | fatal | what becomes of the message |
//! |---|---|---|
//! | `MalformedMessage`, `UnsupportedFormat`, `MessageTooLarge`, `NotStarted` | as the wire says ([`Session::on_error`]) | |
//! | `AlreadyStarted` | yes | |
//! | `BadAudio` (empty, half a sample, over 1 s) | no | dropped, not acknowledged, not counted |
//! | `SequenceGap` (missing or repeated frames) | no, one warning a gap | taken; counting goes on from it |
//! | `UnknownToolCall` (never made, answered, cancelled) | no | dropped |
//! | `InvalidArgument` (limits, undeclared tool, future response) | no | dropped |
//! | `AfterEnd` | | nothing follows an end: the shell answers with [`after_end`] while it still can |
//! | `Deadline`, `Idle` | yes, as timed out | |

mod input;
mod trouble;
mod turn;
mod validate;

use std::{sync::Arc, time::Duration};

use proto::{
    audio::AudioFormat,
    dist::Distribution,
    frame::{
        ErrorCode, Outcome, ResponseStatus, ServerEvent, SessionAccepted, SessionEnded, SessionError, SessionSettings, SessionStart,
        TurnHint, TurnTaking,
    },
    time::Micros,
};

pub use self::validate::{MAX_RESPONSE_HINT_MS, after_end, validate_start};
use self::{
    trouble::Trouble,
    turn::{State, UserTurn},
};
use crate::{
    cost::CostSpec,
    fault::FaultKind,
    pipeline::{tts::Voice, vad::Vad},
    tracker::Phase,
};

/// Longest life of a session where neither the server's settings nor the dialect say another.
pub const MAX_DURATION: Duration = Duration::from_mins(20);
/// A client is warned of the end of a short life when this part of it is left, however early it wants to know.
const WARNING_SHARE: u32 = 10;

/// What every session of a server shares.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Stable name of the backend.
    pub backend_id: String,
    /// New with every process.
    pub boot_id: String,
    /// Time from the end of the user's speech, as detected, to the first frame of the answer (or to the tool call); also from a tool's
    /// result to the answer. The detector needs [`Self::endpoint_silence`] to find the end; a marker needs nothing.
    pub think: Distribution,
    /// Longest wait for a tool's result; then the call is cancelled and the agent answers without it.
    pub tool_timeout: Duration,
    /// Length of an answer that no hint fixes.
    pub response: Distribution,
    /// Share of turns without a hint that call a declared tool, 0 to 1.
    pub tool_rate: f64,
    /// Silence that ends a user turn.
    pub endpoint_silence: Duration,
    /// RMS on the scale of 16-bit samples above which a frame is speech.
    pub vad_threshold: f32,
    /// Longest life of a session, where it is set.
    pub max_duration: Option<Duration>,
    /// Longest time without any message from the client.
    pub idle_timeout: Duration,
    /// Seeds latencies, texts and voices.
    pub seed: u64,
    /// Which phases cost CPU time though no audio flows in them: only those make a session wake for every 20 ms of them.
    pub cost: CostSpec,
}

/// What the shell must do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// To the client.
    Send(ServerEvent),
    /// The tracker's phase.
    Phase(Phase),
    /// Charge the synthetic cost of one frame: 20 ms of user audio while the user speaks, of agent audio while the agent does, of time in any
    /// other phase that costs something.
    Cost(Phase),
    /// Something went wrong on purpose.
    Fault(FaultKind),
    /// Count the end, close the stream. The last effect of a session.
    End {
        /// As counted.
        outcome: Outcome,
        /// Present when the stream closes with an error status.
        error: Option<SessionError>,
    },
}

/// One session after its start was admitted.
#[derive(Debug)]
pub struct Session {
    config: Arc<SessionConfig>,
    number: u64,
    input: AudioFormat,
    output: AudioFormat,
    voice: Voice,
    tools: Box<[String]>,
    turn_taking: TurnTaking,
    accepted: Micros,
    deadline: Micros,
    /// When the client is to be warned of the deadline; [`Micros::NEVER`] when it was, or does not want to be.
    warn_at: Micros,
    idle_timeout: Duration,
    last_message: Micros,
    /// How far the processor is behind.
    backlog: Duration,
    state: State,
    /// When the next 20 ms of a phase without audio are to be charged; [`Micros::NEVER`] where they cost nothing.
    cost_due: Micros,
    vad: Vad,
    /// The client marks its speech itself: the detector is off.
    markers: bool,
    /// Speech during an answer that it does not stop.
    overlap: Option<Box<UserTurn>>,
    /// Audio since the last turn was taken, microseconds.
    heard_us: u64,
    /// For the coming turn.
    hint: Option<Box<TurnHint>>,
    /// User turns, responses, tool calls so far: each also numbers the last one.
    turns: u64,
    responses: u64,
    calls: u32,
    next_sequence: u64,
    frames_in: u64,
    frames_out: u64,
    /// What goes wrong on purpose; none in an honest session.
    trouble: Option<Box<Trouble>>,
}

impl Session {
    /// `number` seeds this session's own stream of randomness; `start` was validated by [`validate_start`]. Emits `Accepted`, which the shell
    /// holds back for `wait`, and all that follows with it: only then does the client know that it may speak, and its silence counts.
    pub fn new(
        config: Arc<SessionConfig>,
        number: u64,
        session_id: String,
        start: SessionStart,
        wait: Duration,
        now: Micros,
        out: &mut Vec<Effect>,
    ) -> Self {
        let smaller = |ours: Duration, theirs: u32| match theirs {
            0 => ours,
            ms => ours.min(Duration::from_millis(ms.into())),
        };
        let millis = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        let usual = match start.default_duration_ms {
            0 => MAX_DURATION,
            ms => Duration::from_millis(ms.into()),
        };
        let max_duration = smaller(config.max_duration.unwrap_or(usual), start.max_duration_ms);
        let idle_timeout = smaller(config.idle_timeout, start.idle_timeout_ms);
        out.push(Effect::Send(ServerEvent::Accepted(SessionAccepted {
            session_id,
            backend_id: config.backend_id.clone(),
            boot_id: config.boot_id.clone(),
            input: start.input,
            output: start.output,
            max_duration_ms: millis(max_duration),
            idle_timeout_ms: millis(idle_timeout),
        })));
        let mut session = Self {
            number,
            input: start.input,
            output: start.output,
            voice: Voice::of(&start.voice, config.seed),
            tools: start.tools.into_boxed_slice(),
            turn_taking: start.turns,
            accepted: now,
            deadline: now + max_duration,
            warn_at: match start.warning_ms {
                0 => Micros::NEVER,
                ms => now + max_duration.saturating_sub(Duration::from_millis(ms.into()).min(max_duration / WARNING_SHARE)),
            },
            idle_timeout,
            last_message: now + wait,
            backlog: Duration::ZERO,
            state: State::Listening,
            cost_due: Micros::NEVER,
            vad: Vad::new(config.vad_threshold, endpoint(&config, start.turns)),
            markers: false,
            overlap: None,
            heard_us: 0,
            hint: None,
            turns: 0,
            responses: 0,
            calls: 0,
            next_sequence: 0,
            frames_in: 0,
            frames_out: 0,
            trouble: None,
            config,
        };
        session.charge_from(now);
        session
    }

    /// What holds from now on.
    fn configure(&mut self, settings: SessionSettings) -> Result<(), SessionError> {
        let SessionSettings { input, output, voice, tools, turns } = settings;
        if let Some(tools) = &tools {
            validate::validate_tools(tools).map_err(|message| SessionError::warning(ErrorCode::InvalidArgument, message))?;
        }
        self.input = input.unwrap_or(self.input);
        self.output = output.unwrap_or(self.output);
        if let Some(voice) = voice {
            self.voice = Voice::of(&voice, self.config.seed);
        }
        if let Some(tools) = tools {
            self.tools = tools.into_boxed_slice();
        }
        if let Some(turns) = turns {
            self.turn_taking = turns;
            self.markers = false;
            self.vad.set_endpoint(endpoint(&self.config, turns));
        }
        Ok(())
    }

    /// How far the processor is behind, until the next word on it: the answer to a turn that ends meanwhile begins so much later.
    pub const fn on_backlog(&mut self, backlog: Duration) {
        self.backlog = backlog;
    }

    /// The wire could not be decoded: the error goes to the client; a fatal one ends the session as failed.
    pub fn on_error(&mut self, error: SessionError, now: Micros, out: &mut Vec<Effect>) {
        if !self.receive(now, out) {
            return;
        }
        if error.fatal {
            self.finish(Outcome::Failed, Some(error), now, out);
        } else {
            out.push(Effect::Send(ServerEvent::Error(error)));
        }
    }

    /// The client's stream ended without goodbye (EOF, reset, close frame): ends as cancelled.
    pub fn on_disconnect(&mut self, _now: Micros, out: &mut Vec<Effect>) {
        self.finish_silently(Outcome::Cancelled, out);
    }

    /// The transport's keepalive got no answer: ends as timed out.
    pub fn on_keepalive_timeout(&mut self, _now: Micros, out: &mut Vec<Effect>) {
        self.finish_silently(Outcome::TimedOut, out);
    }

    /// The server's drain deadline: ends as drained.
    pub fn on_drain(&mut self, now: Micros, out: &mut Vec<Effect>) {
        self.finish(Outcome::Drained, None, now, out);
    }

    /// Does what is due by `now` (frames, thinking, deadlines).
    pub fn step(&mut self, now: Micros, out: &mut Vec<Effect>) {
        if self.expire(now, out) {
            return;
        }
        let idle_at = self.last_message + self.idle_timeout;
        if now >= idle_at && !self.ended() {
            let message = format!("no message for {} ms: send audio, or end the session", self.idle_timeout.as_millis());
            return self.finish(Outcome::TimedOut, Some(SessionError::fatal(ErrorCode::Idle, message)), now, out);
        }
        if self.warn_at <= now {
            self.warn_at = Micros::NEVER;
            let left_ms = self.deadline.since(now).as_millis().try_into().unwrap_or(u32::MAX);
            out.push(Effect::Send(ServerEvent::GoingAway { left_ms }));
        }
        while self.stage_due() <= now {
            self.advance(now, out);
        }
        self.step_trouble(now, out);
        self.charge(now, out);
    }

    /// When [`Self::step`] must be called next; never later than any deadline of the session.
    pub fn next_wake(&self) -> Micros {
        if self.ended() {
            return Micros::NEVER;
        }
        self.stage_due()
            .min(self.trouble_due())
            .min(self.cost_due)
            .min(self.deadline)
            .min(self.warn_at)
            .min(self.last_message + self.idle_timeout)
    }

    /// True once `End` was emitted.
    pub fn ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// What the session is doing; none once it has ended.
    pub fn phase(&self) -> Option<Phase> {
        self.state.phase()
    }

    /// Audio frames taken from the client and sent to it.
    pub fn frames(&self) -> (u64, u64) {
        (self.frames_in, self.frames_out)
    }

    /// Ends the session if its deadline has passed. True when it has ended.
    fn expire(&mut self, now: Micros, out: &mut Vec<Effect>) -> bool {
        if !self.ended() && now >= self.deadline {
            let message =
                format!("the session reached its longest life of {} ms: start a new one", self.deadline.since(self.accepted).as_millis());
            self.finish(Outcome::TimedOut, Some(SessionError::fatal(ErrorCode::Deadline, message)), now, out);
        }
        self.ended()
    }

    /// Notes a sign of life. False when the session has ended, perhaps just now.
    fn receive(&mut self, now: Micros, out: &mut Vec<Effect>) -> bool {
        // A message is proof of life even when the shell is late with it, so only the deadline comes before it.
        let alive = !self.expire(now, out);
        self.last_message = self.last_message.max(now);
        alive
    }

    fn finish(&mut self, outcome: Outcome, error: Option<SessionError>, now: Micros, out: &mut Vec<Effect>) {
        if self.ended() {
            return;
        }
        let old = std::mem::replace(&mut self.state, State::Ended);
        let status = if outcome == Outcome::Failed { ResponseStatus::Failed } else { ResponseStatus::Cancelled };
        old.close(status, None, now, out);
        if let Some(error) = &error {
            out.push(Effect::Send(ServerEvent::Error(error.clone())));
        }
        if outcome != Outcome::Failed {
            out.push(Effect::Send(ServerEvent::Ended(SessionEnded {
                outcome,
                duration_ms: now.since(self.accepted).as_millis() as u64,
                frames_in: self.frames_in,
                frames_out: self.frames_out,
            })));
        }
        out.push(Effect::End { outcome, error });
    }

    /// Ends with nobody there to be told.
    fn finish_silently(&mut self, outcome: Outcome, out: &mut Vec<Effect>) {
        if !self.ended() {
            self.state = State::Ended;
            out.push(Effect::End { outcome, error: None });
        }
    }
}

/// Silence that ends a turn.
fn endpoint(config: &SessionConfig, turns: TurnTaking) -> Duration {
    match turns.silence_ms {
        0 => config.endpoint_silence,
        ms => Duration::from_millis(ms.into()),
    }
}

#[cfg(test)]
mod tests;
