//! poisson-arrivals: exponential gaps with the mean `timeUnit / rate`, as independent people call.

use proto::time::Micros;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Executor, MAX_LANES, Schedule};
use crate::plan::Lane;

/// See the module.
pub(super) struct PoissonArrivals;

impl Executor for PoissonArrivals {
    fn name(&self) -> &'static str {
        "poisson-arrivals"
    }

    fn about(&self) -> &'static str {
        "Open: sessions begin independently of each other, `rate` in each `timeUnit` on average, for `duration`."
    }

    fn required(&self) -> &'static [&'static str] {
        &["rate", "duration"]
    }

    fn optional(&self) -> &'static [&'static str] {
        &["timeUnit"]
    }

    fn open(&self) -> bool {
        true
    }

    fn count(&self, schedule: &Schedule) -> f64 {
        schedule.rate * schedule.duration.as_secs_f64() / schedule.time_unit.as_secs_f64()
    }

    fn lanes(&self, schedule: &Schedule, rng: &mut ChaCha8Rng) -> Vec<Lane> {
        let (begin, length) = (schedule.begin(), schedule.duration.as_secs_f64());
        let mean = schedule.time_unit.as_secs_f64() / schedule.rate;
        let mut at = 0.0_f64;
        let mut lanes = Vec::new();
        loop {
            // By inversion; `1 - u` is never 0.
            at += -mean * (1.0 - rng.random::<f64>()).ln();
            // Twice the limit is beyond any chance of a mean that was checked.
            if at >= length || lanes.len() as u64 >= 2 * MAX_LANES {
                return lanes;
            }
            lanes.push(schedule.once(lanes.len(), Micros(begin.0 + (at * 1e6) as u64), begin + schedule.duration));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::arrival::tests::lanes;

    fn schedule() -> Schedule {
        Schedule { rate: 20.0, time_unit: Duration::from_secs(1), duration: Duration::from_secs(1_000), ..Schedule::default() }
    }

    #[test]
    fn count_and_gaps_are_poisson() {
        let lanes = lanes(&PoissonArrivals, &schedule());
        // Mean 20,000, standard deviation 141: five of them.
        assert!(lanes.len().abs_diff(20_000) < 707, "{}", lanes.len());
        let gaps: Vec<f64> = lanes.windows(2).map(|pair| (pair[1].start.0 - pair[0].start.0) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential's standard deviation is its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03);
    }

    #[test]
    fn one_seed_gives_one_schedule() {
        assert_eq!(lanes(&PoissonArrivals, &schedule()), lanes(&PoissonArrivals, &schedule()));
    }
}
