//! Sums that name no session, held against the book.
//!
//! A source of sums gives the number of live sessions, and perhaps numbers that only grow. Each look is judged by itself, number by number: the
//! values are of some moment between `from_us` (asked, less what the reading may be old) and `to_us` (answered), and not of one and the same.
//!
//! ```text
//! before the first session    base: what others have there, and how much it varies; nobody, where it is below zero
//! sessions come and go        sure <= active - base <= possible; what lies outside for long is short or excess
//! after the last window       active = base, or ghosts; started = sessions, or lost, or added; ended, by outcome
//! a number that only grows fell, or the process goes by another name: it began anew, with a base of nothing
//! ```
//! Two rules as for snapshots: what was not seen is no proof, and what may be the time that news takes is no fault.

mod agree;
mod bounds;
mod conclude;
mod growing;
mod restart;
mod stand;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use proto::{frame::Outcome, ids::PlanIndex};

pub(super) use self::conclude::conclude;
use self::{
    bounds::{Bounds, FIRM, Span, bounds, firm_spans},
    growing::Growing,
};
use super::{
    book::Book,
    boot::Watch,
    config::LedgerConfig,
    convergence::{Convergence, MadeEnd},
    drift::Off,
    merge::WorkerLoss,
    persistent::{Average, Persistent, Recurrent},
    reconcile::{self, Faults},
    session::Session,
};
use crate::{
    counters::{Counts, Shows, TotalsSample},
    plan::EndKind,
};

/// What a source of sums is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TotalsConfig {
    /// For people.
    pub name: String,
    /// Index into the fleet; none: all backends together.
    pub backend: Option<usize>,
    /// A reading may be so much older than the moment at which it was asked for.
    pub age_us: u64,
    /// What its readings hold.
    pub shows: Shows,
}

/// One reading, and between which moments of the driver's clock its values were true.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    span: Span,
    asked_us: u64,
    answered_us: u64,
    counts: Counts,
}

/// What was there before the first session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Base {
    counts: Counts,
    /// Fewest and most live sessions.
    active: (i64, i64),
    looks: u64,
    /// It moved although no session of this run was there.
    moved: bool,
}

/// Sessions that need no further look, as sums.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Folded {
    accepted: u64,
    attempted: u64,
    must: BTreeMap<Outcome, u64>,
    due: BTreeMap<Outcome, u64>,
    may: BTreeMap<Outcome, u64>,
}

/// How one source is doing.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are learnt one by one, not states of one machine")]
pub(super) struct Totals {
    pub(super) config: TotalsConfig,
    pub(super) watch: Watch,
    samples: u64,
    base: Option<Base>,
    /// The first look came when sessions were there already.
    baseless: bool,
    last: Option<Look>,
    before: Option<Look>,
    /// Sessions accepted up to the first moment were another process's, those from the second on are this one's.
    epoch: Option<(u64, u64)>,
    /// Sessions of processes that are gone.
    written_off: u64,
    /// Of those: counted under an outcome that they cannot have had, by the last look at each process.
    wrong_before: u64,
    /// Kills that the plan made and no look has followed yet.
    kills: Vec<u64>,
    /// Why not everything is proven, the first few reasons.
    breaks: Vec<String>,
    /// From then on its numbers say nothing that can be held against the book.
    broken: bool,
    folded: Folded,
    short: Persistent,
    excess: Persistent,
    /// The windows of all who are folded are over by then.
    windows_us: u64,
    /// Sessions that are known to stay counted, and since when.
    ghosts: (u64, u64),
    /// Ends that no look showed by themselves, by kind, until one shows that all are counted.
    untimed: Vec<(MadeEnd, u64)>,
    /// The last look showed nobody who is over.
    level: bool,
    /// Its numbers have moved since the first session.
    moved: bool,
    /// That of live sessions has; with other traffic: beyond what others vary.
    stood_out: bool,
    /// Fewer than ours and those from before the run.
    fewer: Persistent,
    /// Fewer than are live, for whatever reason.
    missing: Persistent,
    /// Fewer than lived on for long after.
    firmly: [Persistent; FIRM],
    /// The same, and too many, in single looks that come again and again.
    again: (Recurrent, Recurrent),
    /// Too few, on average.
    average: Average,
    /// The numbers that only grow.
    growing: Growing,
    /// Refusals that the process before may have counted.
    refused_before: u64,
    /// What only grows fell in a living process: from then on only the live ones are held against the book.
    reset: bool,
}

