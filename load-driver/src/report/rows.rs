//! Rows that the terminal and the page both show: what stands in a cell is said once, each makes a table of it in its own way.

use super::{
    Summary,
    summary::{ConvergenceRow, CountersSection, FaultRow, ScenarioSummary, SegmentRow},
    text::{count, ms_or_dash, seconds},
};
use crate::{
    leak::{Leak, LeakRow},
    ledger::{Ages, Confidence, DefectName, DriftRow},
    plan::{Dialect, FaultName},
    threshold::Status,
};

/// Of the table of scenarios.
pub(super) const SCENARIOS: [&str; 9] =
    ["", "<protocol", "<dialect", "requested", "established", "failed", "startup p99", "turn p50", "turn p99"];

/// Of the table by kind of end.
pub(super) const CONVERGENCE: [&str; 11] =
    ["", "<protocol", "killed", "detected", "written off", "p50 ms", "p95 ms", "p99 ms", "max ms", "ghosts", "false capacity"];

/// Of the timeline of faults.
pub(super) const FAULTS: [&str; 8] = ["", "<with", "<target", "share", "at s", "for s", "struck", "<"];

/// Of the growth of processes.
pub(super) const GROWTH: [&str; 6] = ["", "growth", "95 %", "last", "rests on", "<"];

/// Reasons that are told of faults without a row.
const MOST_REASONS: usize = 20;

/// Processes that are named for one reason.
const MOST_PROCESSES: usize = 5;

/// One scenario; milliseconds from the intended time.
pub(super) fn scenario(s: &ScenarioSummary) -> [String; 9] {
    let of = |metric: &str| s.latencies.iter().find(|row| row.metric == metric).and_then(|row| row.response);
    let (startup, turn) = (of("session_startup"), of("turn_response"));
    [
        s.name.clone(),
        s.protocol.name().to_owned(),
        s.dialect.name().to_owned(),
        count(s.funnel.requested),
        count(s.funnel.established),
        count(s.funnel.sessions_failed()),
        ms_or_dash(startup.map(|q| q.p99_ms)),
        ms_or_dash(turn.map(|q| q.p50_ms)),
        ms_or_dash(turn.map(|q| q.p99_ms)),
    ]
}

/// Where a row has nothing for a number.
const SUMS: &str = "-: these counters are sums, which name no session, so which kind stayed counted or was subtracted twice is not known: see the \
                               counters for how many; times are of the ends that a look showed by themselves";

/// What the table by kind of end does not say: why some of its rows have no numbers, and what no row of it holds.
pub(super) fn convergence_notes(s: &Summary) -> Vec<String> {
    let without = s.convergence.iter().any(|row| row.killed > 0 && row.ghosts.is_none());
    without.then(|| SUMS.to_owned()).into_iter().chain(other_ghosts(s)).collect()
}

/// One kind of end over one protocol, or in one dialect.
pub(super) fn convergence(row: &ConvergenceRow) -> [String; 11] {
    let told = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), count);
    [
        row.kind.name().to_owned(),
        if row.dialect == Dialect::Native { row.protocol.name() } else { row.dialect.name() }.to_owned(),
        count(row.killed),
        told(row.detected),
        told(row.written_off),
        ms_or_dash(row.p50_ms),
        ms_or_dash(row.p95_ms),
        ms_or_dash(row.p99_ms),
        ms_or_dash(row.max_ms),
        told(row.ghosts),
        told(row.false_capacity),
    ]
}

/// Ghosts that the table by kind of end cannot hold: how their sessions ended is no kind of a plan.
fn other_ghosts(summary: &Summary) -> Option<String> {
    // Sums cannot tell one ghost from another, and what a killed driver left is in no table.
    if summary.counters.confidence != Some(Confidence::Exact) || summary.segments.len() > 1 {
        return None;
    }
    let ghosts = [DefectName::Ghost.name(), DefectName::ForgetOnTimeout.name()];
    let found: u64 = summary.counters.findings.iter().filter(|f| ghosts.contains(&f.name.as_str())).map(|f| f.size).sum();
    let rows = summary.convergence.iter().map(|row| row.ghosts);
    let more = found.saturating_sub(rows.sum::<Option<u64>>()?);
    (more > 0).then(|| format!("and {} ghosts whose sessions no plan ended: a broken connection did, or the backend itself", count(more)))
}

