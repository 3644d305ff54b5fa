//! Counts each session once. Lift this folder into a real backend: it knows no network and no runtime.
//!
//! SKELETON: signatures are the contract between modules.

pub mod sync;

use std::sync::Arc;

use proto::frame::Outcome;

/// What a session is doing; the five gauges sum to `active`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Idle: nobody speaks.
    Listening,
    /// The user speaks.
    UserSpeaking,
    /// The agent composes.
    Thinking,
    /// A tool runs.
    ToolCalling,
    /// The agent speaks.
    AgentSpeaking,
}

impl Phase {
    /// In the order of every table.
    pub const ALL: [Self; 5] = [Self::Listening, Self::UserSpeaking, Self::Thinking, Self::ToolCalling, Self::AgentSpeaking];

    /// As in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Listening => "listening",
            Self::UserSpeaking => "user_speaking",
            Self::Thinking => "thinking",
            Self::ToolCalling => "tool_calling",
            Self::AgentSpeaking => "agent_speaking",
        }
    }
}

/// The cap is reached: the session was refused and nothing but `rejected` moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{max} sessions are active, which is the cap")]
pub struct AtCapacity {
    /// The cap.
    pub max: u64,
}

/// Counts sessions over padded shards.
#[derive(Debug)]
pub struct Tracker;

/// One admitted session; ends it as cancelled when dropped.
#[derive(Debug)]
pub struct SessionGuard;

/// Another handle on the same session, for racing ends (a deadline beside a disconnect).
#[derive(Debug, Clone)]
pub struct SessionEnder;

/// A cut through the counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Sessions admitted.
    pub started: u64,
    /// Ended, in the order of [`Outcome::ALL`].
    pub ended: [u64; 5],
    /// Live, in the order of [`Phase::ALL`].
    pub phases: [i64; 5],
    /// `started - sum(ended)`.
    pub active: i64,
    /// When not exact: `active` lies in this closed interval.
    pub active_interval: (i64, i64),
    /// The cut is linearizable.
    pub exact: bool,
    /// Ends that lost a race: a diagnostic.
    pub late_ends: u64,
    /// Refused before admission: not sessions.
    pub rejected: u64,
}

impl Tracker {
    /// `shards` is rounded up to a power of two; `max_sessions` is a hard cap.
    pub fn new(_shards: usize, _max_sessions: Option<u64>) -> Arc<Self> {
        todo!()
    }

    /// Admits a session, phase [`Phase::Listening`].
    pub fn try_start(self: &Arc<Self>) -> Result<SessionGuard, AtCapacity> {
        todo!()
    }

    /// Reads every counter at one instant, or says that it could not.
    pub fn snapshot(&self) -> Snapshot {
        todo!()
    }
}

impl SessionGuard {
    /// Moves the session to a phase; false when it has ended.
    pub fn set_phase(&self, _phase: Phase) -> bool {
        todo!()
    }

    /// Ends the session; true for the one end that counted.
    pub fn end(&self, _outcome: Outcome) -> bool {
        todo!()
    }

    /// A handle for a racing end.
    pub fn ender(&self) -> SessionEnder {
        todo!()
    }
}

impl SessionEnder {
    /// As [`SessionGuard::end`].
    pub fn end(&self, _outcome: Outcome) -> bool {
        todo!()
    }
}
