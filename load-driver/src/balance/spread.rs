//! How evenly something lies on backends, at one moment and over time.

use super::Spread;

/// Figures of one moment, over the backends that are up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment {
    mean: f64,
    cv: f64,
    pub(super) jain: f64,
    highest: f64,
    lowest: f64,
}

impl Moment {
    /// None without backends. Values that are negative or not finite count as 0.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let values = values.map(|x| if x.is_finite() { x.max(0.0) } else { 0.0 });
        let (mut n, mut sum, mut highest, mut lowest) = (0_u64, 0.0_f64, 0.0_f64, f64::INFINITY);
        for x in values.clone() {
            n += 1;
            sum += x;
            highest = highest.max(x);
            lowest = lowest.min(x);
        }
        if n == 0 {
            return None;
        }
        if highest <= 0.0 {
            return Some(Self { mean: 0.0, cv: 0.0, jain: 1.0, highest: 0.0, lowest: 0.0 });
        }
        let n = n as f64;
        // Rounding must not put the mean outside of what it is the mean of.
        let mean = (sum / n).clamp(lowest, highest);
        // As a second pass: from the sum of squares alone little would be left of a small variance.
        let variance = values.map(|x| (x / mean - 1.0) * (x / mean - 1.0)).sum::<f64>() / n;
        Some(Self { mean, cv: variance.sqrt(), jain: (1.0 / (1.0 + variance)).clamp(1.0 / n, 1.0), highest, lowest })
    }

    /// Nothing lies anywhere.
    pub(super) fn idle(&self) -> bool {
        self.highest <= 0.0
    }
}

/// Means over time of the figures of moments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OverTime {
    seconds: f64,
    mean: f64,
    cv: f64,
    jain: f64,
    /// Seconds in which there was something, and the ratios of those.
    busy_s: f64,
    peak_to_mean: f64,
    min_to_max: f64,
    peak: f64,
}

impl OverTime {
    /// It is so now.
    pub(super) fn see(&mut self, moment: &Moment) {
        self.peak = self.peak.max(moment.highest);
    }

    /// It was so for some time.
    pub(super) fn hold(&mut self, moment: &Moment, seconds: f64) {
        self.seconds += seconds;
        self.mean += moment.mean * seconds;
        self.cv += moment.cv * seconds;
        self.jain += moment.jain * seconds;
        if !moment.idle() {
            self.busy_s += seconds;
            self.peak_to_mean += moment.highest / moment.mean * seconds;
            self.min_to_max += moment.lowest / moment.highest * seconds;
        }
    }

    /// None when there never was anything to lie anywhere.
    pub(super) fn spread(&self) -> Option<Spread> {
        (self.busy_s > 0.0).then(|| Spread {
            mean: self.mean / self.seconds,
            cv: self.cv / self.seconds,
            jain: (self.jain / self.seconds).min(1.0),
            peak_to_mean: (self.peak_to_mean / self.busy_s).max(1.0),
            min_to_max: (self.min_to_max / self.busy_s).min(1.0),
            peak: self.peak,
        })
    }
}
