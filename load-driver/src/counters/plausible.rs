//! Figures that a count can have. Whoever answers for counters may say anything; what goes on from here can be added up without a thought for its size.

use agent_server::admin::wire::{EndRecord, SessionJson, SnapshotJson};
use proto::frame::MAX_NAME_BYTES;

/// What every reader of JSON can hold as a whole number. No count and no time in microseconds comes near it.
const MOST: u64 = 1 << 53;

/// Outcomes, phases, defects and faults together.
const MOST_KEYS: usize = 256;

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
    let keys = listed.iter().flat_map(|(_, all)| all.keys()).chain(s.phases.keys());
    let keys: Vec<&String> = keys.collect();
    if keys.len() > MOST_KEYS {
        return Err(format!("it lists {} numbers by name, {MOST_KEYS} at most are read", keys.len()));
    }
    names(keys.into_iter().map(|key| ("the name of a number", key)).chain([("backend_id", &s.backend_id), ("boot_id", &s.boot_id)]))?;
    let gauges = [("active", s.active), ("active_interval", s.active_interval.0), ("active_interval", s.active_interval.1)];
    let gauges = gauges.into_iter().chain(s.phases.values().map(|n| ("phases", *n))).map(|(name, n)| (name, n.unsigned_abs()));
    all(counts.chain(gauges))
}

/// The first figure or name of these ends that cannot be one. `most`: so many were asked for.
pub(super) fn ends(ends: &[EndRecord], most: usize) -> Result<(), String> {
    fits(ends.len(), most)?;
    let named =
        |end: &'_ EndRecord| [("session_id", end.session_id.len()), ("client_ref", end.client_ref.len()), ("outcome", end.outcome.len())];
    lengths(ends.iter().flat_map(named))?;
    all(ends.iter().flat_map(|end| [("seq", end.seq), ("at_us", end.at_us)]))
}

/// The first name in this list of sessions that cannot be one.
pub(super) fn sessions(rows: &[SessionJson], most: usize) -> Result<(), String> {
    fits(rows.len(), most)?;
    let named =
        |row: &'_ SessionJson| [("session_id", row.session_id.len()), ("client_ref", row.client_ref.len()), ("phase", row.phase.len())];
    lengths(rows.iter().flat_map(named))
}

fn fits(rows: usize, most: usize) -> Result<(), String> {
    if rows > most { Err(format!("it has {rows} rows where {most} were asked for")) } else { Ok(()) }
}

fn names<'a>(names: impl Iterator<Item = (&'a str, &'a String)>) -> Result<(), String> {
    lengths(names.map(|(what, name)| (what, name.len())))
}

fn lengths<'a>(mut names: impl Iterator<Item = (&'a str, usize)>) -> Result<(), String> {
    let long = names.find(|(_, bytes)| *bytes > MAX_NAME_BYTES);
    long.map_or(Ok(()), |(what, bytes)| Err(format!("`{what}` has {bytes} bytes, {MAX_NAME_BYTES} at most are read")))
}

fn all<'a>(mut figures: impl Iterator<Item = (&'a str, u64)>) -> Result<(), String> {
    figures.find(|(_, n)| *n > MOST).map_or(Ok(()), |(name, n)| Err(format!("`{name}` is {n}, which nothing counts")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_rows_are_bounded() {
        let row = |n: usize| SessionJson {
            session_id: "s".repeat(n),
            client_ref: "c".to_owned(),
            phase: "listening".to_owned(),
            age_ms: 0,
            frames_in: 0,
            frames_out: 0,
        };
        assert_eq!(sessions(&[row(MAX_NAME_BYTES)], 1), Ok(()));
        assert_eq!(sessions(&[row(129)], 1), Err("`session_id` has 129 bytes, 128 at most are read".to_owned()));
        assert_eq!(sessions(&[row(1), row(1)], 1), Err("it has 2 rows where 1 were asked for".to_owned()));
        let end = |outcome: String| EndRecord { seq: 0, session_id: String::new(), client_ref: String::new(), outcome, at_us: 0 };
        assert_eq!(ends(&[end("completed".to_owned())], 1), Ok(()));
        assert!(ends(&[end("o".repeat(200))], 1).is_err_and(|why| why.contains("`outcome`")));
    }
}
