//! One look at a backend's counters.

use agent_server::admin::wire::{EndRecord, SessionJson, SnapshotJson};

use super::counts::Counts;

/// What a backend's counters said, and when the driver asked.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterSample {
    /// Index into the targets.
    pub backend: usize,
    /// The driver's unix clock before the counters were asked for, microseconds.
    pub asked_at_us: u64,
    /// The driver's unix clock when they had come.
    pub answered_at_us: u64,
    /// The counters.
    pub snapshot: SnapshotJson,
    /// Ends counted since the last sample; absent when the backend keeps no such list. Gaps in `seq` are ends that nobody can list any more.
    pub ends: Option<Vec<EndRecord>>,
    /// Live sessions by the backend's registry, when asked for and kept.
    pub sessions: Option<Vec<SessionJson>>,
}

/// One look at sums, which name no session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TotalsSample {
    /// Number of the source.
    pub source: usize,
    /// The driver's unix clock before the counters were asked for, microseconds.
    pub asked_at_us: u64,
    /// The driver's unix clock when they had come.
    pub answered_at_us: u64,
    /// The sums.
    pub counts: Counts,
}

/// What a look gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// Of a backend that names its sessions.
    Snapshot(Box<CounterSample>),
    /// Sums.
    Totals(TotalsSample),
}

/// Why there is no sample.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// Nobody listens there.
    #[error("{address} refused the connection: is the backend's admin port right, and does it run?")]
    Refused {
        /// Asked.
        address: String,
    },
    /// The connection failed or broke.
    #[error("the connection to {address} failed: {reason}")]
    Broken {
        /// Asked.
        address: String,
        /// In the transport's words.
        reason: String,
    },
    /// Another status than 200.
    #[error("{address}{path} answered {status}: {}", if *status == 401 {
        wants
    } else {
        "counters are expected there"
    })]
    Status {
        /// Asked.
        address: String,
        /// Asked.
        path: String,
        /// Answered.
        status: u16,
        /// What to do about 401.
        wants: &'static str,
    },
    /// Not the JSON that is due.
    #[error("{address}{path} sent something that is no counter JSON: {reason}")]
    Garbage {
        /// Asked.
        address: String,
        /// Asked.
        path: String,
        /// The parser's words.
        reason: String,
    },
    /// More than the limit.
    #[error("{address}{path} sent more than {limit} bytes")]
    TooLarge {
        /// Asked.
        address: String,
        /// Asked.
        path: String,
        /// In bytes.
        limit: usize,
    },
    /// No answer in time.
    #[error("{address} did not answer within {ms} ms")]
    Timeout {
        /// Asked.
        address: String,
        /// Waited.
        ms: u64,
    },
    /// What was read does not hold the counters that the profile looks for.
    #[error("{address}: {reason}")]
    Unreadable {
        /// Asked, without secrets.
        address: String,
        /// What, where, what to do.
        reason: String,
    },
    /// It cannot be asked at all.
    #[error("{0}")]
    Unusable(String),
}
