//! The course of a turn: hear, think, call, speak, and how each is cut short.

use agent_server::{
    pipeline::{think::compose, transcript::FINAL_AFTER},
    session::SessionConfig,
    tracker::{Outcome, Phase},
};
use proto::frame::{FRAME_US, TurnHint};

use super::{ANY_LENGTH, Finish, Life, NEVER, ONE_WAY, Plan, Session, Step, World, plus};
use crate::{
    audio::Utterance,
    plan::{Act, EndKind, Wait},
    sim::backend::Backend,
};

/// Loud frames that the server's detector needs to hear an onset.
const ONSET_FRAMES: u64 = 3;

impl Session {
    /// A turn is under way: the user speaks, or waits for the answer.
    pub(super) fn in_turn(&self, now: u64) -> bool {
        self.speech && self.begin_at <= now
    }

    pub(super) fn enter(&mut self, phase: Phase, until: u64, backend: &mut Backend, now: u64) {
        backend.enter(self.phase, phase, now);
        (self.phase, self.phase_due) = (phase, until);
    }

    /// The server's phase is over by itself.
    pub(super) fn end_phase(&mut self, world: World<'_>, backend: &mut Backend, now: u64) {
        match self.phase {
            Phase::Listening => self.phase_due = NEVER,
            Phase::UserSpeaking => self.think(backend, now),
            Phase::Thinking if self.plan == Plan::Tool && self.current && !self.called => self.call_tool(world, backend, now),
            Phase::Thinking => self.speak(backend, now),
            Phase::ToolCalling => self.enter(Phase::Thinking, now + self.think_again, backend, now),
            Phase::AgentSpeaking => self.enter(Phase::Listening, NEVER, backend, now),
        }
    }

    /// The server has heard the end of the user's speech.
    fn think(&mut self, backend: &mut Backend, now: u64) {
        let hint = TurnHint { response_ms: (self.response_ms != ANY_LENGTH).then_some(self.response_ms), ..TurnHint::default() };
        let config: &SessionConfig = &backend.model.session;
        let made = compose(config, self.number, u64::from(self.heard), &[], Some(&hint));
        (self.frames, self.think_again) = (made.frames, made.think_again.as_micros() as u64);
        // Its place in the line of the processor is taken now.
        let until = plus(now, made.think).saturating_add(backend.delay_at(now));
        if !self.streamed {
            self.stream_at = self.stream_at.min(plus(now, FINAL_AFTER).min(until) + ONE_WAY);
        }
        self.enter(Phase::Thinking, until, backend, now);
    }

    fn call_tool(&mut self, world: World<'_>, backend: &mut Backend, now: u64) {
        self.called = true;
        let takes = if self.in_turn(now) { self.after } else { 0 };
        let result = now.saturating_add(takes).saturating_add(2 * ONE_WAY);
        let until = result.min(plus(now, backend.model.config.tool_timeout));
        if self.in_turn(now) {
            // Who works for the agent does not wait for it; then the agent gets its time anew.
            self.missed_at = self.missed_at.max(plus(until, world.scenario.response_timeout));
        }
        self.enter(Phase::ToolCalling, until, backend, now);
    }

    /// The first frame of the answer.
    fn speak(&mut self, backend: &mut Backend, now: u64) {
        let length = u64::from(self.frames) * FRAME_US;
        self.enter(Phase::AgentSpeaking, now + length, backend, now);
        if !self.streamed {
            self.stream_at = self.stream_at.min(now + ONE_WAY);
        }
        if self.current && self.in_turn(now) {
            (self.over_at, self.unheard) = (now + length, true);
            self.missed_at = NEVER;
            let act = now.saturating_add(ONE_WAY).saturating_add(self.after);
            // An interruption after the last frame has nothing to interrupt.
            if matches!(self.plan, Plan::Speak | Plan::Message) && act < now + length - FRAME_US {
                self.act_at = act;
            }
        }
    }

    /// The interruption of the turn is due.
    pub(super) fn interrupt(&mut self, world: World<'_>, backend: &mut Backend, now: u64) {
        self.act_at = NEVER;
        if self.plan == Plan::Message {
            self.enter(Phase::Listening, NEVER, backend, now);
        }
        self.plan = Plan::Listen;
        if let Some(says) = self.says.take() {
            // The first question has its answer; the interruption is the next.
            self.say(&says, now, world, backend);
        } else {
            (self.over_at, self.unheard) = (now + 2 * ONE_WAY, false);
        }
    }

