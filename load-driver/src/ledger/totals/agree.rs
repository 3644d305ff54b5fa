//! The last looks agree with the book, so that nobody need wait longer.

use super::{Bounds, Look, Totals, bounds, conclude::mismatch};
use crate::ledger::{book::Book, config::LedgerConfig, reconcile};

impl Totals {
    /// Two looks in a row, both after the last end, show what is due and the same.
    pub(in crate::ledger) fn agrees(&self, book: &Book, config: &LedgerConfig) -> bool {
        let (Some(last), Some(before)) = (&self.last, &self.before) else { return false };
        let quiet_from = book.last_end_of(self.config.backend);
        let others = self.config.shows.other_traffic;
        [last, before].into_iter().all(|look| look.span.from_us > quiet_from && self.is_right(look, book, config))
            && (others || last.counts.stands_still(&before.counts))
    }

    fn is_right(&self, look: &Look, book: &Book, config: &LedgerConfig) -> bool {
        let b: Bounds = bounds(book, self, look.span, config).with_windows(book, self, look.span, config);
        // Ends that may yet be counted hide as many that were counted twice: sums of both look right.
        if b.pending > 0 {
            return false;
        }
        let (floor, _) = self.of_others();
        let high = self.base.as_ref().map_or(0, |base| base.active.1);
        let active = look.counts.active;
        if active > high.saturating_add(b.live() as i64) || active < floor.saturating_add(b.sure as i64) {
            return false;
        }
        if b.accepted > 0 && !self.stood_out {
            return false;
        }
        let others = self.config.shows.other_traffic;
        let started = self.since(|counts| counts.started, &look.counts);
        started.is_none_or(|n| n >= b.accepted && (others || n <= b.at_most()))
            && self.grows_rightly(book, look, &b)
            && (others || mismatch(self, look, &b) == 0)
    }

    /// After this nothing more can come: the last end, the longest window, the settling time, and what a reading may be old.
    pub(in crate::ledger) fn deadline_us(&self, book: &Book, config: &LedgerConfig) -> u64 {
        let windows = book.dials().filter(|s| self.covers(s)).filter_map(|s| {
            let (end_us, _) = s.ending()?;
            let to = self.watch.last_answer_us.unwrap_or(end_us).max(end_us);
            let unseen = (to - end_us).saturating_sub(self.watch.watched_us(end_us, to));
            Some(end_us + unseen + reconcile::window_us(s, config))
        });
        let last = windows.max().unwrap_or(0).max(self.windows_us).max(book.last_end_of(self.config.backend));
        last.saturating_add(config.settle_us).saturating_add(self.config.age_us)
    }
}