/// How much the verdict on the counters is worth, where something judged them.
pub(super) fn confidence(counters: &CountersSection) -> Option<String> {
    counters.confidence.map(|confidence| format!("confidence: {}", confidence.words()))
}

/// How far the counts were off over time, and how old their ghosts got, in sentences; empty when nobody looked.
pub(super) fn drift(counters: &CountersSection) -> Vec<String> {
    let off = |row: &&DriftRow| row.episodes > 0;
    let mut all: Vec<String> = counters.drift.iter().filter(off).map(one_drift).collect();
    let looks: u64 = counters.drift.iter().map(|row| row.looks).sum();
    if all.is_empty() && looks > 0 {
        all.push(format!("drift: none in the {} looks that could show it", count(looks)));
    }
    let ages = &counters.ghost_ages;
    let kinds = [("when first seen", &ages.seen), ("counted late", &ages.gone), ("gone with their process", &ages.gone_with_process)];
    let told: Vec<String> = kinds.into_iter().chain([("still there", &ages.still)]).filter_map(|(what, ages)| age(what, ages)).collect();
    if !told.is_empty() {
        all.push(format!("ghosts had been over for: {}", told.join("; ")));
    }
    all
}

fn one_drift(row: &DriftRow) -> String {
    let sides = [(row.ghost_seconds, "of ghosts"), (row.false_capacity_seconds, "of false capacity")];
    let took = sides.into_iter().filter(|(took, _)| *took > 0.0).map(|(took, of)| format!(", {took:.1} session-seconds {of}"));
    let from = seconds(row.began_s.unwrap_or_default());
    let to = row.ended_s.map_or_else(|| "the end".to_owned(), seconds);
    let times = if row.episodes > 1 { format!(", {} times", count(row.episodes)) } else { String::new() };
    let range = match (row.least, row.most) {
        (0, most) => format!("up to {most:+}"),
        (least, 0) => format!("down to {least:+}"),
        (least, most) => format!("{least:+} to {most:+}"),
    };
    format!("drift of {}: {range} sessions{} from {from} to {to}{times}", row.source, took.collect::<String>())
}

fn age(what: &str, ages: &Ages) -> Option<String> {
    let of = |value: Option<f64>| seconds(value.unwrap_or_default());
    let Ages { count: n, p50_s, p95_s, max_s, .. } = ages;
    (*n > 0).then(|| format!("{what} p50 {}, p95 {}, max {} ({})", of(*p50_s), of(*p95_s), of(*max_s), count(*n)))
}

/// Sentences on faults that have no row here: of what was not made, or not in full, nobody may hear nothing.
pub(super) fn not_made<'a>(rest: impl Iterator<Item = &'a FaultRow>) -> Vec<String> {
    let mut all: Vec<(FaultName, String, u64, f64)> = Vec::new();
    for row in rest {
        let Some(why) = row.not_made() else { continue };
        match all.iter_mut().find(|(kind, known, ..)| *kind == row.kind && *known == why) {
            Some((_, _, times, _)) => *times += 1,
            None => all.push((row.kind, why, 1, row.planned_s)),
        }
    }
    let left = all.len().saturating_sub(MOST_REASONS);
    let line = |(kind, why, times, first): &(FaultName, String, u64, f64)| {
        format!("of these {} x {}, first planned at {first:.1} s: {why}", count(*times), kind.name())
    };
    let mut lines: Vec<String> = all.iter().take(MOST_REASONS).map(line).collect();
    if left > 0 {
        let more: u64 = all.iter().skip(MOST_REASONS).map(|(_, _, times, _)| times).sum();
        lines.push(format!("of these {} more were not made, not in full, or struck nobody: see summary.json", count(more)));
    }
    lines
}

