//! The numbers that only grow, each held against the book by itself, at every look, from both sides.
//!
//! What a backend says of itself excuses nothing that the driver knows better: how many sessions it had, how many of its dials were refused.
//! Only where a number and the count of live sessions bear each other out is it the count that is judged: sessions that it still shows need not be
//! in `ended`.

use proto::frame::Outcome;

use super::{Bounds, Look, Totals};
use crate::ledger::{book::Book, config::LedgerConfig, persistent::Persistent};

/// What they are off by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Miss {
    /// Sessions that are not in `started`.
    pub(super) started_short: u64,
    /// Ends that are not in `ended`, and that the count of live sessions does not show either.
    pub(super) ended_short: u64,
    /// More in `ended` than can have ended.
    pub(super) ended_over: u64,
}

/// What they were off by for longer than news may take, in the course of the run.
#[derive(Debug, Default)]
pub(super) struct Growing {
    started_short: Persistent,
    ended_short: Persistent,
    ended_over: Persistent,
}

impl Growing {
    pub(super) fn look(&mut self, at_us: u64, miss: Miss, config: &LedgerConfig) {
        self.started_short.push(at_us, miss.started_short, config.grace_us);
        self.ended_short.push(at_us, miss.ended_short, config.grace_us);
        self.ended_over.push(at_us, miss.ended_over, config.grace_us);
    }

    /// Another process answers.
    pub(super) fn restart(&mut self) {
        for lasting in [&mut self.started_short, &mut self.ended_short, &mut self.ended_over] {
            lasting.recent.clear();
        }
    }

    /// The most of each.
    fn most(&self) -> Miss {
        Miss { started_short: self.started_short.most, ended_short: self.ended_short.most, ended_over: self.ended_over.most }
    }
}

impl Totals {
    /// What a look shows.
    pub(super) fn miss(&self, look: &Look, b: &Bounds) -> Miss {
        let others = self.config.shows.other_traffic;
        let (started, ended) = (self.since(|counts| counts.started, &look.counts), self.since(|counts| counts.ended, &look.counts));
        let (low, high) = self.base.as_ref().map_or((0, 0), |base| base.active);
        let started_short = started.map_or(0, |n| b.accepted.saturating_sub(n));
        // Over, and live by the count.
        let counted = look.counts.active.saturating_sub(if others { 0 } else { low }).saturating_sub(b.sure as i64).max(0) as u64;
        let told = ended.filter(|_| self.tells_every_end());
        let ended_short = told.map_or(0, |n| b.ended.saturating_sub(n).saturating_sub(counted).saturating_sub(started_short));
        // When nobody lives its own numbers must add up too: whatever of ours it says began is live or has ended.
        let at_rest = b.possible == 0 && !others;
        let own = told.zip(started).filter(|_| at_rest).map_or(0, |(ended, started)| {
            let before = self.base.as_ref().map_or(0, |base| base.counts.active);
            let due = i64::try_from(started.min(b.attempted)).unwrap_or(i64::MAX).saturating_add(before).saturating_sub(look.counts.active);
            (due.max(0) as u64).saturating_sub(ended)
        });
        let ended_short = ended_short.max(own);
        // Whatever began may end, whosesoever it is, and so may what was there before. A dial in doubt did not begin if the backend says so.
        let left = high.saturating_add(b.sure as i64).saturating_sub(look.counts.active).clamp(0, high) as u64;
        let begun = started.map_or(b.at_most(), |n| n.saturating_add(started_short));
        let may = begun.saturating_sub(b.sure).saturating_add(left);
        let ended_over = ended.filter(|_| !others).map_or(0, |n| n.saturating_sub(may));
        Miss { started_short, ended_short, ended_over }
    }

    /// So many more in some number than are known of, and no more than killed workers may have had.
    pub(super) fn of_killed_workers(&self, book: &Book, look: &Look, b: &Bounds) -> u64 {
        let started = self.since(|counts| counts.started, &look.counts).unwrap_or(0);
        let ended = self.since(|counts| counts.ended, &look.counts).unwrap_or(0);
        let refused = self.since(|counts| counts.rejected, &look.counts).unwrap_or(0);
        let known = self.refusals(book, look, &Bounds { untold: 0, ..b.clone() }).1;
        started.max(ended).saturating_sub(b.attempted).max(refused.saturating_sub(known)).min(b.untold)
    }

