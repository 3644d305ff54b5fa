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

pub mod quantile;
pub mod recorded;
pub mod serial;
pub mod shares;
pub mod stats;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::recorded::{Recorded, RecordedError};
use self::{recorded::Latency, shares::Count};
use crate::{
    record::{Counter, Metric, Series},
    report::Exit,
    threshold::evaluate::whole_of,
};

/// Of every latency.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];
/// Of every counter that is a part of something and means harm.
const SHARES: [Counter; 7] = [
    Counter::TurnsMissed,
    Counter::ResponsesSpurious,
    Counter::BargeInsMissed,
    Counter::BargeInsFalse,
    Counter::Underruns,
    Counter::StaleFrames,
    Counter::SequenceGaps,
];
/// A share that is within this of the baseline's, in absolute terms, has not changed.
const SHARE_MARGIN: f64 = 0.005;
/// Keys of a profile that say what load is made.
const LOAD: [&str; 3] = ["warmup", "scenarios", "faults"];
/// Draws are the same each time.
const SEED: u64 = 0x5eed;

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
    /// Not one figure could be told: the runs are too short.
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
        notes: notes(baseline, current),
        rows: Vec::new(),
    };
    comparison.refused.extend(unfit("baseline", baseline));
    comparison.refused.extend(unfit("current run", current));
    if comparison.refused.is_empty() {
        comparison.rows = rows(baseline, current, options);
        let has = |verdict| comparison.of(verdict).next().is_some();
        comparison.status = match () {
            () if has(Verdict::Worse) => Status::Regression,
            () if told(&comparison.rows) => Status::NoRegression,
            () => Status::Undecided,
        };
    } else if [baseline, current].iter().any(|run| run.summary.generator.saturation.saturated) {
        comparison.status = Status::Saturated;
    }
    comparison
}

/// Something could be told: of the latencies, where there are any, for that no session failed in either run says nothing of those.
fn told(rows: &[Row]) -> bool {
    let told = |row: &&Row| matches!(row.verdict, Verdict::NoDifference | Verdict::Better);
    let latencies: Vec<&Row> = rows.iter().filter(|row| row.kind == Kind::Latency).collect();
    if latencies.is_empty() { rows.iter().any(|row| told(&row)) } else { latencies.iter().any(told) }
}

/// Why a load cannot be compared with that of a baseline; empty when it can. For both, the resolved profile.
pub fn differences(baseline: &Value, current: &Value) -> Vec<String> {
    const SHOWN: usize = 5;
    let mut found = Vec::new();
    for key in LOAD {
        differ(key, baseline.get(key).unwrap_or(&Value::Null), current.get(key).unwrap_or(&Value::Null), &mut found);
    }
    let more = found.len().saturating_sub(SHOWN);
    found.truncate(SHOWN);
    if more > 0 {
        found.push(format!("{more} more settings of the profile differ"));
    }
    found
}

fn differ(path: &str, a: &Value, b: &Value, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            for key in keys {
                differ(&format!("{path}.{key}"), x.get(key).unwrap_or(&Value::Null), y.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            for (at, (x, y)) in x.iter().zip(y).enumerate() {
                differ(&format!("{path}.{at}"), x, y, found);
            }
        }
        _ if a == b => {}
        _ => found.push(format!("the profile differs: {path} was {}, and is {}", cut(a), cut(b))),
    }
}

fn cut(value: &Value) -> String {
    const LONGEST: usize = 60;
    if value.is_null() {
        return "absent".to_owned();
    }
    let text = value.to_string();
    if text.chars().count() > LONGEST { text.chars().take(LONGEST).chain("...".chars()).collect() } else { text }
}

/// Why a run cannot be compared with any other; empty when it can.
pub fn unfit(name: &str, run: &Recorded) -> Vec<String> {
    let mut why = Vec::new();
    if run.unfinished {
        why.push(format!("the {name} is not over: there is only a checkpoint"));
    } else if let Some(reason) = &run.summary.stopped_early {
        why.push(format!("the {name} ended early: {reason}"));
    }
    if run.summary.workers_lost > 0 {
        why.push(format!("the {name} lost a worker"));
    }
    let saturation = &run.summary.generator.saturation;
    if saturation.saturated {
        why.push(format!("the generator of the {name} was saturated ({}): its figures are its own", saturation.reasons.join("; ")));
    }
    why
}

fn notes(baseline: &Recorded, current: &Recorded) -> Vec<String> {
    let mut notes = Vec::new();
    let (a, b) = (&baseline.summary, &current.summary);
    let mut differs = |what: &str, was: String, is: String| {
        if was != is {
            notes.push(format!("{what} was {was}, and is {is}"));
        }
    };
    differs("load-driver", a.run.version.clone(), b.run.version.clone());
    differs("the target", a.run.targets.join(", "), b.run.targets.join(", "));
    differs("the seed", a.run.seed.to_string(), b.run.seed.to_string());
    differs("the number of the driver's cores", a.generator.cores.to_string(), b.generator.cores.to_string());
    for key in ["server", "backends", "routing", "driver"] {
        let of = |run: &recorded::Told| run.resolved_profile.get(key).map_or_else(|| "absent".to_owned(), cut);
        differs(&format!("`{key}` of the profile"), of(a), of(b));
    }
    for (name, run) in [("baseline", baseline), ("current run", current)] {
        if run.intervals.is_empty() {
            notes
                .push(format!("the {name} has no interval log (latencies.hlog beside its summary.json): its latencies cannot be compared"));
        }
        if run.intervals.damaged > 0 {
            notes.push(format!("{} lines of the interval log of the {name} cannot be read", run.intervals.damaged));
        }
    }
    notes
}

