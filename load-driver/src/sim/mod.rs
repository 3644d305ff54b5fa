//! A fleet in virtual time: the profile's own sessions, the router's own policies, backends as models. Deterministic.
//!
//! Sessions are stepped from phase to phase, not from frame to frame (`session`); a backend is the server's own processor, meter, defects
//! and formula over numbers of sessions (`backend`); what happens next is found in a queue of buckets (`queue`). What the model leaves out
//! is in `docs/simulator.md`.

mod backend;
mod crowd;
mod queue;
mod run;
mod session;
mod setup;
mod sweep;
mod timer;
mod truth;

#[cfg(test)]
mod tests;

use agent_server::fault::Defect;
use proto::time::Micros;

pub use self::sweep::{Axis, Point, SweepError, SweepRow, points, table as sweep_table};
use self::{run::Run, setup::Setup};
use crate::{balance::Balance, profile::Profile, routing::Made};

/// What came of one simulated run. Sessions that arrived were accepted or refused; those accepted finished, were lost, or were cut by a kill.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// Quality of balance.
    pub balance: Balance,
    /// Sessions that arrived.
    pub sessions: u64,
    /// Of those: a backend took them.
    pub accepted: u64,
    /// Of those accepted: ended as planned.
    pub finished: u64,
    /// Of those accepted: lost with their backend, or ended by its deadline.
    pub lost: u64,
    /// Of those accepted: ended by a kill that the plan wants.
    pub cut: u64,
    /// Of those that arrived: never accepted.
    pub refused: u64,
    /// Most sessions at once.
    pub most_open: u64,
    /// Most sessions at once on one backend.
    pub most_on_one: u32,
    /// Events stepped.
    pub events: u64,
    /// When the last session was over.
    pub ended_at: Micros,
}

/// Why a profile cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SimError(pub String);

/// A checked profile, planned once, to be run under any number of policies.
#[derive(Debug)]
pub struct Simulation(Setup);

impl Simulation {
    /// Plans it. `defects` come on top of those in the backends' own settings.
    pub fn new(profile: &Profile, defects: &[Defect]) -> Result<Self, SimError> {
        Setup::new(profile, defects).map(Self)
    }

    /// Runs it under a policy. The same profile and policy give the same figures, to the last bit.
    pub fn run(&self, policy: Made) -> Simulated {
        Run::new(&self.0, policy).run()
    }
}

/// Runs a checked profile under one policy. The same profile and policy give the same figures, to the last bit.
pub fn simulate(profile: &Profile, policy: Made) -> Result<Simulated, SimError> {
    Ok(Simulation::new(profile, &[])?.run(policy))
}
