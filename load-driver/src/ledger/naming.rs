//! What is wrong, by name: every root once, with its size and what follows from it.

use super::{
    finding::{DefectName, Finding, LISTED_IDS},
    keeper::Ledger,
    look::Last,
};

/// Every root once; what follows from it is not a finding of its own.
pub(super) fn name(ledger: &Ledger, last: &Last) -> Vec<Finding> {
    let (faults, records) = (&ledger.faults, &ledger.faults.records);
    let mut out = subtracted_too_often(ledger, last);
    // What went with its process is what the ends of the others are, where those tell.
    let cut_short = last.cut_short.total;
    let ghosts_too = if last.ghosts > 0 && faults.late.total == 0 { cut_short } else { 0 };
    if last.ghosts > 0 {
        let timeouts = last.all_timeouts && last.any_timeout && last.ghost_names.total == last.ghosts;
        let name = if timeouts { DefectName::ForgetOnTimeout } else { DefectName::Ghost };
        let kinds: Vec<String> = last.by_kind.iter().map(|(kind, n)| format!("{n} by {kind}")).collect();
        let by = if kinds.is_empty() { String::new() } else { format!(" (ended {})", kinds.join(", ")) };
        let what = if timeouts { "all of them ended by a timeout" } else { "the backend looks fuller than it is, for ever" };
        let caveats = std::iter::once(what).chain(last.ghost_caveats.iter().map(String::as_str)).collect::<Vec<_>>().join("; ");
        let ghosts = last.ghosts + ghosts_too;
        let went = if ghosts_too > 0 { format!("; {ghosts_too} of them when their process went") } else { String::new() };
        let text = format!("{ghosts} sessions ended, their windows are over, and the backend still counts them{by}{went}: {caveats}");
        out.push(Finding::new(name, ghosts, text).with_ids(&last.ghost_names.and(&last.cut_short)));
    }
    if records.returned.total > 0 {
        let text = format!(
            "{} sessions whose ends were counted are live again in the same process: the backend looks fuller than it is",
            records.returned.total
        );
        out.push(Finding::new(DefectName::Resurrection, records.returned.total, text).with_ids(&records.returned));
    }
    // Those that came back were too many before they were known.
    let by_totals = if last.ghosts == 0 { faults.excess_unexplained.saturating_sub(records.returned.total) } else { 0 };
    let late = faults.late.total + cut_short - ghosts_too;
    if late > 0 {
        let mut words = Vec::new();
        if faults.late.total > 0 {
            let (n, ms) = (faults.late.total, faults.latest_us / 1_000);
            let kinds: Vec<String> = faults.late_kinds.iter().map(|(kind, n)| format!("{n} by {kind}")).collect();
            words.push(format!("{n} ends were counted after their window, the latest {ms} ms after the end (ended {})", kinds.join(", ")));
        }
        if late > faults.late.total {
            words.push(format!("{cut_short} were not counted, though their windows were over, when their process went"));
        }
        let ids = if late > faults.late.total { faults.late.and(&last.cut_short) } else { faults.late.clone() };
        out.push(Finding::new(DefectName::LateDecrement, late, words.join("; ")).with_ids(&ids));
    } else if by_totals > 0 {
        let text = format!("up to {by_totals} sessions were counted as live after their windows, and no longer at the end");
        out.push(Finding::new(DefectName::LateDecrement, by_totals, text));
    }
    if faults.torn > 0 {
        let example = faults.torn_example.as_deref().unwrap_or_default();
        let text = match faults.torn_open.min(faults.torn) {
            0 => format!("{} snapshots labelled exact are no cut at one moment, the first at {example}", faults.torn),
            open => format!(
                "{} snapshots contradict themselves, {open} of them though they leave their count open, the first at {example}",
                faults.torn
            ),
        };
        out.push(Finding::new(DefectName::TornSnapshot, faults.torn, text));
    }
    if faults.resets > 0 {
        let example = faults.reset_example.as_deref().unwrap_or_default();
        let text = format!("numbers that only grow fell {} times, and no process had begun anew: {example}", faults.resets);
        out.push(Finding::new(DefectName::CounterReset, faults.resets, text));
    }
    if faults.wrong.total > 0 {
        let pairs: Vec<String> = faults.wrong_pairs.iter().map(|(pair, n)| format!("{pair} ({n})")).collect();
        let text = format!("{} ends were counted under a wrong outcome: {}", faults.wrong.total, pairs.join(", "));
        out.push(Finding::new(DefectName::WrongOutcome, faults.wrong.total, text).with_ids(&faults.wrong));
    }
    if last.wrong > 0 {
        let text = format!("{} ends were counted under a wrong outcome: {}", last.wrong, last.wrong_words.join(", "));
        out.push(Finding::new(DefectName::WrongOutcome, last.wrong, text));
    }
    if !last.miscounted.is_empty() {
        let size = last.miscounted.iter().fold(0, |sum: u64, (n, _)| sum.saturating_add(*n));
        let words: Vec<&str> = last.miscounted.iter().map(|(_, words)| words.as_str()).collect();
        let text = format!("numbers that only grow are not what the driver knows: {}", words.join("; "));
        out.push(Finding::new(DefectName::Miscounted, size, text));
    }
    let unknown = (records.unknown.total + last.strangers).max(last.added);
    if unknown > 0 {
        let why = if last.added_in_sums {
            ": if others use it too, say so with `counters.other_traffic: true`"
        } else {
            ", and nobody else talks to it"
        };
        // Which of them a killed worker had, nobody can tell.
        let strangers = if last.strangers > 0 { records.unknown.and(&records.untold) } else { records.unknown.clone() };
        let text = format!("the backend counted {unknown} sessions that this run never had{why}");
        out.push(Finding::new(DefectName::UnknownSessions, unknown, text).with_ids(&strangers));
    }
    if last.log_mismatch > 0 {
        let text = format!("{} sessions ended and are not counted any more, but the end log does not tell of them", last.log_mismatch);
        out.push(Finding::new(DefectName::EndLogMismatch, last.log_mismatch, text));
    }
    if last.unlike_log > 0 {
        let text = format!("{} ends are in the counters by outcome or in the end log, and not in both", last.unlike_log);
        out.push(Finding::new(DefectName::EndLogMismatch, last.unlike_log, text));
    }
    if !last.unverified.is_empty() {
        // A backend may have as many as it likes.
        let mut words: Vec<_> = last.unverified.iter().take(LISTED_IDS).cloned().collect();
        let more = last.unverified.len() - words.len();
        if more > 0 {
            words.push(format!("and {more} more"));
        }
        out.push(Finding::new(DefectName::Unverified, last.unverified.len() as u64, words.join("; ")));
    }
    out
}

