//! A backend as a model: the server's own settings, processor, meter and defects; sessions are numbers.

use std::rc::Rc;

use agent_server::{
    config::{ReportMode, ServerConfig},
    fault::{Defect, DefectKind, Fate, Fates},
    processor::Processor,
    report::meter::{Load, Meter, Reading},
    session::SessionConfig,
    tracker::{Outcome, Phase},
};
use proto::{frame::FRAME_US, time::Micros};

use crate::routing::Report;

/// Shortest and longest time between two looks of a backend at itself, microseconds.
const LOOK: (u64, u64) = (10_000, 100_000);

/// What backends that are alike share.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) config: ServerConfig,
    /// What a session of it needs to know.
    pub(super) session: SessionConfig,
    pub(super) defects: Vec<Defect>,
    /// CPU time of 20 ms of each phase, nanoseconds.
    frame_ns: [u64; 5],
    /// CPU time of a session's start, microseconds.
    start_us: f64,
}

impl Model {
    pub(super) fn new(config: ServerConfig, defects: Vec<Defect>) -> Self {
        let frame_ns = Phase::ALL.map(|phase| u64::try_from(config.cost.of(phase).as_nanos()).unwrap_or(u64::MAX));
        let start_us = config.cost.start().as_secs_f64() * 1e6;
        let session = config.session("", "");
        Self { config, session, defects, frame_ns, start_us }
    }

    /// Between two looks at the counters.
    pub(super) fn look_every(&self) -> u64 {
        (self.config.report.min_interval.as_micros() as u64).clamp(LOOK.0, LOOK.1)
    }

    /// Shortest time between two reports out of band.
    pub(super) fn report_every(&self) -> u64 {
        (self.config.report.min_interval.as_micros() as u64).max(1)
    }

    fn target(&self) -> f64 {
        self.config.report.capacity.target
    }
}

/// Why a start came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody listens.
    Down,
    /// At the cap.
    Full,
}

/// An admitted session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admission {
    /// Of the sessions of this boot, from 1.
    pub(super) number: u64,
    /// The acceptance leaves so much later, microseconds.
    pub(super) delay: u64,
}

/// One backend.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) model: Rc<Model>,
    /// It runs.
    pub(super) up: bool,
    /// Balancers know of it.
    pub(super) joined: bool,
    /// Counts its processes.
    pub(super) boot: u32,
    /// Live sessions, as they are.
    pub(super) live: u32,
    /// Most there ever were.
    pub(super) most: u32,
    /// Live sessions, as its counter says.
    pub(super) counter: i64,
    /// Places taken, as its admission believes.
    taken: u64,
    /// Sessions in which somebody speaks, as its counters say.
    speaking: i64,
    admitted: u64,
    errors: u64,
    /// What its sessions ask of the CPU in 20 ms, nanoseconds.
    asked_ns: u64,
    processor: Processor,
    meter: Meter,
    fates: Fates,
    /// As of the last look.
    load: Load,
    trail: Trail,
    /// Mean utilization of the last second or so; NaN until it has run for so long, as in a run: then it is no part of a figure, and not busy.
    pub(super) utilization: f64,
}

impl Backend {
    pub(super) fn new(model: Rc<Model>, trail: usize) -> Self {
        let report = &model.config.report;
        let mut backend = Self {
            up: true,
            joined: true,
            boot: 0,
            live: 0,
            most: 0,
            counter: 0,
            taken: 0,
            speaking: 0,
            admitted: 0,
            errors: 0,
            asked_ns: 0,
            processor: Processor::new(report.cores, Micros::ZERO),
            meter: report.meter(),
            fates: Fates::new(&model.defects),
            load: Load::default(),
            trail: Trail::new(trail),
            utilization: f64::NAN,
            model,
        };
        backend.look(0);
        backend
    }

    /// The hard cap.
    pub(super) fn cap(&self) -> Option<u64> {
        self.model.config.max_sessions
    }

    /// By the truth: its sessions are at the cap, or its utilization at the target.
    pub(super) fn overloaded(&self) -> bool {
        self.cap().is_some_and(|cap| u64::from(self.live) >= cap) || self.utilization >= self.model.target()
    }

