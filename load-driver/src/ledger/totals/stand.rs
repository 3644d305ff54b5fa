//! What a checkpoint keeps of a source of sums, and what is certain by then.

use super::{
    Look, Totals,
    bounds::{Span, bounds},
    growing::Miss,
};
use crate::{
    counters::TotalsSample,
    ledger::{book::Book, config::LedgerConfig, resume::SumsStand},
};

/// What the looks so far prove. How many live sessions are too many or too few in the end, only the end tells.
#[derive(Debug, Default)]
pub(in crate::ledger) struct Proven {
    /// Live sessions that were not counted, for longer than news may take.
    pub(in crate::ledger) short: u64,
    /// Sessions that were counted after their windows, and no longer are.
    pub(in crate::ledger) late: u64,
    /// What else was off for too long in the numbers that only grow, and how that reads.
    pub(in crate::ledger) miscounted: Vec<(u64, String)>,
    /// Ends that processes which are gone had under a wrong outcome.
    pub(in crate::ledger) wrong: u64,
    /// What can be said of neither.
    pub(in crate::ledger) unverified: Option<String>,
}

impl Totals {
    /// Nothing of one that has no base, or whose numbers say nothing any more. `before`: looks that came before the first session and are not
    /// taken in yet.
    pub(in crate::ledger) fn stand<'a>(
        &self,
        source: usize,
        before: impl Iterator<Item = &'a TotalsSample>,
        book: &Book,
        config: &LedgerConfig,
    ) -> Option<SumsStand> {
        if self.base.is_none() {
            let mut first = Self::new(self.config.clone());
            for sample in before {
                first.learn(&sample.counts);
                let span = Span { from_us: sample.asked_at_us, to_us: sample.answered_at_us };
                let (asked_us, answered_us) = (sample.asked_at_us, sample.answered_at_us);
                first.last = Some(Look { span, asked_us, answered_us, counts: sample.counts.clone() });
            }
            return first.base.is_some().then(|| first.stand(source, std::iter::empty(), book, config)).flatten();
        }
        let (base, last) = (self.base.as_ref()?, self.last.as_ref()?);
        if self.broken || self.baseless {
            return None;
        }
        // All that the driver knows of, later ones than the last look too: what comes beyond them, nobody knows of.
        let all = Span { from_us: u64::MAX, to_us: u64::MAX };
        let (floor, ceiling) = self.of_others();
        let known = bounds(book, self, all, config);
        Some(SumsStand {
            source,
            name: self.config.name.clone(),
            other_traffic: self.config.shows.other_traffic,
            base_active: ceiling,
            base_least: base.active.0,
            floor,
            base: base.counts.clone(),
            reset: self.reset,
            last: last.counts.clone(),
            accepted: known.accepted,
            must: known.must,
            refused: book.tally.refusals(self.config.backend).sure.saturating_sub(self.refused_before),
            overdue: self.excess.lasting(self.excess_span_us(config)),
        })
    }

    /// As [`super::conclude`] holds it against the backend: what was too few or too many for so long stays so, whatever comes later.
    pub(in crate::ledger) fn proven(&self, book: &Book, config: &LedgerConfig) -> Proven {
        let mut out = Proven::default();
        let (others, Some(base), Some(last)) = (self.config.shows.other_traffic, &self.base, &self.last) else { return out };
        if self.broken || self.baseless || base.moved && !others {
            return out;
        }
        out.wrong = if others { 0 } else { self.wrong_before };
        let label = &self.config.name;
        let low = base.active.0;
        let miss = self.miss(last, &bounds(book, self, last.span, config).with_windows(book, self, last.span, config));
        let short = self.most_short(miss.started_short);
        // What is not right yet when the driver is gone is found then, but for ends that come very late.
        let miscounted: Vec<_> = self.miscounted_before(Miss { ended_short: 0, ..miss }).collect();
        if !self.moved && (short > 0 || !miscounted.is_empty()) {
            out.unverified = Some(format!("{label}: its numbers had not moved although sessions came and went"));
        } else if !others && low > 0 && self.fewer.most > 0 {
            out.unverified = Some(format!(
                "{label}: it counted {} sessions fewer than ours and the {low} from before the run: others' ended (`counters.other_traffic: true`), or ours were not counted or subtracted twice",
                self.fewer.most
            ));
        } else {
            out.short = short;
            out.miscounted = miscounted;
        }
        // Those that still are may be ghosts: the stand keeps them.
        if !others && self.excess.recent.is_empty() {
            out.late = self.excess.most;
        }
        out
    }

    /// Why not everything can be proven any more.
    pub(in crate::ledger) fn unprovable(&self) -> Vec<String> {
        let moved = self.base.as_ref().is_some_and(|base| base.moved) && !self.config.shows.other_traffic;
        let used = moved.then(|| format!("{}: its counters moved before the first session, so somebody else uses it", self.config.name));
        self.breaks.iter().cloned().chain(self.baseless_reason()).chain(used).collect()
    }

    /// Why there is nothing to hold its numbers against, if there is not.
    pub(super) fn baseless_reason(&self) -> Option<String> {
        self.baseless.then(|| format!("{}: sessions were there before the first look at its counters", self.config.name))
    }
}
