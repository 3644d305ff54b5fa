//! Feeds the book of balance: replays the ledger's steps and the looks at the counters in the order of their times.
//!
//! Steps come in batches later than looks, and looks later than the moment they were asked for, so both wait until nothing older can come.
//! What is true then is [`truth`]'s business.

mod member;
mod truth;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use proto::time::Micros;

use self::truth::{Truth, Unknown};
use super::{
    Job,
    kills::{Kill, Victim},
    poller::Look,
};
use crate::{
    balance::{Balance, BookConfig},
    counters::CounterSample,
    ledger::{
        DefectName, LedgerEntry, LedgerEvent, SourceId, Verdict,
        merge::{BackendKill, Merged, Merger},
    },
    plan::Expect,
    profile::Routing,
    record::{Metric, Registry},
};

/// Replay stays so far behind the last known step: a poll may take as long as its timeout.
const HOLD_US: u64 = 2_500_000;
/// News of an end that the backend or the driver may not have heard yet.
const NEWS_US: u64 = 100_000;
/// Looks that may wait; more, and the figures would have holes.
const MAX_LOOKS: usize = 1 << 17;

/// What is replayed.
#[derive(Debug)]
enum Step {
    Ledger(Merged),
    /// The counters of a backend are asked for.
    Asked {
        backend: usize,
        look: u64,
    },
    /// This was the answer.
    Answered(Box<CounterSample>),
    /// Whatever happened before the answer has been told by now.
    Settled {
        backend: usize,
        look: u64,
        counted: i64,
    },
}

/// What is known before the run.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) book: BookConfig,
    /// Run times from which backends are in the fleet.
    pub(super) joins: Vec<Micros>,
    /// By scenario.
    pub(super) expect: Vec<Option<Expect>>,
    /// By scenario: the plan names the backend, and nobody decides.
    pub(super) pinned: Vec<bool>,
    /// Unix time.
    pub(super) start_us: u64,
}

/// The book of a run and what waits to be written into it.
#[derive(Debug)]
pub(super) struct Balancing {
    truth: Truth,
    merger: Merger,
    /// By time and order of arrival.
    waiting: BTreeMap<(u64, u64), Step>,
    arrived: u64,
    looks: usize,
    start_us: u64,
    /// Of the last step that was replayed.
    last_us: u64,
    /// Why there are no figures.
    fault: Option<String>,
}

impl Balancing {
    /// For a run that starts at this unix time. `looks` are the first ones, before any session; a backend without one has no counters, and
    /// then there is no truth to hold decisions against.
    pub(super) fn of(job: &Job, backends: usize, kills: &[Kill], looks: &[Look], start_us: u64) -> Self {
        let (profile, plan) = (&job.prepared.profile, &job.prepared.plan);
        let members = profile.fleet().members;
        let struck = |kill: &&Kill| matches!(kill.victim, Victim::Backend { .. });
        let mut disturbances: Vec<Micros> = kills.iter().filter(struck).map(|kill| kill.at).collect();
        disturbances.extend(members.iter().filter(|member| member.joins > Micros::ZERO).map(|member| member.joins));
        let report_interval = profile.routing.as_ref().map_or_else(|| Routing::default().report_interval, |r| r.report_interval).0;
        let setup = Setup {
            book: BookConfig { backends, target: target_of_all(looks), report_interval, disturbances },
            joins: (0..backends).map(|n| members.get(n).map_or(Micros::ZERO, |member| member.joins)).collect(),
            expect: plan.scenarios.iter().map(|scenario| scenario.expect).collect(),
            pinned: plan.scenarios.iter().map(|scenario| scenario.backend.is_some()).collect(),
            start_us,
        };
        let mut balancing = Self::new(setup);
        let seen = |n: usize| looks.iter().any(|look| matches!(look, Look::Sample(sample) if sample.backend == n));
        if let Some(unseen) = (0..backends).find(|n| !seen(*n)) {
            balancing.give_up(format!("backend {unseen} has no counters to read"));
        }
        for look in looks {
            balancing.look(look);
        }
        balancing
    }

    pub(super) fn new(setup: Setup) -> Self {
        let start_us = setup.start_us;
        Self {
            truth: Truth::new(setup),
            merger: Merger::default(),
            waiting: BTreeMap::new(),
            arrived: 0,
            looks: 0,
            start_us,
            last_us: start_us,
            fault: None,
        }
    }

    /// As for [`crate::ledger::Ledger::open`]; the others likewise.
    pub(super) fn open(&mut self, source: SourceId, from_us: u64) {
        self.merger.open(source, from_us);
    }

    pub(super) fn entries(&mut self, source: SourceId, entries: &[LedgerEntry], complete_to_us: u64) {
        if self.fault.is_none() {
            self.merger.push(source, entries.iter().map(slim).collect(), complete_to_us);
            self.advance();
        }
    }

    pub(super) fn source_done(&mut self, source: SourceId) {
        self.merger.close(source);
        self.advance();
    }

    pub(super) fn worker_lost(&mut self, worker: u32, at_us: u64, planned: bool) {
        self.merger.lose(worker, at_us, planned);
        self.advance();
    }

    pub(super) fn backend_killed(&mut self, backend: usize, at_us: u64) {
        self.merger.kill(BackendKill { boot: 0, at_us, backend });
        self.advance();
    }

