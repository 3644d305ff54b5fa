//! What a balancer knows of a backend.

use proto::{
    orca::{OrcaLoadReport, metric},
    time::Micros,
};

/// A load report, as policies read it. Absent metrics are 0 or none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Report {
    /// When the backend made it, as far as the balancer can tell.
    pub at: Micros,
    /// CPU.
    pub utilization: f64,
    /// As the application sees it; 0 is "not set".
    pub application_utilization: f64,
    /// Requests per second, as reported.
    pub qps: f64,
    /// Failures per second.
    pub eps: f64,
    /// Live sessions by the backend's counter.
    pub active: Option<f64>,
    /// Of those: somebody speaks.
    pub speaking: Option<f64>,
    /// Sessions per second that it can take.
    pub rate: Option<f64>,
    /// Sessions that it can hold at the end of the next window.
    pub effective_capacity: Option<f64>,
    /// Hard cap.
    pub max_sessions: Option<f64>,
    /// No new session is taken.
    pub draining: bool,
}

impl Report {
    /// Reads a report that came at `at`. Values that are negative or not finite count as absent.
    pub fn from_orca(orca: &OrcaLoadReport, at: Micros) -> Self {
        let named = |name: &str| orca.named_metrics.get(name).copied();
        Self {
            at,
            utilization: orca.cpu_utilization,
            application_utilization: orca.application_utilization,
            qps: orca.rps_fractional,
            eps: orca.eps,
            active: named(metric::ACTIVE_SESSIONS),
            speaking: named(metric::SPEAKING_SESSIONS),
            rate: named(metric::ADDITIONAL_SESSION_RATE),
            effective_capacity: named(metric::EFFECTIVE_CAPACITY),
            max_sessions: named(metric::MAX_SESSIONS),
            draining: named(metric::DRAINING).and_then(sane).is_some_and(|draining| draining > 0.0),
        }
        .cleaned()
    }

    /// Without the values that are negative or not finite.
    pub(super) fn cleaned(self) -> Self {
        let clean = |x: f64| sane(x).unwrap_or(0.0);
        Self {
            utilization: clean(self.utilization),
            application_utilization: clean(self.application_utilization),
            qps: clean(self.qps),
            eps: clean(self.eps),
            active: self.active.and_then(sane),
            speaking: self.speaking.and_then(sane),
            rate: self.rate.and_then(sane),
            effective_capacity: self.effective_capacity.and_then(sane),
            max_sessions: self.max_sessions.and_then(sane),
            ..self
        }
    }
}

fn sane(x: f64) -> Option<f64> {
    (x.is_finite() && x >= 0.0).then_some(x)
}

/// What one balancer knows of one backend.
#[derive(Debug, Clone, Default)]
pub struct Backend {
    /// The last report, unless it is stale.
    pub report: Option<Report>,
    /// Sessions given to it that no report shows yet: the debit.
    pub granted: u32,
    /// Sessions that this balancer gave it and that have not ended, as far as it knows.
    pub open: u32,
    /// Startup time of its sessions as this balancer saw it, seconds, exponentially averaged; 0 before the first.
    pub latency: f64,
    /// Its part of what the backend can take: 1 / balancers where they share, else 1.
    pub share: f64,
}

impl Backend {
    /// Sessions that it has, as far as the balancer can know: reported and granted since; without a report, its own.
    pub fn sessions(&self) -> f64 {
        match self.report.and_then(|report| report.active) {
            Some(active) => active + f64::from(self.granted),
            None => f64::from(self.open),
        }
    }

    /// Sessions that it can still take within its effective capacity, debited, this balancer's share of it; below 0 when it has too many
    /// already. None without such a report.
    ///
    /// The capacity is of one window's sessions and utilization; what was granted since is in neither, and neither is it in the report's
    /// sessions: it is spent already, all of it by this balancer, so it is taken off undivided.
    pub fn room(&self) -> Option<f64> {
        let report = self.report?;
        Some((report.effective_capacity? - report.active?) * self.share - f64::from(self.granted))
    }

    /// At its hard cap.
    pub fn full(&self) -> bool {
        self.report.and_then(|report| report.max_sessions).is_some_and(|max| self.sessions() >= max)
    }
}
