//! constant-arrival-rate: arrival `i` at exactly `i * timeUnit / rate` from the start.

use proto::time::Micros;
use rand_chacha::ChaCha8Rng;

use super::{Executor, MAX_LANES, Schedule};
use crate::plan::Lane;

/// See the module.
pub(super) struct ConstantArrivalRate;

impl Executor for ConstantArrivalRate {
    fn name(&self) -> &'static str {
        "constant-arrival-rate"
    }

    fn about(&self) -> &'static str {
        "Open: `rate` sessions begin in each `timeUnit` for `duration`, evenly spaced."
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

    fn lanes(&self, schedule: &Schedule, _rng: &mut ChaCha8Rng) -> Vec<Lane> {
        let (begin, end) = (schedule.begin(), schedule.begin() + schedule.duration);
        // From the number, not by adding up gaps: no error accumulates.
        let unit = schedule.time_unit.as_micros() as f64;
        (0..=MAX_LANES)
            .map(|i| Micros(begin.0 + (i as f64 * unit / schedule.rate).round() as u64))
            .take_while(|at| *at < end)
            .enumerate()
            .map(|(number, start)| schedule.once(number, start, end))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::arrival::tests::lanes;

    fn starts(rate: f64, unit: u64, seconds: u64) -> Vec<u64> {
        let schedule =
            Schedule { rate, time_unit: Duration::from_secs(unit), duration: Duration::from_secs(seconds), ..Schedule::default() };
        lanes(&ConstantArrivalRate, &schedule).iter().map(|lane| lane.start.0).collect()
    }

    #[test]
    fn counts_and_spacing_are_exact() {
        assert_eq!(starts(10.0, 1, 10).len(), 100);
        assert!(starts(10.0, 1, 10).windows(2).all(|pair| pair[1] - pair[0] == 100_000));
        assert_eq!(starts(3.0, 1, 1), [0, 333_333, 666_667]);
        assert_eq!(starts(7.0, 1, 100_000).len(), 700_000, "no drift over a day");
    }

    #[test]
    fn fractional_rates_and_units() {
        assert_eq!(starts(0.5, 1, 10), [0, 2_000_000, 4_000_000, 6_000_000, 8_000_000]);
        assert_eq!(starts(30.0, 60, 6), [0, 2_000_000, 4_000_000]);
        assert_eq!(starts(0.1, 1, 5), [0], "a rate below one in the duration still begins with one");
    }
}
