//! ramping-arrival-rate: the rate moves in straight lines; arrival `i` is where its integral is exactly `i`.
//!
//! In a stage from rate `a` to `b` over `d`, `N(t) = N0 + a t + (b - a) t^2 / 2d`. Where the integral rests on a whole number (the rate is 0),
//! the arrival comes when it moves on. So a flat stage gives what constant-arrival-rate gives.

use proto::time::Micros;
use rand_chacha::ChaCha8Rng;

use super::{Executor, Schedule};
use crate::plan::Lane;

/// See the module.
pub(super) struct RampingArrivalRate;

/// The integral is a sum of products of decimal fractions: a whole number may come out this far beside itself.
const EPSILON: f64 = 1e-7;

impl Executor for RampingArrivalRate {
    fn name(&self) -> &'static str {
        "ramping-arrival-rate"
    }

    fn about(&self) -> &'static str {
        "Open: the number of sessions that begin in a `timeUnit` moves from `startRate` in straight lines through `stages`."
    }

    fn required(&self) -> &'static [&'static str] {
        &["stages"]
    }

    fn optional(&self) -> &'static [&'static str] {
        &["startRate", "timeUnit"]
    }

    fn open(&self) -> bool {
        true
    }

    fn count(&self, schedule: &Schedule) -> f64 {
        let unit = schedule.time_unit.as_secs_f64();
        let mut rate = schedule.start_rate;
        let mut sum = 0.0;
        for stage in &schedule.stages {
            sum += f64::midpoint(rate, stage.target) * stage.duration.0.as_secs_f64() / unit;
            rate = stage.target;
        }
        sum
    }

    fn lanes(&self, schedule: &Schedule, _rng: &mut ChaCha8Rng) -> Vec<Lane> {
        let end = schedule.begin() + schedule.stages_last();
        let unit = schedule.time_unit.as_secs_f64();
        let (mut at, mut rate, mut integral) = (schedule.begin(), schedule.start_rate / unit, 0.0_f64);
        let (mut lanes, mut next) = (Vec::new(), 0.0_f64);
        for stage in &schedule.stages {
            let (length, target) = (stage.duration.0.as_secs_f64(), stage.target / unit);
            let whole = integral + f64::midpoint(rate, target) * length;
            let slope = if length > 0.0 { (target - rate) / length } else { 0.0 };
            // Half open: an arrival at the very end of a stage belongs to the next, which knows when the integral moves on.
            while next < whole - EPSILON {
                let lack = (next - integral).max(0.0);
                // The root of `slope t^2 / 2 + rate t = lack` in the form that loses no digits.
                let root = rate + (rate * rate + 2.0 * slope * lack).max(0.0).sqrt();
                let t = if root > 0.0 { (2.0 * lack / root).min(length) } else { 0.0 };
                let start = Micros(at.0 + (t * 1e6).round() as u64);
                lanes.push(schedule.once(lanes.len(), start, end));
                next += 1.0;
            }
            at += stage.duration.0;
            rate = target;
            integral = whole;
        }
        lanes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::arrival::{
        constant_rate::ConstantArrivalRate,
        tests::{lanes, stages},
    };

    fn schedule(first: f64, all: &[(u64, f64)]) -> Schedule {
        Schedule { start_rate: first, stages: stages(all), time_unit: Duration::from_secs(1), ..Schedule::default() }
    }

    #[test]
    fn a_ramp_integrates_its_line() {
        // N(t) = t^2 / 2: arrival i at sqrt(2 i).
        let starts: Vec<f64> =
            lanes(&RampingArrivalRate, &schedule(0.0, &[(10, 10.0)])).iter().map(|lane| lane.start.0 as f64 / 1e6).collect();
        assert_eq!(starts.len(), 50);
        for (i, at) in starts.iter().enumerate() {
            assert!((at - (2.0 * i as f64).sqrt()).abs() < 1e-6, "{i}: {at}");
        }
    }

    #[test]
    fn a_flat_stage_is_a_constant_rate() {
        let flat = lanes(&RampingArrivalRate, &schedule(7.0, &[(20, 7.0), (20, 7.0)]));
        let constant = Schedule { rate: 7.0, duration: Duration::from_secs(40), time_unit: Duration::from_secs(1), ..Schedule::default() };
        let constant = lanes(&ConstantArrivalRate, &constant);
        assert_eq!(flat.len(), 280);
        assert!(flat.iter().zip(&constant).all(|(a, b)| a.start.0.abs_diff(b.start.0) <= 1));
        assert_eq!(flat.len(), constant.len());
    }

    #[test]
    fn nothing_arrives_while_the_rate_is_zero() {
        let lanes = lanes(&RampingArrivalRate, &schedule(0.0, &[(10, 0.0), (0, 2.0), (5, 2.0), (0, 0.0), (10, 0.0), (0, 1.0), (2, 1.0)]));
        let starts: Vec<u64> = lanes.iter().map(|lane| lane.start.as_millis()).collect();
        let first = (0..10).map(|i| 10_000 + i * 500);
        assert_eq!(starts, first.chain([25_000, 26_000]).collect::<Vec<_>>());
    }

    #[test]
    fn up_and_down_counts_the_area() {
        let lanes = lanes(&RampingArrivalRate, &schedule(0.0, &[(10, 20.0), (10, 0.0)]));
        assert_eq!(lanes.len(), 200);
    }
}
