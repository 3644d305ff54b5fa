//! A session, both sides of it, stepped from phase to phase: what `caller` and agent-server's `session` do frame by frame.
//!
//! Every session has one event in the queue: the earliest of what either side has to do. Times of day are microseconds of the run;
//! [`NEVER`] stands for what is not planned.

mod turn;

use std::sync::Arc;

use agent_server::{
    pipeline::transcript::PARTIAL_EVERY,
    session::MAX_DURATION,
    tracker::{Outcome, Phase},
};
use proto::{ids::PlanIndex, time::Micros};

use self::turn::goodbye;
use super::backend::Backend;
use crate::{
    audio::Utterance,
    caller::JITTER_BUFFER_US,
    plan::{Draw, EndKind, ScenarioPlan},
};

/// Not planned.
pub(super) const NEVER: u64 = u64::MAX;
/// From one end of a connection to the other.
pub(super) const ONE_WAY: u64 = 100;
/// From the dial until the start message is with the backend: one round trip for the connection, and the way.
pub(super) const REACH: u64 = 3 * ONE_WAY;
/// From the agent's last frame until the caller has heard it out.
const HEARD_OUT: u64 = JITTER_BUFFER_US + ONE_WAY;

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// The place is free.
    Free,
    /// It begins at its `wake`.
    Waiting,
    /// Its start is on the way to a backend.
    Dialling,
    /// Admitted; the acceptance is on its way.
    Starting,
    /// Both sides talk.
    Live,
    /// The caller went silent and the server does not know it.
    HalfOpen,
}

/// How a session ended, for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    /// As planned: goodbye, or cut by the caller.
    AsPlanned,
    /// The server's deadline.
    TimedOut,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Step {
    /// The agent's first stream came then.
    pub(super) first_stream: Option<u64>,
    /// It is over for the caller.
    pub(super) finish: Option<Finish>,
    /// It is over for the server, which counts this.
    pub(super) ended: Option<Outcome>,
}

/// What the caller has in mind for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Listen,
    /// Interrupt by speech, after that long.
    Speak,
    /// Interrupt by message; then say something, or nothing.
    Message,
    /// A tool is called; it takes that long.
    Tool,
}

/// What never changes while a session is stepped.
#[derive(Debug, Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) scenario: &'a ScenarioPlan,
    /// Of the plan.
    pub(super) seed: u64,
}

/// One session. Small: there are millions.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts of two machines, kept flat to be small")]
pub(super) struct Session {
    /// Its one event.
    pub(super) wake: u64,
    /// When it should have begun.
    pub(super) scheduled: u64,
    /// When it was last sent to a backend.
    pub(super) dialled: u64,
    index: u64,
    /// Its name to the backend's randomness.
    number: u64,
    /// Which session of this place in the slab.
    pub(super) serial: u32,
    pub(super) position: u32,
    pub(super) iteration: u32,
    pub(super) backend: u32,
    pub(super) boot: u32,
    pub(super) balancer: u32,
    pub(super) scenario: u16,
    conversation: u16,
    pub(super) life: Life,
    pub(super) end: EndKind,
    /// Backends that refused it.
    pub(super) refusals: u8,
    /// A router gave it its backend.
    pub(super) granted: bool,
    /// Its conversation is repeated.
    repeats: bool,
    /// Goodbye at the next boundary of turns.
    ending: bool,
    streamed: bool,
    // The server's side.
    pub(super) phase: Phase,
    /// What the server is answering is the caller's turn under way.
    current: bool,
    /// The tool of this turn was called.
    called: bool,
    /// The server has to end the phase.
    phase_due: u64,
    /// The next speech is heard.
    onset_at: u64,
    /// Its end is heard.
    heard_end: u64,
    /// The server ends the session.
    deadline: u64,
    /// User turns that the server has heard.
    heard: u32,
    frames: u32,
    think_again: u64,
    // The caller's side.
    plan: Plan,
    /// It is a turn, not a stretch of silence.
    speech: bool,
    /// At `over_at` the agent has spoken its last frame, and the caller has yet to hear it.
    unheard: bool,
    /// The turn under way begins, or the next.
    begin_at: u64,
    last_begin: u64,
    /// From the agent's first frame, or from the tool's call.
    after: u64,
    /// Said over the agent.
    says: Option<Arc<Utterance>>,
    response_ms: u32,
    turn: u32,
    stream_at: u64,
    act_at: u64,
    over_at: u64,
    missed_at: u64,
    /// Its length is over; until it is accepted, the length.
    life_at: u64,
    pub(super) stop_at: u64,
}

/// No answer of a certain length is asked for.
const ANY_LENGTH: u32 = u32::MAX;

impl Session {
    /// Of a place that is free.
    pub(super) fn free() -> Self {
        Self {
            wake: NEVER,
            scheduled: 0,
            dialled: 0,
            index: 0,
            number: 0,
            serial: 0,
            position: 0,
            iteration: 0,
            backend: 0,
            boot: 0,
            balancer: 0,
            scenario: 0,
            conversation: 0,
            life: Life::Free,
            end: EndKind::Graceful,
            refusals: 0,
            granted: false,
            repeats: false,
            ending: false,
            streamed: false,
            phase: Phase::Listening,
            current: false,
            called: false,
            phase_due: NEVER,
            onset_at: NEVER,
            heard_end: NEVER,
            deadline: NEVER,
            heard: 0,
            frames: 0,
            think_again: 0,
            plan: Plan::Listen,
            speech: false,
            unheard: false,
            begin_at: NEVER,
            last_begin: NEVER,
            after: 0,
            says: None,
            response_ms: ANY_LENGTH,
            turn: 0,
            stream_at: NEVER,
            act_at: NEVER,
            over_at: NEVER,
            missed_at: NEVER,
            life_at: NEVER,
            stop_at: NEVER,
        }
    }

