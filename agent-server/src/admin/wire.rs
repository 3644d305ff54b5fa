//! JSON of the admin endpoints. The load driver reads the same types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /snapshot`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotJson {
    /// Stable name of the backend.
    pub backend_id: String,
    /// New with every process.
    pub boot_id: String,
    /// Unix microseconds at which the cut was made.
    pub captured_at_us: u64,
    /// The cut is linearizable.
    pub exact: bool,
    /// Sessions admitted since boot.
    pub started: u64,
    /// Live sessions by the counters.
    pub active: i64,
    /// When not exact, `active` lies in this closed interval.
    pub active_interval: (i64, i64),
    /// By outcome name (`completed`, `failed`, `cancelled`, `timed_out`, `drained`).
    pub ended: BTreeMap<String, u64>,
    /// By phase name (`listening`, `user_speaking`, `thinking`, `tool_calling`, `agent_speaking`).
    pub phases: BTreeMap<String, i64>,
    /// Hard cap, if any.
    pub max_sessions: Option<u64>,
    /// Refused before admission.
    pub rejected: u64,
    /// Ends that lost a race.
    pub late_ends: u64,
    /// Session tasks that really live, by a walk over the shards.
    pub live_tasks: u64,
    /// The server takes no new sessions.
    pub draining: bool,
    /// Sequence number that the next end will get in `/ends`.
    pub next_end: u64,
    /// Audio frames received since boot.
    pub frames_in: u64,
    /// Audio frames sent since boot.
    pub frames_out: u64,
    /// User + system CPU time of the process since boot, microseconds.
    pub cpu_us: u64,
    /// Resident memory of the process, bytes.
    pub rss_bytes: u64,
    /// Accounted synthetic cost since boot, microseconds (`--cost virtual`), 0 otherwise.
    pub virtual_cost_us: u64,
    /// Load, as reports to balancers say it in the honest mode.
    #[serde(default)]
    pub load: LoadJson,
    /// Defects that are switched on, and how often each struck.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defects: BTreeMap<String, u64>,
    /// Faults that are switched on, and how often each came about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub faults: BTreeMap<String, u64>,
}

/// Load of a backend, over its report window.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LoadJson {
    /// CPU time since boot that utilization is computed from (the process's, its cgroup's, or the accounted), microseconds.
    pub used_us: u64,
    /// Cores that it is measured against; 0 when the backend says nothing of its load.
    pub cores: f64,
    /// Utilization that the backend aims at.
    pub target: f64,
    /// Sessions in which somebody speaks, now.
    pub speaking: u64,
    /// Mean sessions of the window.
    pub sessions: f64,
    /// Mean utilization of the window.
    pub utilization: f64,
    /// Sessions of the window as a rate, 1/s.
    pub virtual_qps: f64,
    /// CPU share of a session.
    pub cost: f64,
    /// Sessions per second that can be added.
    pub rate: f64,
    /// Sessions that fit at the end of the next window.
    pub effective_capacity: f64,
}

/// `GET /ends?after=SEQ&limit=N`: the ends as they were counted, oldest first; a bounded ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndsPage {
    /// Which process.
    pub boot_id: String,
    /// Oldest sequence number that the ring still holds; ends before it are lost to this listing.
    pub oldest: u64,
    /// Ask for `after=next` next.
    pub next: u64,
    /// With `seq >= after`.
    pub ends: Vec<EndRecord>,
}

/// One decrement of the live count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// From 0.
    pub seq: u64,
    /// The server's name of the session; empty when the count moved for something that was no session.
    pub session_id: String,
    /// The client's name of it.
    pub client_ref: String,
    /// As counted.
    pub outcome: String,
    /// Unix microseconds.
    pub at_us: u64,
}

/// `GET /sessions?after=SESSION_ID&limit=N`: live sessions in order of id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionsPage {
    /// Which process.
    pub boot_id: String,
    /// Of all pages.
    pub total: u64,
    /// At most 1,000.
    pub sessions: Vec<SessionJson>,
    /// Ask for `after=next` next; absent on the last page.
    pub next: Option<String>,
}

/// A live session, as the counters' registry holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionJson {
    /// The server's name of it.
    pub session_id: String,
    /// The client's.
    pub client_ref: String,
    /// Phase name.
    pub phase: String,
    /// Since admission.
    pub age_ms: u64,
    /// Audio frames received.
    pub frames_in: u64,
    /// Audio frames sent.
    pub frames_out: u64,
}
