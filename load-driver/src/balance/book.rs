//! Collects what the quality of balance is computed from.

use std::time::Duration;

use proto::time::Micros;

use super::Balance;

/// What the figures are held against.
#[derive(Debug, Clone, PartialEq)]
pub struct BookConfig {
    /// Backends.
    pub backends: usize,
    /// Utilization from which a backend is overloaded.
    pub target: f64,
    /// Between reports: herding is counted in this window.
    pub report_interval: Duration,
    /// Events that balance must recover from: a scale-up, a kill.
    pub disturbances: Vec<Micros>,
}

/// The truth about one backend at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sight {
    /// Live sessions, as they are.
    pub sessions: f64,
    /// Live sessions, as its counter says.
    pub reported: f64,
    /// Hard cap.
    pub max_sessions: Option<f64>,
    /// Utilization of the last second or so.
    pub utilization: f64,
    /// Sessions per second that it said it can take; for herding.
    pub rate: Option<f64>,
    /// It runs and is in the fleet.
    pub up: bool,
}

/// A session was given to a backend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Micros,
    /// Whom.
    pub backend: usize,
    /// By the truth at that moment, its utilization was at the target or its sessions at the cap.
    pub overloaded: bool,
    /// And another backend was not.
    pub avoidable: bool,
    /// Age of the report that the decision rests on.
    pub report_age: Option<Duration>,
}

/// A session that did not go well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Never accepted.
    Rejected,
    /// Accepted, and lost.
    Dropped,
    /// Sent to another backend after a refusal.
    Retried,
}

/// The book.
#[derive(Debug)]
pub struct Book {}

impl Book {
    /// Empty.
    pub fn new(config: BookConfig) -> Self {
        let _ = config;
        todo!("balance helper")
    }

    /// A look at all backends, in the order of their index. What it shows holds until the next look.
    pub fn see(&mut self, at: Micros, fleet: &[Sight]) {
        let _ = (at, fleet);
        todo!("balance helper")
    }

    /// A decision, in order of time.
    pub fn decide(&mut self, decision: Decision) {
        let _ = decision;
        todo!("balance helper")
    }

    /// Something went wrong, by this cause (a closed list of short names).
    pub fn trouble(&mut self, what: Trouble, cause: &'static str) {
        let _ = (what, cause);
        todo!("balance helper")
    }

    /// A session was accepted, so long after its scheduled arrival.
    pub fn startup(&mut self, took: Duration) {
        let _ = took;
        todo!("balance helper")
    }

    /// A session's first stream of the agent came, so long after its scheduled arrival.
    pub fn first_stream(&mut self, took: Duration) {
        let _ = took;
        todo!("balance helper")
    }

    /// An end was counted too late.
    pub fn late_end(&mut self) {
        todo!("balance helper")
    }

    /// The figures.
    pub fn close(self, at: Micros, ghosts_left: u64) -> Balance {
        let _ = (at, ghosts_left);
        todo!("balance helper")
    }
}
