//! The figures of two runs, one by one.

use std::{borrow::Borrow, collections::BTreeMap};

use super::{
    Kind, Options, Recorded, Row, Verdict, key, quantile,
    recorded::{self, Latency},
    shares::{self, Count},
    stats,
};
use crate::{
    record::{Counter, Metric, Series},
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
/// So many in one run are not none in the next by chance.
const ENOUGH: u64 = 20;
/// Draws are the same each time.
const SEED: u64 = 0x5eed;

/// A row before the correction for the number of rows.
struct Open {
    row: Row,
    p: Option<f64>,
    /// Change that matters.
    margin: f64,
    /// A change within this is none.
    same: f64,
}

/// Latencies, then shares; over all, then by scenario.
pub(super) fn rows(baseline: &Recorded, current: &Recorded, options: Options) -> Vec<Row> {
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
        // What was measured and is no more has not become better. But few samples may be missing by chance, and late audio by merit.
        (_, 0) if was >= ENOUGH && metric != Metric::AudioGap => {
            return silent(Verdict::Worse, format!("{was} samples in the baseline, none in the current run"));
        }
        (_, 0) => return silent(Verdict::NotComparable, format!("{was} samples in the baseline, none in the current run")),
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
        let of = |n: &dyn Fn(Counter) -> u64| Count { events: n(counter), of: n(whole) };
        let spread = spread(a.series.as_ref(), b.series.as_ref(), &of);
        open.extend(share(key(counter.name(), None), of(&|n| count(&a.counts, n)), of(&|n| count(&b.counts, n)), spread, options));
        for (was, is) in &pairs {
            let is = is.map(|is| of(&|n| count(&is.counts, n))).unwrap_or_default();
            // Bursts are known of the whole run only.
            open.extend(share(key(counter.name(), Some(&was.name)), of(&|n| count(&was.counts, n)), is, spread, options));
        }
    }
    open
}

/// Of a counter, by its name.
fn count<K: Borrow<str> + Ord>(counts: &BTreeMap<K, u64>, counter: Counter) -> u64 {
    counts.get(counter.name()).copied().unwrap_or(0)
}

/// From the series of both runs, at the same times.
fn spread(baseline: Option<&Series>, current: Option<&Series>, of: &impl Fn(&dyn Fn(Counter) -> u64) -> Count) -> f64 {
    let (Some(baseline), Some(current)) = (baseline, current) else { return 1.0 };
    let width_s = baseline.width_s.max(current.width_s).max(1);
    let mut both: BTreeMap<u64, [Count; 2]> = BTreeMap::new();
    for (which, series) in [baseline, current].into_iter().enumerate() {
        for point in series.points.iter().filter(|point| !point.warmup) {
            let more = of(&|n| count(&point.counts, n));
            let sum = &mut both.entry(point.at_s / width_s).or_default()[which];
            sum.events += more.events;
            sum.of += more.of;
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
        (of, 0) => {
            let verdict = if of >= ENOUGH { Verdict::Worse } else { Verdict::NotComparable };
            return silent(verdict, format!("a part of {of} in the baseline, of nothing in the current run"));
        }
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
