//! The sessions of a run: from arrival to end, and whom each step concerns.

use std::time::Duration;

use agent_server::tracker::{Outcome, Phase};
use proto::time::Micros;

use super::{
    backend::Refusal,
    queue::Event,
    run::Run,
    session::{Finish, Life, ONE_WAY, REACH, Session, Step, World, plus},
    timer::Happening,
};
use crate::{
    balance::{Decision, Trouble},
    plan::{EndKind, Expect, ScenarioPlan, turn},
    routing::Grant,
};

/// A lane whose session failed begins the next so much later.
const PAUSE_AFTER_FAILURE: u64 = 1_000_000;
/// Why a session failed that its lane's end found still starting.
const ABORTED: &str = "aborted";
/// From the goodbye to its answer.
const GOODBYE: u64 = 2 * ONE_WAY;

/// What was counted, all of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    pub(super) accepted: u64,
    pub(super) finished: u64,
    pub(super) lost: u64,
    pub(super) refused: u64,
    pub(super) cut: u64,
    pub(super) events: u64,
    pub(super) most_open: u64,
}

impl Run<'_> {
    fn scenario(&self, session: &Session) -> &ScenarioPlan {
        &self.setup.plan.scenarios[usize::from(session.scenario)]
    }

    /// A lane begins.
    pub(super) fn arrive(&mut self, scenario: u16, position: u32, iteration: u32, at: u64) {
        self.tally.events += 1;
        if self.dead[usize::from(scenario)] {
            return;
        }
        let slot = self.place(scenario, position, iteration, at);
        self.begin(slot);
    }

    fn place(&mut self, scenario: u16, position: u32, iteration: u32, at: u64) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(Session::free());
            self.sessions.len() as u32 - 1
        });
        self.sessions[slot as usize].take(scenario, position, iteration, at);
        let open = (self.sessions.len() - self.free.len()) as u64;
        self.tally.most_open = self.tally.most_open.max(open);
        slot
    }

    /// A session's time has come.
    fn begin(&mut self, slot: u32) {
        let setup = self.setup;
        let session = &mut self.sessions[slot as usize];
        let scenario = &setup.plan.scenarios[usize::from(session.scenario)];
        let Some(lane) = scenario.lanes.get(session.position as usize) else { return };
        let draw = scenario.draw(setup.plan.seed, lane.number, session.iteration);
        session.draw(&draw, plus(lane.stop.0, lane.grace));
        self.tally.arrived += 1;
        self.send(slot, None);
    }

    /// Latencies are measured from the warm-up on, by when the session should have begun.
    fn measured(&self, slot: u32) -> bool {
        self.sessions[slot as usize].scheduled >= self.setup.warmup
    }

    /// Sends a session to a backend, but not to `not`.
    fn send(&mut self, slot: u32, not: Option<usize>) {
        let pinned = self.scenario(&self.sessions[slot as usize]).backend;
        let now = Micros(self.now);
        let backend = match pinned {
            // The plan named it: nobody decided.
            Some(backend) if backend < self.backends.len() => backend,
            Some(_) => return self.fail(slot, "unreachable"),
            None => {
                let number = turn(self.sessions[slot as usize].index());
                let Some(grant) = self.router.grant(number, not, now) else { return self.fail(slot, "no_backend") };
                self.decide(grant.backend, grant.report_age);
                let session = &mut self.sessions[slot as usize];
                (session.granted, session.balancer) = (true, grant.balancer as u32);
                grant.backend
            }
        };
        let session = &mut self.sessions[slot as usize];
        session.backend = backend as u32;
        session.dialled = self.now;
        session.life = Life::Dialling;
        session.wake = self.now + REACH;
        self.rearm(slot);
    }

    fn decide(&mut self, backend: usize, report_age: Option<Duration>) {
        let overloaded = self.backends.get(backend).is_some_and(|backend| backend.up && backend.overloaded());
        let avoidable = overloaded && self.truth.any_fit();
        self.book.decide(Decision { at: Micros(self.now), backend, overloaded, avoidable, report_age });
    }

    fn grant(&self, slot: u32) -> Option<Grant> {
        let session = &self.sessions[slot as usize];
        let grant =
            Grant { backend: session.backend as usize, balancer: session.balancer as usize, at: Micros(session.dialled), report_age: None };
        session.granted.then_some(grant)
    }

    /// The event of a session, if it still is the same.
    pub(super) fn wake(&mut self, event: Event) {
        self.tally.events += 1;
        let Some(session) = self.sessions.get(event.slot as usize) else { return };
        if session.serial != event.serial || session.wake != event.at {
            return;
        }
        match session.life {
            Life::Free => {}
            Life::Waiting => self.begin(event.slot),
            Life::Dialling => self.reach(event.slot),
            Life::Starting => self.hear_start(event.slot),
            Life::Live | Life::HalfOpen => {
                let step = self.step(event.slot, Session::step);
                self.follow(event.slot, step);
            }
        }
    }

    /// The start is with the backend.
    fn reach(&mut self, slot: u32) {
        let (setup, now) = (self.setup, self.now);
        let session = &mut self.sessions[slot as usize];
        let at = session.backend as usize;
        let backend = &mut self.backends[at];
        match backend.admit(now) {
            Ok(admission) => {
                session.boot = backend.boot;
                let world = World { scenario: &setup.plan.scenarios[usize::from(session.scenario)], seed: setup.plan.seed };
                session.admitted(admission.number, now + admission.delay + ONE_WAY, world, backend, now);
                self.truth.judge(at, &self.backends[at]);
                self.rearm(slot);
            }
            Err(Refusal::Full) => self.refused(slot, "rejected"),
            Err(Refusal::Down) => self.refused(slot, "connection_refused"),
        }
    }

    fn refused(&mut self, slot: u32, cause: &'static str) {
        let session = &self.sessions[slot as usize];
        if session.granted && u32::from(session.refusals) < self.setup.routing.retries.min(u32::from(u8::MAX)) {
            self.book.trouble(Trouble::Retried, cause);
            if let Some(grant) = self.grant(slot) {
                self.router.failed(grant);
            }
            let session = &mut self.sessions[slot as usize];
            session.refusals += 1;
            session.granted = false;
            let not = session.backend as usize;
            self.send(slot, Some(not));
        } else {
            self.fail(slot, cause);
        }
    }

    /// Acceptance, or the end of patience.
    fn hear_start(&mut self, slot: u32) {
        let now = self.now;
        let session = &self.sessions[slot as usize];
        if !session.is_accepted(now) {
            let cause = if session.stop_at <= now { ABORTED } else { "start_timeout" };
            self.end_on_server(slot, Outcome::Cancelled);
            return self.fail(slot, cause);
        }
        let (backend, dialled, scheduled) = (session.backend, session.dialled, session.scheduled);
        if let Some(grant) = self.grant(slot) {
            self.router.accepted(grant, Duration::from_micros(now - dialled));
        }
        self.hear_in_band(backend, Some(dialled));
        self.tally.accepted += 1;
        if self.measured(slot) {
            self.book.startup(Duration::from_micros(now - scheduled));
        }
        let step = self.step(slot, Session::accept);
        self.follow(slot, step);
    }

    fn step(&mut self, slot: u32, how: impl FnOnce(&mut Session, World<'_>, &mut super::backend::Backend, u64) -> Step) -> Step {
        let setup = self.setup;
        let session = &mut self.sessions[slot as usize];
        let backend = &mut self.backends[session.backend as usize];
        let world = World { scenario: &setup.plan.scenarios[usize::from(session.scenario)], seed: setup.plan.seed };
        how(session, world, backend, self.now)
    }

    /// Tells everybody what a step came to.
    fn follow(&mut self, slot: u32, step: Step) {
        if let Some(at) = step.first_stream
            && self.measured(slot)
        {
            let scheduled = self.sessions[slot as usize].scheduled;
            self.book.first_stream(Duration::from_micros(at.saturating_sub(scheduled)));
        }
        if let Some(outcome) = step.ended {
            self.end_on_server(slot, outcome);
        }
        if let Some(finish) = step.finish {
            if let Some(grant) = self.grant(slot) {
                self.router.ended(grant);
            }
            let session = &self.sessions[slot as usize];
            let backend = session.backend;
            let planned = finish == Finish::AsPlanned || self.scenario(session).expect == Some(Expect::TimedOut);
            if step.ended.is_some() && step.ended != Some(Outcome::Cancelled) {
                self.hear_in_band(backend, None);
            }
            if planned {
                self.tally.finished += 1;
            } else {
                self.tally.lost += 1;
                self.book.trouble(Trouble::Dropped, "ended_timed_out");
            }
            self.repeat(slot, GOODBYE);
        }
        if step.ended.is_some() {
            self.leave(slot);
        } else {
            self.rearm(slot);
        }
    }

    /// The backend ends a session.
    fn end_on_server(&mut self, slot: u32, outcome: Outcome) {
        let session = &self.sessions[slot as usize];
        let (at, phase, boot) = (session.backend, session.phase, session.boot);
        let backend = &mut self.backends[at as usize];
        if let Some(later) = backend.end(phase, outcome, self.now) {
            self.book.late_end();
            let speaking = matches!(phase, Phase::UserSpeaking | Phase::AgentSpeaking);
            self.timers.set(self.now.saturating_add(later), Happening::LateEnd(at, boot, speaking));
        }
        self.truth.judge(at as usize, &self.backends[at as usize]);
    }

    /// A session that was never accepted is over. That the run itself gave it up is nobody's fault.
    fn fail(&mut self, slot: u32, cause: &'static str) {
        if cause != ABORTED {
            self.book.trouble(Trouble::Rejected, cause);
        }
        if let Some(grant) = self.grant(slot) {
            self.router.failed(grant);
        }
        self.tally.refused += 1;
        self.repeat(slot, PAUSE_AFTER_FAILURE);
        self.leave(slot);
    }

    /// The lane of a session that is over goes on with the next.
    fn repeat(&mut self, slot: u32, pause: u64) {
        let session = &self.sessions[slot as usize];
        let (scenario, position, iteration) = (session.scenario, session.position, session.iteration + 1);
        let at = self.now + pause;
        let lane = self.scenario(session).lanes.get(position as usize);
        if lane.is_some_and(|lane| lane.repeat && at < lane.stop.0) && !self.dead[usize::from(scenario)] {
            let next = self.place(scenario, position, iteration, at);
            self.rearm(next);
        }
    }

    fn leave(&mut self, slot: u32) {
        self.sessions[slot as usize].life = Life::Free;
        self.sessions[slot as usize].wake = super::session::NEVER;
        self.free.push(slot);
    }

    /// Sessions by their place; none begins or moves while they are gone through.
    fn matching(&self, which: impl Fn(&Session) -> bool) -> Vec<u32> {
        (0..self.sessions.len() as u32).filter(|slot| which(&self.sessions[*slot as usize])).collect()
    }

    /// The process of a backend is gone, and its sessions with it. What it counted goes the same way: nothing is counted here.
    pub(super) fn lose_all(&mut self, at: u32) {
        for slot in self.matching(|s| s.backend == at && matches!(s.life, Life::Starting | Life::Live | Life::HalfOpen)) {
            let session = &self.sessions[slot as usize];
            match (session.life, session.end) {
                (Life::Starting, _) => self.fail(slot, "reset"),
                (Life::HalfOpen, _) => self.leave(slot),
                (_, end) => {
                    if let Some(grant) = self.grant(slot) {
                        self.router.ended(grant);
                    }
                    if end == EndKind::KillBackend {
                        self.tally.cut += 1;
                    } else {
                        self.tally.lost += 1;
                        self.book.trouble(Trouble::Dropped, EndKind::KillBackend.name());
                    }
                    self.repeat(slot, PAUSE_AFTER_FAILURE);
                    self.leave(slot);
                }
            }
        }
    }

    /// The worker that holds a scenario's sessions is gone: the kernel closes their sockets, and nothing follows them.
    pub(super) fn kill_worker(&mut self, scenario: u16) {
        self.dead[usize::from(scenario)] = true;
        for slot in self.matching(|s| s.scenario == scenario && s.life != Life::Free) {
            let life = self.sessions[slot as usize].life;
            if let Some(grant) = self.grant(slot).filter(|_| life != Life::HalfOpen) {
                if life == Life::Live { self.router.ended(grant) } else { self.router.failed(grant) }
            }
            if matches!(life, Life::Starting | Life::Live | Life::HalfOpen) {
                self.end_on_server(slot, Outcome::Cancelled);
            }
            match life {
                Life::Live => self.tally.cut += 1,
                Life::Dialling | Life::Starting => self.tally.refused += 1,
                Life::Free | Life::Waiting | Life::HalfOpen => {}
            }
            self.leave(slot);
        }
    }
}
