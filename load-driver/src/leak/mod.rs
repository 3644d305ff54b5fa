//! Does a process grow? Slopes of memory, file descriptors, threads and tasks with a confidence interval, in bounded memory. Pure: samples come with
//! their times.
//!
//! # Which estimate, and why
//! Samples of one process follow each other closely: a second's memory is the last second's and a little. Taken as independent, a thousand of
//! them make any drift "significant". So samples become means of blocks, at most [`MAX_BLOCKS`], which also takes single spikes down; a least
//! squares line goes through the blocks, with the live sessions as a second variable, so that a crowd that comes is no leak; and the standard
//! error is widened by what neighbouring residuals still have in common (their first autocorrelation, as an effective number of blocks).
//! An allocator keeps what was needed once, so memory also goes up in steps that stay. A line through one step that comes late has a slope, and
//! residuals that say nothing against it. So the interval is no narrower than that of the growth between six parts of the run: of a leak each part has its share.
//! Theil-Sen would bear more outliers, but has no place for the sessions, and its interval takes samples as independent.
//!
//! What comes before the end of the warm-up, and the first quarter after it, is left out: caches and pools fill once, and that is no leak.

mod fit;
mod proc;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    fit::Trend,
    proc::{Process, look},
};

/// More blocks than this become half as many, each twice as long.
pub const MAX_BLOCKS: usize = 240;
/// With fewer the interval would be a guess.
pub const MIN_BLOCKS: usize = 16;
/// Over less time what fills once looks like growth for good, seconds.
pub const MIN_SPAN_S: f64 = 300.0;
/// A block is never shorter, seconds.
const MIN_WIDTH_S: u64 = 2;

/// What may leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Leak {
    /// Resident memory; its slope is in MiB an hour.
    Rss,
    /// Open file descriptors, an hour.
    Fds,
    /// Threads, an hour.
    Threads,
    /// Tasks that serve sessions, an hour.
    Tasks,
}

impl Leak {
    /// All.
    pub const ALL: [Self; 4] = [Self::Rss, Self::Fds, Self::Threads, Self::Tasks];

    /// As in summaries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rss => "rss",
            Self::Fds => "fds",
            Self::Threads => "threads",
            Self::Tasks => "tasks",
        }
    }

    /// Of its slope.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Rss => "MiB/h",
            Self::Fds | Self::Threads | Self::Tasks => "/h",
        }
    }
}

/// One look at one process; what is not known is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Resident memory, bytes.
    pub rss_bytes: Option<u64>,
    /// Open file descriptors.
    pub fds: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Tasks that serve sessions.
    pub tasks: Option<u64>,
    /// Live sessions.
    pub active: u64,
}

/// The trend of one thing of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeakRow {
    /// `driver`, `worker 1`, `backend 0`.
    pub process: String,
    /// What.
    pub what: Leak,
    /// MiB an hour for memory, else a number an hour; none where too little was seen.
    pub slope_per_h: Option<f64>,
    /// Lower and upper bound of the slope, 95 %.
    pub interval_per_h: Option<(f64, f64)>,
    /// Of a live session, MiB for memory; none where their number hardly changed.
    pub per_session: Option<f64>,
    /// At the last look: MiB for memory.
    pub last: f64,
    /// Blocks that the slope rests on.
    pub blocks: u64,
    /// How long each is, seconds.
    pub block_s: u64,
    /// Why there is no slope; empty where there is one.
    pub reason: String,
}

impl LeakRow {
    /// It grows, beyond doubt.
    pub fn grows(&self) -> bool {
        self.interval_per_h.is_some_and(|(low, _)| low > 0.0)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    at_s: f64,
    active: f64,
    value: f64,
    samples: f64,
}

impl Block {
    fn join(&mut self, other: Self) {
        let all = self.samples + other.samples;
        let mean = |a: f64, b: f64| (a * self.samples + b * other.samples) / all;
        (self.at_s, self.active, self.value) =
            (mean(self.at_s, other.at_s), mean(self.active, other.active), mean(self.value, other.value));
        self.samples = all;
    }
}

/// One thing of one process over time.
#[derive(Debug, Clone, Default)]
struct Track {
    width_s: u64,
    blocks: BTreeMap<u64, Block>,
    last: f64,
}

impl Track {
    fn add(&mut self, at_s: f64, value: f64, active: f64) {
        self.width_s = self.width_s.max(MIN_WIDTH_S);
        self.last = value;
        self.put(Block { at_s, active, value, samples: 1.0 });
        while self.blocks.len() > MAX_BLOCKS {
            self.width_s *= 2;
            for block in std::mem::take(&mut self.blocks).into_values() {
                self.put(block);
            }
        }
    }

