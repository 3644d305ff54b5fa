//! Figures that a count can have. Whoever answers for counters may say anything; what goes on from here can be added up without a thought for its size.

use agent_server::admin::wire::{EndRecord, SnapshotJson};

/// What every reader of JSON can hold as a whole number. No count and no time in microseconds comes near it.
const MOST: u64 = 1 << 53;

/// The first figure of a snapshot that cannot be one.
pub(super) fn snapshot(s: &SnapshotJson) -> Result<(), String> {
    let counts = [
        ("captured_at_us", s.captured_at_us),
        ("started", s.started),
        ("max_sessions", s.max_sessions.unwrap_or(0)),
        ("rejected", s.rejected),
        ("late_ends", s.late_ends),
        ("live_tasks", s.live_tasks),
        ("next_end", s.next_end),
        ("frames_in", s.frames_in),
        ("frames_out", s.frames_out),
        ("cpu_us", s.cpu_us),
        ("rss_bytes", s.rss_bytes),
        ("virtual_cost_us", s.virtual_cost_us),
        ("load.used_us", s.load.used_us),
        ("load.speaking", s.load.speaking),
    ];
    let listed = [("ended", &s.ended), ("defects", &s.defects), ("faults", &s.faults)];
    let counts = counts.into_iter().chain(listed.into_iter().flat_map(|(name, all)| all.values().map(move |n| (name, *n))));
    let gauges = [("active", s.active), ("active_interval", s.active_interval.0), ("active_interval", s.active_interval.1)];
    let gauges = gauges.into_iter().chain(s.phases.values().map(|n| ("phases", *n))).map(|(name, n)| (name, n.unsigned_abs()));
    all(counts.chain(gauges))
}

/// The first figure of these ends that cannot be one.
pub(super) fn ends(ends: &[EndRecord]) -> Result<(), String> {
    all(ends.iter().flat_map(|end| [("seq", end.seq), ("at_us", end.at_us)]))
}

fn all<'a>(mut figures: impl Iterator<Item = (&'a str, u64)>) -> Result<(), String> {
    figures.find(|(_, n)| *n > MOST).map_or(Ok(()), |(name, n)| Err(format!("`{name}` is {n}, which nothing counts")))
}
