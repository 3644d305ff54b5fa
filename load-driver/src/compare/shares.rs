//! Shares of two runs, such as missed turns: the difference, and its error.
//!
//! Events come in bursts, so their number varies more than that of independent ones. How much more is read from the seconds of both runs (in
//! pairs, as for quantiles), and counts are divided by it before Fisher's test and Newcombe's interval. It is never taken for less than 1.

use super::{serial::Serial, stats};

/// Events of so many that could have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Events.
    pub events: u64,
    /// What they are a part of.
    pub of: u64,
}

impl Count {
    fn share(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.events.min(self.of) as f64 / self.of as f64 }
    }
}

/// Current against baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Share of the baseline.
    pub baseline: f64,
    /// Share of the current run.
    pub current: f64,
    /// Interval of current less baseline.
    pub interval: (f64, f64),
    /// Chance of as much when there is no difference.
    pub p: f64,
}

/// Compares at a two-sided level; `spread` is that of [`spread`].
pub fn compare(baseline: Count, current: Count, spread: f64, level: f64) -> Difference {
    let scaled = |count: Count| (count.events.min(count.of) as f64 / spread, count.of as f64 / spread);
    let ((a, of_a), (b, of_b)) = (scaled(baseline), scaled(current));
    let whole = |value: f64| value.round() as u64;
    let (share_a, share_b) = (baseline.share(), current.share());
    let ((low_a, high_a), (low_b, high_b)) = (stats::wilson(a, of_a, level), stats::wilson(b, of_b, level));
    let difference = share_b - share_a;
    Difference {
        baseline: share_a,
        current: share_b,
        interval: (difference - (share_b - low_b).hypot(high_a - share_a), difference + (high_b - share_b).hypot(share_a - low_a)),
        p: stats::fisher(whole(a), whole(of_a), whole(b), whole(of_b)),
    }
}

/// By how much the variance of the difference is larger than that of independent events; the same position is the same time in both runs.
pub fn spread(baseline: &[Count], current: &[Count]) -> f64 {
    let sum = |counts: &[Count]| {
        counts.iter().fold(Count::default(), |sum, count| Count { events: sum.events + count.events, of: sum.of + count.of })
    };
    let (a, b) = (sum(baseline), sum(current));
    if a.of == 0 || b.of == 0 {
        return 1.0;
    }
    let independent = |count: Count| count.share() * (1.0 - count.share()) / count.of as f64;
    let expected = independent(a) + independent(b);
    let residual = |count: &Count, whole: Count| (count.events as f64 - whole.share() * count.of as f64) / whole.of as f64;
    let series: Vec<f64> = baseline.iter().zip(current).map(|(x, y)| residual(y, b) - residual(x, a)).collect();
    let n = series.len() as f64;
    let found = n * n * Serial::of(&series).mean_variance;
    if expected > 0.0 && found.is_finite() { (found / expected).max(1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn count(events: u64, of: u64) -> Count {
        Count { events, of }
    }

    #[test]
    fn by_hand() {
        // Newcombe's own example (56 of 70 less 48 of 80): 0.2, from 0.0524 to 0.3339.
        let d = compare(count(48, 80), count(56, 70), 1.0, 0.05);
        assert!((d.interval.0 - 0.0524).abs() < 1e-4 && (d.interval.1 - 0.3339).abs() < 1e-4, "{d:?}");
        assert!(d.p < 0.02);
        let none = compare(count(0, 1_000), count(0, 1_000), 1.0, 0.05);
        assert!(none.p > 0.99 && none.interval.1 < 0.005, "{none:?}");
        let many = compare(count(0, 1_000), count(12, 1_000), 1.0, 0.05);
        assert!(many.p < 0.001 && many.interval.0 > 0.0);
        // The same in bursts of ten proves little.
        assert!(compare(count(0, 1_000), count(12, 1_000), 10.0, 0.05).p > 0.3);
        assert!(compare(count(0, 0), count(5, 10), 1.0, 0.05).p > 0.99);
    }

    /// Bursts from one process: single events would be taken for a difference far too often, corrected ones are not.
    #[test]
    fn bursts_are_no_difference() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let (mut naive, mut corrected) = (0, 0);
        let rounds = 400;
        for _ in 0..rounds {
            let mut run = || -> Vec<Count> {
                let bad = |random: &mut ChaCha8Rng| random.random_range(0..10) == 0;
                (0..60).map(|_| if bad(&mut random) { count(20, 50) } else { count(u64::from(bad(&mut random)), 50) }).collect()
            };
            let (a, b) = (run(), run());
            let sum = |all: &[Count]| count(all.iter().map(|c| c.events).sum(), all.iter().map(|c| c.of).sum());
            naive += u32::from(compare(sum(&a), sum(&b), 1.0, 0.05).p < 0.05);
            corrected += u32::from(compare(sum(&a), sum(&b), spread(&a, &b), 0.05).p < 0.05);
        }
        assert!(naive > rounds / 4, "{naive} of {rounds}: the process does not test anything");
        assert!(corrected < rounds * 8 / 100, "{corrected} of {rounds}");
    }
}
