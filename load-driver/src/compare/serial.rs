//! How much a series of neighbours tells: seconds of one run resemble the second before.
//!
//! Resampling single seconds as if they were independent makes the error too small, and noise a regression. So blocks of neighbours are
//! resampled together, and the error that comes of it is raised to what the correlation of the series says, where that is more (blocks that are
//! shorter than the dependence miss a part of it). That correlation is estimated in two ways, and the longer one counts:
//! - by that of direct neighbours, as if each second depended on the one before and on nothing else; exact where that is so, and least noisy;
//! - by the sum of the correlations at all distances, in pairs, as long as they stay positive and fall (Geyer's initial sequence): it sees what the first
//!   misses, such as slow good and bad times under fast noise.
//!
//! Both, and the variance, are corrected for what a short series hides by being measured from its own mean. Degrees of freedom are those of
//! the independent seconds that the series is worth, and at most `MOST_FREEDOM`, for the correlation is itself an estimate.
//!
//! None of that can do what the data cannot: when the whole is worth fewer than [`LEAST`] independent seconds, nothing is claimed; what changes more
//! slowly than a quarter of the run looks like a difference of the runs.

/// Independent intervals that a comparison needs at least.
pub const LEAST: f64 = 5.0;
/// Of an error whose correlation was estimated.
const MOST_FREEDOM: f64 = 15.0;

/// What a series is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Serial {
    /// Neighbours that are resampled together.
    pub block: usize,
    /// Square root of what the variance of resampled blocks must be multiplied by.
    pub inflation: f64,
    /// Independent intervals that would tell as much.
    pub effective: f64,
    /// Variance of the series' mean.
    pub mean_variance: f64,
}

impl Serial {
    /// Of a series; its mean is of no importance.
    pub fn of(series: &[f64]) -> Self {
        let n = series.len();
        let count = n as f64;
        let mean = series.iter().sum::<f64>() / count.max(1.0);
        let from_mean: Vec<f64> = series.iter().map(|value| value - mean).collect();
        let lagged = |lag: usize| from_mean.iter().zip(from_mean.iter().skip(lag)).map(|(a, b)| a * b).sum::<f64>() / count;
        let variance = lagged(0);
        if n < 8 || variance <= f64::EPSILON * mean * mean {
            return Self { block: 1, inflation: 1.0, effective: count, mean_variance: variance / (count - 1.0).max(1.0) };
        }
        let correlations: Vec<f64> = (0..=n / 3).map(|lag| lagged(lag) / variance / (1.0 - lag as f64 / count)).collect();
        let time = neighbours(lagged(1) / variance, count).max(initial_sequence(&correlations, count)).min(count / 2.0);
        let correlation = (time - 1.0) / (time + 1.0);
        // Politis and White's length, of a first-order process.
        let length = (2.0 * correlation / (1.0 - correlation * correlation)).powf(2.0 / 3.0) * (1.5 * count).powf(1.0 / 3.0);
        let block = (length.ceil() as usize).clamp(1, n / 4);
        // What resampling circular blocks gives in the mean: no need to draw to know it.
        let circular = |lag: usize| lagged(lag) + lagged(n - lag);
        let drawn = (1..block).fold(variance, |sum, lag| sum + 2.0 * (1.0 - lag as f64 / block as f64) * circular(lag)) / count;
        let process = variance / (1.0 - time / count) * time / count;
        let short = count / (count - block as f64);
        let factor = if drawn > 0.0 { short.max(process / drawn) } else { short };
        Self { block, inflation: factor.sqrt(), effective: count / time, mean_variance: process.max(drawn * short) }
    }

    /// Degrees of freedom of an error that is estimated from so much.
    pub fn freedom(&self) -> f64 {
        (self.effective - 1.0).clamp(1.0, MOST_FREEDOM)
    }
}

/// Seconds that are worth one, by the correlation of direct neighbours (with Kendall's correction).
fn neighbours(correlation: f64, count: f64) -> f64 {
    let correlation = ((count * correlation + 1.0) / (count - 3.0)).clamp(0.0, 0.98);
    (1.0 + correlation) / (1.0 - correlation)
}

/// Seconds that are worth one, by the correlations at all distances.
fn initial_sequence(correlations: &[f64], count: f64) -> f64 {
    let mut time: f64 = 1.0;
    // Correlations from the series' own mean are too low by about `time / n`, which in turn rests on them.
    for _ in 0..4 {
        let bias = time / count;
        let (mut sum, mut last) = (0.0, f64::INFINITY);
        for pair in correlations.chunks_exact(2) {
            let corrected: f64 = pair.iter().map(|c| (c + bias) / (1.0 + bias)).sum();
            last = corrected.min(last);
            if last <= 0.0 {
                break;
            }
            sum += last;
        }
        time = (2.0 * sum - 1.0).clamp(1.0, count / 2.0);
    }
    time
}