/// Everything that makes the count of live sessions too low.
fn subtracted_too_often(ledger: &Ledger, last: &Last) -> Vec<Finding> {
    let (faults, records) = (&ledger.faults, &ledger.faults.records);
    let mut out = Vec::new();
    if records.doubles.total > 0 {
        let text = format!("{} ends were subtracted a second time for the same session", records.doubles.total);
        out.push(Finding::new(DefectName::DoubleDecrement, records.doubles.total, text).with_ids(&records.doubles));
    }
    if last.doubles > 0 {
        let text = format!("{} ends were counted beyond all sessions: some were subtracted a second time", last.doubles);
        out.push(Finding::new(DefectName::DoubleDecrement, last.doubles, text));
    }
    if records.empties > 0 {
        // A process that was killed need not have shown all that it refused.
        let rejected = last.rejected.max(ledger.book.tally.refusals(None).possible);
        let on_reject = records.empties <= rejected;
        let name = if on_reject { DefectName::DecrementOnReject } else { DefectName::FalseCapacity };
        let text = format!("{} ends were subtracted without a session, {rejected} sessions were rejected", records.empties);
        out.push(Finding::new(name, records.empties, text));
    }
    if last.lost > 0 {
        let text = format!("{} sessions were accepted and never added to the backend's count", last.lost);
        out.push(Finding::new(DefectName::Lost, last.lost, text));
    }
    let early = faults.early.total;
    // Those that never were are told of above.
    let late = faults.unadded.saturating_sub(last.lost);
    let short = last.short.max(faults.short_unexplained).max(early).max(late);
    if short > 0 {
        let text = format!("{short} live sessions were not counted: the backend looks emptier than it is");
        out.push(Finding::new(DefectName::FalseCapacity, short, text).with_ids(&faults.early));
    }
    if out.is_empty() && faults.negative > 0 {
        let text = format!("a gauge was below zero in {} snapshots, the lowest {}", faults.negative, faults.lowest);
        out.push(Finding::new(DefectName::Negative, faults.negative, text));
    }
    if let Some(root) = out.first_mut() {
        let mut follows = Vec::new();
        if faults.short_samples > 0 {
            follows.push(format!("{} snapshots showed up to {} live sessions too few", faults.short_samples, faults.short_most));
        }
        if faults.negative > 0 && root.name != DefectName::Negative {
            follows.push(format!("{} snapshots had a gauge below zero, the lowest {}", faults.negative, faults.lowest));
        }
        if faults.uneven > 0 {
            follows.push(format!("{} snapshots did not add up by as much", faults.uneven));
        }
        root.consequences = follows;
    }
    out
}
