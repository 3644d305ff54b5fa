//! Quantiles of two runs, second by second: the logarithm of their ratio, and its error.
//!
//! - Both runs have the same plan, so the same second has the same load in both. Seconds are resampled *as pairs*: what a ramp does to both
//!   cancels, and is no error.
//! - The quantile is that of all samples of the drawn seconds together, not a mean of quantiles.
//! - Seconds are drawn in blocks, and the error is corrected, as [`super::serial`] says.
//! - The interval is Student's with as many degrees of freedom as there are independent seconds.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{serial::Serial, stats};

/// Samples of one interval: value in microseconds and count, in ascending order of value.
pub type Bins = Vec<(u64, u64)>;

/// Draws: the standard error of an error from so many is 5 %.
const DRAWS: usize = 200;
/// Intervals at most; with more, neighbours are merged, so that the cost does not depend on the length of the run.
pub const MOST: usize = 256;
/// Intervals with samples in both runs at least.
pub const LEAST_INTERVALS: usize = 12;
/// Samples above the quantile at least.
const LEAST_BEYOND: f64 = 10.0;

/// A difference of two runs, on the scale of logarithms: 0 is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Natural logarithm of current over baseline.
    pub log: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl Difference {
    /// Chance of as much when there is no difference.
    pub fn p(&self) -> f64 {
        if self.error > 0.0 { stats::t_two_sided(self.log / self.error, self.freedom) } else { f64::from(u8::from(self.log == 0.0)) }
    }

    /// Relative change: the estimate and its interval at a two-sided level; 0.1 is 10 % more.
    pub fn change(&self, level: f64) -> (f64, (f64, f64)) {
        let half = if self.error > 0.0 { stats::t_critical(level, self.freedom) * self.error } else { 0.0 };
        let relative = |log: f64| log.exp_m1();
        (relative(self.log), (relative(self.log - half), relative(self.log + half)))
    }
}

/// One quantile of one metric in both runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// Of the baseline, microseconds.
    pub baseline: f64,
    /// Of the current run, microseconds.
    pub current: f64,
    /// What can be said; or why nothing.
    pub difference: Result<Difference, TooLittle>,
}

/// Why nothing can be said.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TooLittle {
    /// The quantile is one of a few outliers.
    #[error("{0} samples, {1} are needed")]
    Samples(u64, u64),
    /// The run is too short.
    #[error("samples in {0} intervals that both runs have, {LEAST_INTERVALS} are needed")]
    Intervals(usize),
    /// Seconds are too alike.
    #[error("seconds resemble their neighbours so much that the run is worth {0:.0} independent ones, {least:.0} are needed", least = super::serial::LEAST)]
    Independent(f64),
}

/// Compares quantiles of two series of intervals; the same position is the same time in both runs.
pub fn compare(baseline: &[Bins], current: &[Bins], quantiles: &[f64], seed: u64) -> Vec<Compared> {
    let intervals = baseline.len().min(current.len());
    let both = baseline.iter().zip(current).filter(|(a, b)| !a.is_empty() && !b.is_empty()).count();
    let step = intervals.div_ceil(MOST).max(1);
    let runs = [Run::new(&baseline[..intervals], step), Run::new(&current[..intervals], step)];
    let mut out = Vec::with_capacity(quantiles.len());
    for quantile in quantiles.iter().copied() {
        let [base, now] = [&runs[0], &runs[1]].map(|run| run.pooled(quantile));
        let needed = (LEAST_BEYOND / (1.0 - quantile)).ceil() as u64;
        let fewest = runs[0].samples.min(runs[1].samples);
        let difference = if fewest < needed {
            Err(TooLittle::Samples(fewest, needed))
        } else if both < LEAST_INTERVALS {
            Err(TooLittle::Intervals(both))
        } else {
            resample(&runs, quantile, seed)
        };
        out.push(Compared { baseline: base, current: now, difference });
    }
    out
}

