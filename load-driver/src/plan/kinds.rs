//! Closed lists: how a session travels and how it ends.

use serde::{Deserialize, Serialize};

/// How a session travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// `voiceagent.v1` over gRPC, one bidi stream a session.
    #[default]
    Grpc,
    /// `voiceagent.v1` over WebSocket, one connection a session.
    Websocket,
}

/// What a scenario is meant to show although it is no good end: then it is no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The backend is full and refuses sessions.
    Rejected,
    /// The backend's deadline ends sessions.
    TimedOut,
}

/// How a session is made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// Goodbye, and the server's answer.
    #[default]
    Graceful,
    /// gRPC: `RST_STREAM`. WebSocket: a close frame without goodbye.
    Cancel,
    /// The socket is closed in order (FIN), without goodbye.
    TcpFin,
    /// The socket is reset (`SO_LINGER` 0).
    TcpRst,
    /// The peer goes silent; the socket stays.
    HalfOpen,
    /// `kill -9` of the worker process that holds the session.
    KillWorker,
    /// `kill -9` of the backend that holds the session.
    KillBackend,
}

impl EndKind {
    /// In the order of every table.
    pub const ALL: [Self; 7] =
        [Self::Graceful, Self::Cancel, Self::TcpFin, Self::TcpRst, Self::HalfOpen, Self::KillWorker, Self::KillBackend];

    /// As in profiles and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Cancel => "cancel",
            Self::TcpFin => "tcp_fin",
            Self::TcpRst => "tcp_rst",
            Self::HalfOpen => "half_open",
            Self::KillWorker => "kill_worker",
            Self::KillBackend => "kill_backend",
        }
    }

    /// The end takes the whole connection with it, so the session needs one of its own.
    pub const fn needs_own_connection(self) -> bool {
        matches!(self, Self::TcpFin | Self::TcpRst | Self::HalfOpen)
    }
}
