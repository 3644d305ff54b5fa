//! Balancers: who gets the next session, and what follows from it.

use std::time::Duration;

use proto::time::Micros;

use super::{Made, Report};

/// How balancers work.
#[derive(Debug, Clone, Copy)]
pub struct RouterConfig {
    /// What picks.
    pub policy: Made,
    /// Backends.
    pub backends: usize,
    /// Balancers that know nothing of each other's grants.
    pub balancers: usize,
    /// They divide what backends can take by their number.
    pub share: bool,
    /// A report older than this says nothing any more.
    pub staleness: Duration,
    /// What an error costs in weighted round robin, as a multiple of its share of requests.
    pub error_penalty: f64,
    /// Of everything random.
    pub seed: u64,
}

/// A backend for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Which.
    pub backend: usize,
    /// Whose table it was picked from.
    pub balancer: usize,
    /// Age of the report that it rests on; none without one.
    pub report_age: Option<Duration>,
}

/// One or more balancers in front of the same backends. Times only go forward.
#[derive(Debug)]
pub struct Router {}

impl Router {
    /// Nothing is known; every backend is up.
    pub fn new(config: RouterConfig) -> Self {
        let _ = config;
        todo!("routing helper")
    }

    /// A backend for a session of number `session` (which decides the balancer), but not `not` (where it was refused before). None when no
    /// backend may be picked.
    pub fn grant(&mut self, session: u64, not: Option<usize>, now: Micros) -> Option<Grant> {
        let _ = (session, not, now);
        todo!("routing helper")
    }

    /// Every balancer hears a report, at `now`. Grants after `report.at` stay debited.
    pub fn report(&mut self, backend: usize, report: Report, now: Micros) {
        let _ = (backend, report, now);
        todo!("routing helper")
    }

    /// A backend can or cannot be reached.
    pub fn set_up(&mut self, backend: usize, up: bool) {
        let _ = (backend, up);
        todo!("routing helper")
    }

    /// The session of a grant was accepted, so long after the balancer sent it there.
    pub fn accepted(&mut self, grant: Grant, startup: Duration) {
        let _ = (grant, startup);
        todo!("routing helper")
    }

    /// The session of a grant came to nothing: its debit is returned.
    pub fn failed(&mut self, grant: Grant) {
        let _ = grant;
        todo!("routing helper")
    }

    /// The accepted session of a grant is over.
    pub fn ended(&mut self, grant: Grant) {
        let _ = grant;
        todo!("routing helper")
    }
}
