//! What happens when, computed before the run from (profile, seed), and split exactly over workers.
//!
//! Everything random comes from one `ChaCha8` stream a session: the key is the profile's seed, the stream the session's index
//! `scenario << 48 | lane << 24 | iteration`. Within it, words 0 to 65,535 are the session's own draws, and each turn has the next 65,536: turn
//! `n` is drawn when it is wanted, and nothing is kept for it. What a scenario as a whole draws (Poisson arrivals, synthetic
//! clips) comes from the stream of a lane that cannot exist.
//!
//! A session that goes on with the conversation of another has an index of its own, `leg << 58` above it, and draws from the same stream.
//!
//! # Silence
//! A turn's [`Wait`] is `After` (counted from the end of the turn before), `At` (a run time) or, where the scenario has a `speaking_ratio` r,
//! `Cycle`: speech / r after the *begin* of the turn before. The agent's answer comes out of that silence; when it takes
//! longer, the next turn begins when it is over, and the share of speech is lower than asked. The first turn begins anywhere in
//! a cycle, so that a crowd does not speak in chorus.

mod build;
mod fault;
mod kinds;
mod outline;
mod resume;
mod resumption;
mod scenario;
mod service;
mod session;
pub mod variables;

use std::{sync::Arc, time::Duration};

use proto::{ids::PlanIndex, time::Micros};

pub use self::{
    build::PlanError,
    fault::{Fault, FaultKind, FaultName, FaultTarget, Maker},
    kinds::{Capabilities, Claim, Dialect, EndKind, Expect, Protocol},
    outline::{Outline, Outlook},
    resume::{MAX_SEGMENTS, Resumed},
    resumption::Resumption,
    scenario::{ActTemplate, Conversation, Lane, ScenarioPlan, TurnTemplate, WaitTemplate},
    service::{ADMIN_TOKEN, Agent, Connection, Service, TurnDetection, hide},
    session::{Act, Draw, SessionPlan, TurnPlan, Wait},
};

/// The whole run. Times are microseconds from the start of the run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Names the run on both sides: 8 hex digits.
    pub run_id: String,
    /// Of everything random.
    pub seed: u64,
    /// Statistics begin here.
    pub warmup: Duration,
    /// In the order of the profile.
    pub scenarios: Vec<Arc<ScenarioPlan>>,
    /// What goes wrong on purpose, in order of time.
    pub faults: Vec<Fault>,
    /// Lanes that repeat begin with this iteration: more than 0 where a run goes on after its driver was killed.
    pub first_iteration: u32,
}

/// Bits of an index below the lane.
const ITERATION_BITS: u32 = 24;
/// Bits of an index below the scenario.
const SCENARIO_SHIFT: u32 = 48;
/// Bits of an index below the leg: how many sessions the conversation had before this one.
const LEG_SHIFT: u32 = 58;
/// Scenarios that an index has room for.
pub(crate) const MAX_SCENARIOS: usize = 1 << (LEG_SHIFT - SCENARIO_SHIFT);

/// The session that goes on with the conversation of `index`; none when it had so many that a backend must be at fault.
const fn next_leg(PlanIndex(index): PlanIndex) -> Option<PlanIndex> {
    match index.checked_add(1 << LEG_SHIFT) {
        Some(next) => Some(PlanIndex(next)),
        None => None,
    }
}

/// The session with which the conversation of `index` began.
const fn first_leg(PlanIndex(index): PlanIndex) -> PlanIndex {
    PlanIndex(index & ((1 << LEG_SHIFT) - 1))
}

/// Names iteration `iteration` of a lane. A lane of more than 16 million sessions would need longer than any run.
pub(crate) const fn index(scenario: u16, lane: u32, iteration: u32) -> PlanIndex {
    const MASK: u64 = (1 << ITERATION_BITS) - 1;
    PlanIndex((scenario as u64) << SCENARIO_SHIFT | (lane as u64 & MASK) << ITERATION_BITS | (iteration as u64 & MASK))
}

/// The number of the scenario of a session.
pub(crate) const fn scenario_of(index: PlanIndex) -> u16 {
    let PlanIndex(index) = first_leg(index);
    (index >> SCENARIO_SHIFT) as u16
}

/// The session's place in a round: neighbours in a lane, or in the same iteration of neighbouring lanes, or of neighbouring scenarios, are
/// neighbours in it. A session that goes on from another keeps its place.
pub(crate) const fn turn(index: PlanIndex) -> u64 {
    const MASK: u64 = (1 << ITERATION_BITS) - 1;
    let PlanIndex(index) = first_leg(index);
    (index >> SCENARIO_SHIFT) + (index >> ITERATION_BITS & MASK) + (index & MASK)
}

impl Plan {
    /// Session `iteration` of a lane, to begin at `start`. Pure.
    ///
    /// # Panics
    /// When the plan has no such scenario.
    pub fn session(&self, scenario: usize, lane: u32, iteration: u32, start: Micros) -> SessionPlan {
        let scenario = self.scenarios[scenario].clone();
        // One executor makes all lanes of a scenario.
        let repeats = scenario.lanes.first().is_some_and(|lane| lane.repeat);
        let first = if repeats { self.first_iteration } else { 0 };
        let draw = scenario.draw(self.seed, lane, first + iteration);
        SessionPlan::new(draw, self.seed, start, scenario, format!("{}-{}", self.run_id, draw.index))
    }

    /// The part of worker `worker` of `workers`: lanes dealt round; the parts add up to the whole. Scenarios stay in their places, some
    /// with no lanes.
    pub fn split(&self, worker: usize, workers: usize) -> Self {
        let workers = workers.max(1);
        let part = |scenario: &Arc<ScenarioPlan>| {
            let mut part = ScenarioPlan::clone(scenario);
            // Small scenarios should not all fall to the first worker.
            part.lanes.retain(|lane| (lane.number as usize + usize::from(part.number)) % workers == worker);
            Arc::new(part)
        };
        Self { scenarios: self.scenarios.iter().map(part).collect(), ..self.clone() }
    }

    /// Run time at which the last session that may still run is ended: the longest lane and its grace.
    pub fn ends_at(&self) -> Micros {
        let lanes = self.scenarios.iter().flat_map(|scenario| &scenario.lanes);
        lanes.map(|lane| lane.stop + lane.grace).max().unwrap_or(Micros::ZERO)
    }

    /// Run time from which no session begins.
    pub fn stops_at(&self) -> Micros {
        self.scenarios.iter().flat_map(|scenario| &scenario.lanes).map(|lane| lane.stop).max().unwrap_or(Micros::ZERO)
    }
}

#[cfg(test)]
mod tests;
