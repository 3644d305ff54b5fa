//! What one backend process (a boot) says of itself, and what the driver saw of its target.

use std::collections::{HashMap, VecDeque};

use agent_server::admin::wire::{EndRecord, SessionJson, SnapshotJson};
use proto::frame::Outcome;

use super::{
    book::{Book, BootIndex, name_hash},
    by_outcome::Logged,
    config::LedgerConfig,
    disturbance::{Disturbances, united},
    drift::Drift,
    finding::Names,
    others::Others,
    persistent::Persistent,
    reconcile::Bounds,
    returned::Returned,
    session::{Record, Session},
};
use crate::counters::CounterSample;

/// Pauses that are kept; older ones concern sessions long reconciled.
const MAX_PAUSES: usize = 1_024;
/// How long looks take to follow each other is told by so many of them.
const RECENT_LOOKS: usize = 20;

/// How a target was watched.
#[derive(Debug, Default)]
pub struct Watch {
    /// Boots, oldest first.
    pub boots: Vec<BootIndex>,
    /// Processes that another one followed without the plan's doing.
    pub(super) unplanned: u64,
    /// Polls that failed.
    pub gaps: u64,
    /// The driver's clock at the last failed poll, and why it failed.
    pub last_gap: Option<(u64, String)>,
    /// The driver's clock at the last answer.
    pub last_answer_us: Option<u64>,
    /// Nobody saw anything in these: a stopped backend, a stopped driver, missing polls.
    pauses: VecDeque<(u64, u64)>,
    /// In these the network was impaired on purpose.
    pub disturbances: Disturbances,
    /// Longest of them.
    pub longest_pause_us: u64,
    /// Between the last looks, oldest first.
    steps_us: VecDeque<u64>,
    /// How far its count was off.
    pub(super) drift: Drift,
}

impl Watch {
    /// An answer came: what lay between it and the one before, if it was long, was not watched.
    pub fn answered(&mut self, at_us: u64, config: &LedgerConfig) {
        if let Some(last) = self.last_answer_us {
            let step_us = at_us.saturating_sub(last);
            if step_us > self.pause_us(config) {
                self.longest_pause_us = self.longest_pause_us.max(step_us);
                self.pauses.push_back((last, at_us));
                if self.pauses.len() > MAX_PAUSES {
                    self.pauses.pop_front();
                }
            }
            self.steps_us.push_back(step_us);
            if self.steps_us.len() > RECENT_LOOKS {
                self.steps_us.pop_front();
            }
        }
        self.last_answer_us = Some(self.last_answer_us.unwrap_or(0).max(at_us));
    }

    /// Longer between two looks, and nobody saw what was between them. Who is slow to answer always is seen all the same: windows go on, or they
    /// would never end.
    pub(super) fn pause_us(&self, config: &LedgerConfig) -> u64 {
        let mut steps: Vec<u64> = self.steps_us.iter().copied().collect();
        steps.sort_unstable();
        // Three in four take no longer.
        let usual = steps.get(steps.len() * 3 / 4).copied().unwrap_or(0);
        2 * config.poll_interval_us.max(usual)
    }

    /// In this span: how much of it was a pause that the plan did not make by a kill.
    pub(super) fn paused_us(&self, kills_us: &[u64], from_us: u64, to_us: u64) -> u64 {
        let planned = |(from, to): &&(u64, u64)| !kills_us.iter().any(|at| (*from..=*to).contains(at));
        let clipped = |(from, to): &(u64, u64)| to.min(&to_us).saturating_sub(*from.max(&from_us));
        self.pauses.iter().filter(planned).map(clipped).sum()
    }

    /// Time between two moments in which the backend could be seen, and could see.
    pub fn watched_us(&self, from_us: u64, to_us: u64) -> u64 {
        let unseen = self.disturbances.unseen_us(self.pauses.iter().copied(), from_us, to_us);
        to_us.saturating_sub(from_us).saturating_sub(unseen)
    }

    /// The same, without the times in which the driver itself stood still.
    pub(super) fn acted_us(&self, stood: impl Iterator<Item = (u64, u64)>, from_us: u64, to_us: u64) -> u64 {
        let spans = united(self.pauses.iter().copied().chain(stood).collect());
        let unseen = self.disturbances.unseen_us(spans.into_iter(), from_us, to_us);
        to_us.saturating_sub(from_us).saturating_sub(unseen)
    }
}

/// Counters before this run had anything to do with them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Base {
    /// `started`: at least and at most.
    pub started: (u64, u64),
    /// Live sessions of others.
    pub active: u64,
    /// `rejected`: at least and at most.
    pub rejected: (u64, u64),
    /// The backend's clock: ends before this were counted before.
    pub captured_us: u64,
}