impl Totals {
    pub(super) fn new(config: TotalsConfig) -> Self {
        Self {
            config,
            watch: Watch::default(),
            samples: 0,
            base: None,
            baseless: false,
            last: None,
            before: None,
            epoch: None,
            written_off: 0,
            wrong_before: 0,
            kills: Vec::new(),
            breaks: Vec::new(),
            broken: false,
            folded: Folded::default(),
            short: Persistent::default(),
            excess: Persistent::default(),
            windows_us: 0,
            ghosts: (0, 0),
            untimed: Vec::new(),
            level: false,
            moved: false,
            stood_out: false,
            fewer: Persistent::default(),
            missing: Persistent::default(),
            firmly: Default::default(),
            again: Default::default(),
            average: Average::default(),
            growing: Growing::default(),
            refused_before: 0,
            reset: false,
        }
    }

    /// The session is, or may be, in these sums.
    pub(super) fn covers(&self, session: &Session) -> bool {
        self.config.backend.is_none_or(|backend| session.may_be_at(backend))
    }

    /// The plan kills the process.
    pub(super) fn killed(&mut self, at_us: u64) {
        self.kills.push(at_us);
    }

    /// Live sessions as last read.
    pub(super) fn active(&self) -> i64 {
        self.last.as_ref().map_or(0, |look| look.counts.active)
    }

    /// Sessions that are over and still counted, at the last look.
    pub(super) fn suspected(&self) -> u64 {
        self.excess.recent.back().map_or(0, |(_, size)| *size)
    }

    /// How long an excess must last until it is no variation of others' sessions.
    fn excess_span_us(&self, config: &LedgerConfig) -> u64 {
        if self.config.shows.other_traffic { config.settle_us / 4 * 3 } else { 0 }
    }

    /// Takes a look in; the book knows everything up to its time.
    pub(super) fn take(&mut self, sample: TotalsSample, book: &mut Book, config: &LedgerConfig, faults: &mut Faults) {
        self.samples += 1;
        self.watch.answered(sample.answered_at_us, config);
        let oldest = sample.counts.time_us.map_or(sample.asked_at_us, |at| at.min(sample.asked_at_us));
        let span = Span { from_us: oldest.saturating_sub(self.config.age_us), to_us: sample.answered_at_us };
        let look = Look { span, asked_us: sample.asked_at_us, answered_us: sample.answered_at_us, counts: sample.counts };
        // Old enough to be of the process before, or of the one after.
        if self.kills.iter().any(|at| (span.from_us..look.asked_us).contains(at)) {
            return;
        }
        // A killed worker may have begun sessions of which it never told.
        let untold = book.losses().iter().any(|loss| untold_from_us(loss) <= look.span.to_us);
        let touched = untold || book.first_attempt_of(self.config.backend).is_some_and(|at| at <= look.span.to_us);
        if self.base.is_none() {
            self.baseless = touched;
        }
        if !touched || self.base.is_none() {
            self.learn(&look.counts);
            if look.counts.active < 0 {
                faults.negative += 1;
                faults.lowest = faults.lowest.min(look.counts.active);
            }
            self.before = self.last.replace(look);
            return;
        }
        self.look_for_restart(&look, book, config, faults);
        if self.broken {
            self.before = self.last.replace(look);
        } else {
            self.judge(look, book, config, faults);
        }
    }

    /// Nobody of ours is there yet.
    fn learn(&mut self, counts: &Counts) {
        // Nobody has fewer than none: what is below zero is the count's own fault, before the run as in it.
        let active = counts.active.max(0);
        let base = self.base.get_or_insert_with(|| Base { counts: counts.clone(), active: (active, active), looks: 0, moved: false });
        base.looks += 1;
        base.moved |= !counts.stands_still(&base.counts) || counts.is_renamed(&base.counts);
        base.active = (base.active.0.min(active), base.active.1.max(active));
        base.counts = counts.clone();
    }