/// A row before the correction for the number of rows.
struct Open {
    row: Row,
    p: Option<f64>,
    /// Change that matters.
    margin: f64,
    /// A change within this is none.
    same: f64,
}

fn rows(baseline: &Recorded, current: &Recorded, options: Options) -> Vec<Row> {
    let mut open = latencies(baseline, current, options);
    open.extend(all_shares(baseline, current, options));
    let tested: Vec<f64> = open.iter().filter_map(|one| one.p).collect();
    let mut adjusted = stats::holm(&tested).into_iter();
    open.into_iter().map(|one| one.judged(|| adjusted.next().unwrap_or(1.0), options.level)).collect()
}

impl Open {
    /// Nothing to judge, for a reason.
    fn silent(key: String, statistic: String, kind: Kind, figures: (Option<f64>, Option<f64>), verdict: Verdict, reason: String) -> Self {
        let (baseline, current) = figures;
        let row =
            Row { key, statistic, kind, baseline, current, change: None, change_low: None, change_high: None, p: None, verdict, reason };
        Self { row, p: None, margin: 0.0, same: 0.0 }
    }

    fn judged(mut self, adjusted: impl FnOnce() -> f64, level: f64) -> Row {
        let row = &mut self.row;
        if let (Some(change), Some(low), Some(high), Some(_)) = (row.change, row.change_low, row.change_high, self.p) {
            let p = adjusted();
            row.p = Some(p);
            row.verdict = match () {
                () if p < level && change > self.margin => Verdict::Worse,
                () if p < level && change < -self.margin => Verdict::Better,
                () if low > -self.same && high < self.same => Verdict::NoDifference,
                () => Verdict::Unclear,
            };
        }
        self.row
    }
}

fn statistic(quantile: f64) -> String {
    format!("p({})", (quantile * 100.0).round())
}

fn latencies(baseline: &Recorded, current: &Recorded, options: Options) -> Vec<Open> {
    let mut open = Vec::new();
    let (a, b) = (&baseline.summary, &current.summary);
    // What the driver does late is its own; whether it is too much is judged elsewhere.
    for metric in Metric::ALL.into_iter().filter(|metric| *metric != Metric::ScheduleLag) {
        open.extend(latency(metric, None, (&a.latencies, &b.latencies), (baseline, current), options));
        if a.scenarios.len() > 1 {
            for scenario in &a.scenarios {
                let of = |run: &recorded::Told| run.scenarios.iter().find(|other| other.name == scenario.name).map(|s| s.latencies.clone());
                let now = of(b).unwrap_or_default();
                open.extend(latency(metric, Some(&scenario.name), (&scenario.latencies, &now), (baseline, current), options));
            }
        }
    }
    open
}

/// Key of a metric, over all or of one scenario: that of thresholds, and the tag of the interval log.
pub fn key(metric: &str, scenario: Option<&str>) -> String {
    scenario.map_or_else(|| metric.to_owned(), |scenario| format!("{metric}{{scenario:{scenario}}}"))
}

fn latency(
    metric: Metric,
    scenario: Option<&str>,
    told: (&[Latency], &[Latency]),
    runs: (&Recorded, &Recorded),
    options: Options,
) -> Vec<Open> {
    let count = |rows: &[Latency]| rows.iter().find(|row| row.metric == metric.name()).and_then(|row| row.response).map_or(0, |s| s.count);
    let key = key(metric.name(), scenario);
    let (was, is) = (count(told.0), count(told.1));
    let silent =
        |verdict, reason: String| vec![Open::silent(key.clone(), "count".to_owned(), Kind::Latency, (None, None), verdict, reason)];
    match (was, is) {
        (0, 0) => return Vec::new(),
        (0, _) => return silent(Verdict::NotComparable, format!("no samples in the baseline, {is} in the current run")),
        // What was measured and is no more has not become better.
        (_, 0) => return silent(Verdict::Worse, format!("{was} samples in the baseline, none in the current run")),
        _ => {}
    }
    let has = |run: &Recorded| run.intervals.tags().any(|tag| tag == key);
    if !has(runs.0) || !has(runs.1) {
        let which = if has(runs.0) { "current run" } else { "baseline" };
        return silent(Verdict::NotComparable, format!("the interval log of the {which} has nothing of it"));
    }
    let (base, now) = runs.0.intervals.aligned(&runs.1.intervals, &key);
    let compared = quantile::compare(&base, &now, &QUANTILES, SEED);
    QUANTILES.iter().zip(compared).map(|(quantile, compared)| quantile_row(key.clone(), *quantile, compared, options)).collect()
}

