//! Merges what the shards of all processes took.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use hdrhistogram::Histogram;

use super::{Counter, Metric, Series, histogram};
use crate::{
    engine::{IntervalReport, ScenarioInterval},
    plan::{Dialect, Expect, Protocol, ScenarioPlan},
};

/// A second closes when a report of this many seconds later has come: shards and workers are never that far apart unless they stall.
const GRACE_S: u64 = 2;

/// Response and service times of one metric.
pub type Pair = (Histogram<u64>, Histogram<u64>);

/// What a scenario is called in reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioLabel {
    /// From the profile.
    pub name: String,
    /// Transport.
    pub protocol: Protocol,
    /// What is spoken over it.
    pub dialect: Dialect,
    /// What it is for, where it is meant to show what would be wrong elsewhere.
    pub expect: Option<Expect>,
}

impl From<&ScenarioPlan> for ScenarioLabel {
    fn from(plan: &ScenarioPlan) -> Self {
        Self { name: plan.name.clone(), protocol: plan.protocol, dialect: plan.service.dialect, expect: plan.expect }
    }
}

/// One second of all shards and scenarios together.
#[derive(Debug, Clone, Default)]
pub struct Second {
    /// Seconds from the start of the run.
    pub at_s: u64,
    /// Unix microseconds: from the earliest shard's beginning.
    pub from_us: u64,
    /// Unix microseconds: to the latest shard's end.
    pub to_us: u64,
    /// Part of the warm-up: shown, not counted.
    pub warmup: bool,
    /// Live sessions at the end.
    pub active: u64,
    /// Of those, users who speak.
    pub speaking: u64,
    /// Only metrics with samples.
    pub latencies: BTreeMap<Metric, Pair>,
    /// Response times by scenario, in runs with several; without the driver's own error.
    pub by_scenario: BTreeMap<(Metric, u16), Histogram<u64>>,
    /// In the order of [`Counter::ALL`].
    pub counts: [u64; Counter::ALL.len()],
}

/// Totals per scenario and metric, and the series. Memory depends on scenarios and metrics, not on samples or the length of the run.
#[derive(Debug)]
pub struct Registry {
    start_us: u64,
    labels: Vec<ScenarioLabel>,
    totals: Vec<Totals>,
    series: Series,
    open: BTreeMap<u64, Second>,
    /// What shards said of their gauges in the open seconds.
    said: BTreeMap<u64, Gauges>,
    /// What they had said when the last second closed.
    last_said: Gauges,
    gone: BTreeSet<usize>,
    newest_s: u64,
    gauges: Gauges,
    peaks: (u64, u64),
    measured: Option<(u64, u64)>,
    /// By the segments of the run before this one.
    measured_before: Duration,
    warmup_samples: u64,
    recent: Recent,
}

/// Live sessions and speaking users by shard.
type Gauges = BTreeMap<usize, (u64, u64)>;

#[derive(Debug, Default)]
struct Totals {
    latencies: BTreeMap<Metric, Pair>,
    counts: [u64; Counter::ALL.len()],
    clamped: u64,
}

/// Intervals of the near past, for thresholds with a window.
#[derive(Debug, Default)]
struct Recent {
    window_us: u64,
    metrics: BTreeSet<Metric>,
    newest_us: u64,
    intervals: VecDeque<(u64, ScenarioInterval)>,
}

impl Registry {
    /// For a run that starts at a unix time, with these scenarios in the order of the plan.
    pub fn new(start_us: u64, labels: Vec<ScenarioLabel>) -> Self {
        Self {
            start_us,
            totals: labels.iter().map(|_| Totals::default()).collect(),
            labels,
            series: Series::default(),
            open: BTreeMap::new(),
            said: BTreeMap::new(),
            last_said: Gauges::new(),
            gone: BTreeSet::new(),
            newest_s: 0,
            gauges: Gauges::new(),
            peaks: (0, 0),
            measured: None,
            measured_before: Duration::ZERO,
            warmup_samples: 0,
            recent: Recent::default(),
        }
    }

    /// Keeps the last `window` of these metrics, and of all counters, for thresholds with a window. Memory grows with the window.
    pub fn keep_recent(&mut self, window: Duration, metrics: impl IntoIterator<Item = Metric>) {
        self.recent.window_us = self.recent.window_us.max(window.as_micros() as u64);
        self.recent.metrics.extend(metrics);
    }

