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
    /// Mean utilization of the last second or so.
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
            utilization: 0.0,
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
            let (used, steps) = self.trail.push(self.processor.used_us());
            let elapsed = (steps * step) as f64;
            self.utilization = if elapsed > 0.0 { used as f64 / elapsed / self.processor.cores() } else { 0.0 };
        }
    }

    /// The process dies, with all that it counted.
    pub(super) fn kill(&mut self) {
        (self.up, self.boot) = (false, self.boot + 1);
        (self.live, self.counter, self.taken, self.speaking, self.admitted, self.errors) = (0, 0, 0, 0, 0, 0);
        (self.asked_ns, self.utilization) = (0, 0.0);
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

    /// CPU time used since the oldest look, and how many steps ago that was.
    fn push(&mut self, used: u64) -> (u64, u64) {
        let size = self.used.len();
        self.used[self.next] = used;
        self.filled = (self.filled + 1).min(size);
        let oldest = self.used[(self.next + size + 1 - self.filled) % size];
        self.next = (self.next + 1) % size;
        (used - oldest, self.filled as u64 - 1)
    }
}

/// What a balancer reads from a backend's report of this load: as it goes over the wire, without going over it.
pub(super) fn report(load: &Load, mode: ReportMode, at: u64) -> Report {
    let seats = load.max_sessions.map_or(0.0, |max| load.sessions / max.max(1) as f64);
    let (utilization, application_utilization, qps, eps) = match mode {
        ReportMode::Honest => (load.utilization, load.utilization.max(seats), load.capacity.virtual_qps, load.eps),
        ReportMode::RateWeight => (load.utilization, 1.0, (load.capacity.rate * 1_000.0).max(0.001), load.eps),
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
        rate: Some(load.capacity.rate),
        effective_capacity: Some(load.capacity.effective),
        max_sessions: load.max_sessions.map(|max| max as f64),
        draining: load.draining,
    }
}
