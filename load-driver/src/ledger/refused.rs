//! Holds the refusals in a backend's snapshots against the dials that it refused.

use super::{boot::Boot, keeper::Ledger, look::Last};

/// By the last look at each process. Of one that is gone nobody can ask any more what it refused after that: only what is too much shows there.
///
/// Where the counters read are another backend's, nothing follows.
pub(super) fn judge(ledger: &Ledger, out: &mut Last) {
    if out.astray > 0 {
        return;
    }
    for (backend, watch) in ledger.watches.iter().enumerate() {
        let boots: Vec<&Boot> = watch.boots.iter().filter_map(|index| ledger.boots.get(index)).filter(|boot| !boot.reset).collect();
        let told = ledger.book.tally.refusals(Some(backend));
        let mut add = |off: u64, words: String| {
            if off > 0 {
                out.miscounted.push((off, format!("backend {backend}: `rejected` {words}")));
            }
        };
        let current = boots.last().filter(|boot| boot.killed_us.is_none() && watch.boots.last() == Some(&boot.index));
        if let Some((boot, at)) = current.and_then(|boot| Some((boot, boot.last.as_ref()?))).filter(|(_, at)| at.asked_us > told.last_us) {
            let (has, due) = (at.rejected.saturating_sub(boot.base.rejected.0), surely(ledger, boot));
            add(due.saturating_sub(has), format!("{has} where {due} were refused"));
        }
        if boots.iter().all(|boot| boot.ours_alone) {
            let has = boots.iter().filter_map(|boot| Some(boot.last.as_ref()?.rejected)).fold(0, u64::saturating_add);
            let most = told.possible.saturating_add(doubtful(ledger, &boots));
            add(has.saturating_sub(most), format!("{has} where at most {most} were refused"));
        }
    }
}

/// Dials that this process surely refused.
pub(super) fn surely(ledger: &Ledger, boot: &Boot) -> u64 {
    let told = ledger.book.tally.refusals(Some(boot.backend));
    // What a backend that drains says to a dial may be heard in part, and taken for "full". One that goes on to take sessions does not drain.
    let taken_us = ledger.book.last_accepted_us(boot.index).saturating_sub(ledger.config.grace_us);
    let drained = boot.drains.is_some_and(|(before_us, seen_us)| before_us <= told.last_us && taken_us <= seen_us);
    if drained { 0 } else { told.sure.saturating_sub(boot.refused_before) }
}

/// Dials of which nobody said whether they were refused.
fn doubtful(ledger: &Ledger, boots: &[&Boot]) -> u64 {
    let book = &ledger.book;
    let of_boot = |boot: &&Boot| boot.last.as_ref().map(|at| ledger.bounds(boot, at));
    let dialled = boots.iter().filter_map(of_boot).map(|b| b.attempted.saturating_sub(b.accepted));
    let untold = book.losses().iter().map(|loss| book.tally.untold(loss).unwrap_or(u64::MAX));
    dialled.chain(untold).fold(0, u64::saturating_add)
}