    /// Takes one second of one shard; shard numbers are unique over all workers. Returns the seconds that closed by it, oldest first. A
    /// report for a second that has closed opens it again: every sample is in exactly one of the returned seconds.
    pub fn add(&mut self, report: IntervalReport) -> Vec<Second> {
        let middle = report.from_us / 2 + report.to_us / 2;
        let at_s = middle.saturating_sub(self.start_us) / 1_000_000;
        self.gauges.insert(report.shard, (report.active, report.speaking));
        self.said.entry(at_s).or_default().insert(report.shard, (report.active, report.speaking));
        let second = self.open.entry(at_s).or_insert_with(|| Second { at_s, from_us: report.from_us, ..Second::default() });
        second.from_us = second.from_us.min(report.from_us);
        second.to_us = second.to_us.max(report.to_us);
        second.warmup |= report.warmup;
        if !report.warmup {
            let (from, to) = self.measured.unwrap_or((report.from_us, report.to_us));
            self.measured = Some((from.min(report.from_us), to.max(report.to_us)));
        }
        for interval in &report.scenarios {
            second.add(interval, self.labels.len() > 1);
        }
        for interval in report.scenarios {
            if report.warmup {
                self.warmup_samples += interval.latencies.iter().map(|(_, response, _)| response.len()).sum::<u64>();
            } else {
                self.count(report.to_us, interval);
            }
        }
        self.newest_s = self.newest_s.max(at_s);
        self.close_until(self.newest_s.saturating_sub(GRACE_S))
    }

    fn count(&mut self, to_us: u64, interval: ScenarioInterval) {
        let scenario = usize::from(interval.scenario);
        if scenario >= self.totals.len() {
            // Not of this plan; keep what was measured all the same.
            self.totals.resize_with(scenario + 1, Totals::default);
        }
        let totals = &mut self.totals[scenario];
        totals.clamped += interval.clamped;
        for (metric, response, service) in &interval.latencies {
            merge_pair(&mut totals.latencies, *metric, response, service);
        }
        for (counter, by) in &interval.counts {
            totals.counts[*counter as usize] += by;
        }
        self.recent.keep(to_us, interval);
    }

    fn close_until(&mut self, end_s: u64) -> Vec<Second> {
        let later = self.open.split_off(&end_s);
        let mut closed: Vec<Second> = std::mem::replace(&mut self.open, later).into_values().collect();
        for second in &mut closed {
            let said = self.said.remove(&second.at_s).unwrap_or_default();
            // What each said in this second, not what it has said since; one whose report is late must not look like a dip.
            self.last_said.retain(|shard, _| !self.gone.contains(shard));
            self.last_said.extend(said);
            (second.active, second.speaking) = sum(&self.last_said);
            self.peaks = (self.peaks.0.max(second.active), self.peaks.1.max(second.speaking));
            self.series.add(second);
        }
        closed
    }

    /// A shard is gone and will report no more: its sessions no longer count as active.
    pub fn shard_gone(&mut self, shard: usize) {
        self.gauges.remove(&shard);
        self.gone.insert(shard);
    }

    /// Closes what is open, at the end of the run.
    pub fn finish(&mut self) -> Vec<Second> {
        self.close_until(u64::MAX)
    }

    /// What scenarios are called.
    pub fn labels(&self) -> &[ScenarioLabel] {
        &self.labels
    }

    /// The run second by second.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Live sessions and speaking users now.
    pub fn gauges(&self) -> (u64, u64) {
        sum(&self.gauges)
    }

    /// Most live sessions and speaking users seen at once, warm-up included.
    pub fn peaks(&self) -> (u64, u64) {
        self.peaks
    }

    /// Length of the measured part so far: after the warm-up.
    pub fn measured(&self) -> Duration {
        self.measured_before + self.measured.map_or(Duration::ZERO, |(from, to)| Duration::from_micros(to.saturating_sub(from)))
    }

    /// Samples that the warm-up kept out of the totals.
    pub fn warmup_samples(&self) -> u64 {
        self.warmup_samples
    }