    /// A look at a backend's counters. One that failed shows nothing: a backend that is too busy to answer is not down.
    pub(super) fn look(&mut self, look: &Look) {
        let Look::Sample(sample) = look else { return };
        if self.fault.is_some() {
            return;
        }
        self.looks += 1;
        if self.looks > MAX_LOOKS {
            return self.give_up("too many looks at the counters came before the sessions that they saw");
        }
        let (backend, look, counted) = (sample.backend, self.arrived, sample.snapshot.active);
        let slim = CounterSample { ends: None, sessions: None, ..(**sample).clone() };
        // Of a look that comes later than any should, nobody knows any more what an honest counter could say.
        if sample.asked_at_us >= self.last_us || self.last_us == self.start_us {
            self.wait(sample.asked_at_us, Step::Asked { backend, look });
        }
        self.wait(sample.answered_at_us, Step::Answered(Box::new(slim)));
        self.wait(sample.answered_at_us + NEWS_US, Step::Settled { backend, look, counted });
    }

    fn give_up(&mut self, why: impl Into<String>) {
        self.fault.get_or_insert_with(|| why.into());
        self.waiting.clear();
    }

    fn wait(&mut self, at_us: u64, step: Step) {
        self.arrived += 1;
        self.waiting.insert((at_us, self.arrived), step);
    }

    fn advance(&mut self) {
        for merged in self.merger.ready() {
            let at_us = match &merged {
                Merged::Entry(_, entry) => entry.at_us,
                Merged::WorkerLost(loss) => loss.at_us,
                Merged::BackendKilled(kill) => kill.at_us,
            };
            self.wait(at_us, Step::Ledger(merged));
        }
        // When every source is done, looks of before may still be under way: the rest is replayed at the end.
        let horizon_us = self.merger.horizon_us();
        if horizon_us < u64::MAX {
            self.replay_until(horizon_us.saturating_sub(HOLD_US));
        }
    }

    fn replay_until(&mut self, until_us: u64) {
        while self.fault.is_none()
            && let Some(entry) = self.waiting.first_entry().filter(|entry| entry.key().0 < until_us)
        {
            let ((at_us, _), step) = entry.remove_entry();
            // A look that came later than any should is taken as of now: the book's time only goes forward.
            self.last_us = self.last_us.max(at_us);
            if let Err(Unknown(backend)) = self.replay(self.last_us, step) {
                self.give_up(format!("a session was accepted by `{backend}`, which is none of the backends"));
            }
        }
    }

    fn replay(&mut self, at_us: u64, step: Step) -> Result<(), Unknown> {
        match step {
            Step::Ledger(Merged::Entry(source, entry)) => self.truth.step(source.worker, entry.index, at_us, &entry.event)?,
            Step::Ledger(Merged::WorkerLost(loss)) => self.truth.worker_lost(&loss, at_us),
            Step::Ledger(Merged::BackendKilled(kill)) => self.truth.backend_killed(kill.backend, at_us),
            Step::Asked { backend, look } => self.truth.asked(backend, look, at_us),
            Step::Answered(sample) => self.truth.answered(sample.backend, &sample.snapshot, at_us),
            Step::Settled { backend, look, counted } => {
                self.looks = self.looks.saturating_sub(1);
                self.truth.settled(backend, look, counted);
            }
        }
        Ok(())
    }

    /// The figures, or why there are none; asked for once. Startups and first streams are those of the registry: from the intended time, without the
    /// warm-up.
    pub(super) fn close(&mut self, verdict: &Verdict, registry: &Registry) -> Result<Balance, String> {
        self.merger.close_all();
        self.advance();
        // What was seen after the last session is no part of the run.
        let last = self.waiting.iter().rev().find(|(_, step)| matches!(step, Step::Ledger(_)));
        let end_us = last.map_or(self.last_us, |((at_us, _), _)| self.last_us.max(*at_us));
        self.replay_until(end_us + 1);
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let size = |name| verdict.finding(name).map_or(0, |finding| finding.size);
        let ghosts = size(DefectName::Ghost) + size(DefectName::ForgetOnTimeout);
        let mut balance = self.truth.take_book().close(Micros(end_us.saturating_sub(self.start_us)), ghosts);
        balance.late_ends = size(DefectName::LateDecrement);
        if let Some((response, _)) = registry.latency(Metric::SessionStartup, |_| true) {
            balance.set_startup(&response);
        }
        if let Some((response, _)) = registry.latency(Metric::TimeToFirstStream, |_| true) {
            balance.set_first_stream(&response);
        }
        Ok(balance)
    }
}

/// The target of every backend when it is one and the same; else NaN.
fn target_of_all(looks: &[Look]) -> f64 {
    let targets = looks.iter().map(|look| match look {
        Look::Sample(sample) => member::target(&sample.snapshot),
        Look::Gap { .. } | Look::Totals(_) | Look::Blind { .. } => None,
    });
    let same = |a: f64, b: f64| if (a - b).abs() < 1e-9 { a } else { f64::NAN };
    targets.map(|target| target.unwrap_or(f64::NAN)).reduce(same).unwrap_or(f64::NAN)
}

/// What is replayed of a step; names that nobody looks at are left out.
fn slim(entry: &LedgerEntry) -> LedgerEntry {
    let event = match &entry.event {
        LedgerEvent::Scheduled { scenario, protocol, end, .. } => {
            LedgerEvent::Scheduled { scenario: *scenario, protocol: *protocol, end: *end, client_ref: String::new() }
        }
        LedgerEvent::Accepted { backend_id, .. } => {
            LedgerEvent::Accepted { session_id: String::new(), backend_id: backend_id.clone(), boot_id: String::new() }
        }
        other => other.clone(),
    };
    LedgerEntry { index: entry.index, at_us: entry.at_us, event }
}