/// The numbers of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The driver's clock.
    pub asked_us: u64,
    /// The driver's clock.
    pub answered_us: u64,
    /// The backend's clock.
    pub captured_us: u64,
    /// Labelled so.
    pub exact: bool,
    /// As reported.
    pub started: u64,
    /// The interval; both ends the same when exact.
    pub active: (i64, i64),
    /// By outcome, in the order of the names.
    pub ended: Vec<(String, u64)>,
    /// All phases.
    pub phases: i64,
    /// The lowest gauge.
    pub lowest: i64,
    /// Cap.
    pub max: Option<u64>,
    /// As reported.
    pub rejected: u64,
    /// Sequence number of the next end.
    pub next_end: u64,
    /// The registry, when it was asked for.
    pub sessions: Option<Vec<SessionJson>>,
}

impl Reading {
    fn of(sample: CounterSample) -> Self {
        let SnapshotJson { exact, started, active, active_interval, ended, phases, max_sessions: max, rejected, next_end, .. } =
            sample.snapshot;
        Self {
            asked_us: sample.asked_at_us,
            answered_us: sample.answered_at_us,
            captured_us: sample.snapshot.captured_at_us,
            exact,
            started,
            active: if exact { (active, active) } else { active_interval },
            lowest: phases.values().copied().fold(active, i64::min),
            phases: phases.values().fold(0, |sum, n| sum.saturating_add(*n)),
            ended: ended.into_iter().collect(),
            max,
            rejected,
            next_end,
            sessions: sample.sessions,
        }
    }

    /// Sum over the outcomes.
    pub fn ended_sum(&self) -> u64 {
        self.ended.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// How many sessions its count leaves open.
    pub(super) fn open(&self) -> u64 {
        self.active.1.saturating_sub(self.active.0).max(0) as u64
    }

    /// A monotone counter is lower than it was.
    pub fn runs_backwards(&self, before: &Self) -> bool {
        let ended = |(name, was): &(String, u64)| self.ended.iter().any(|(n, now)| n == name && now < was);
        self.started < before.started || self.rejected < before.rejected || before.ended.iter().any(ended)
    }
}

/// A row of samples that no known cause explains.
#[derive(Debug, Clone, Copy, Default)]
pub struct OddRun {
    /// How many.
    pub samples: u64,
    /// Most live sessions missing.
    pub short: u64,
    /// Most sessions too many.
    pub excess: u64,
    /// Most that were accepted and not in `started`.
    pub unadded: u64,
    /// All were labelled exact.
    pub exact: bool,
}

/// The ledger at the time of a reading.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// Sessions that the reading may show.
    pub(super) bounds: Bounds,
    /// Sessions that came back.
    pub(super) returned: u64,
    /// Accepted, and not in `started`.
    pub(super) never_added: u64,
    /// In `started`, and nobody's.
    pub(super) added: u64,
}

/// One backend process.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that vary on their own, not states of one machine")]
pub struct Boot {
    /// Number in the book.
    pub index: BootIndex,
    /// Index into the targets.
    pub backend: usize,
    /// Stable name.
    pub backend_id: String,
    /// Name of the process.
    pub boot_id: String,
    /// Nobody but this run talks to it.
    pub ours_alone: bool,
    /// Before the run.
    pub base: Base,
    /// Refusals of the processes before it, at most.
    pub(super) refused_before: u64,
    /// Samples seen.
    pub samples: u64,
    /// Taken in, judged when the next one is here: until then its end records may be incomplete.
    pub waiting: Option<Reading>,
    /// The last one that did not contradict itself.
    pub last: Option<Reading>,
    /// What the ledger knew of its sessions then: of a process that is gone nobody can be asked again.
    pub(super) known: Known,
    /// The run of odd samples that still goes on.
    pub odd: OddRun,
    /// Drains, or did: the last look that did not say so, and the first that did, on the driver's clock.
    pub(super) drains: Option<(u64, u64)>,
    /// Killed by the plan.
    pub killed_us: Option<u64>,
    /// Another process took its place without the plan's doing.
    pub replaced: bool,
    /// It has an end log.
    pub has_log: bool,
    /// End records that nobody can read any more.
    pub records_lost: u64,
    pub(super) next_seq: u64,
    /// Decrements too many: when, on the driver's clock.
    pub extras: Vec<u64>,
    /// Ends of other clients' sessions.
    pub(super) others: Others,
    /// Ends by outcome, as its log tells them.
    pub(super) logged: Logged,
    /// Sessions of a killed worker, or of a front's own further dial, that only the backend knows of: hash of the name, and its end on the
    /// backend's clock.
    pub untold: HashMap<u64, u64>,
    /// Of those: dials of a front.
    pub redialled: u64,
    /// Of those: of sessions that this very process had accepted.
    pub(super) twice: u64,
    /// Sessions that were over and are live again.
    pub(super) returned: Returned,
    /// What its numbers that only grow fell from at the last look, started and ended: a torn snapshot, or a reset, which the next look tells.
    pub(super) fell_from: Option<(u64, u64)>,
    /// Snapshots that bore another id of the backend than the first one.
    pub(super) renamed: u64,
    /// Snapshots that were not exact, and by how many sessions the widest of them was open.
    pub(super) open: (u64, u64),
    /// They fell for good: its `started` is of another count than the book's.
    pub(super) reset: bool,
    /// Sessions too many and too few that no name explains.
    pub(super) beyond: (Persistent, Persistent),
    /// The smallest round trip so far and the clock difference that it shows (backend minus driver).
    skew: (u64, i64),
}