    /// Response and service times of the scenarios that `of` accepts; none without samples.
    pub fn latency(&self, metric: Metric, of: impl Fn(usize) -> bool) -> Option<Pair> {
        let mut sum: Option<Pair> = None;
        for (_, totals) in self.totals.iter().enumerate().filter(|(number, _)| of(*number)) {
            if let Some((response, service)) = totals.latencies.get(&metric) {
                add_pair(sum.get_or_insert_with(empty_pair), response, service);
            }
        }
        sum
    }

    /// Sum of a counter over the scenarios that `of` accepts.
    pub fn counter(&self, counter: Counter, of: impl Fn(usize) -> bool) -> u64 {
        self.totals.iter().enumerate().filter(|(number, _)| of(*number)).map(|(_, totals)| totals.counts[counter as usize]).sum()
    }

    /// Samples beyond the range of the histograms, in the scenarios that `of` accepts.
    pub fn clamped(&self, of: impl Fn(usize) -> bool) -> u64 {
        self.totals.iter().enumerate().filter(|(number, _)| of(*number)).map(|(_, totals)| totals.clamped).sum()
    }

    /// As [`Self::latency`], within the last `window`. Only what [`Self::keep_recent`] asked for is there.
    pub fn recent_latency(&self, window: Duration, metric: Metric, of: impl Fn(usize) -> bool) -> Option<Pair> {
        let mut sum: Option<Pair> = None;
        for interval in self.recent.within(window).filter(|i| of(usize::from(i.scenario))) {
            for (_, response, service) in interval.latencies.iter().filter(|(m, _, _)| *m == metric) {
                add_pair(sum.get_or_insert_with(empty_pair), response, service);
            }
        }
        sum
    }

    /// As [`Self::counter`], within the last `window`.
    pub fn recent_counter(&self, window: Duration, counter: Counter, of: impl Fn(usize) -> bool) -> u64 {
        let intervals = self.recent.within(window).filter(|i| of(usize::from(i.scenario)));
        intervals.flat_map(|i| &i.counts).filter(|(c, _)| *c == counter).map(|(_, n)| n).sum()
    }
}

impl Second {
    fn add(&mut self, interval: &ScenarioInterval, several: bool) {
        for (metric, response, service) in &interval.latencies {
            merge_pair(&mut self.latencies, *metric, response, service);
            if several && *metric != Metric::ScheduleLag {
                let mine = self.by_scenario.entry((*metric, interval.scenario)).or_insert_with(histogram::empty);
                histogram::merge(mine, response);
            }
        }
        for (counter, by) in &interval.counts {
            self.counts[*counter as usize] += by;
        }
    }
}

impl Recent {
    fn keep(&mut self, to_us: u64, mut interval: ScenarioInterval) {
        if self.window_us == 0 {
            return;
        }
        interval.latencies.retain(|(metric, _, _)| self.metrics.contains(metric));
        self.intervals.push_back((to_us, interval));
        self.newest_us = self.newest_us.max(to_us);
        while self.intervals.front().is_some_and(|(at, _)| at + self.window_us <= self.newest_us) {
            self.intervals.pop_front();
        }
    }

    fn within(&self, window: Duration) -> impl Iterator<Item = &ScenarioInterval> {
        let oldest = self.newest_us.saturating_sub(window.as_micros() as u64);
        self.intervals.iter().filter(move |(at, _)| *at > oldest).map(|(_, interval)| interval)
    }
}

fn sum(gauges: &Gauges) -> (u64, u64) {
    gauges.values().fold((0, 0), |sum, gauge| (sum.0 + gauge.0, sum.1 + gauge.1))
}

fn empty_pair() -> Pair {
    (histogram::empty(), histogram::empty())
}

fn add_pair(into: &mut Pair, response: &Histogram<u64>, service: &Histogram<u64>) {
    histogram::merge(&mut into.0, response);
    histogram::merge(&mut into.1, service);
}

fn merge_pair(into: &mut BTreeMap<Metric, Pair>, metric: Metric, response: &Histogram<u64>, service: &Histogram<u64>) {
    add_pair(into.entry(metric).or_insert_with(empty_pair), response, service);
}

#[path = "registry_state.rs"]
mod state;

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
