//! A fleet in virtual time: the profile's own sessions, the router's own policies, backends as models. Deterministic.

use crate::{balance::Balance, profile::Profile, routing::Made};

/// What came of one simulated run.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// Quality of balance.
    pub balance: Balance,
    /// Sessions that arrived.
    pub sessions: u64,
    /// Events stepped.
    pub events: u64,
}

/// Why a profile cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SimError(pub String);

/// Runs a checked profile under one policy. The same profile and policy give the same figures, to the last bit.
pub fn simulate(profile: &Profile, policy: Made) -> Result<Simulated, SimError> {
    let _ = (profile, policy);
    todo!("sim helper")
}
