//! Distributions of durations: `2s`, `uniform(1s, 3s)`, `exponential(2s)`, `lognormal(2s, 0.5)`, `pareto(1s, 1.5)`, `empirical(1s, 2s, 5s)`.

use std::{fmt, str::FromStr, time::Duration};

use rand::{Rng, RngExt};
use rand_distr::Distribution as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::{format_duration, parse_duration};

/// No draw is longer: a heavy tail must not outlive the run by years.
pub const MAX_DRAW: Duration = Duration::from_hours(24);

/// A duration that may be drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Always the same: `2s`.
    Constant(Duration),
    /// Between both, evenly: `uniform(1s, 3s)`.
    Uniform(Duration, Duration),
    /// By its mean: `exponential(2s)`.
    Exponential(Duration),
    /// By its median and the standard deviation of the logarithm: `lognormal(2s, 0.5)`.
    Lognormal(Duration, f64),
    /// By its minimum and its shape: `pareto(1s, 1.5)`.
    Pareto(Duration, f64),
    /// One of the listed, evenly: `empirical(1s, 2s, 5s)`.
    Empirical(Vec<Duration>),
}

/// A text that is no distribution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a distribution: {reason}")]
pub struct DistributionError {
    text: String,
    reason: String,
}

impl Distribution {
    /// Draws one duration, at most [`MAX_DRAW`]. A constant takes nothing from `rng`.
    pub fn sample(&self, rng: &mut impl Rng) -> Duration {
        let seconds = match self {
            Self::Constant(d) => return *d,
            Self::Empirical(all) => return all.get(rng.random_range(0..all.len().max(1))).copied().unwrap_or_default(),
            Self::Uniform(low, high) => rng.random_range(low.as_secs_f64()..=high.as_secs_f64()),
            Self::Exponential(mean) => {
                let x: f64 = rand_distr::Exp1.sample(rng);
                mean.as_secs_f64() * x
            }
            Self::Lognormal(median, sigma) => {
                let z: f64 = rand_distr::StandardNormal.sample(rng);
                median.as_secs_f64() * (sigma * z).exp()
            }
            // By inversion; `1 - u` is never 0.
            Self::Pareto(minimum, shape) => minimum.as_secs_f64() * (1.0 - rng.random::<f64>()).powf(-1.0 / shape),
        };
        Duration::from_micros((seconds.clamp(0.0, MAX_DRAW.as_secs_f64()) * 1e6).round() as u64)
    }

    /// Mean of the distribution; none where it is infinite (`pareto` with a shape of 1 or less).
    pub fn mean(&self) -> Option<Duration> {
        match self {
            Self::Constant(d) | Self::Exponential(d) => Some(*d),
            Self::Uniform(low, high) => Some((*low + *high) / 2),
            Self::Lognormal(median, sigma) => Some(Duration::from_secs_f64((median.as_secs_f64() * (sigma * sigma / 2.0).exp()).min(1e12))),
            Self::Pareto(minimum, shape) => (*shape > 1.0).then(|| minimum.mul_f64(shape / (shape - 1.0))),
            Self::Empirical(all) => Some(all.iter().sum::<Duration>() / u32::try_from(all.len().max(1)).unwrap_or(u32::MAX)),
        }
    }
}

impl FromStr for Distribution {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<Self, DistributionError> {
        let error = |reason: String| DistributionError { text: text.to_owned(), reason };
        let duration = |t: &str| parse_duration(t).map_err(|e| error(e.to_string()));
        let positive = |t: &str| match t.parse::<f64>() {
            Ok(x) if x.is_finite() && x > 0.0 && x <= 100.0 => Ok(x),
            _ => Err(error(format!("`{t}` must be a number above 0 and at most 100"))),
        };
        let trimmed = text.trim();
        let Some((name, rest)) = trimmed.split_once('(') else {
            return parse_duration(trimmed).map(Self::Constant).map_err(|e| {
                error(format!(
                    "{e}; or one of uniform(1s, 3s), exponential(2s), lognormal(2s, 0.5), pareto(1s, 1.5), empirical(1s, 2s, 5s)"
                ))
            });
        };
        let Some(inside) = rest.strip_suffix(')') else { return Err(error("the closing parenthesis is missing".into())) };
        let arguments: Vec<&str> = inside.split(',').map(str::trim).collect();
        match (name.trim(), arguments.as_slice()) {
            ("constant", [d]) => Ok(Self::Constant(duration(d)?)),
            ("uniform", [low, high]) => {
                let (low, high) = (duration(low)?, duration(high)?);
                if low > high {
                    return Err(error("the first bound is above the second".into()));
                }
                Ok(Self::Uniform(low, high))
            }
            ("exponential", [mean]) => Ok(Self::Exponential(duration(mean)?)),
            ("lognormal", [median, sigma]) => Ok(Self::Lognormal(duration(median)?, positive(sigma)?)),
            ("pareto", [minimum, shape]) => Ok(Self::Pareto(duration(minimum)?, positive(shape)?)),
            ("empirical", all) => Ok(Self::Empirical(all.iter().map(|t| duration(t)).collect::<Result<_, _>>()?)),
            ("constant" | "exponential", _) => Err(error(format!("{name} takes one duration"))),
            ("uniform" | "lognormal" | "pareto", _) => Err(error(format!("{name} takes two arguments"))),
            _ => Err(error(format!("`{name}` is unknown; there are constant, uniform, exponential, lognormal, pareto, empirical"))),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = format_duration;
        match self {
            Self::Constant(x) => f.write_str(&d(*x)),
            Self::Uniform(low, high) => write!(f, "uniform({}, {})", d(*low), d(*high)),
            Self::Exponential(mean) => write!(f, "exponential({})", d(*mean)),
            Self::Lognormal(median, sigma) => write!(f, "lognormal({}, {sigma})", d(*median)),
            Self::Pareto(minimum, shape) => write!(f, "pareto({}, {shape})", d(*minimum)),
            Self::Empirical(all) => write!(f, "empirical({})", all.iter().map(|x| d(*x)).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const ALL: [&str; 6] = ["2s", "uniform(1s, 3s)", "exponential(2s)", "lognormal(2s, 0.5)", "pareto(1s, 2.5)", "empirical(1s, 2s, 6s)"];

    #[test]
    fn display_reads_back() {
        for text in ALL {
            let d: Distribution = text.parse().unwrap();
            assert_eq!(d.to_string(), text);
            assert_eq!(d.to_string().parse::<Distribution>().unwrap(), d);
        }
    }

    #[test]
    fn sample_mean_is_the_stated_mean() {
        for text in ALL {
            let d: Distribution = text.parse().unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            let n = 200_000;
            let sum: f64 = (0..n).map(|_| d.sample(&mut rng).as_secs_f64()).sum();
            let (mean, stated) = (sum / f64::from(n), d.mean().unwrap().as_secs_f64());
            assert!((mean / stated - 1.0).abs() < 0.02, "{text}: {mean} against {stated}");
        }
    }

    #[test]
    fn bad_texts_say_why() {
        for (text, part) in [
            ("2", "not a duration"),
            ("uniform(3s, 1s)", "above"),
            ("uniform(3s)", "two"),
            ("gauss(1s)", "unknown"),
            ("lognormal(1s, -1)", "above 0"),
            ("pareto(1s, 0)", "above 0"),
            ("uniform(1s, 2s", "parenthesis"),
            ("empirical()", "not a duration"),
        ] {
            let error = text.parse::<Distribution>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
