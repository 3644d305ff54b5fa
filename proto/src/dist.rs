//! Distributions of durations: `2s`, `uniform(1s, 3s)`, `exponential(2s)`, `lognormal(2s, 0.5)`, `pareto(1s, 1.5)`, `empirical(1s, 2s, 5s)`.

use std::{fmt, str::FromStr, time::Duration};

use rand::Rng;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration that may be drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Constant(Duration),
    /// Between both, evenly.
    Uniform(Duration, Duration),
    /// By its mean.
    Exponential(Duration),
    /// By its median and the standard deviation of the logarithm.
    Lognormal(Duration, f64),
    /// By its minimum and its shape.
    Pareto(Duration, f64),
    /// One of the listed, evenly.
    Empirical(Vec<Duration>),
}
