//! The last ends as they were counted, so that an observer can follow the decrements one by one.

use std::collections::VecDeque;

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
    pub client_ref: String,
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
    /// What the clients called them, one after the other. Held apart, each of them would keep a piece of the heap busy for minutes, among what their sessions
    /// leave free.
    names: VecDeque<u8>,
    /// Bytes of names that were dropped.
    dropped: u64,
}

/// As [`EndRow`] without what follows from its place.
#[derive(Debug)]
struct Row {
    number: Option<u64>,
    /// Where its name begins, from the first that there ever was.
    name_from: u64,
    outcome: Outcome,
    at_us: u64,
}

impl EndLog {
    /// Keeps the last `kept` ends, if they are no older than [`KEPT_FOR_US`]; memory grows as they come.
    pub fn new(kept: usize) -> Self {
        Self { kept: kept.max(1), ring: Mutex::default() }
    }

    /// Appends an end; `number` is the session's, if it was one.
    pub fn push(&self, number: Option<u64>, client_ref: &str, outcome: Outcome, at_us: u64) {
        let mut ring = self.ring.lock();
        let stale = |row: &Row| row.at_us.saturating_add(KEPT_FOR_US) < at_us;
        while ring.rows.len() >= self.kept || ring.rows.front().is_some_and(stale) {
            ring.drop_oldest();
        }
        let name_from = ring.named_to();
        ring.names.extend(client_ref.as_bytes());
        ring.rows.push_back(Row { number, name_from, outcome, at_us });
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
        let first = (from - ring.oldest) as usize;
        let name_ends = ring.rows.iter().skip(first + 1).map(|row| row.name_from).chain([ring.named_to()]);
        let rows = ring.rows.iter().skip(first).zip(name_ends).zip(from..).take(limit);
        let ends: Vec<EndRow> = rows
            .map(|((row, name_to), seq)| EndRow {
                seq,
                session_id: row.number.map(super::registry::session_id).unwrap_or_default(),
                client_ref: ring.name(row.name_from, name_to),
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

    /// Where the next name begins.
    fn named_to(&self) -> u64 {
        self.dropped + self.names.len() as u64
    }

    fn name(&self, from: u64, to: u64) -> String {
        let bytes = self.names.iter().skip((from - self.dropped) as usize).take((to - from) as usize).copied().collect();
        // It came from a string, whole.
        String::from_utf8(bytes).unwrap_or_default()
    }

    fn drop_oldest(&mut self) {
        self.rows.pop_front();
        self.oldest += 1;
        let from = self.rows.front().map_or(self.named_to(), |row| row.name_from);
        self.names.drain(..(from - self.dropped) as usize);
        self.dropped = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(kept: usize, ends: u64) -> EndLog {
        let log = EndLog::new(kept);
        for number in 0..ends {
            log.push(Some(number), &format!("c-{number}"), Outcome::Completed, number * 10);
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
        assert_eq!((second.ends[0].client_ref.as_str(), second.ends[0].at_us), ("c-3", 30));
        let empty = log.page(second.next, 100);
        assert_eq!((seqs(&empty), empty.next), (vec![], 7));
    }

    #[test]
    fn the_ring_drops_the_oldest_and_says_so() {
        let log = log_of(4, 10);
        assert_eq!(log.next(), 10);
        let page = log.page(0, 100);
        assert_eq!((seqs(&page), page.oldest, page.next), (vec![6, 7, 8, 9], 6, 10));
        let names: Vec<&str> = page.ends.iter().map(|end| end.client_ref.as_str()).collect();
        assert_eq!(names, ["c-6", "c-7", "c-8", "c-9"]);
    }

    #[test]
    fn names_of_any_length_stay_with_their_ends() {
        let log = EndLog::new(3);
        for name in ["long enough to matter", "", "é", "", "x"] {
            log.push(None, name, Outcome::Completed, 0);
            assert_eq!(log.page(0, 10).ends.last().map(|end| end.client_ref.clone()), Some(name.to_owned()));
        }
        let names: Vec<String> = log.page(0, 2).ends.into_iter().map(|end| end.client_ref).collect();
        assert_eq!(names, ["é", ""]);
    }

    #[test]
    fn what_nobody_reads_for_minutes_is_dropped_when_others_follow() {
        let log = log_of(100, 3);
        log.push(Some(3), "late", Outcome::Completed, KEPT_FOR_US + 10);
        let page = log.page(0, 100);
        assert_eq!((seqs(&page), page.oldest), (vec![1, 2, 3], 1), "the first was a moment too old");
        log.push(Some(4), "later", Outcome::Completed, 3 * KEPT_FOR_US);
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
        log.push(None, "refused", Outcome::Cancelled, 1);
        assert_eq!(log.page(0, 1).ends[0].session_id, "");
    }
}
