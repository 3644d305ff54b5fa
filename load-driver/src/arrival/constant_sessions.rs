//! constant-sessions: so many places, each filled again when its session ends.

use rand_chacha::ChaCha8Rng;

use super::{Executor, Schedule};
use crate::plan::Lane;

/// See the module.
pub(super) struct ConstantSessions;

impl Executor for ConstantSessions {
    fn name(&self) -> &'static str {
        "constant-sessions"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["constant-vus"]
    }

    fn about(&self) -> &'static str {
        "Closed: `sessions` are open at once for `duration`; one that ends is followed by the next."
    }

    fn required(&self) -> &'static [&'static str] {
        &["sessions", "duration"]
    }

    fn optional(&self) -> &'static [&'static str] {
        &[]
    }

    fn open(&self) -> bool {
        false
    }

    fn count(&self, schedule: &Schedule) -> f64 {
        f64::from(schedule.sessions)
    }

    fn lanes(&self, schedule: &Schedule, _rng: &mut ChaCha8Rng) -> Vec<Lane> {
        let start = schedule.begin();
        let lane = |number| Lane { number, start, stop: start + schedule.duration, repeat: true, grace: schedule.graceful_stop };
        (0..schedule.sessions).map(lane).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto::time::Micros;

    use super::*;
    use crate::arrival::tests::lanes;

    #[test]
    fn every_place_is_filled_from_start_to_end() {
        let schedule = Schedule {
            start: Duration::from_secs(5),
            duration: Duration::from_mins(1),
            sessions: 3,
            graceful_stop: Duration::from_secs(9),
            ..Schedule::default()
        };
        let lanes = lanes(&ConstantSessions, &schedule);
        let grace = Duration::from_secs(9);
        let expected = |number| Lane { number, start: Micros::from_millis(5_000), stop: Micros::from_millis(65_000), repeat: true, grace };
        assert_eq!(lanes, [expected(0), expected(1), expected(2)]);
    }
}
