//! Puts steps from many shards and workers in order of time.
//!
//! A source (one shard of one process) sends its steps in order and a watermark: nothing older will follow. What is older than the
//! watermark of every open source can be released. The order is (time, source, position), so it does not depend on when the
//! batches came in.

use std::collections::{BTreeMap, VecDeque};

use super::entry::LedgerEntry;

/// A shard of a process that runs sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// Process; the controller's own shards are worker 0.
    pub worker: u32,
    /// Shard within it.
    pub shard: u32,
}

/// What comes out, in order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// A step.
    Entry(SourceId, LedgerEntry),
    /// A worker process is gone.
    WorkerLost(WorkerLoss),
    /// The plan killed a backend process.
    BackendKilled(BackendKill),
}

/// A backend process that the plan killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackendKill {
    /// Number in the book.
    pub boot: usize,
    /// When, unix microseconds.
    pub at_us: u64,
    /// Index into the targets.
    pub backend: usize,
}

/// A worker process that is gone, and what it may have taken with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLoss {
    /// Which.
    pub worker: u32,
    /// When, unix microseconds.
    pub at_us: u64,
    /// The plan killed it.
    pub planned: bool,
    /// Up to when each of its shards had told everything.
    pub known_to_us: BTreeMap<u32, u64>,
}

#[derive(Debug, Default)]
struct Source {
    queue: VecDeque<(u64, LedgerEntry)>,
    last_us: u64,
    complete_to_us: u64,
    closed: bool,
}

/// Holds back what may still be overtaken.
#[derive(Debug, Default)]
pub struct Merger {
    sources: BTreeMap<SourceId, Source>,
    losses: Vec<WorkerLoss>,
    kills: Vec<BackendKill>,
    irregular: u64,
}

impl Merger {
    /// A source will send: nothing is released past what it has told.
    pub fn open(&mut self, source: SourceId, from_us: u64) {
        self.sources.entry(source).or_default().complete_to_us = from_us;
    }

    /// Steps of one source and its watermark.
    pub fn push(&mut self, source: SourceId, entries: Vec<LedgerEntry>, complete_to_us: u64) {
        let state = self.sources.entry(source).or_default();
        for entry in entries {
            if entry.at_us < state.complete_to_us || entry.at_us < state.last_us || state.closed {
                self.irregular += 1;
            }
            state.last_us = state.last_us.max(entry.at_us).max(state.complete_to_us);
            state.queue.push_back((state.last_us, entry));
        }
        state.complete_to_us = state.complete_to_us.max(complete_to_us);
    }

    /// The source has told everything.
    pub fn close(&mut self, source: SourceId) {
        self.sources.entry(source).or_default().closed = true;
    }

    /// Every source of this worker ends here.
    pub fn lose(&mut self, worker: u32, at_us: u64, planned: bool) {
        let mut at_us = at_us;
        let mut known_to_us = BTreeMap::new();
        for (id, source) in self.sources.iter_mut().filter(|(id, _)| id.worker == worker) {
            if !source.closed {
                known_to_us.insert(id.shard, source.complete_to_us.max(source.last_us));
                // It gave this watermark, so it lived then.
                at_us = at_us.max(source.complete_to_us);
            }
            source.closed = true;
            at_us = at_us.max(source.last_us);
        }
        self.losses.push(WorkerLoss { worker, at_us, planned, known_to_us });
    }

    /// The plan kills a backend process; sessions that ended before are told first.
    pub fn kill(&mut self, kill: BackendKill) {
        self.kills.push(kill);
    }

    /// Nothing more will come from anybody.
    pub fn close_all(&mut self) {
        for source in self.sources.values_mut() {
            source.closed = true;
        }
    }

    /// Before this everything is known; `u64::MAX` when no source is open.
    pub fn horizon_us(&self) -> u64 {
        self.sources.values().filter(|s| !s.closed).map(|s| s.complete_to_us).min().unwrap_or(u64::MAX)
    }

    /// Steps that came out of order or after their watermark: a fault of the sender, applied all the same.
    pub fn irregular(&self) -> u64 {
        self.irregular
    }

    /// True when no source is open and nothing is held back.
    pub fn drained(&self) -> bool {
        self.losses.is_empty() && self.kills.is_empty() && self.sources.values().all(|s| s.closed && s.queue.is_empty())
    }

    /// What can no longer be overtaken, in order.
    pub fn ready(&mut self) -> Vec<Merged> {
        let horizon = self.horizon_us();
        let mut out: Vec<((u64, u8), Merged)> = Vec::new();
        for (id, source) in &mut self.sources {
            while source.queue.front().is_some_and(|(at, _)| *at < horizon) {
                if let Some((at, entry)) = source.queue.pop_front() {
                    out.push(((at, 0), Merged::Entry(*id, entry)));
                }
            }
        }
        let due = |at_us: u64| at_us < horizon;
        let mut losses: Vec<WorkerLoss> = self.losses.extract_if(.., |loss| due(loss.at_us)).collect();
        losses.sort_by_key(|loss| loss.worker);
        out.extend(losses.into_iter().map(|loss| ((loss.at_us, 1), Merged::WorkerLost(loss))));
        let mut kills: Vec<BackendKill> = self.kills.extract_if(.., |kill| due(kill.at_us)).collect();
        kills.sort_unstable();
        out.extend(kills.into_iter().map(|kill| ((kill.at_us, 2), Merged::BackendKilled(kill))));
        // Stable: sources stand in the order of their ids, each in its own order.
        out.sort_by_key(|(key, _)| *key);
        out.into_iter().map(|(_, merged)| merged).collect()
    }
}