    fn put(&mut self, block: Block) {
        let slot = (block.at_s / self.width_s as f64) as u64;
        self.blocks.entry(slot).and_modify(|old| old.join(block)).or_insert(block);
    }

    fn trend(&self, from_s: f64) -> Result<Trend, String> {
        // The last block may hold a single sample.
        let full = self.blocks.len().saturating_sub(1);
        let measured: Vec<&Block> = self.blocks.values().take(full).filter(|block| block.at_s >= from_s).collect();
        let settled: Vec<[f64; 3]> =
            measured.iter().skip(measured.len() / 4).map(|block| [block.at_s / 3_600.0, block.active, block.value]).collect();
        if settled.len() < MIN_BLOCKS {
            return Err(format!("{} of {MIN_BLOCKS} blocks of {} s: too short", settled.len(), self.width_s));
        }
        let span_s = settled.first().zip(settled.last()).map_or(0.0, |(first, last)| (last[0] - first[0]) * 3_600.0);
        if span_s < MIN_SPAN_S {
            return Err(format!("{span_s:.0} of {MIN_SPAN_S:.0} s after the first quarter: too short"));
        }
        fit::trend(&settled)
    }
}

/// All processes of a run.
#[derive(Debug, Clone, Default)]
pub struct LeakBook {
    /// Statistics begin here, seconds of run time.
    from_s: f64,
    processes: BTreeMap<String, (String, BTreeMap<Leak, Track>)>,
}

impl LeakBook {
    /// Leaves out what comes before this run time.
    pub fn new(from_s: f64) -> Self {
        Self { from_s, processes: BTreeMap::new() }
    }

    /// A look at a process. `instance` tells one process from the next of the same name, whose track begins anew.
    pub fn add(&mut self, process: &str, instance: &str, at_s: f64, sample: Sample) {
        if self.processes.get(process).is_none_or(|(known, _)| known != instance) {
            self.processes.insert(process.to_owned(), (instance.to_owned(), BTreeMap::new()));
        }
        let Some((_, tracks)) = self.processes.get_mut(process) else { return };
        let values = [
            (Leak::Rss, sample.rss_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))),
            (Leak::Fds, sample.fds.map(|n| n as f64)),
            (Leak::Threads, sample.threads.map(|n| n as f64)),
            (Leak::Tasks, sample.tasks.map(|n| n as f64)),
        ];
        for (what, value) in values {
            if let Some(value) = value {
                tracks.entry(what).or_default().add(at_s, value, sample.active as f64);
            }
        }
    }

    /// Every trend.
    pub fn rows(&self) -> Vec<LeakRow> {
        let of = |(process, (_, tracks)): (&String, &(String, BTreeMap<Leak, Track>))| {
            tracks.iter().map(|(what, track)| self.row(process, *what, track)).collect::<Vec<_>>()
        };
        self.processes.iter().flat_map(of).collect()
    }

    fn row(&self, process: &str, what: Leak, track: &Track) -> LeakRow {
        let trend = track.trend(self.from_s);
        let found = trend.as_ref().ok();
        LeakRow {
            process: process.to_owned(),
            what,
            slope_per_h: found.map(|trend| trend.slope),
            interval_per_h: found.map(|trend| trend.interval),
            per_session: found.and_then(|trend| trend.per_session),
            last: track.last,
            blocks: found.map_or(0, |trend| trend.blocks as u64),
            block_s: track.width_s,
            reason: trend.err().unwrap_or_default(),
        }
    }

    /// The highest lower bound of any process, and the fewest blocks that any rests on. None when of no process enough was seen.
    pub fn worst(&self, what: Leak) -> Option<(f64, u64)> {
        let rows: Vec<LeakRow> = self.rows().into_iter().filter(|row| row.what == what).collect();
        let low = rows.iter().filter_map(|row| Some(row.interval_per_h?.0)).max_by(f64::total_cmp)?;
        Some((low, rows.iter().filter(|row| row.blocks > 0).map(|row| row.blocks).min()?))
    }
}

#[cfg(test)]
mod tests;