fn resample(runs: &[Run; 2], quantile: f64, seed: u64) -> Result<Difference, TooLittle> {
    let influence: Vec<f64> =
        runs[1].influence(quantile).into_iter().zip(runs[0].influence(quantile)).map(|(now, base)| now - base).collect();
    let serial = Serial::of(&influence);
    if serial.effective < super::serial::LEAST {
        return Err(TooLittle::Independent(serial.effective));
    }
    let n = influence.len();
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ quantile.to_bits());
    let mut logs = Vec::with_capacity(DRAWS);
    let mut weights = vec![0u64; n];
    let mut scratch = Vec::new();
    for _ in 0..DRAWS {
        weights.fill(0);
        let mut drawn = 0;
        while drawn < n {
            let from = random.random_range(0..n);
            // Past the end it goes on at the start, so that every second is drawn equally often.
            for at in (from..from + serial.block).take(n - drawn) {
                weights[at % n] += 1;
                drawn += 1;
            }
        }
        let [base, now] = [&runs[0], &runs[1]].map(|run| run.weighted(&weights, quantile, &mut scratch));
        if let (Some(base), Some(now)) = (base, now) {
            logs.push(now.ln() - base.ln());
        }
    }
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count.max(1.0);
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    Ok(Difference {
        log: runs[1].pooled(quantile).ln() - runs[0].pooled(quantile).ln(),
        error: variance.sqrt() * serial.inflation,
        freedom: serial.freedom(),
    })
}

/// One run: the values that occur, and for each interval how often each does.
struct Run {
    values: Vec<u64>,
    intervals: Vec<Vec<(u32, u64)>>,
    total: Vec<u64>,
    samples: u64,
}

impl Run {
    fn new(intervals: &[Bins], step: usize) -> Self {
        let mut values: Vec<u64> = intervals.iter().flatten().map(|(value, _)| *value).collect();
        values.sort_unstable();
        values.dedup();
        let mut total = vec![0; values.len()];
        let merged = intervals.chunks(step).map(|chunk| {
            let mut counts = std::collections::BTreeMap::new();
            for (value, count) in chunk.iter().flatten() {
                // It is there: it came from these intervals.
                let at = values.partition_point(|known| known < value) as u32;
                *counts.entry(at).or_insert(0) += count;
                total[at as usize] += count;
            }
            counts.into_iter().collect()
        });
        let intervals = merged.collect();
        Self { samples: total.iter().sum(), intervals, total, values }
    }

    /// Of all samples; 1 us where it is 0, for the logarithm.
    fn pooled(&self, quantile: f64) -> f64 {
        self.at(&self.total, self.samples, quantile).unwrap_or(1.0)
    }

    fn weighted(&self, weights: &[u64], quantile: f64, scratch: &mut Vec<u64>) -> Option<f64> {
        scratch.clear();
        scratch.resize(self.values.len(), 0);
        let mut samples = 0;
        for (interval, weight) in self.intervals.iter().zip(weights).filter(|(_, weight)| **weight > 0) {
            for (at, count) in interval {
                scratch[*at as usize] += count * weight;
                samples += count * weight;
            }
        }
        self.at(scratch, samples, quantile)
    }

    /// As `record::histogram` defines a quantile.
    fn at(&self, counts: &[u64], samples: u64, quantile: f64) -> Option<f64> {
        let rank = ((quantile * samples as f64).ceil() as u64).max(1);
        let mut seen = 0;
        counts.iter().zip(&self.values).find_map(|(count, value)| {
            seen += count;
            (seen >= rank).then_some((*value).max(1) as f64)
        })
    }

    /// What each interval does to the logarithm of the quantile, but for a common factor of both runs: how many of its samples are above,
    /// against how many should be, over how dense samples are there.
    fn influence(&self, quantile: f64) -> Vec<f64> {
        let value = self.pooled(quantile);
        let near = ((1.0 - quantile) / 2.0).min(0.05);
        let spread = (self.pooled(quantile + near).ln() - self.pooled(quantile - near).ln()) / (2.0 * near);
        let spread = if spread > 0.0 { spread } else { 1.0 };
        let of = |interval: &Vec<(u32, u64)>| {
            let all: u64 = interval.iter().map(|(_, count)| count).sum();
            let not_above: u64 = interval.iter().filter(|(at, _)| self.values[*at as usize] as f64 <= value).map(|(_, count)| count).sum();
            (quantile * all as f64 - not_above as f64) * spread / self.samples.max(1) as f64
        };
        self.intervals.iter().map(of).collect()
    }
}

#[cfg(test)]
#[path = "quantile_tests.rs"]
mod tests;
