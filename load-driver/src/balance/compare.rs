//! Policies side by side.

use std::{collections::BTreeMap, fmt::Write as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Balance, Expectation, ExpectationResult, Measure, PredictionResult, figure, quality::find};
use crate::report::text::{self, Style};

/// Of the layout of [`Comparison`].
const SCHEMA_VERSION: u32 = 2;

/// Figures that a comparison shows, by name.
pub const SHOWN: &[&str] = &[
    "sessions_cv",
    "utilization_cv",
    "utilization_peak",
    "overload_rate",
    "avoidable_rate",
    "herd",
    "herd_ratio",
    "rejected",
    "dropped",
    "retried",
    "startup_p99_ms",
    "first_stream_p99_ms",
    "recovery_s",
];

/// One policy's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRow {
    /// Its name.
    pub policy: String,
    /// None when its run had none: then no expectation of it is met.
    pub balance: Option<Balance>,
}

/// Several policies under the same load: the contents of `comparison.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Of this layout.
    pub schema_version: u32,
    /// Name of the profile.
    pub profile: String,
    /// Of the plan.
    pub seed: u64,
    /// In the order of the profile.
    pub policies: Vec<PolicyRow>,
    /// In the order of the profile.
    pub expectations: Vec<ExpectationResult>,
    /// By policy, then in the order of the profile; none of a simulation.
    pub predictions: Vec<PredictionResult>,
}

impl Comparison {
    /// Holds the figures against what is expected of them.
    pub fn new(profile: &str, seed: u64, policies: Vec<PolicyRow>, expectations: &[Expectation]) -> Self {
        let figures: BTreeMap<String, Balance> =
            policies.iter().filter_map(|row| Some((row.policy.clone(), row.balance.clone()?))).collect();
        Self {
            schema_version: SCHEMA_VERSION,
            profile: profile.to_owned(),
            seed,
            policies,
            expectations: expectations.iter().map(|one| one.judge(&figures)).collect(),
            predictions: Vec::new(),
        }
    }

    /// The same, with what was predicted beside what was measured.
    #[must_use]
    pub fn with_predictions(self, predictions: Vec<PredictionResult>) -> Self {
        Self { predictions, ..self }
    }

    /// Every expectation is met, and every prediction.
    pub fn met(&self) -> bool {
        self.expectations.iter().all(ExpectationResult::met) && self.predictions.iter().all(PredictionResult::met)
    }

    /// For people: the table, then what was expected.
    pub fn render(&self, style: Style) -> String {
        // Writing to a string cannot fail.
        let rows: Vec<(String, Balance)> =
            self.policies.iter().filter_map(|row| Some((row.policy.clone(), row.balance.clone()?))).collect();
        let mut out = format!("{}\n{}", style.bold("policies"), table(&rows, SHOWN));
        for row in self.policies.iter().filter(|row| row.balance.is_none()) {
            _ = writeln!(out, "  {}: its run has no figures", row.policy);
        }
        if !self.expectations.is_empty() {
            _ = writeln!(out, "\n{}", style.bold("expectations"));
        }
        let width = self.expectations.iter().map(|one| one.text.chars().count()).max().unwrap_or(0);
        for one in &self.expectations {
            let (mark, word) = match one.holds {
                Some(true) => (style.good("✓"), "holds"),
                Some(false) => (style.bad("✗"), "fails"),
                None => (style.bad("✗"), "fails: not measured"),
            };
            let side = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), plain);
            _ = writeln!(out, "  {mark} {:<width$}  {word} ({}, {})", one.text, side(one.left), side(one.right));
        }
        if !self.predictions.is_empty() {
            _ = write!(out, "\n{}\n{}", style.bold("predictions of the simulator"), predictions(&self.predictions, style));
        }
        out
    }
}

