//! What a ledger leaves at a checkpoint, and takes up when the run goes on.

use std::collections::BTreeMap;

use proto::frame::Outcome;
use serde::{Deserialize, Serialize};

use super::{
    boot::Boot,
    convergence::{Convergence, ConvergenceRow, StoredRow},
    finding::{DefectName, Finding},
    funnel::Funnels,
    keeper::Ledger,
    look::{Last, look, unlike_log},
    naming,
    races::Races,
    reconcile, refused,
    truth::DriftSum,
};
use crate::counters::{CounterSample, Counts, TotalsSample};

/// What goes on in the ledger of the next segment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// How far the sessions came.
    pub funnels: Funnels,
    /// How fast the counters followed.
    pub convergence: Vec<StoredRow>,
    /// How far they were off.
    pub drift: DriftSum,
    /// Ends of the backends' own that crossed cuts of the driver's: chance or not, only all of them together tell.
    #[serde(default)]
    pub races: Races,
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
    /// What it had counted as refused before the run, at least.
    #[serde(default)]
    pub base_rejected: u64,
    /// Dials of the run that it surely refused.
    #[serde(default)]
    pub refused: u64,
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
    /// Fewest of them,
    pub base_least: i64,
    /// and what is below even these when all of them end.
    pub floor: i64,
    /// What was counted before the run.
    pub base: Counts,
    /// What only grows fell since: it says nothing of sessions any more.
    pub reset: bool,
    /// The last reading.
    pub last: Counts,
    /// Sessions of the run that are surely in the sums.
    pub accepted: u64,
    /// Of those: over, and by what they can only have ended.
    #[serde(default)]
    pub must: BTreeMap<Outcome, u64>,
    /// Dials of the run that were surely refused there.
    #[serde(default)]
    pub refused: u64,
    /// Over for longer than their windows, and still counted, for more than one look.
    pub overdue: u64,
}

impl SumsStand {
    /// The same process gave this reading, as far as it can tell.
    pub fn is_of(&self, now: &Counts) -> bool {
        !now.is_renamed(&self.last) && !now.runs_backwards(&self.last)
    }

    /// The process says that it is the same, and what only grows fell.
    pub fn fell(&self, now: &Counts) -> bool {
        now.boot.is_some() && self.last.boot == now.boot && now.runs_backwards(&self.last)
    }

    /// So many since before the run, where that is told.
    pub fn since(&self, pick: impl Fn(&Counts) -> Option<u64>, now: &Counts) -> Option<u64> {
        if self.reset {
            return None;
        }
        pick(now).map(|now| now.saturating_sub(pick(&self.base).unwrap_or(0)))
    }
}

impl Ledger {
    /// Goes on from what the segments before had brought to an end.
    #[must_use]
    pub fn continuing(mut self, carried: &Carried) -> Self {
        self.book.resume(carried.funnels.clone());
        self.convergence.resume(&carried.convergence);
        self.drift_before = carried.drift;
        self.faults.races = carried.races.clone();
        self
    }

    /// What the next segment would go on from.
    pub fn carried(&self) -> Carried {
        Carried {
            funnels: self.funnels().clone(),
            convergence: self.convergence_so_far().stored(),
            drift: self.drift_sum(),
            races: self.faults.races.clone(),
        }
    }

    /// The backends' living processes.
    pub fn stands(&self) -> Vec<BackendStand> {
        let boots = self.watches.iter().filter_map(|watch| self.boots.get(watch.boots.last()?));
        let stand = |boot: &Boot| BackendStand {
            backend: boot.backend,
            boot_id: boot.boot_id.clone(),
            ours_alone: boot.ours_alone,
            base_started: boot.base.started.1,
            base_active: boot.base.active,
            accepted: self.book.accepted_on(boot.index),
            overdue: boot.waiting.as_ref().map_or(0, |at| self.bounds(boot, at).overdue),
            base_rejected: boot.base.rejected.0,
            refused: refused::surely(self, boot),
        };
        let known = boots.filter(|boot| boot.killed_us.is_none()).map(stand);
        let first = self.watches.iter().enumerate().filter(|(_, watch)| watch.boots.is_empty());
        known.chain(first.filter_map(|(backend, _)| self.first_stand(backend))).collect()
    }

