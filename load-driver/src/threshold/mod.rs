//! Limits that a run must keep: parsed ([`key`], [`expression`]) apart from judged ([`evaluate`], [`monitor`]).
//!
//! A threshold is a key, which says what is measured, and an expression, which says what it must be:
//!
//! ```text
//! turn_response:                          p(95)<800            latency, response from the intended time, all scenarios
//! turn_response{basis:service}:           p(95)<800ms          latency, service time
//! turn_response{scenario:talk,protocol:grpc}: med<0.5s         of one scenario and transport
//! turns_missed:                           rate<0.01            counter, as a share of what it is a part of
//! sessions_failed:                        rate<0.01            sessions
//! active:                                 max>=1000            gauge
//! leak_rss:                               value<2              MiB an hour, the lower bound of the process that grows most
//! ghost_seconds:                          value<60             session-seconds for which ended sessions were counted
//! ```

pub mod evaluate;
pub mod expression;
pub mod key;
pub mod monitor;

pub use evaluate::{Source, Status, ThresholdResult, Unit};
pub use expression::{Aggregate, Expression, Operator};
pub use key::{Basis, Drift, Filter, Gauge, Key, Measure, Sessions};
pub use monitor::Monitor;

use std::time::Duration;

/// Longest window: what it covers is kept in memory.
pub const MAX_WINDOW: Duration = Duration::from_mins(10);

/// A threshold as the profile has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    /// Such as `p(95)<300`.
    pub threshold: String,
    /// Stop the run as soon as it fails.
    pub abort_on_fail: bool,
    /// No judgement during the run before so long after the warm-up.
    pub delay_abort_eval: Duration,
    /// Judge each span of this length instead of the whole: it must hold in every one.
    pub window: Option<Duration>,
    /// With fewer samples there is no data.
    pub min_samples: u64,
    /// No data is no failure.
    pub allow_no_data: bool,
}

impl Spec {
    /// The short form: the expression alone.
    pub fn short(threshold: impl Into<String>) -> Self {
        Self { threshold: threshold.into(), ..Self::default() }
    }
}

/// A threshold that can be judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// What is measured.
    pub key: Key,
    /// What it must be.
    pub expression: Expression,
    /// As written.
    pub spec: Spec,
}

impl Threshold {
    /// Parses one threshold. `scenarios` are the names that a filter may use.
    pub fn parse(key: &str, spec: &Spec, scenarios: &[impl AsRef<str>]) -> Result<Self, ParseError> {
        let parsed_key = Key::parse(key, scenarios)?;
        let expression = Expression::parse(&spec.threshold, parsed_key.measure)?;
        if let Some(window) = spec.window {
            let whole = |message: &str| ParseError::new(key, 0, message);
            if !matches!(parsed_key.measure, Measure::Latency(..) | Measure::Counter(_) | Measure::Sessions(_)) {
                return Err(whole("a window needs a latency, a counter or sessions; all else is judged over the whole run"));
            }
            if window.is_zero() || window > MAX_WINDOW {
                return Err(whole("a window must be longer than 0 and at most 10m"));
            }
        }
        Ok(Self { key: parsed_key, expression, spec: spec.clone() })
    }
}

/// Something in a key or an expression that is no part of the language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid threshold: {message}\n  {text}\n  {caret:>column$}", caret = "^", column = self.position + 1)]
pub struct ParseError {
    /// The key or the expression.
    pub text: String,
    /// Characters before the place of the error.
    pub position: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl ParseError {
    /// `at` is a byte offset into `text`.
    fn new(text: &str, at: usize, message: impl Into<String>) -> Self {
        let position = text.get(..at).map_or(0, |before| before.chars().count());
        Self { text: text.to_owned(), position, message: message.into() }
    }
}
