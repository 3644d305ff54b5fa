//! What the ledger must know before the run. Times are microseconds.

use super::{standstill::STANDSTILL_US, totals::TotalsConfig};
use crate::plan::{Dialect, EndKind, Expect};

/// Settings of the reconciliation.
#[derive(Debug, Clone)]
pub struct LedgerConfig {
    /// As in every session's `client_ref` (`run-index`): tells our sessions from other clients'.
    pub run_id: String,
    /// Unix time of the run's start: samples of convergence are given on the run's clock.
    pub start_us: u64,
    /// In the order of the fleet.
    pub backends: Vec<BackendConfig>,
    /// Sources of sums, for backends that are not watched otherwise.
    pub totals: Vec<TotalsConfig>,
    /// The backends stand behind a balancer of somebody else's, which picks one for each session. Which one it was, the acceptance tells by
    /// the backend's name; the names come with the first look at each backend, and are kept up by all later ones.
    pub front: bool,
    /// What each scenario is for, in the order of the plan; nothing special where one is missing.
    pub scenarios: Vec<Option<Expect>>,
    /// Of which scenarios the upgrade of the connection may be the start of the session, in the order of the plan; not where one is missing.
    pub start_at_upgrade: Vec<bool>,
    /// What each scenario speaks, in the order of the plan; native where one is missing.
    pub dialects: Vec<Dialect>,
    /// In which scenarios the backend says that it takes a session, whatever their dialect leaves open; in the order of the plan.
    pub says_ready: Vec<bool>,
    /// How long a backend may take to notice each kind of end.
    pub windows: Windows,
    /// How long news may be under way between a backend and the book: a goodbye in a queue, a shard that lags.
    pub grace_us: u64,
    /// An end that the backend counted so long before the driver saw the session break was no end: the backend forgot a live session. Where the session
    /// ended in order, or by the driver's cut, that is so after `grace_us`.
    pub early_us: u64,
    /// How long after the last window the counters may take to agree.
    pub settle_us: u64,
    /// A shard of the driver that did nothing for so long stood still.
    pub standstill_us: u64,
    /// How often the counters are read. A pause of more than twice this is time in which nobody saw anything; it is not held against the backend.
    pub poll_interval_us: u64,
}

impl LedgerConfig {
    /// Defaults for a run against these backends, polled every 250 ms.
    pub fn new(run_id: impl Into<String>, start_us: u64, backends: Vec<BackendConfig>) -> Self {
        Self {
            run_id: run_id.into(),
            start_us,
            backends,
            totals: Vec::new(),
            front: false,
            scenarios: Vec::new(),
            start_at_upgrade: Vec::new(),
            dialects: Vec::new(),
            says_ready: Vec::new(),
            windows: Windows::default(),
            grace_us: 2_000_000,
            early_us: 5_000_000,
            settle_us: 10_000_000,
            standstill_us: STANDSTILL_US,
            poll_interval_us: 250_000,
        }
    }

    fn dialect(&self, scenario: u16) -> Dialect {
        self.dialects.get(usize::from(scenario)).copied().unwrap_or_default()
    }

    /// That a session of this scenario is accepted, nobody but the driver says.
    pub(super) fn implies_acceptance(&self, scenario: u16) -> bool {
        self.dialect(scenario).implies_acceptance() && !self.says_ready.get(usize::from(scenario)).copied().unwrap_or_default()
    }

    /// Sessions of this scenario live until the backend's deadline, or near it.
    pub(super) fn expects_timeout(&self, scenario: u16) -> bool {
        self.scenarios.get(usize::from(scenario)) == Some(&Some(Expect::TimedOut))
    }

    /// Whether a goodbye or the backend's deadline came first in a session of this scenario cannot be told: the goodbye is a close, and the answer to it a
    /// close too, whatever the backend had ended it as by then.
    pub(super) fn goodbye_may_be_late(&self, scenario: u16) -> bool {
        self.expects_timeout(scenario) && !self.dialect(scenario).answers_goodbye()
    }

    /// The prefix of our sessions' `client_ref`.
    pub(crate) fn is_ours(&self, client_ref: &str) -> bool {
        client_ref.strip_prefix(self.run_id.as_str()).is_some_and(|rest| rest.starts_with('-'))
    }
}

/// One backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendConfig {
    /// Its counters are read. A backend without a counter source is not judged.
    pub watched: bool,
    /// This run started it and nobody else talks to it: its counters begin at zero and every session in them is ours.
    pub fresh: bool,
}

/// Detection windows by kind of end, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// By the order of [`EndKind::ALL`].
    by_kind: [u64; 7],
}

impl Default for Windows {
    /// 2 s for whatever the backend sees at once, 30 s for a peer that goes silent.
    fn default() -> Self {
        Self { by_kind: [2_000_000; 7] }.with(EndKind::HalfOpen, 30_000_000)
    }
}

impl Windows {
    /// The same with another window for one kind.
    pub fn with(mut self, kind: EndKind, us: u64) -> Self {
        self.by_kind[kind as usize] = us;
        self
    }

    /// Of this kind.
    pub fn of(&self, kind: EndKind) -> u64 {
        self.by_kind[kind as usize]
    }

    /// The longest: for ends of which the driver cannot know what the backend sees.
    pub fn longest(&self) -> u64 {
        self.by_kind.iter().copied().max().unwrap_or(0)
    }
}