    /// Least and most that others may have there.
    fn of_others(&self) -> (i64, i64) {
        let Some(base) = &self.base else { return (0, 0) };
        let (low, high) = base.active;
        // Sessions of others may end in the run.
        (0, if self.config.shows.other_traffic { high.saturating_add(high - low) } else { high })
    }

    /// So many since the base; none where nobody knows.
    fn since(&self, pick: impl Fn(&Counts) -> Option<u64>, counts: &Counts) -> Option<u64> {
        if self.reset {
            return None;
        }
        let before = self.base.as_ref().and_then(|base| pick(&base.counts)).unwrap_or(0);
        pick(counts).map(|now| now.saturating_sub(before))
    }

    fn judge(&mut self, look: Look, book: &mut Book, config: &LedgerConfig, faults: &mut Faults) {
        let b = bounds(book, self, look.span, config).with_windows(book, self, look.span, config);
        let (floor, ceiling) = self.of_others();
        let active = look.counts.active;
        if active < 0 {
            faults.negative += 1;
            faults.lowest = faults.lowest.min(active);
        }
        // What was never added, or is not yet, is missing for another reason.
        let unadded = self.since(|counts| counts.started, &look.counts).map_or(0, |started| b.attempted.saturating_sub(started));
        let short = (b.sure as i64).saturating_add(floor).saturating_sub(active).saturating_sub(unadded as i64).max(0) as u64;
        let excess = active.saturating_sub(ceiling).saturating_sub(b.possible as i64).max(0) as u64;
        let excess = excess.saturating_sub(self.may_hold_untold(look.span, book, config));
        let missing = (b.sure as i64).saturating_add(floor).saturating_sub(active).max(0) as u64;
        self.short.push(look.span.to_us, short, config.grace_us);
        self.excess.push(look.span.to_us, excess, self.excess_span_us(config));
        self.missing.push(look.span.to_us, missing, config.grace_us);
        let mut under = self.missing.lasting(config.grace_us);
        // A pause is the driver's own slowness as well as not: it may have been as slow to hear of ends.
        if self.last.as_ref().is_some_and(|last| look.answered_us.saturating_sub(last.answered_us) > self.watch.pause_us(config)) {
            self.firmly.iter_mut().for_each(|firmly| firmly.recent.clear());
        }
        for ((firmly, firm), (_, span_us)) in self.firmly.iter_mut().zip(b.firm).zip(firm_spans(config)) {
            firmly.push(look.span.to_us, (firm as i64).saturating_sub(active).max(0) as u64, span_us);
            under = under.max(firmly.lasting(span_us));
        }
        self.again.0.push((b.firm[0] as i64).saturating_sub(active).max(0) as u64, b.firm[0] > 0);
        if !self.config.shows.other_traffic {
            if b.due_live > 0 {
                self.average.push(look.span.to_us, b.due_live, active);
            }
            self.again.1.push(excess, true);
            self.excess.most = self.excess.most.max(self.again.1.size());
        }
        let miss = self.miss(&look, &b);
        self.growing.look(look.span.to_us, miss, config);
        let off = Off { over: self.excess.lasting(self.excess_span_us(config)), under };
        // What was not known of others before the run is no measure of what came after.
        if !self.baseless && (self.config.shows.other_traffic || self.base.as_ref().is_some_and(|base| !base.moved)) {
            let pause_us = self.watch.pause_us(config);
            self.watch.drift.look(look.span.to_us, off, config.start_us, pause_us);
        }
        if short > 0 {
            faults.short_samples += 1;
            faults.short_most = faults.short_most.max(short);
        }
        if let Some(base) = &self.base {
            self.moved |= !look.counts.stands_still(&base.counts);
            self.stood_out |= if self.config.shows.other_traffic { active > ceiling } else { active != base.counts.active };
            let fewer = base.active.0.saturating_add(b.sure as i64).saturating_sub(active).saturating_sub(unadded as i64).max(0) as u64;
            self.fewer.push(look.span.to_us, fewer, config.grace_us);
        }
        let beyond = active.saturating_sub(ceiling).saturating_sub(b.live() as i64);
        self.level = beyond <= 0;
        if self.level {
            self.ends_agree(book, &look, 0);
        } else if beyond <= self.ghosts.0 as i64 {
            // Ghosts that are known stay, and hide no later end. Which of the earlier ends they are, nobody knows.
            self.ends_agree(book, &look, self.ghosts.1);
        }
        let lasting = self.excess.lasting(self.excess_span_us(config));
        if lasting != self.ghosts.0 {
            self.ghosts = (lasting, if lasting > self.ghosts.0 { look.span.to_us } else { self.ghosts.1 });
        }
        self.before = self.last.replace(look);
    }

