//! The last ends as they were counted, so that an observer can follow the decrements one by one.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use super::Outcome;

/// Ends kept; older ones are lost to the listing, never to the counters.
pub const ENDS_KEPT: usize = 65_536;
/// And no longer than so many microseconds, once others follow: whoever follows the ends looks every few seconds, and a log that takes an hour to
/// fill would look like a leak for so long.
pub const KEPT_FOR_US: u64 = 5 * 60 * 1_000_000;
/// Longest page.
pub const MAX_PAGE: usize = 4_096;

/// One decrement of the live count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndRow {
    /// From 0, without gaps.
    pub seq: u64,
    /// The server's name of the session; empty when the count moved for something that was no session.
    pub session_id: String,
    /// The client's name of it.
    pub client_ref: Arc<str>,
    /// As counted.
    pub outcome: Outcome,
    /// Unix microseconds.
    pub at_us: u64,
}

/// Part of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndPage {
    /// Oldest sequence number that is still held.
    pub oldest: u64,
    /// Ask for this one next.
    pub next: u64,
    /// Oldest first.
    pub ends: Vec<EndRow>,
}

/// A bounded ring of ends.
#[derive(Debug)]
pub struct EndLog {
    kept: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Sequence number of the front.
    oldest: u64,
    rows: VecDeque<Row>,
}

/// As [`EndRow`] without what follows from its place.
#[derive(Debug)]
struct Row {
    number: Option<u64>,
    client_ref: Arc<str>,
    outcome: Outcome,
    at_us: u64,
}

impl EndLog {
    /// Keeps the last `kept` ends, if they are no older than [`KEPT_FOR_US`]; memory grows as they come.
    pub fn new(kept: usize) -> Self {
        Self { kept: kept.max(1), ring: Mutex::default() }
    }

    /// Appends an end; `number` is the session's, if it was one.
    pub fn push(&self, number: Option<u64>, client_ref: Arc<str>, outcome: Outcome, at_us: u64) {
        let row = Row { number, client_ref, outcome, at_us };
        let mut ring = self.ring.lock();
        let stale = |row: &Row| row.at_us.saturating_add(KEPT_FOR_US) < at_us;
        while ring.rows.len() >= self.kept || ring.rows.front().is_some_and(stale) {
            ring.rows.pop_front();
            ring.oldest += 1;
        }
        ring.rows.push_back(row);
    }

    /// The sequence number that the next end will get.
    pub fn next(&self) -> u64 {
        self.ring.lock().next()
    }

    /// Ends from sequence number `after` on, at most `limit` (1 to [`MAX_PAGE`]). A number that is still to come gives an empty
    /// page whose `next` is the true one, so that an observer of an earlier boot finds its place.
    pub fn page(&self, after: u64, limit: usize) -> EndPage {
        let limit = limit.clamp(1, MAX_PAGE);
        let ring = self.ring.lock();
        let from = after.clamp(ring.oldest, ring.next());
        let ends: Vec<EndRow> = ring
            .rows
            .iter()
            .skip((from - ring.oldest) as usize)
            .take(limit)
            .zip(from..)
            .map(|(row, seq)| EndRow {
                seq,
                session_id: row.number.map(super::registry::session_id).unwrap_or_default(),
                client_ref: Arc::clone(&row.client_ref),
                outcome: row.outcome,
                at_us: row.at_us,
            })
            .collect();
        EndPage { oldest: ring.oldest, next: from + ends.len() as u64, ends }
    }
}

impl Ring {
    fn next(&self) -> u64 {
        self.oldest + self.rows.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(kept: usize, ends: u64) -> EndLog {
        let log = EndLog::new(kept);
        for number in 0..ends {
            log.push(Some(number), format!("c-{number}").into(), Outcome::Completed, number * 10);
        }
        log
    }

    fn seqs(page: &EndPage) -> Vec<u64> {
        page.ends.iter().map(|end| end.seq).collect()
    }

    #[test]
    fn pages_follow_each_other_without_gap() {
        let log = log_of(100, 7);
        let first = log.page(0, 3);
        assert_eq!((seqs(&first), first.oldest, first.next), (vec![0, 1, 2], 0, 3));
        let second = log.page(first.next, 100);
        assert_eq!((seqs(&second), second.next), (vec![3, 4, 5, 6], 7));
        assert_eq!(second.ends[0].session_id, super::super::registry::session_id(3));
        assert_eq!((&*second.ends[0].client_ref, second.ends[0].at_us), ("c-3", 30));
        let empty = log.page(second.next, 100);
        assert_eq!((seqs(&empty), empty.next), (vec![], 7));
    }

    #[test]
    fn the_ring_drops_the_oldest_and_says_so() {
        let log = log_of(4, 10);
        assert_eq!(log.next(), 10);
        let page = log.page(0, 100);
        assert_eq!((seqs(&page), page.oldest, page.next), (vec![6, 7, 8, 9], 6, 10));
    }

    #[test]
    fn what_nobody_reads_for_minutes_is_dropped_when_others_follow() {
        let log = log_of(100, 3);
        log.push(Some(3), "late".into(), Outcome::Completed, KEPT_FOR_US + 10);
        let page = log.page(0, 100);
        assert_eq!((seqs(&page), page.oldest), (vec![1, 2, 3], 1), "the first was a moment too old");
        log.push(Some(4), "later".into(), Outcome::Completed, 3 * KEPT_FOR_US);
        assert_eq!(seqs(&log.page(0, 100)), [4]);
    }

    #[test]
    fn a_cursor_of_an_earlier_boot_finds_the_true_end() {
        let page = log_of(4, 2).page(1_000, 10);
        assert_eq!((seqs(&page), page.next), (vec![], 2));
    }

    #[test]
    fn what_was_no_session_has_no_id() {
        let log = EndLog::new(4);
        log.push(None, "refused".into(), Outcome::Cancelled, 1);
        assert_eq!(log.page(0, 1).ends[0].session_id, "");
    }
}