fn quantile_row(key: String, quantile: f64, compared: quantile::Compared, options: Options) -> Open {
    let (was, is) = (compared.baseline / 1_000.0, compared.current / 1_000.0);
    let mut open = Open::silent(key, statistic(quantile), Kind::Latency, (Some(was), Some(is)), Verdict::NotComparable, String::new());
    match compared.difference {
        Err(why) => open.row.reason = why.to_string(),
        Ok(difference) => {
            let (change, (low, high)) = difference.change(options.level);
            (open.row.change, open.row.change_low, open.row.change_high) = (Some(change), Some(low), Some(high));
            open.p = Some(difference.p());
            open.margin = options.tolerance.max(options.floor_ms / was);
            open.same = open.margin;
        }
    }
    open
}

fn all_shares(baseline: &Recorded, current: &Recorded, options: Options) -> Vec<Open> {
    let (a, b) = (&baseline.summary, &current.summary);
    let mut open = Vec::new();
    let pairs: Vec<_> = if a.scenarios.len() > 1 {
        a.scenarios.iter().map(|scenario| (scenario, b.scenarios.iter().find(|other| other.name == scenario.name))).collect()
    } else {
        Vec::new()
    };
    let failed = |funnel: &recorded::Funnel| Count { events: funnel.sessions_failed(), of: funnel.requested };
    let name = "sessions_failed";
    open.extend(share(key(name, None), failed(&a.funnel), failed(&b.funnel), 1.0, options));
    for (was, is) in &pairs {
        let is = is.map(|is| failed(&is.funnel)).unwrap_or_default();
        open.extend(share(key(name, Some(&was.name)), failed(&was.funnel), is, 1.0, options));
    }
    for counter in SHARES {
        let Some(whole) = whole_of(counter) else { continue };
        let of = |counts: &BTreeMap<String, u64>| {
            let n = |counter: Counter| counts.get(counter.name()).copied().unwrap_or(0);
            Count { events: n(counter), of: n(whole) }
        };
        let spread = spread(a.series.as_ref(), b.series.as_ref(), &of);
        open.extend(share(key(counter.name(), None), of(&a.counts), of(&b.counts), spread, options));
        for (was, is) in &pairs {
            let is = is.map(|is| of(&is.counts)).unwrap_or_default();
            // Bursts are known of the whole run only.
            open.extend(share(key(counter.name(), Some(&was.name)), of(&was.counts), is, spread, options));
        }
    }
    open
}

/// From the series of both runs, at the same times.
fn spread(baseline: Option<&Series>, current: Option<&Series>, of: &impl Fn(&BTreeMap<String, u64>) -> Count) -> f64 {
    let (Some(baseline), Some(current)) = (baseline, current) else { return 1.0 };
    let width_s = baseline.width_s.max(current.width_s).max(1);
    let mut both: BTreeMap<u64, [Count; 2]> = BTreeMap::new();
    for (which, series) in [baseline, current].into_iter().enumerate() {
        for point in series.points.iter().filter(|point| !point.warmup) {
            let count = of(&point.counts);
            let sum = &mut both.entry(point.at_s / width_s).or_default()[which];
            sum.events += count.events;
            sum.of += count.of;
        }
    }
    let (a, b): (Vec<Count>, Vec<Count>) = both.into_values().map(|[a, b]| (a, b)).unzip();
    shares::spread(&a, &b)
}

fn share(key: String, was: Count, is: Count, spread: f64, options: Options) -> Option<Open> {
    let rate = |count: Count| (count.of > 0).then(|| count.events.min(count.of) as f64 / count.of as f64);
    let figures = (rate(was), rate(is));
    let silent = |verdict, reason: String| Some(Open::silent(key.clone(), "rate".to_owned(), Kind::Share, figures, verdict, reason));
    match (was.of, is.of) {
        (0, 0) => return None,
        (0, _) => return silent(Verdict::NotComparable, "the baseline has nothing that it is a part of".to_owned()),
        (of, 0) => return silent(Verdict::Worse, format!("a part of {of} in the baseline, of nothing in the current run")),
        // Neither run has any: a row that says nothing, and costs the others certainty.
        _ if was.events == 0 && is.events == 0 => {
            let row = |why: &str, verdict| silent(verdict, why.to_owned());
            let most = stats::wilson(0.0, was.of.min(is.of) as f64, options.level).1;
            return if most < SHARE_MARGIN {
                row("none in either run", Verdict::NoDifference)
            } else {
                row("none in either run, of few", Verdict::Unclear)
            };
        }
        _ => {}
    }
    let difference = shares::compare(was, is, spread, options.level);
    let mut open = Open::silent(key, "rate".to_owned(), Kind::Share, figures, Verdict::NotComparable, String::new());
    open.row.change = Some(difference.current - difference.baseline);
    (open.row.change_low, open.row.change_high) = (Some(difference.interval.0), Some(difference.interval.1));
    open.p = Some(difference.p);
    open.margin = options.tolerance * difference.baseline;
    open.same = open.margin.max(SHARE_MARGIN);
    Some(open)
}

#[cfg(test)]
mod tests;