    /// A session's start arrives.
    pub(super) fn admit(&mut self, now: u64) -> Result<Admission, Refusal> {
        if !self.up {
            return Err(Refusal::Down);
        }
        if let Some(cap) = self.cap() {
            if self.taken >= cap {
                self.errors += 1;
                if self.fates.struck(DefectKind::DecrementOnReject) {
                    self.uncount(false);
                }
                return Err(Refusal::Full);
            }
            self.taken += 1;
        }
        self.advance(now);
        self.processor.charge(self.model.start_us, Micros(now));
        self.asked_ns += self.model.frame_ns[Phase::Listening as usize];
        self.counter += 1;
        self.live += 1;
        self.most = self.most.max(self.live);
        self.admitted += 1;
        Ok(Admission { number: self.admitted, delay: self.delay() })
    }

    /// How long work that comes now waits, microseconds; as of the last change.
    fn delay(&self) -> u64 {
        self.processor.delay().as_micros() as u64
    }

    /// The same, at `now`.
    pub(super) fn delay_at(&mut self, now: u64) -> u64 {
        self.advance(now);
        self.delay()
    }

    /// A session goes from one phase to another.
    pub(super) fn enter(&mut self, from: Phase, to: Phase, now: u64) {
        let (old, new) = (self.model.frame_ns[from as usize], self.model.frame_ns[to as usize]);
        if old != new {
            self.advance(now);
            self.asked_ns = self.asked_ns + new - old;
        }
        self.speaking += i64::from(speaks(to)) - i64::from(speaks(from));
    }

    /// A session in `phase` is over. Gives how much later that is counted, where it is counted late.
    pub(super) fn end(&mut self, phase: Phase, outcome: Outcome, now: u64) -> Option<u64> {
        self.advance(now);
        self.asked_ns -= self.model.frame_ns[phase as usize];
        self.live -= 1;
        match self.fates.of_end(outcome) {
            Fate::Counted => self.uncount(speaks(phase)),
            Fate::CountedTwice => {
                self.uncount(speaks(phase));
                self.uncount(speaks(phase));
            }
            // One that is there again takes its place anew, and nobody speaks in it.
            Fate::Undone => self.speaking -= i64::from(speaks(phase)),
            Fate::Withheld => {}
            Fate::Late(after) => return Some(after.as_micros() as u64),
        }
        None
    }

    /// Counts an end.
    pub(super) fn uncount(&mut self, speaking: bool) {
        self.counter -= 1;
        self.taken = self.taken.saturating_sub(1);
        self.speaking -= i64::from(speaking);
    }

    fn advance(&mut self, now: u64) {
        self.processor.advance(Micros(now), self.asked_ns as f64 / (FRAME_US * 1_000) as f64);
    }

    /// Looks at the counters and the CPU, for the next report.
    pub(super) fn look(&mut self, now: u64) {
        if self.up {
            self.advance(now);
            self.meter.read(Reading {
                at: Micros(now),
                active: self.counter,
                speaking: u64::try_from(self.speaking).unwrap_or(0),
                used_us: self.processor.used_us(),
                errors: self.errors,
            });
        }
    }

    /// Makes a report of the last look.
    pub(super) fn report(&mut self, now: u64) -> Report {
        self.load = self.meter.load(false);
        report(&self.load, self.model.config.report.mode, now)
    }

    /// The last report, without a new look.
    pub(super) fn rate(&self) -> f64 {
        self.load.capacity.rate
    }

    /// Looks at the truth, in equal steps of `step` microseconds.
    pub(super) fn see(&mut self, now: u64, step: u64) {
        if self.up {
            self.advance(now);
            let used = self.trail.push(self.processor.used_us());
            // Whole microseconds are a little more than what a small part of a core does.
            let share = |(used, steps): (u64, u64)| (used as f64 / (steps * step) as f64 / self.processor.cores()).min(1.0);
            self.utilization = used.map_or(f64::NAN, share);
        }
    }

    /// CPU time used, and asked for and not done yet, microseconds.
    #[cfg(test)]
    pub(super) fn used_us(&mut self, now: u64) -> u64 {
        self.advance(now);
        self.processor.used_us() + (self.delay() as f64 * self.processor.cores()) as u64
    }

