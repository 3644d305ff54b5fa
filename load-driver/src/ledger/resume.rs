//! What a ledger leaves at a checkpoint, and takes up when the run goes on.

use serde::{Deserialize, Serialize};

use super::{
    convergence::{ConvergenceRow, StoredRow},
    finding::Finding,
    funnel::Funnels,
    keeper::Ledger,
    look::{Last, look},
    naming,
    truth::DriftSum,
};
use crate::counters::Counts;

/// What goes on in the ledger of the next segment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// How far the sessions came.
    pub funnels: Funnels,
    /// How fast the counters followed.
    pub convergence: Vec<StoredRow>,
    /// How far they were off.
    pub drift: DriftSum,
}

/// Where a backend stood, in totals: enough to hold what it counts later against it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendStand {
    /// Index into the fleet.
    pub backend: usize,
    /// The process.
    pub boot_id: String,
    /// Nobody else talks to it.
    pub ours_alone: bool,
    /// What it had counted as started before the run, at most.
    pub base_started: u64,
    /// Live sessions of others before the run.
    pub base_active: u64,
    /// Sessions of the run that it accepted.
    pub accepted: u64,
    /// Of those: over for longer than their windows, and still counted.
    pub overdue: u64,
}

/// Where a source of sums stood, likewise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumsStand {
    /// Its number.
    pub source: usize,
    /// For people.
    pub name: String,
    /// Other clients' sessions are in the sums.
    pub other_traffic: bool,
    /// Most live sessions of others before the run; nothing when its process began in the run.
    pub base_active: i64,
    /// What was counted as started before the run, where that is told.
    pub base_started: Option<u64>,
    /// The last reading.
    pub last: Counts,
    /// Sessions of the run that are surely in the sums.
    pub accepted: u64,
    /// Over for longer than their windows, and still counted.
    pub overdue: u64,
}

impl SumsStand {
    /// The same process gave this reading, as far as it can tell.
    pub fn is_of(&self, now: &Counts) -> bool {
        let renamed = self.last.boot.is_some() && now.boot.is_some() && self.last.boot != now.boot;
        !renamed && !now.runs_backwards(&self.last)
    }
}

impl Ledger {
    /// Goes on from what the segments before had brought to an end.
    #[must_use]
    pub fn continuing(mut self, carried: &Carried) -> Self {
        self.book.resume(carried.funnels.clone());
        self.convergence.resume(&carried.convergence);
        self.drift_before = carried.drift;
        self
    }

    /// What the next segment would go on from.
    pub fn carried(&self) -> Carried {
        Carried { funnels: self.funnels().clone(), convergence: self.convergence.stored(), drift: self.drift_sum() }
    }

    /// The backends' living processes.
    pub fn stands(&self) -> Vec<BackendStand> {
        let boots = self.watches.iter().filter_map(|watch| self.boots.get(watch.boots.last()?));
        let stand = |boot: &super::boot::Boot| BackendStand {
            backend: boot.backend,
            boot_id: boot.boot_id.clone(),
            ours_alone: boot.ours_alone,
            base_started: boot.base.started.1,
            base_active: boot.base.active,
            accepted: self.book.accepted_on(boot.index),
            overdue: boot.waiting.as_ref().map_or(0, |at| self.bounds(boot, at).overdue),
        };
        boots.filter(|boot| boot.killed_us.is_none()).map(stand).collect()
    }

    /// The sources of sums, where they can be held against anything.
    pub fn sums_stands(&self) -> Vec<SumsStand> {
        self.totals.iter().enumerate().filter_map(|(source, totals)| totals.stand(source, &self.book, &self.config)).collect()
    }

    /// What is proven to be wrong already, or cannot be proven any more. Ghosts of living processes are not: whether an end comes late or never, only
    /// the end of the run tells. Of a process that is gone nobody can tell more than now.
    pub fn proven(&self) -> Vec<Finding> {
        let mut last = Last { all_timeouts: true, ..Last::default() };
        for boot in self.boots.values().filter(|boot| (boot.killed_us.is_some() || boot.replaced) && boot.waiting.is_none()) {
            look(self, boot, &mut last);
        }
        last.rejected = self.boots.values().filter_map(|boot| Some(boot.last.as_ref()?.rejected.saturating_sub(boot.base.rejected))).sum();
        last.unverified.extend(self.totals.iter().flat_map(super::totals::Totals::unprovable));
        naming::name(self, &last)
    }

    /// How fast the counters followed so far.
    pub fn convergence(&self) -> Vec<ConvergenceRow> {
        self.convergence.rows()
    }

    /// Steps that make no sense.
    pub fn nonsense(&self) -> &[String] {
        self.book.irregular()
    }
}
