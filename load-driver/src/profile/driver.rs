//! `driver`: how the load is made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{units::Span, validate::Checker};
use crate::voice::VoiceFault;

/// How the load is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of driver settings")]
pub struct Driver {
    /// Threads that run sessions; absent: one for each core.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub shards: Option<u32>,
    /// gRPC connections of each shard to each backend; streams share them.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Most streams on one connection; when all are full, another connection is opened.
    #[schemars(range(min = 1))]
    pub streams_per_connection: u32,
    /// 99th percentile of schedule lag above which the run is `generator_saturated` and fails: its figures would be the driver's own.
    pub max_schedule_lag: Span,
    /// Most sessions of a shard that may be connecting at the same moment; the others wait in the driver, and their response times hold
    /// that wait.
    #[schemars(range(min = 1))]
    pub handshakes: u32,
    /// Longest wait for a connection, handshake included.
    pub connect_timeout: Span,
    /// Time between two checkpoints, from which a run whose driver was killed is reported or resumed; absent: a minute for runs of three
    /// minutes and more, else none; `0s`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Span>,
    /// Time after which a new file of the latency log is begun, whatever its size.
    pub rotate: Span,
    /// HTTP/2 flow control of the driver's side.
    pub http2: Http2,
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            shards: None,
            connections: 4,
            streams_per_connection: 1_000,
            max_schedule_lag: Span::millis(20),
            handshakes: 256,
            connect_timeout: Span::seconds(10),
            checkpoint: None,
            rotate: Span::seconds(3_600),
            http2: Http2::default(),
        }
    }
}

/// HTTP/2 flow control of the driver's side, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map of HTTP/2 settings")]
pub struct Http2 {
    /// What one stream may have on its way.
    #[schemars(range(min = 1024, max = 2_147_483_647))]
    pub stream_window: u32,
    /// What one connection may have on its way.
    #[schemars(range(min = 65_535, max = 2_147_483_647))]
    pub connection_window: u32,
}

impl Default for Http2 {
    /// A small connection window kills busy connections of thousands of streams; a stream needs a second of audio.
    fn default() -> Self {
        Self { stream_window: 64 * 1024, connection_window: 32 * 1024 * 1024 }
    }
}

impl Driver {
    pub(super) fn check(&self, c: &mut Checker<'_>) {
        if self.shards.is_some_and(|n| !(1..=256).contains(&n)) {
            c.error("shards", "the number of shards is out of range", "write 1 to 256, or leave it out for one a core");
        }
        if self.connections == 0 || self.connections > 1_000 {
            c.error("connections", "the number of connections is out of range", "write 1 to 1000");
        }
        if self.streams_per_connection == 0 {
            c.error("streams_per_connection", "no stream fits on a connection", "write 1 or more; 1000 is the default");
        }
        if self.handshakes == 0 {
            c.error("handshakes", "no session may connect", "write 1 or more; 256 is the default");
        }
        for (key, span) in [("max_schedule_lag", self.max_schedule_lag), ("connect_timeout", self.connect_timeout), ("rotate", self.rotate)]
        {
            c.positive(key, span);
        }
        if self.checkpoint.is_some_and(|span| (1..1_000_000).contains(&span.micros())) {
            c.error("checkpoint", "checkpoints come too often", "write 1s or more, or 0s for none");
        }
        c.within("http2", |c| {
            const MAX: u32 = i32::MAX as u32;
            if !(1_024..=MAX).contains(&self.http2.stream_window) {
                c.error("stream_window", "the stream window is out of range", "write 1024 to 2147483647 bytes");
            }
            if !(65_535..=MAX).contains(&self.http2.connection_window) {
                c.error("connection_window", "the connection window is out of range", "write 65535 to 2147483647 bytes");
            }
        });
    }
}

/// What is made of faults of the backends as voice agents: `docs/voice-faults.md`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a map: {allow: [output_gaps]}")]
pub struct VoiceFaults {
    /// Found, these are shown and do not fail the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<VoiceFault>,
}

impl VoiceFaults {
    /// Every finding fails the run.
    pub const fn is_strict(&self) -> bool {
        self.allow.is_empty()
    }
}
