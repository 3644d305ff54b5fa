//! What an engine (in this process or in a worker's) tells the controller.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{
    ledger::LedgerEntry,
    record::{Counter, Metric},
    transport::About,
    voice::VoiceNews,
};

/// From a shard to the controller.
#[derive(Debug)]
pub enum EngineEvent {
    /// Steps of sessions, in order of time within the shard; nothing older than `complete_to_us` (unix) will follow.
    Ledger {
        /// Shard.
        shard: usize,
        /// New steps.
        entries: Vec<LedgerEntry>,
        /// Watermark.
        complete_to_us: u64,
    },
    /// Each second.
    Interval(IntervalReport),
    /// Sessions that are over, as voice conversations.
    Voice(VoiceNews),
    /// What backends said with the first failures of these causes.
    Said {
        /// One line each, without secrets.
        reasons: Vec<(About, String)>,
    },
    /// A fault of the timeline struck so many of a shard's sessions.
    Struck {
        /// Its number.
        fault: u16,
        /// More than before.
        sessions: u64,
    },
    /// A storm of the timeline: what became of sessions that it cut.
    Storm {
        /// Its number.
        fault: u16,
        /// Unix microseconds and what happened, in order of time within the shard.
        steps: Vec<(u64, StormStep)>,
    },
    /// A shard did nothing between these two moments (unix microseconds). Comes before a watermark of the second of them.
    StoodStill {
        /// Shard.
        shard: usize,
        /// When it was last seen to be on time.
        from_us: u64,
        /// When it went on.
        to_us: u64,
    },
    /// A worker has its plan and waits for the start of the run.
    Ready,
    /// The shard is done: every lane is over, every session ended.
    Done {
        /// Shard.
        shard: usize,
    },
    /// The engine cannot go on.
    Fatal {
        /// Why.
        message: String,
    },
}

/// What becomes of a session that a storm cuts: it is cut, then dials until it is back, or gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StormStep {
    /// It was cut.
    Cut,
    /// It dials.
    Dials,
    /// The dial came to nothing.
    Fails,
    /// The backend has accepted it.
    Back,
    /// It tries no more.
    GivenUp,
}

/// One second of one shard.
#[derive(Debug)]
pub struct IntervalReport {
    /// Shard.
    pub shard: usize,
    /// Unix microseconds.
    pub from_us: u64,
    /// Unix microseconds.
    pub to_us: u64,
    /// Sessions accepted and not over, at the end.
    pub active: u64,
    /// Of those, users who speak.
    pub speaking: u64,
    /// Tasks of sessions, those that only close their stream too.
    pub tasks: u64,
    /// Part of the warm-up: shown, not counted.
    pub warmup: bool,
    /// Per scenario that had anything.
    pub scenarios: Vec<ScenarioInterval>,
}

/// One second of one scenario in one shard.
#[derive(Debug)]
pub struct ScenarioInterval {
    /// Index into the plan.
    pub scenario: u16,
    /// (metric, response from intended, service from actual).
    pub latencies: Vec<(Metric, Histogram<u64>, Histogram<u64>)>,
    /// Non-zero ones.
    pub counts: Vec<(Counter, u64)>,
    /// Samples beyond the range of the histograms, which hold them at the bound.
    pub clamped: u64,
}
