//! What was hardly seen proves nothing, however well it looks.

use super::{keeper::Ledger, look::Last};
use crate::plan::EndKind;

/// Sessions over so long at least, before a share of that time tells anything, microseconds.
const LONG_US: u64 = 3_000_000;
/// So many ends at least, before it tells anything that none was seen.
const MANY: u64 = 20;

/// Sums that were read in less than half of the time in which there were sessions, and ends of which not one could be checked.
pub(super) fn judge(ledger: &Ledger, out: &mut Last) {
    let book = &ledger.book;
    let kills_us = book.kills_us();
    // An `agent-server` tells of each end afterwards.
    for totals in &ledger.totals {
        let (label, backend, watch) = (&totals.config.name, totals.config.backend, &totals.watch);
        let Some(from_us) = book.first_attempt_of(backend) else { continue };
        let to_us = book.last_end_of(backend);
        let span_us = to_us.saturating_sub(from_us);
        let paused_us = watch.paused_us(&kills_us, from_us, to_us);
        if span_us >= LONG_US && paused_us > span_us / 2 {
            out.unverified.push(format!(
                "{label}: its counters could not be read in {:.1} of the {:.1} s in which it had sessions{}",
                paused_us as f64 / 1e6,
                span_us as f64 / 1e6,
                watch.last_gap.as_ref().map_or_else(String::new, |(_, why)| format!(" (the last failed look: {why})")),
            ));
        }
    }
    let rows = ledger.convergence.rows();
    let cut = || rows.iter().filter(|row| !matches!(row.kind, EndKind::KillBackend | EndKind::Graceful) && !row.sums);
    let (written_off, rest) = cut().fold((0, 0), |(off, rest), row| (off + row.written_off, rest + row.detected + row.ghosts));
    if written_off >= MANY && rest == 0 {
        out.unverified.push(format!(
            "of {written_off} forced ends not one could be checked: their processes were killed or drained before the windows were over"
        ));
    }
}
