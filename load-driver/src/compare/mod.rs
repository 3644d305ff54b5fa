//! Is a run worse than another one, or is it noise? Pure but for [`recorded`], which reads the files that it is given.
//!
//! Every latency has its quantiles compared, over all and by scenario, from the interval log of both runs ([`quantile`]); every share, such as
//! missed turns, its two counts ([`shares`]). A figure is *worse* only when both hold:
//! - the difference is larger than what matters ([`Options::tolerance`], and [`Options::floor_ms`] for latencies),
//! - chance would not give as much: after Holm's correction for the number of figures that are looked at, at [`Options::level`].
//!
//! It is *not different* when the whole interval of what the difference may be lies within what matters, and *unclear* in between: then the runs are too
//! short to tell, which is said and is no pass of that figure. What cannot be compared is named, never guessed.
//!
//! One thing no statistics of two runs can see: what differs from run to run rather than within one, such as another machine. `docs/ci.md`.

mod figures;
pub mod quantile;
pub mod recorded;
mod same;
pub mod serial;
pub mod shares;
pub mod stats;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    recorded::{Recorded, RecordedError},
    same::{differences, unfit},
};
use crate::{record::Metric, report::Exit};

/// What matters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Relative difference that matters: 0.05 is 5 %.
    pub tolerance: f64,
    /// Difference of a latency that matters, milliseconds.
    pub floor_ms: f64,
    /// Chance of even one false alarm.
    pub level: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { tolerance: 0.05, floor_ms: 2.0, level: 0.05 }
    }
}

/// What came of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// By more than matters, and not by chance.
    Worse,
    /// By more than matters, and not by chance.
    Better,
    /// Whatever the difference is, it does not matter.
    NoDifference,
    /// The runs are too short to tell.
    Unclear,
    /// The reason says why.
    NotComparable,
}

impl Verdict {
    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::NoDifference => "no difference",
            Self::Unclear => "unclear",
            Self::NotComparable => "not comparable",
        }
    }
}

/// Of a compared figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A latency from the intended time, milliseconds; its change is relative.
    Latency,
    /// A share, 0 to 1; its change is a difference.
    Share,
}

/// One figure of both runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// As in thresholds: `turn_response{scenario:talk}`.
    pub key: String,
    /// As in thresholds: `p(95)`, `rate`.
    pub statistic: String,
    /// What it is.
    pub kind: Kind,
    /// Of the baseline.
    pub baseline: Option<f64>,
    /// Of the current run.
    pub current: Option<f64>,
    /// Relative change of a latency, difference of a share.
    pub change: Option<f64>,
    /// Lowest that the change may be, at the level, for this figure alone.
    pub change_low: Option<f64>,
    /// Highest.
    pub change_high: Option<f64>,
    /// Chance of as much without any difference, corrected for the number of figures.
    pub p: Option<f64>,
    /// What came of it.
    pub verdict: Verdict,
    /// Why it is not comparable, or worse without figures.
    pub reason: String,
}

/// Which run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// Its name.
    pub run_id: String,
    /// Name of its profile.
    pub profile: String,
    /// Of load-driver.
    pub version: String,
    /// Unix microseconds.
    pub started_at_us: u64,
}

/// What came of all figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing is worse, and something could be told.
    NoRegression,
    /// Something is worse.
    Regression,
    /// What the run is mostly about is not known finely enough to show what matters: the runs are too short, or too noisy.
    Undecided,
    /// The runs are not of the same load, or one is not whole.
    NotComparable,
    /// The generator of one run was saturated: its figures are not the target's.
    Saturated,
}

/// A run against another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BaselineComparison {
    /// What is compared with.
    pub baseline: Named,
    /// What is judged.
    pub current: Named,
    /// Relative difference that matters.
    pub tolerance: f64,
    /// Difference of a latency that matters, milliseconds.
    pub floor_ms: f64,
    /// Chance of even one false alarm.
    pub level: f64,
    /// What came of it.
    pub status: Status,
    /// Why the runs cannot be compared.
    pub refused: Vec<String>,
    /// What else to know.
    pub notes: Vec<String>,
    /// Latencies, then shares; over all, then by scenario.
    pub rows: Vec<Row>,
}

impl BaselineComparison {
    /// How a process ends that was to compare; all is well when nothing is worse.
    pub fn exit(&self) -> Exit {
        match self.status {
            Status::NoRegression => Exit::Ok,
            // What could not be told is no pass, as a threshold without data.
            Status::Regression | Status::Undecided => Exit::ThresholdFailed,
            Status::NotComparable => Exit::InvalidProfile,
            Status::Saturated => Exit::GeneratorSaturated,
        }
    }

    /// Rows of a verdict.
    pub fn of(&self, verdict: Verdict) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.verdict == verdict)
    }
}

/// Compares two runs.
pub fn compare(baseline: &Recorded, current: &Recorded, options: Options) -> BaselineComparison {
    let named = |run: &recorded::Run| Named {
        run_id: run.run_id.clone(),
        profile: run.profile.clone(),
        version: run.version.clone(),
        started_at_us: run.started_at_us,
    };
    let mut comparison = BaselineComparison {
        baseline: named(&baseline.summary.run),
        current: named(&current.summary.run),
        tolerance: options.tolerance,
        floor_ms: options.floor_ms,
        level: options.level,
        status: Status::NotComparable,
        refused: differences(&baseline.summary.resolved_profile, &current.summary.resolved_profile),
        notes: same::notes(baseline, current),
        rows: Vec::new(),
    };
    comparison.refused.extend(unfit("baseline", baseline));
    comparison.refused.extend(unfit("current run", current));
    if comparison.refused.is_empty() {
        comparison.rows = figures::rows(baseline, current, options);
        let has = |verdict| comparison.of(verdict).next().is_some();
        comparison.status = match () {
            () if has(Verdict::Worse) => Status::Regression,
            () if told(&comparison.rows, options) => Status::NoRegression,
            () => Status::Undecided,
        };
    } else {
        // Runs that were not to be compared anyway are that first: exit codes have an order.
        let saturated = [baseline, current].iter().filter(|run| run.summary.generator.saturation.saturated).count();
        if comparison.refused.len() == saturated {
            comparison.status = Status::Saturated;
        }
    }
    comparison
}

/// What a run is mostly about is known finely enough: the median of `turn_response`, or of `session_startup` where nobody took a turn, to within what
/// matters. Had it not changed, the run could have shown that. A run without either goes by any other latency, one without latencies by its shares.
fn told(rows: &[Row], options: Options) -> bool {
    let fine = |row: &&Row| match (row.change_low, row.change_high, row.baseline) {
        (Some(low), Some(high), Some(was)) => (high - low) / 2.0 <= options.tolerance.max(options.floor_ms / was),
        _ => false,
    };
    for metric in [Metric::TurnResponse, Metric::SessionStartup] {
        if let Some(first) = rows.iter().find(|row| row.key == metric.name()) {
            return fine(&first);
        }
    }
    let mut latencies = rows.iter().filter(|row| row.kind == Kind::Latency).peekable();
    if latencies.peek().is_some() { latencies.any(|row| fine(&row)) } else { rows.iter().any(|row| row.verdict == Verdict::NoDifference) }
}

/// Key of a metric, over all or of one scenario: that of thresholds, and the tag of the interval log.
pub fn key(metric: &str, scenario: Option<&str>) -> String {
    scenario.map_or_else(|| metric.to_owned(), |scenario| format!("{metric}{{scenario:{scenario}}}"))
}

#[cfg(test)]
mod tests;