/// Whole percents where there are many, and two digits of what is less than ten: what is not nothing does not look like nothing.
fn share(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent > 0.0 && percent < 1e-6 {
        return "<0.000001 %".to_owned();
    }
    if percent <= 0.0 || percent >= 10.0 {
        return format!("{percent:.0} %");
    }
    let digits = (1.0 - percent.log10().floor()) as usize;
    let shown = format!("{percent:.digits$}");
    format!("{} %", shown.trim_end_matches('0').trim_end_matches('.'))
}

/// One fault that was made on purpose, or was not.
pub(super) fn fault(row: &FaultRow) -> [String; 8] {
    let shown = |value: f64| if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    let figures = row.figures.iter().map(|(name, value)| format!("{} {}", name.replace('_', " "), shown(*value)));
    let open = row.is_under_way().then(|| "UNDER WAY".to_owned());
    let note = match (&row.skipped, row.began_s) {
        (Some(why), _) => format!("SKIPPED: {why}"),
        (None, None) => "not reached".to_owned(),
        (None, Some(_)) => {
            let without = row.without.iter().map(|what| format!("WITHOUT {what}"));
            open.into_iter().chain(without).chain(figures).collect::<Vec<_>>().join(", ")
        }
    };
    [
        row.kind.name().to_owned(),
        if row.with.is_empty() { "-".to_owned() } else { row.with.clone() },
        row.target.clone(),
        share(row.fraction),
        format!("{:.1}", row.began_s.unwrap_or(row.planned_s)),
        row.lasted_s().map_or_else(|| "-".to_owned(), |lasted| format!("{lasted:.1}")),
        row.struck.map_or_else(|| "-".to_owned(), count),
        note,
    ]
}

/// What of one process does or does not grow; nothing where that cannot be told.
pub(super) fn growth(row: &LeakRow) -> Option<[String; 6]> {
    let (slope, (low, high)) = (row.slope_per_h?, row.interval_per_h.unwrap_or_default());
    Some([
        format!("{} {}", row.process, row.what.name()),
        format!("{slope:+.2} {}", row.what.unit()),
        format!("{low:+.2} to {high:+.2}"),
        format!("{:.1}", row.last),
        format!("{} x {} s", row.blocks, row.block_s),
        if row.grows() { "grows" } else { "flat" }.to_owned(),
    ])
}

/// Why a threshold on growth has no data, process by process where the reasons differ.
pub(super) fn untold_growth(s: &Summary) -> Vec<String> {
    let mut all: Vec<(Leak, &str, Vec<&str>)> = Vec::new();
    for what in Leak::ALL {
        let key = format!("leak_{}", what.name());
        if !s.thresholds.iter().any(|r| r.status == Status::NoData && r.key == key) {
            continue;
        }
        for row in s.leaks.iter().filter(|row| row.what == what && row.slope_per_h.is_none() && !row.reason.is_empty()) {
            match all.iter_mut().find(|(known, why, _)| *known == what && *why == row.reason) {
                Some((_, _, processes)) => processes.push(&row.process),
                None => all.push((what, &row.reason, vec![&row.process])),
            }
        }
    }
    let line = |(what, why, processes): &(Leak, &str, Vec<&str>)| {
        let shown: Vec<&str> = processes.iter().take(MOST_PROCESSES).copied().collect();
        let more = processes.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("leak_{} has no data of {}{more}: {why}", what.name(), shown.join(", "))
    };
    all.iter().map(line).collect()
}

/// One part of a run that was resumed, and how it ended if its driver was killed.
pub(super) fn segment(row: &SegmentRow) -> (String, Option<String>) {
    let (from, to) = (seconds(row.from_s), seconds(row.to_s));
    let lost = count(row.lost_sessions);
    let unseen = row.unseen_sessions.map_or_else(|| "how many were".to_owned(), count);
    let unknown = if row.unseen_sessions.is_none() { " is not known" } else { "" };
    let end = format!("its driver was killed: {lost} sessions lost with it, {unseen} begun after its last checkpoint{unknown}");
    (format!("{} (run {}): {from} to {to}", row.number, row.run_id), row.killed.then_some(end))
}
