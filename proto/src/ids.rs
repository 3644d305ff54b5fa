//! Names of things, one type each, so that none is taken for another.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Numbers a session of a plan; with the run's id it names the session on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanIndex(pub u64);

impl fmt::Display for PlanIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One response of the agent within a session, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResponseId(pub u64);

/// One user turn within a session, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnId(pub u64);

/// The server's name of a session: unique within one boot.
pub type SessionId = String;