    /// Takes a place, to begin at `at`.
    pub(super) fn take(&mut self, scenario: u16, position: u32, iteration: u32, at: u64) {
        let serial = self.serial.wrapping_add(1);
        *self = Self { serial, scenario, position, iteration, scheduled: at, wake: at, life: Life::Waiting, ..Self::free() };
    }

    /// Draws it. `stop_at` is when its lane ends it.
    pub(super) fn draw(&mut self, draw: &Draw, stop_at: u64) {
        self.index = draw.index.0;
        self.conversation = draw.conversation as u16;
        self.repeats = draw.length.is_some();
        self.life_at = draw.length.map_or(NEVER, |length| length.as_micros() as u64);
        self.end = draw.end;
        self.stop_at = stop_at;
    }

    /// Its name in the plan.
    pub(super) fn index(&self) -> PlanIndex {
        PlanIndex(self.index)
    }

    /// The backend has admitted it, and the caller hears of it at `accepted`.
    pub(super) fn admitted(&mut self, number: u64, accepted: u64, world: World<'_>, backend: &Backend, now: u64) {
        self.number = number;
        self.life = Life::Starting;
        self.phase = Phase::Listening;
        self.deadline = plus(now, backend.model.config.max_duration.unwrap_or(MAX_DURATION));
        self.begin_at = accepted;
        self.missed_at = plus(self.dialled, world.scenario.start_timeout);
        self.wake = accepted.min(self.missed_at).min(self.stop_at);
    }

    /// While it starts: the caller hears the acceptance now, and not the end of its patience.
    pub(super) fn is_accepted(&self, now: u64) -> bool {
        now >= self.begin_at
    }

    /// The caller hears that it is accepted.
    pub(super) fn accept(&mut self, world: World<'_>, backend: &mut Backend, now: u64) -> Step {
        self.life = Life::Live;
        self.missed_at = NEVER;
        self.begin_at = NEVER;
        self.life_at = match self.end {
            EndKind::KillWorker | EndKind::KillBackend => NEVER,
            _ => self.life_at.saturating_add(now),
        };
        let mut step = Step::default();
        self.next_turn(now, world, backend, now, &mut step);
        self.rest(world, backend, now, step)
    }

    /// Does what is due.
    pub(super) fn step(&mut self, world: World<'_>, backend: &mut Backend, now: u64) -> Step {
        self.rest(world, backend, now, Step::default())
    }

    fn rest(&mut self, world: World<'_>, backend: &mut Backend, now: u64, mut step: Step) -> Step {
        loop {
            if step.ended.is_some() {
                return step;
            }
            let (at, due) = self.next_due();
            if at > now {
                self.wake = at;
                return step;
            }
            self.act(due, world, backend, now, &mut step);
        }
    }

    /// At equal times in this order.
    fn next_due(&self) -> (u64, Due) {
        let mut first = (self.deadline, Due::Deadline);
        for (at, due) in [
            (self.life_at, Due::Life),
            (self.stop_at, Due::Stop),
            (self.phase_due, Due::Phase),
            (self.act_at, Due::Act),
            (self.over_at, Due::Over),
            (self.missed_at, Due::Missed),
            (self.onset_at, Due::Onset),
        ] {
            if at < first.0 {
                first = (at, due);
            }
        }
        first
    }

    fn act(&mut self, due: Due, world: World<'_>, backend: &mut Backend, now: u64, step: &mut Step) {
        if self.stream_at <= now && !self.streamed {
            self.streamed = true;
            step.first_stream = Some(self.stream_at);
        }
        match due {
            Due::Deadline if self.life == Life::HalfOpen => step.ended = Some(Outcome::TimedOut),
            Due::Deadline => (step.finish, step.ended) = (Some(Finish::TimedOut), Some(Outcome::TimedOut)),
            Due::Life => {
                self.life_at = NEVER;
                if self.end != EndKind::Graceful || !self.in_turn(now) {
                    self.end_as_planned(backend, now, step);
                } else {
                    self.ending = true;
                }
            }
            Due::Stop => goodbye(step),
            Due::Phase => self.end_phase(world, backend, now),
            Due::Onset => {
                self.enter(Phase::UserSpeaking, self.heard_end, backend, now);
                self.onset_at = NEVER;
                self.heard += 1;
                (self.current, self.called) = (true, false);
                if !self.streamed {
                    self.stream_at = self.stream_at.min(plus(now, PARTIAL_EVERY) + ONE_WAY);
                }
            }
            Due::Act => self.interrupt(world, backend, now),
            Due::Over | Due::Missed => {
                if !self.speech {
                    self.last_begin = now;
                }
                // What comes next is far: the last of the answer, heard a moment later, needs no event of its own.
                let over = if due == Due::Over && std::mem::take(&mut self.unheard) { now + HEARD_OUT } else { now };
                self.next_turn(over, world, backend, now, step);
            }
        }
    }

    fn drawn(&self) -> Draw {
        Draw {
            index: self.index(),
            conversation: usize::from(self.conversation),
            length: self.repeats.then_some(std::time::Duration::ZERO),
            end: self.end,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Deadline,
    Life,
    Stop,
    Phase,
    Act,
    Over,
    Missed,
    Onset,
}

/// `by` later.
pub(super) fn plus(at: u64, by: std::time::Duration) -> u64 {
    (Micros(at) + by).0
}
