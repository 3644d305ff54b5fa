//! ORCA: what backends tell balancers of their load. The names on the wire, and the text forms of a report.

pub use crate::xds::data::orca::v3::OrcaLoadReport;

/// Header and trailer of a gRPC call: a report in protobuf (base64, as every `-bin` entry is).
pub const BINARY_HEADER: &str = "endpoint-load-metrics-bin";
/// Header of an HTTP response: `TEXT k=v,...`, `JSON {...}` or `BIN base64`.
pub const TEXT_HEADER: &str = "endpoint-load-metrics";

/// Names of this product's named metrics.
pub mod metric {
    /// Live sessions by the backend's own counter, now.
    pub const ACTIVE_SESSIONS: &str = "active_sessions";
    /// Of those: user or agent speaks.
    pub const SPEAKING_SESSIONS: &str = "speaking_sessions";
    /// `active_sessions` over the hard cap; 0 without a cap.
    pub const SESSIONS_UTIL: &str = "sessions_util";
    /// Mean sessions of the window over its length, 1/s.
    pub const VIRTUAL_QPS: &str = "virtual_qps";
    /// Sessions per second that the backend can take beside those it has.
    pub const ADDITIONAL_SESSION_RATE: &str = "additional_session_rate";
    /// Sessions that it can hold at the end of the next window.
    pub const EFFECTIVE_CAPACITY: &str = "effective_capacity";
    /// The hard cap; absent without one.
    pub const MAX_SESSIONS: &str = "max_sessions";
    /// 1 while no new session is taken, else 0.
    pub const DRAINING: &str = "draining";
}