/// Ends that are wrong in themselves.
#[derive(Debug, Default)]
pub struct RecordFaults {
    /// Second and further decrements of a session.
    pub doubles: Names,
    /// Decrements without a session.
    pub empties: u64,
    /// Sessions that this run never had.
    pub unknown: Names,
    /// Sessions of ours that only the backend tells of, after a worker was lost: as many as it may have begun untold are its own.
    pub(super) untold: Names,
    /// Sessions that were live again after their ends.
    pub returned: Names,
}

impl Boot {
    /// First seen in this sample. `first` is the target's first boot: an older process may have a past.
    pub fn new(index: BootIndex, first: bool, sample: &CounterSample, config: &LedgerConfig, book: &Book) -> Self {
        let snapshot = &sample.snapshot;
        // A front may try a backend by itself, of which the driver does not hear.
        let ours_alone = !config.front && config.backends.get(sample.backend).is_some_and(|b| b.fresh);
        let (mut base, mut next_seq, mut logged) = (Base::default(), 0, Logged::fresh());
        if first && !ours_alone {
            let untouched = book.first_attempt_us(sample.backend).is_none_or(|at| at > sample.answered_at_us);
            let before = |now: u64| (if untouched { now } else { 0 }, now);
            base = Base {
                started: before(snapshot.started),
                active: snapshot.active.max(0) as u64,
                rejected: before(snapshot.rejected),
                captured_us: snapshot.captured_at_us,
            };
            let listed = sample.ends.as_ref().and_then(|ends| ends.first()).map(|end| end.seq);
            next_seq = if untouched { snapshot.next_end } else { listed.unwrap_or(snapshot.next_end) };
            logged = Logged::after(snapshot, sample.ends.as_deref(), untouched, config);
        }
        Self {
            index,
            backend: sample.backend,
            backend_id: snapshot.backend_id.clone(),
            boot_id: snapshot.boot_id.clone(),
            ours_alone,
            base,
            // One that was killed before anybody had looked at it may have refused as well.
            refused_before: if first && book.kills_us().is_empty() { 0 } else { book.tally.refusals(Some(sample.backend)).sure },
            samples: 0,
            waiting: None,
            last: None,
            known: Known::default(),
            odd: OddRun::default(),
            drains: None,
            killed_us: None,
            replaced: false,
            has_log: true,
            records_lost: 0,
            next_seq,
            extras: Vec::new(),
            others: Others::default(),
            logged,
            untold: HashMap::new(),
            redialled: 0,
            twice: 0,
            returned: Returned::default(),
            fell_from: None,
            renamed: 0,
            open: (0, 0),
            reset: false,
            beyond: <(Persistent, Persistent)>::default(),
            skew: (u64::MAX, 0),
        }
    }

    /// Every end can be checked by its session's name.
    pub fn complete_log(&self) -> bool {
        self.has_log && self.records_lost == 0
    }

    /// Decrements too many up to a moment of the driver's clock.
    pub fn extras_before(&self, at_us: u64) -> u64 {
        self.extras.iter().filter(|at| **at <= at_us).count() as u64
    }

    /// The driver's clock: no sample older than this will be looked at again.
    pub fn looked_at_from_us(&self) -> u64 {
        [&self.waiting, &self.last].into_iter().flatten().map(|at| at.asked_us).min().unwrap_or(0)
    }

