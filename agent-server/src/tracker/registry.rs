//! Who is live: a sharded map of the sessions by number, listed in pages.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::{Phase, Seat};

/// Longest page.
pub const MAX_PAGE: usize = 1_000;

const ID_PREFIX: &str = "s-";

/// The name of a session: as text in the order of admission, for the first thousand million of a boot.
pub fn session_id(number: u64) -> String {
    format!("{ID_PREFIX}{number:09}")
}

fn session_number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix(ID_PREFIX)?;
    // `parse` alone would take a sign.
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// A listing was asked to go on after something that is no session id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no session id: want one from an earlier page, such as {example}", example = session_id(1))]
pub struct BadCursor(pub String);

/// A session as it is listed.
#[derive(Debug)]
pub struct Entry {
    pub(super) seat: Seat,
    number: u64,
    client_ref: Arc<str>,
    started_us: u64,
    // One thread writes each (its owner), any thread reads.
    frames_in: AtomicU64,
    frames_out: AtomicU64,
}

impl Entry {
    pub(super) fn new(seat: Seat, number: u64, client_ref: Arc<str>, started_us: u64) -> Self {
        Self { seat, number, client_ref, started_us, frames_in: AtomicU64::new(0), frames_out: AtomicU64::new(0) }
    }

    /// Counts admissions of this boot, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The client's name of the session.
    pub fn client_ref(&self) -> &Arc<str> {
        &self.client_ref
    }

    /// Counted as ended.
    pub fn has_ended(&self) -> bool {
        self.seat.outcome().is_some()
    }

    /// The current phase; nothing once ended.
    pub fn phase(&self) -> Option<Phase> {
        self.seat.phase()
    }
}

/// A live session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRow {
    /// The server's name of it.
    pub session_id: String,
    /// The client's.
    pub client_ref: Arc<str>,
    /// What it does.
    pub phase: Phase,
    /// Unix microseconds of its admission.
    pub started_us: u64,
    /// Audio frames received.
    pub frames_in: u64,
    /// Audio frames sent.
    pub frames_out: u64,
}

/// Part of the live sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivePage {
    /// Of all pages.
    pub total: u64,
    /// In the order of admission.
    pub sessions: Vec<LiveRow>,
    /// Go on after this id; absent on the last page.
    pub next: Option<String>,
}

/// Audio frames of all sessions since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frames {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
}

/// The live sessions, by home shard.
#[derive(Debug)]
pub struct Registry {
    shards: Box<[CachePadded<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    live: Mutex<BTreeMap<u64, Arc<Entry>>>,
    received: AtomicU64,
    sent: AtomicU64,
}

impl Registry {
    /// `shards` as many as the tracker has: a session is kept where it is counted.
    pub fn new(shards: usize) -> Self {
        Self { shards: (0..shards.max(1)).map(|_| CachePadded::default()).collect() }
    }

    /// Lists a session.
    pub fn insert(&self, entry: Arc<Entry>) {
        self.shard(&entry).live.lock().insert(entry.number, entry);
    }

    /// Lists it no more.
    pub fn remove(&self, entry: &Entry) {
        self.shard(entry).live.lock().remove(&entry.number);
    }

    /// A frame came in on a session. Its owner alone may call this.
    pub fn frame_in(&self, entry: &Entry) {
        bump(&entry.frames_in);
        self.shard(entry).received.fetch_add(1, Ordering::Relaxed);
    }

    /// A frame went out on a session. Its owner alone may call this.
    pub fn frame_out(&self, entry: &Entry) {
        bump(&entry.frames_out);
        self.shard(entry).sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Of all sessions since boot.
    pub fn frames(&self) -> Frames {
        self.shards.iter().fold(Frames::default(), |sum, shard| Frames {
            received: sum.received + shard.received.load(Ordering::Relaxed),
            sent: sum.sent + shard.sent.load(Ordering::Relaxed),
        })
    }

    /// Listed sessions.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.live.lock().len() as u64).sum()
    }

    /// Nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sessions after the id `after` (empty: from the first), at most `limit` (1 to [`MAX_PAGE`]).
    pub fn page(&self, after: &str, limit: usize) -> Result<LivePage, BadCursor> {
        let limit = limit.clamp(1, MAX_PAGE);
        let after = match after {
            "" => 0,
            id => session_number(id).ok_or_else(|| BadCursor(id.chars().take(64).collect()))?,
        };
        let mut total = 0;
        let mut found: Vec<Arc<Entry>> = Vec::new();
        for shard in &self.shards {
            let live = shard.live.lock();
            total += live.len() as u64;
            // One more than a page from each shard is enough to know the page and whether there is another.
            found.extend(live.range(after.saturating_add(1)..).take(limit + 1).map(|(_, entry)| Arc::clone(entry)));
        }
        found.sort_unstable_by_key(|entry| entry.number);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|entry| session_id(entry.number));
        Ok(LivePage { total, sessions: found.iter().filter_map(|entry| row(entry)).collect(), next })
    }

    fn shard(&self, entry: &Entry) -> &Shard {
        &self.shards[entry.seat.home() % self.shards.len()]
    }
}

/// Nothing for a session that ended after it was found.
fn row(entry: &Entry) -> Option<LiveRow> {
    Some(LiveRow {
        session_id: session_id(entry.number),
        client_ref: Arc::clone(&entry.client_ref),
        phase: entry.phase()?,
        started_us: entry.started_us,
        frames_in: entry.frames_in.load(Ordering::Relaxed),
        frames_out: entry.frames_out.load(Ordering::Relaxed),
    })
}

/// With one writer a load and a store cost a tenth of a locked add.
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_as_numbers_and_parse_back() {
        let numbers = [1, 9, 10, 999_999, 1_000_000, 999_999_999];
        let ids: Vec<String> = numbers.iter().map(|&n| session_id(n)).collect();
        assert!(ids.is_sorted());
        assert!(numbers.iter().zip(&ids).all(|(&n, id)| session_number(id) == Some(n)));
        assert_eq!(session_number(&session_id(u64::MAX)), Some(u64::MAX));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for bad in ["1", "s-", "s-+1", "s--1", "s-1x", "s-99999999999999999999", "x-000000001"] {
            let error = Registry::new(1).page(bad, 10).unwrap_err();
            assert_eq!(error, BadCursor(bad.to_owned()));
        }
    }
}
