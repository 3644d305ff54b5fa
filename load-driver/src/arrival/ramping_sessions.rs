//! ramping-sessions: the number of places moves in straight lines from target to target.
//!
//! In a stage from `a` to `b` over `d`, the place that makes the level `n` (`a < n <= b`) opens at `d * (n - a) / (b - a)`, and on the way down
//! the place that made it `n` (`b < n <= a`) closes at `d * (a - n + 1) / (a - b)`: at the end of a stage the level is the target.
//! The place that opened last closes first.

use proto::time::Micros;
use rand_chacha::ChaCha8Rng;

use super::{Executor, Schedule};
use crate::plan::Lane;

/// See the module.
pub(super) struct RampingSessions;

impl Executor for RampingSessions {
    fn name(&self) -> &'static str {
        "ramping-sessions"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["ramping-vus"]
    }

    fn about(&self) -> &'static str {
        "Closed: the number of open sessions moves from `startSessions` in straight lines through `stages`."
    }

    fn required(&self) -> &'static [&'static str] {
        &["stages"]
    }

    fn optional(&self) -> &'static [&'static str] {
        &["startSessions", "gracefulRampDown"]
    }

    fn open(&self) -> bool {
        false
    }

    fn count(&self, schedule: &Schedule) -> f64 {
        let mut level = f64::from(schedule.start_sessions);
        let mut opened = level;
        for stage in &schedule.stages {
            opened += (stage.target - level).max(0.0);
            level = stage.target;
        }
        opened
    }

    fn lanes(&self, schedule: &Schedule, _rng: &mut ChaCha8Rng) -> Vec<Lane> {
        let begin = schedule.begin();
        let end = begin + schedule.stages_last();
        let open = |start| Lane { number: 0, start, stop: end, repeat: true, grace: schedule.graceful_stop };
        let mut lanes: Vec<Lane> = (0..schedule.start_sessions).map(|_| open(begin)).collect();
        // Positions in `lanes` of the open places.
        let mut live: Vec<usize> = (0..lanes.len()).collect();
        let mut at = begin;
        for stage in &schedule.stages {
            let (level, target) = (live.len(), stage.target as usize);
            let steps = level.abs_diff(target);
            let time = |step: usize| {
                let us = u128::from(stage.duration.micros()) * step as u128 / steps as u128;
                Micros(at.0 + us as u64)
            };
            for step in 1..=steps {
                if target > level {
                    live.push(lanes.len());
                    lanes.push(open(time(step)));
                } else if let Some(lane) = live.pop().and_then(|at| lanes.get_mut(at)) {
                    lane.stop = time(step);
                    lane.grace = schedule.graceful_ramp_down;
                }
            }
            at += stage.duration.0;
        }
        // A place that opens and closes at one instant holds nothing.
        lanes.retain(|lane| lane.start < lane.stop);
        lanes.sort_by_key(|lane| lane.start);
        for (number, lane) in lanes.iter_mut().enumerate() {
            lane.number = number as u32;
        }
        lanes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::arrival::tests::{lanes, stages};

    fn level(lanes: &[Lane], at: Micros) -> usize {
        lanes.iter().filter(|lane| lane.start <= at && at < lane.stop).count()
    }

    #[test]
    fn up_hold_down() {
        let schedule = Schedule {
            stages: stages(&[(10, 5.0), (10, 5.0), (10, 0.0)]),
            graceful_stop: Duration::from_secs(30),
            graceful_ramp_down: Duration::from_secs(3),
            ..Schedule::default()
        };
        let lanes = lanes(&RampingSessions, &schedule);
        let times: Vec<(u64, u64)> = lanes.iter().map(|lane| (lane.start.as_millis() / 1_000, lane.stop.as_millis() / 1_000)).collect();
        assert_eq!(times, [(2, 30), (4, 28), (6, 26), (8, 24), (10, 22)]);
        assert!(lanes.iter().all(|lane| lane.grace == Duration::from_secs(3)));
    }

    #[test]
    fn a_jump_opens_at_once_and_what_stays_gets_the_graceful_stop() {
        let schedule = Schedule {
            stages: stages(&[(0, 3.0), (5, 3.0)]),
            start_sessions: 1,
            graceful_stop: Duration::from_secs(7),
            ..Schedule::default()
        };
        let lanes = lanes(&RampingSessions, &schedule);
        assert_eq!(lanes.len(), 3);
        assert!(lanes.iter().all(|l| l.start == Micros::ZERO && l.stop == Micros::from_millis(5_000) && l.grace.as_secs() == 7));
    }

    proptest! {
        #[test]
        fn the_level_at_the_end_of_each_stage_is_its_target(all in proptest::collection::vec((1u64..30, 0u32..50), 1..6), first in 0u32..20) {
            let schedule = Schedule {
                stages: stages(&all.iter().map(|&(s, t)| (s, f64::from(t))).collect::<Vec<_>>()),
                start_sessions: first,
                ..Schedule::default()
            };
            let lanes = lanes(&RampingSessions, &schedule);
            prop_assert_eq!(level(&lanes, Micros::ZERO), first as usize);
            let mut at = Micros::ZERO;
            for (number, &(seconds, target)) in all.iter().enumerate() {
                at += Duration::from_secs(seconds);
                if number + 1 < all.len() {
                    prop_assert_eq!(level(&lanes, at), target as usize);
                }
            }
            prop_assert_eq!(level(&lanes, at), 0);
        }
    }
}