    /// Takes a sample in; gives back the one before, which can be judged now.
    pub fn take(
        &mut self,
        mut sample: CounterSample,
        book: &mut Book,
        config: &LedgerConfig,
        faults: &mut RecordFaults,
    ) -> Option<Reading> {
        self.samples += 1;
        self.renamed += u64::from(sample.snapshot.backend_id != self.backend_id);
        if sample.snapshot.draining {
            let before_us = self.waiting.as_ref().map_or(0, |before| before.asked_us);
            self.drains.get_or_insert((before_us, sample.answered_at_us));
        }
        self.measure_skew(&sample);
        if let Some(rows) = sample.sessions.as_deref() {
            self.find_returned(rows, sample.asked_at_us, book, faults);
        }
        match sample.ends.take() {
            Some(ends) => {
                for end in &ends {
                    self.record(end, book, config, faults);
                }
            }
            None => self.has_log = false,
        }
        let before = self.waiting.replace(Reading::of(sample));
        // Its end was read before the log: what the log has not told by now it never will.
        self.check_log_end();
        before
    }

    /// Ends that the counters know and the log no longer tells.
    fn check_log_end(&mut self) {
        if let Some(last) = &self.waiting
            && self.has_log
        {
            self.records_lost += last.next_end.saturating_sub(self.next_seq);
            self.next_seq = self.next_seq.max(last.next_end);
        }
    }

    /// How long its quickest answer took: its clock is known no better.
    pub(super) fn trip_us(&self) -> u64 {
        self.skew.0
    }

    /// The session was there when the process was told to drain, and ended after that.
    pub(super) fn drained_with(&self, session: &Session, ended_us: u64) -> bool {
        let accepted_us = session.accepted.as_ref().map_or(u64::MAX, |accepted| accepted.at_us);
        self.drains.is_some_and(|(before_us, seen_us)| accepted_us <= seen_us && before_us <= ended_us.saturating_add(self.trip_us()))
    }

    fn measure_skew(&mut self, sample: &CounterSample) {
        let trip = sample.answered_at_us.saturating_sub(sample.asked_at_us);
        // About as good as the best so far; the newest of these, for clocks drift apart.
        if trip <= self.skew.0.saturating_mul(2) {
            let captured = sample.snapshot.captured_at_us as i64;
            let (least, most) = (captured - sample.answered_at_us as i64, captured - sample.asked_at_us as i64);
            // No more correction than the sample proves: on one machine there is none.
            self.skew = (trip.min(self.skew.0), 0.clamp(least.min(most), most));
        }
    }

    fn record(&mut self, end: &EndRecord, book: &mut Book, config: &LedgerConfig, faults: &mut RecordFaults) {
        if end.seq < self.next_seq {
            return;
        }
        self.records_lost += end.seq - self.next_seq;
        self.next_seq = end.seq + 1;
        self.logged.record(end, self.base.captured_us, config);
        let at_us = end.at_us.saturating_add_signed(-self.skew.1);
        if end.session_id.is_empty() {
            faults.empties += 1;
            self.extras.push(at_us);
            return;
        }
        let name = name_hash(self.index, &end.session_id);
        let found = book.find(self.index, self.backend, &end.client_ref, &end.session_id);
        if let Some(session) = found.and_then(|found| book.get_mut(found)) {
            if session.record.is_some() && self.returned.contains(name) {
                return;
            }
            if let Some(record) = &mut session.record {
                record.count += 1;
                faults.doubles.push(&end.session_id);
                self.extras.push(at_us);
            } else {
                let outcome = Outcome::ALL.into_iter().find(|outcome| outcome.name() == end.outcome);
                session.record = Some(Record { server_at_us: end.at_us, at_us, outcome, count: 1, boot: self.index, name });
            }
            return;
        }
        if book.recorded_after_all(self.index, &end.session_id) || self.returned.contains(name) {
            return;
        }
        if book.was_folded(self.index, &end.session_id) || self.untold.contains_key(&name) {
            faults.doubles.push(&end.session_id);
            self.extras.push(at_us);
        } else if book.dialled_by_front(&end.client_ref) {
            self.untold.insert(name, end.at_us);
            self.redialled += 1;
            self.twice += u64::from(book.was_at(self.index, &end.client_ref));
        } else if config.is_ours(&end.client_ref) && !book.losses().is_empty() {
            self.untold.insert(name, end.at_us);
            faults.untold.push(&end.session_id);
        } else if self.ours_alone || config.is_ours(&end.client_ref) {
            faults.unknown.push(&end.session_id);
        } else if end.at_us > self.base.captured_us {
            self.others.ended(end.at_us);
        }
    }
}