    /// The process dies, with all that it counted.
    pub(super) fn kill(&mut self) {
        (self.up, self.boot) = (false, self.boot + 1);
        (self.live, self.counter, self.taken, self.speaking, self.admitted, self.errors) = (0, 0, 0, 0, 0, 0);
        (self.asked_ns, self.utilization) = (0, f64::NAN);
    }

    /// A new process takes its place.
    pub(super) fn restart(&mut self, now: u64) {
        self.up = true;
        self.processor = Processor::new(self.model.config.report.cores, Micros(now));
        self.meter = self.model.config.report.meter();
        self.fates = Fates::new(&self.model.defects);
        self.trail.clear();
        self.look(now);
    }
}

const fn speaks(phase: Phase) -> bool {
    matches!(phase, Phase::UserSpeaking | Phase::AgentSpeaking)
}

/// CPU time used, at the last few looks.
#[derive(Debug)]
struct Trail {
    used: Box<[u64]>,
    next: usize,
    filled: usize,
}

impl Trail {
    fn new(steps: usize) -> Self {
        Self { used: vec![0; steps.max(1) + 1].into_boxed_slice(), next: 0, filled: 0 }
    }

    fn clear(&mut self) {
        (self.next, self.filled) = (0, 0);
    }

    /// CPU time used since the oldest look, and how many steps ago that was; none while there are not looks enough.
    fn push(&mut self, used: u64) -> Option<(u64, u64)> {
        let size = self.used.len();
        self.used[self.next] = used;
        self.filled = (self.filled + 1).min(size);
        let oldest = self.used[(self.next + size + 1 - self.filled) % size];
        self.next = (self.next + 1) % size;
        (self.filled == size).then_some((used - oldest, size as u64 - 1))
    }
}

/// What a balancer reads from a backend's report of this load: as it goes over the wire, without going over it.
pub(super) fn report(load: &Load, mode: ReportMode, at: u64) -> Report {
    let seats = load.max_sessions.map_or(0.0, |max| load.sessions / max.max(1) as f64);
    let (utilization, application_utilization, qps, eps) = match mode {
        ReportMode::Honest => (load.utilization, load.utilization.max(seats), load.capacity.virtual_qps, load.eps),
        ReportMode::RateWeight => (load.utilization, 1.0, (load.rate() * 1_000.0).max(0.001), load.eps),
        ReportMode::Fixed(share) => (share, share, 100.0, 0.0),
    };
    Report {
        at: Micros(at),
        utilization,
        application_utilization,
        qps,
        eps,
        active: Some(load.active),
        speaking: Some(load.speaking),
        rate: Some(load.rate()),
        effective_capacity: Some(load.effective_capacity()),
        max_sessions: load.max_sessions.map(|max| max as f64),
        draining: load.draining,
    }
}

#[cfg(test)]
mod tests {
    use agent_server::report::{capacity::CapacityConfig, orca};

    use super::*;

    fn model(settings: serde_json::Value) -> Rc<Model> {
        let args: agent_server::config::ServeArgs = serde_json::from_value(settings).unwrap();
        let config = ServerConfig::resolve(args).unwrap();
        let defects = config.defects.iter().map(|text| text.parse().unwrap()).collect();
        Rc::new(Model::new(config, defects))
    }

    /// The wire is left out, and must make no difference.
    #[test]
    fn a_report_is_what_the_wire_would_bring() {
        let config = CapacityConfig { max_sessions: Some(100), ..CapacityConfig::default() };
        for (sessions, utilization, draining) in [(0.0, 0.0, false), (80.0, 0.4, false), (97.5, 0.9, false), (30.0, 1.0, true)] {
            for max_sessions in [None, Some(100)] {
                let capacity = config.capacity(sessions, utilization);
                let load = Load {
                    at: Micros(7),
                    active: sessions + 1.0,
                    speaking: 3.0,
                    max_sessions,
                    sessions,
                    utilization,
                    eps: 0.25,
                    capacity,
                    draining,
                };
                for mode in [ReportMode::Honest, ReportMode::RateWeight, ReportMode::Fixed(0.3)] {
                    let wired = Report::from_orca(&orca::report(&load, mode, 0.5), Micros(9));
                    assert_eq!(report(&load, mode, 9), wired, "{mode} {load:?}");
                }
            }
        }
    }