    /// Plans the turn after one that was over at `over`, or ends the session.
    pub(super) fn next_turn(&mut self, over: u64, world: World<'_>, backend: &Backend, now: u64, step: &mut Step) {
        (self.act_at, self.over_at, self.missed_at) = (NEVER, NEVER, NEVER);
        self.current = false;
        if self.ending {
            return self.finish_at(over, now, step, |_, step| goodbye(step));
        }
        let draw = self.drawn();
        let mut turn = world.scenario.turn(world.seed, &draw, self.turn);
        if turn.is_none() && matches!(self.end, EndKind::KillWorker | EndKind::KillBackend) {
            self.turn = 0;
            turn = world.scenario.turn(world.seed, &draw, 0);
        }
        let Some(turn) = turn else {
            return self.finish_at(over, now, step, |session, step| session.end_as_planned(backend, now, step));
        };
        self.begin_at = NEVER;
        self.turn = self.turn.wrapping_add(1);
        let at = match turn.wait {
            Wait::After(wait) => plus(over, wait),
            Wait::At(at) => at.0,
            Wait::Cycle(cycle) => plus(if self.last_begin == NEVER { over } else { self.last_begin }, cycle),
        };
        self.response_ms = turn.response_ms.unwrap_or(ANY_LENGTH);
        self.says = None;
        (self.plan, self.after) = match turn.act {
            Act::Listen => (Plan::Listen, 0),
            Act::BargeIn { after, explicit, says, .. } => {
                self.says = says;
                (if explicit { Plan::Message } else { Plan::Speak }, after.as_micros() as u64)
            }
            // The model's agents are spoken over once they speak: before, there is nothing to be stopped.
            Act::SpeakAgain { after, says } => {
                self.says = says;
                (Plan::Speak, after.as_micros() as u64)
            }
            Act::Cancel { after } => (Plan::Message, after.as_micros() as u64),
            Act::Tool { takes, .. } => (Plan::Tool, takes.as_micros() as u64),
        };
        if let Some(says) = turn.says {
            self.last_begin = at.max(over);
            self.say(&says, at.max(over), world, backend);
        } else {
            // Turns of silence without length must not spin.
            let soonest = if self.last_begin == over { over + FRAME_US } else { over };
            self.speech = false;
            self.over_at = at.max(soonest);
        }
    }

    /// The session is over at `over`: ends it, or comes back then.
    fn finish_at(&mut self, over: u64, now: u64, step: &mut Step, end: impl FnOnce(&mut Self, &mut Step)) {
        if over > now {
            self.over_at = over;
        } else {
            end(self, step);
        }
    }

    /// The user speaks from `at` on.
    fn say(&mut self, says: &Utterance, at: u64, world: World<'_>, backend: &Backend) {
        let end = says.speech_end_us.clamp(1, says.duration_us().max(1));
        let first = says.speech_start_us.min(end - 1) / FRAME_US;
        let sent = end.div_ceil(FRAME_US) * FRAME_US;
        let (onset, silence) = if world.scenario.markers {
            (1, 0)
        } else {
            (ONSET_FRAMES, (backend.model.config.endpoint_silence.as_micros() as u64).div_ceil(FRAME_US) * FRAME_US)
        };
        self.speech = true;
        self.current = false;
        self.begin_at = at;
        // A frame goes when the last of it has been spoken.
        self.onset_at = at.saturating_add((first + onset) * FRAME_US + ONE_WAY);
        self.heard_end = at.saturating_add(sent + silence + ONE_WAY).max(self.onset_at);
        (self.act_at, self.over_at, self.unheard) = (NEVER, NEVER, false);
        self.missed_at = plus(at.saturating_add(end), world.scenario.response_timeout);
    }

    /// The end that the plan wants; it is no kill.
    pub(super) fn end_as_planned(&mut self, backend: &Backend, now: u64, step: &mut Step) {
        match self.end {
            EndKind::Graceful | EndKind::KillWorker | EndKind::KillBackend => goodbye(step),
            EndKind::Cancel | EndKind::TcpFin | EndKind::TcpRst => {
                (step.finish, step.ended) = (Some(Finish::AsPlanned), Some(Outcome::Cancelled));
            }
            EndKind::HalfOpen => {
                step.finish = Some(Finish::AsPlanned);
                self.fall_silent(backend, now);
            }
        }
    }

    /// Nothing more comes from the caller, and nobody tells the server.
    fn fall_silent(&mut self, backend: &Backend, now: u64) {
        let config = &backend.model.config;
        self.life = Life::HalfOpen;
        self.deadline = self.deadline.min(plus(plus(now, config.keepalive_interval), config.keepalive_timeout));
        (self.life_at, self.stop_at, self.onset_at) = (NEVER, NEVER, NEVER);
        (self.act_at, self.over_at, self.missed_at) = (NEVER, NEVER, NEVER);
        (self.begin_at, self.stream_at) = (NEVER, NEVER);
        if self.phase == Phase::UserSpeaking {
            self.phase_due = self.phase_due.min(plus(now, config.endpoint_silence));
        }
    }
}

/// The end in order.
pub(super) fn goodbye(step: &mut Step) {
    (step.finish, step.ended) = (Some(Finish::AsPlanned), Some(Outcome::Completed));
}