    /// Every session that ends is in `ended`, whatever its outcome.
    fn tells_every_end(&self) -> bool {
        let outcomes = &self.config.shows.outcomes;
        outcomes.is_empty() || outcomes.len() == Outcome::ALL.len()
    }

    /// Fewest and most refusals that `rejected` may show.
    pub(super) fn refusals(&self, book: &Book, look: &Look, b: &Bounds) -> (u64, u64) {
        let told = book.tally.refusals(self.config.backend);
        // Of one that is in doubt nobody knows whether it was refused; one that the backend says began was not.
        let began = self.since(|counts| counts.started, &look.counts).unwrap_or(0);
        let doubtful = b.at_most().saturating_sub(b.accepted.max(began));
        // Those of a process that is gone are not in the number, or may yet be.
        (told.sure.saturating_sub(self.refused_before), told.possible.saturating_add(doubtful))
    }

    /// What `rejected` is off by, and how that reads.
    fn refusals_missed(&self, book: &Book, look: &Look, b: &Bounds) -> Option<(u64, String)> {
        let has = self.since(|counts| counts.rejected, &look.counts)?;
        let (least, most) = self.refusals(book, look, b);
        let most = if self.config.shows.other_traffic { u64::MAX } else { most };
        let off = least.saturating_sub(has).max(has.saturating_sub(most));
        let due = if has < least { least } else { most };
        (off > 0).then(|| (off, format!("`rejected` {has} where {due} {} refused", if has < least { "were" } else { "at most were" })))
    }

    /// Everything in them that no other finding tells of: how much, and in words. `excess`: ends beyond all sessions that no other finding tells of.
    pub(super) fn miscounted(&self, book: &Book, look: &Look, b: &Bounds, excess: u64) -> Vec<(u64, String)> {
        let last = self.miss(look, b);
        let has = self.since(|counts| counts.ended, &look.counts).unwrap_or(0);
        let mut out: Vec<(u64, String)> = self.refusals_missed(book, look, b).into_iter().collect();
        let mut add = |size: u64, words: String| {
            if size > 0 {
                out.push((size, words));
            }
        };
        add(excess, format!("`ended` {has} where {} sessions were, and the count of live ones does not show it", b.attempted));
        let by_outcome = || {
            let stuck = self.config.shows.outcomes.iter().filter_map(|outcome| {
                let has = self.since(|counts| counts.outcomes.get(outcome).copied(), &look.counts)?;
                let due = b.must.get(outcome).copied().unwrap_or(0);
                (has < due).then(|| format!(", {outcome} {has} where {due} ended so"))
            });
            stuck.collect::<String>()
        };
        if last.ended_short > 0 {
            add(
                last.ended_short,
                format!("`ended` {has} where {} sessions are over and not counted as live{}", has + last.ended_short, by_outcome()),
            );
        }
        out.extend(self.miscounted_before(last));
        out
    }

    /// What they were off by in the course of the run, and are not any more.
    pub(super) fn miscounted_before(&self, last: Miss) -> impl Iterator<Item = (u64, String)> {
        let most = self.growing.most();
        let late = if last.ended_short > 0 { 0 } else { most.ended_short };
        let (early, behind) = (most.ended_over.saturating_sub(last.ended_over), most.started_short.saturating_sub(last.started_short));
        let all = [
            (early, format!("up to {early} ends that were in `ended` before they were due")),
            (late, format!("up to {late} ends that were not in `ended` long after their windows")),
            (behind, format!("up to {behind} sessions that were not in `started` for a while")),
        ];
        all.into_iter().filter(|(size, _)| *size > 0)
    }

    /// The last look has every number where the book wants it.
    pub(super) fn grows_rightly(&self, book: &Book, look: &Look, b: &Bounds) -> bool {
        self.miss(look, b) == Miss::default() && self.refusals_missed(book, look, b).is_none()
    }

    /// For a process that begins anew.
    pub(super) fn forget_growth(&mut self, book: &Book) {
        self.growing.restart();
        // What the book has of them by now is more than the process before can have had.
        self.refused_before = book.tally.refusals(self.config.backend).sure;
    }
}