    #[test]
    fn sessions_use_the_cpu_by_their_phase_and_wait_when_it_is_behind() {
        let model = model(serde_json::json!({ "cost": "virtual:start=10ms,speaking=5ms,idle=1ms", "cpu_cores": 1.0 }));
        let mut backend = Backend::new(model, 10);
        let mut delay = 0;
        for _ in 0..4 {
            delay = backend.admit(0).unwrap().delay;
        }
        assert_eq!(delay, 40_000, "four starts of 10 ms stand in line");
        // 40 ms of starts, 960 ms of four idle sessions at a twentieth of a core, the rest idle.
        for ms in (0..1_000).step_by(100) {
            backend.see(ms * 1_000, 100_000);
            assert!(backend.utilization.is_nan() && !backend.overloaded(), "not known before a second is over");
        }
        backend.see(1_000_000, 100_000);
        assert!((backend.utilization - (0.04 + 0.2)).abs() < 0.03, "{}", backend.utilization);
        for _ in 0..4 {
            backend.enter(Phase::Listening, Phase::AgentSpeaking, 1_000_000);
        }
        // Four speak at a quarter of a core each: just what there is. A fifth is too much by its idle twentieth.
        backend.see(2_000_000, 100_000);
        assert_eq!(backend.delay_at(2_000_000), 0);
        backend.admit(2_000_000).unwrap();
        assert_eq!(backend.delay_at(4_000_000), 10_000 + 100_000);
        for ms in (4_100..=6_000).step_by(100) {
            backend.see(ms * 1_000, 100_000);
        }
        assert!((backend.utilization - 1.0).abs() < 1e-3 && backend.overloaded());
    }

    #[test]
    fn the_cap_holds_and_a_dead_backend_refuses() {
        let mut backend = Backend::new(model(serde_json::json!({ "max_sessions": 2 })), 10);
        assert_eq!([1, 2].map(|at| backend.admit(at).map(|admission| admission.number)), [Ok(1), Ok(2)]);
        assert!(backend.overloaded());
        assert_eq!(backend.admit(3), Err(Refusal::Full));
        assert_eq!(backend.end(Phase::Listening, Outcome::Completed, 4), None);
        assert!(backend.admit(5).is_ok());
        backend.kill();
        assert_eq!(backend.admit(6), Err(Refusal::Down));
        assert!(backend.utilization.is_nan());
        backend.restart(7);
        assert_eq!((backend.live, backend.counter, backend.admit(8).map(|admission| admission.number)), (0, 0, Ok(1)));
    }

    #[test]
    fn defects_make_the_counter_wrong_and_the_cap_with_it() {
        let counted = |defect: &str, outcome| {
            let mut backend = Backend::new(model(serde_json::json!({ "max_sessions": 4, "defect": [defect] })), 10);
            let admitted = (0..4).filter(|at| backend.admit(*at).is_ok()).count();
            let late = (0..4).filter_map(|at| backend.end(Phase::Listening, outcome, 10 + at)).count();
            let again = (0..9).filter(|at| backend.admit(20 + at).is_ok()).count();
            (admitted, late, backend.counter - i64::from(backend.live), again)
        };
        assert_eq!(counted("ghost=0.5", Outcome::Cancelled), (4, 0, 2, 2));
        assert_eq!(counted("ghost=0.5", Outcome::Completed), (4, 0, 0, 4));
        assert_eq!(counted("forget_on_timeout=1", Outcome::TimedOut), (4, 0, 4, 0));
        assert_eq!(counted("late_decrement=1:1s", Outcome::Cancelled), (4, 4, 4, 0));
        // Seats go down to zero and no further.
        assert_eq!(counted("double_decrement=0.5", Outcome::Completed), (4, 0, -2, 4));
        // One in two that is refused is counted as an end: the next one gets in.
        assert_eq!(counted("decrement_on_reject=1", Outcome::Completed).3, 6);
    }
}