    /// So many more sessions than it told of a killed worker may have had, which are not over for the backend yet.
    fn may_hold_untold(&self, span: Span, book: &Book, config: &LedgerConfig) -> u64 {
        let held = book.losses().iter().filter(|loss| {
            untold_from_us(loss) < span.to_us && self.watch.watched_us(loss.at_us, span.from_us) <= config.windows.of(EndKind::KillWorker)
        });
        held.fold(0, |sum: u64, loss| sum.saturating_add(book.tally.untold(loss).unwrap_or(u64::MAX)))
    }

    /// Live sessions that were not counted, at worst, in the course of the run. Sessions that were never added at all are told of elsewhere.
    fn most_short(&self, never_added: u64) -> u64 {
        // What was not added for a while was missing all the same.
        let missing = self
            .firmly
            .iter()
            .map(|firmly| firmly.most)
            .fold(self.missing.most.max(self.again.0.size()), u64::max)
            .max(self.average.size());
        self.short.most.max(missing.saturating_sub(never_added))
    }

    /// The first look that agrees tells of every end before it, from this moment on.
    fn ends_agree(&self, book: &mut Book, look: &Look, from_us: u64) {
        let covered = |s: &&mut Session| self.covers(s) && s.accepted.is_some();
        for session in book.sessions.values_mut().filter(covered) {
            if session.over.is_some_and(|over| (from_us..look.span.from_us).contains(&over.at_us)) {
                session.agreed_us.get_or_insert(look.answered_us);
            }
        }
    }

    /// Sessions that no later look can show, to be folded.
    pub(super) fn sweep(&mut self, book: &Book, config: &LedgerConfig, convergence: &mut Convergence) -> Vec<PlanIndex> {
        let Some(from_us) = self.last.as_ref().map(|look| look.span.from_us) else { return Vec::new() };
        if std::mem::take(&mut self.level) {
            for (end, n) in self.untimed.drain(..) {
                convergence.count(end, |row| row.detected += n);
            }
        }
        let mut done = Vec::new();
        for (index, session) in &book.sessions {
            let Some(over) = session.over.filter(|_| self.covers(session) && session.accepted.is_some()) else { continue };
            let quiet = over.at_us.saturating_add(2 * config.grace_us) < from_us;
            let watched_us = self.watch.watched_us(over.at_us, from_us);
            if !quiet || watched_us <= reconcile::window_us(session, config) + config.grace_us {
                continue;
            }
            reconcile::count_unnamed(session, convergence);
            match (reconcile::row(session), session.agreed_us) {
                (Some(end), Some(agreed_us)) => convergence.detected(end, over.at_us, agreed_us),
                (Some(end), None) => match self.untimed.iter_mut().find(|(kind, _)| *kind == end) {
                    Some((_, n)) => *n += 1,
                    None => self.untimed.push((end, 1)),
                },
                (None, _) => {}
            }
            let unseen_us = from_us.saturating_sub(over.at_us).saturating_sub(watched_us);
            self.windows_us = self.windows_us.max(over.at_us + unseen_us + reconcile::window_us(session, config));
            self.fold(session, config);
            done.push(*index);
        }
        done
    }

    fn fold(&mut self, session: &Session, config: &LedgerConfig) {
        let mut one = Bounds::default();
        one.count(session, self, Span { from_us: u64::MAX, to_us: u64::MAX }, config);
        self.folded.accepted += one.accepted;
        self.folded.attempted += one.attempted;
        let Folded { must, due, may, .. } = &mut self.folded;
        for (sums, more) in [(must, one.must), (due, one.due), (may, one.may)] {
            for (outcome, count) in more {
                *sums.entry(outcome).or_default() += count;
            }
        }
    }
}

/// What a killed worker did from then on, nobody told.
fn untold_from_us(loss: &WorkerLoss) -> u64 {
    loss.known_to_us.values().copied().min().unwrap_or(loss.at_us)
}
