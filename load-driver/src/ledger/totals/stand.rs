//! What a checkpoint keeps of a source of sums.

use super::{
    Totals,
    bounds::{Span, bounds},
};
use crate::ledger::{book::Book, config::LedgerConfig, resume::SumsStand};

impl Totals {
    /// Nothing of one that has no base, or whose numbers say nothing any more.
    pub(in crate::ledger) fn stand(&self, source: usize, book: &Book, config: &LedgerConfig) -> Option<SumsStand> {
        let (base, last) = (self.base.as_ref()?, self.last.as_ref()?);
        if self.broken || self.baseless {
            return None;
        }
        // All that the driver knows of, later ones than the last look too: what comes beyond them, nobody knows of.
        let all = Span { from_us: u64::MAX, to_us: u64::MAX };
        Some(SumsStand {
            source,
            name: self.config.name.clone(),
            other_traffic: self.config.shows.other_traffic,
            base_active: self.of_others().1,
            base_started: last.counts.started.filter(|_| !self.reset).map(|_| base.counts.started.unwrap_or(0)),
            last: last.counts.clone(),
            accepted: bounds(book, self, all, config).accepted,
            overdue: self.suspected(),
        })
    }

    /// Why not everything can be proven any more.
    pub(in crate::ledger) fn unprovable(&self) -> Vec<String> {
        self.breaks.iter().cloned().chain(self.baseless_reason()).collect()
    }

    /// Why there is nothing to hold its numbers against, if there is not.
    pub(super) fn baseless_reason(&self) -> Option<String> {
        self.baseless.then(|| format!("{}: sessions were there before the first look at its counters", self.config.name))
    }
}
