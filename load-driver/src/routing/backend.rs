//! What a balancer knows of a backend.

use proto::{orca::OrcaLoadReport, time::Micros};

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
        let _ = (orca, at);
        todo!("routing helper")
    }
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
    pub fn room(&self) -> Option<f64> {
        todo!("routing helper")
    }

    /// At its hard cap.
    pub fn full(&self) -> bool {
        self.report.and_then(|report| report.max_sessions).is_some_and(|max| self.sessions() >= max)
    }
}