/// A line for each policy and figure.
fn predictions(all: &[PredictionResult], style: Style) -> String {
    let cell = |metric: &str, value: Option<f64>| match (find(metric), value) {
        (_, None) => "-".to_owned(),
        (Some(measure), Some(value)) => shown(measure, value),
        (None, Some(share)) => format!("{:.1}%", share * 100.0),
    };
    let row = |one: &PredictionResult| {
        let sign = if one.difference.is_some_and(|apart| apart < 0.0) { "-" } else { "" };
        let apart = cell(&one.metric, one.difference.map(f64::abs));
        let figures = [cell(&one.metric, one.measured), cell(&one.metric, one.predicted), format!("{sign}{apart}"), one.tolerance.clone()];
        [vec![format!("{}.{}", one.policy, one.metric)], figures.to_vec()].concat()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let table = text::table(&["", "measured", "predicted", "difference", "tolerance"], &rows);
    let mark = |one: &PredictionResult| match one.holds {
        Some(true) => style.good("✓"),
        Some(false) => format!("{} out of tolerance", style.bad("✗")),
        None => format!("{} a figure is missing", style.bad("✗")),
    };
    // The mark is coloured, and cells are not: it comes behind them. All lines end in the same column.
    let marks = std::iter::once(String::new()).chain(all.iter().map(|one| format!("  {}", mark(one))));
    table.lines().zip(marks).fold(String::new(), |out, (line, mark)| out + line + &mark + "\n")
}

/// The JSON Schema of `comparison.json`.
pub fn schema() -> String {
    // A schema is plain data: it always serialises.
    serde_json::to_string_pretty(&schemars::schema_for!(Comparison)).unwrap_or_default() + "\n"
}

/// A line for each policy, a column for each of these figures, the best of a column marked, and what the columns are below. Names that are no
/// figures have no column.
pub fn table(rows: &[(String, Balance)], metrics: &[&str]) -> String {
    let columns: Vec<&Measure> = metrics.iter().filter_map(|name| find(name)).collect();
    let mut lines: Vec<Vec<String>> = rows.iter().map(|(policy, _)| vec![policy.clone()]).collect();
    for measure in &columns {
        let values: Vec<Option<f64>> = rows.iter().map(|(_, balance)| figure(balance, measure.name)).collect();
        let best = best(&values, measure.lower_is_better);
        // The mark takes its place in every line of the column, so that figures stand below each other.
        let marked = best.is_some();
        for (line, value) in lines.iter_mut().zip(&values) {
            let mark = match (marked, value.is_some() && *value == best) {
                (true, true) => "*",
                (true, false) => " ",
                (false, _) => "",
            };
            line.push(format!("{}{mark}", value.map_or_else(|| "-".to_owned(), |value| shown(measure, value))));
        }
    }
    let heads: Vec<&str> = std::iter::once("").chain(columns.iter().map(|measure| measure.head)).collect();
    format!("{}{}", text::table(&heads, &lines), LEGEND)
}

/// One policy's figures for people: spreads as a table, the rest in words.
pub fn describe(balance: &Balance) -> String {
    let cell = |name: &str| match (find(name), figure(balance, name)) {
        (Some(measure), Some(value)) => shown(measure, value),
        _ => "-".to_owned(),
    };
    let row = |head: &str, of: &str| {
        let name = |what: &str| cell(&format!("{of}_{what}"));
        let mut row = vec![head.to_owned()];
        row.extend(["mean", "cv", "jain", "peak_to_mean", "min_to_max", "peak"].map(name));
        row
    };
    let heads = ["", "mean", "cv", "jain", "peak/mean", "min/max", "peak"];
    let mut out = text::table(
        &heads,
        &[row(if balance.capped { "sessions/cap" } else { "sessions" }, "sessions"), row("utilization", "utilization")],
    );
    let shares = (0..balance.assigned.len()).filter_map(|n| figure(balance, &format!("share_{n}")));
    let mut shares: Vec<String> = shares.map(|share| format!("{:.1}%", share * 100.0)).collect();
    // As many as a line takes; all are in the summary.
    if shares.len() > 12 {
        shares.truncate(12);
        shares.push("...".to_owned());
    }
    let mut line = |text: std::fmt::Arguments<'_>| _ = writeln!(out, "  {text}");
    if balance.assignments == 0 {
        line(format_args!("assigned 0: nobody had to choose a backend"));
    } else {
        line(format_args!("assigned {}: {}", text::count(balance.assignments), shares.join(" ")));
    }
    line(format_args!(
        "to an overloaded backend {}, avoidable {}; herd {} ({} of what was offered); age of reports p50 {} ms, p99 {} ms",
        cell("overload_rate"),
        cell("avoidable_rate"),
        cell("herd"),
        figure(balance, "herd_ratio").map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
        cell("report_age_p50_ms"),
        cell("report_age_p99_ms"),
    ));
    line(format_args!(
        "rejected {}, dropped {}, retried {}; counter error mean {}, max {}, min {}; ghosts {}, late ends {}",
        cell("rejected"),
        cell("dropped"),
        cell("retried"),
        cell("counter_error_mean"),
        cell("counter_error_max"),
        cell("counter_error_min"),
        cell("ghosts_left"),
        cell("late_ends"),
    ));
    if balance.recovery_s.is_some() || balance.unrecovered > 0 {
        line(format_args!("even again after {} s, {} times never", cell("recovery_s"), cell("unrecovered")));
    }
    out
}

const LEGEND: &str =
    "  * best; N sessions over cap, U utilization, cv spread (0 is even); overload: assignments to a backend that was overloaded,
  avoid.: while another was not; herd: most grants in a report interval, /said: over what was offered; start, first, age: ms
";

/// The best value, unless all are alike: then none is.
fn best(values: &[Option<f64>], lower_is_better: Option<bool>) -> Option<f64> {
    let lower = lower_is_better?;
    let known = || values.iter().copied().flatten();
    let (lowest, highest) = (known().min_by(f64::total_cmp)?, known().max_by(f64::total_cmp)?);
    (lowest < highest).then_some(if lower { lowest } else { highest })
}

/// As it stands in a table.
pub(crate) fn shown(measure: &Measure, value: f64) -> String {
    if measure.name.ends_with("_ms") {
        return text::ms(value);
    }
    if measure.name.ends_with("_rate") {
        return format!("{:.1}%", value * 100.0);
    }
    plain(value)
}

/// A number with as many digits as it needs.
fn plain(value: f64) -> String {
    match value {
        v if v.fract() == 0.0 && v.abs() < 1e15 => format!("{v:.0}"),
        v if v.abs() < 0.001 => format!("{v:.1e}"),
        v if v.abs() < 10.0 => format!("{v:.3}"),
        v => format!("{v:.1}"),
    }
}
