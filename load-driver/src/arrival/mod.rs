//! When sessions begin: one file per executor, each a pure function from its settings to lanes.
//!
//! A *closed* executor keeps places filled: when a session ends, the next begins in its lane, so a slow backend gets fewer sessions. An
//! *open* one begins sessions at fixed times whatever becomes of the earlier ones, as the public does.
//!
//! A new executor is one file, and one line in [`ALL`].

mod constant_rate;
mod constant_sessions;
mod poisson;
mod ramping_rate;
mod ramping_sessions;

use std::time::Duration;

use proto::time::Micros;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{plan::Lane, profile::Span};

/// Every executor.
pub const ALL: [&dyn Executor; 5] = [
    &constant_sessions::ConstantSessions,
    &ramping_sessions::RampingSessions,
    &constant_rate::ConstantArrivalRate,
    &ramping_rate::RampingArrivalRate,
    &poisson::PoissonArrivals,
];

/// Keys of a scenario that only some executors know.
pub const KEYS: &[&str] = &["duration", "sessions", "rate", "timeUnit", "stages", "startSessions", "startRate", "gracefulRampDown"];

/// Most lanes of one scenario: about 100 MB of plan.
pub const MAX_LANES: u64 = 2_000_000;

/// An executor by its name or alias.
pub fn find(name: &str) -> Option<&'static dyn Executor> {
    ALL.into_iter().find(|executor| executor.name() == name || executor.aliases().contains(&name))
}

/// Turns a schedule into lanes.
pub trait Executor: Sync {
    /// As in profiles.
    fn name(&self) -> &'static str;
    /// Names that other tools give it.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }
    /// One sentence for editors.
    fn about(&self) -> &'static str;
    /// Keys that must be given.
    fn required(&self) -> &'static [&'static str];
    /// Keys that may be given.
    fn optional(&self) -> &'static [&'static str];
    /// Open model: one session a lane.
    fn open(&self) -> bool;
    /// Lanes that the schedule needs, on average where they are drawn.
    fn count(&self, schedule: &Schedule) -> f64;
    /// The lanes in order of `start`, numbered from 0. `rng` is the scenario's own. The count was checked.
    fn lanes(&self, schedule: &Schedule, rng: &mut ChaCha8Rng) -> Vec<Lane>;

    /// Refuses what would not fit into memory.
    fn check(&self, schedule: &Schedule) -> Result<(), ArrivalError> {
        let count = self.count(schedule);
        if count <= MAX_LANES as f64 { Ok(()) } else { Err(ArrivalError { count }) }
    }
}

/// A schedule of more sessions than a plan can hold.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the schedule has {count:.0} arrivals, more than the limit of {MAX_LANES}")]
pub struct ArrivalError {
    count: f64,
}

/// The settings of executors, resolved. Each reads those that it knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schedule {
    /// Run time at which it begins.
    pub start: Duration,
    /// How long sessions begin.
    pub duration: Duration,
    /// Open at once.
    pub sessions: u32,
    /// Begun in a `time_unit`.
    pub rate: f64,
    /// What rates count in.
    pub time_unit: Duration,
    /// One after the other.
    pub stages: Vec<Stage>,
    /// Open at first.
    pub start_sessions: u32,
    /// Rate at first.
    pub start_rate: f64,
    /// To finish, at the end.
    pub graceful_stop: Duration,
    /// To finish, where a ramp takes a lane away.
    pub graceful_ramp_down: Duration,
}

impl Schedule {
    fn begin(&self) -> Micros {
        Micros::ZERO + self.start
    }

    fn stages_last(&self) -> Duration {
        self.stages.iter().map(|stage| stage.duration.0).sum()
    }

    /// One session at a time.
    fn once(&self, number: usize, start: Micros, stop: Micros) -> Lane {
        // An arrival at the very end still is one: its lane must not be empty.
        let stop = stop.max(Micros(start.0.saturating_add(1)));
        Lane { number: number as u32, start, stop, repeat: false, grace: self.graceful_stop }
    }
}

/// A stretch in which a level moves in a straight line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a stage: {duration: 30s, target: 100}")]
pub struct Stage {
    /// How long it takes.
    pub duration: Span,
    /// The level at its end: sessions, or a rate.
    pub target: f64,
}

/// Run time at which no further session begins.
pub fn end_of(schedule: &Schedule, executor: &dyn Executor) -> Duration {
    let length = if executor.required().contains(&"stages") { schedule.stages_last() } else { schedule.duration };
    schedule.start + length
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    pub(super) fn lanes(executor: &dyn Executor, schedule: &Schedule) -> Vec<Lane> {
        executor.check(schedule).unwrap();
        executor.lanes(schedule, &mut ChaCha8Rng::seed_from_u64(7))
    }

    pub(super) fn stages(all: &[(u64, f64)]) -> Vec<Stage> {
        all.iter().map(|&(seconds, target)| Stage { duration: Span::seconds(seconds), target }).collect()
    }

    #[test]
    fn every_key_is_known_to_some_executor_and_listed() {
        for executor in ALL {
            for key in [executor.required(), executor.optional()].concat() {
                assert!(KEYS.contains(&key), "{key}");
            }
            assert_eq!(find(executor.name()).unwrap().name(), executor.name());
        }
        for key in KEYS {
            assert!(ALL.iter().any(|e| e.required().contains(key) || e.optional().contains(key)), "{key}");
        }
    }

    #[test]
    fn too_many_arrivals_are_refused_before_they_are_made() {
        let schedule = Schedule { rate: 1e9, duration: Duration::from_hours(1), time_unit: Duration::from_secs(1), ..Schedule::default() };
        for name in ["constant-arrival-rate", "poisson-arrivals"] {
            let error = find(name).unwrap().check(&schedule).unwrap_err();
            assert_eq!(error.to_string(), "the schedule has 3600000000000 arrivals, more than the limit of 2000000");
        }
        let stages = stages(&[(0, 1e9), (3_600, 1e9)]);
        let schedule = Schedule { stages, time_unit: Duration::from_secs(1), ..Schedule::default() };
        for name in ["ramping-sessions", "ramping-arrival-rate"] {
            assert!(find(name).unwrap().check(&schedule).is_err());
        }
    }

    proptest! {
        #[test]
        fn lanes_are_in_order_and_numbered(
            rate in 0.01f64..500.0, seconds in 1u64..20, levels in proptest::collection::vec((0u64..10, 0u32..60), 1..5), first in 0u32..30,
        ) {
            let schedule = Schedule {
                start: Duration::from_millis(700), duration: Duration::from_secs(seconds), sessions: 9, rate,
                time_unit: Duration::from_secs(1), stages: stages(&levels.iter().map(|&(s, l)| (s, f64::from(l))).collect::<Vec<_>>()),
                start_sessions: first, start_rate: f64::from(first), ..Schedule::default()
            };
            for executor in ALL {
                let end = Micros::ZERO + end_of(&schedule, executor);
                let lanes = lanes(executor, &schedule);
                for (at, lane) in lanes.iter().enumerate() {
                    prop_assert_eq!(lane.number as usize, at);
                    prop_assert!(lane.start >= Micros::from_millis(700) && lane.start < lane.stop, "{} {:?}", executor.name(), lane);
                    prop_assert!(lane.start <= end && lane.stop <= Micros(end.0 + 1));
                    prop_assert_eq!(lane.repeat, !executor.open());
                }
                prop_assert!(lanes.windows(2).all(|pair| pair[0].start <= pair[1].start), "{}", executor.name());
            }
        }
    }
}