    /// In the first seconds no look is judged yet. The last one before the first session tells what was there before the run.
    fn first_stand(&self, backend: usize) -> Option<BackendStand> {
        let before = |sample: &&CounterSample| sample.backend == backend && sample.answered_at_us <= self.config.start_us;
        let sample = self.waiting.iter().rfind(before)?;
        let index = self.book.boot_of(&sample.snapshot.boot_id);
        let boot = Boot::new(index.unwrap_or(usize::MAX), true, sample, &self.config, &self.book);
        Some(BackendStand {
            backend,
            boot_id: boot.boot_id.clone(),
            ours_alone: boot.ours_alone,
            base_started: boot.base.started.1,
            base_active: boot.base.active,
            accepted: index.map_or(0, |index| self.book.accepted_on(index)),
            overdue: 0,
            base_rejected: boot.base.rejected.0,
            refused: refused::surely(self, &boot),
        })
    }

    /// The sources of sums, where they can be held against anything.
    pub fn sums_stands(&self) -> Vec<SumsStand> {
        let stand = |(source, totals): (usize, &super::totals::Totals)| {
            // As above: what came before the first session is the base.
            let before = |sample: &&TotalsSample| sample.source == source && sample.answered_at_us <= self.config.start_us;
            totals.stand(source, self.waiting_totals.iter().filter(before), &self.book, &self.config)
        };
        self.totals.iter().enumerate().filter_map(stand).collect()
    }

    /// What is proven to be wrong already, or cannot be proven any more. Ghosts of living processes are not: whether an end comes late or never, only
    /// the end of the run tells. Of a process that is gone nobody can tell more than now.
    pub fn proven(&self) -> Vec<Finding> {
        let mut last = Last { all_timeouts: true, ..Last::default() };
        for boot in self.boots.values().filter(|boot| (boot.killed_us.is_some() || boot.replaced) && boot.waiting.is_none()) {
            look(self, boot, &mut last);
        }
        for boot in self.boots.values().filter(|boot| boot.killed_us.is_none() && !boot.replaced) {
            unlike_log(boot, &format!("backend {} ({}, boot {})", boot.backend, boot.backend_id, boot.boot_id), &mut last);
        }
        last.rejected =
            self.boots.values().filter_map(|boot| Some(boot.last.as_ref()?.rejected.saturating_sub(boot.base.rejected.1))).sum();
        let mut late = 0;
        for totals in &self.totals {
            last.unverified.extend(totals.unprovable());
            let proven = totals.proven(&self.book, &self.config);
            last.short += proven.short;
            if proven.wrong > 0 {
                last.wrong += proven.wrong;
                last.wrong_words.push(format!("{}: {} in processes that are gone", totals.config.name, proven.wrong));
            }
            last.miscounted.extend(proven.miscounted);
            late = late.max(proven.late);
            last.unverified.extend(proven.unverified);
        }
        let mut found = naming::name(self, &last);
        if late > 0 && !found.iter().any(|finding| finding.name == DefectName::LateDecrement) {
            let text = format!("up to {late} sessions were counted as live after their windows, and not any more later on");
            found.push(Finding::new(DefectName::LateDecrement, late, text));
        }
        found
    }

    /// How fast the counters followed so far.
    pub fn convergence(&self) -> Vec<ConvergenceRow> {
        self.convergence_so_far().rows()
    }

    /// With the ends that wait for a look to settle them: they are in the funnels too.
    fn convergence_so_far(&self) -> Convergence {
        let mut all = self.convergence.clone();
        for session in self.book.sessions.values() {
            reconcile::count_so_far(session, &mut all);
        }
        all
    }

    /// Steps that make no sense.
    pub fn nonsense(&self) -> &[String] {
        self.book.irregular()
    }
}
