//! Judges a threshold by the figures of a run.

use std::time::Duration;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Aggregate, Basis, Drift, Filter, Gauge, Measure, Sessions, Threshold};
use crate::{
    leak::Leak,
    ledger::{DriftSum, Funnel},
    record::{Counter, Metric, histogram},
};

/// Where figures come from. Without a window: the measured part of the run so far, the warm-up excluded.
pub trait Source {
    /// Samples; none when there are none.
    fn latency(&self, metric: Metric, basis: Basis, filter: &Filter, window: Option<Duration>) -> Option<Histogram<u64>>;
    /// Events.
    fn counter(&self, counter: Counter, filter: &Filter, window: Option<Duration>) -> u64;
    /// Sessions of the whole run.
    fn sessions(&self, filter: &Filter) -> Funnel;
    /// Now, and the peak.
    fn gauge(&self, gauge: Gauge) -> (u64, u64);
    /// The lower bound of the growth an hour of the process that grows most, and the fewest blocks that such a bound rests on.
    fn leak(&self, _: Leak) -> Option<(f64, u64)> {
        None
    }
    /// How far the backends' counts were off; none where nobody reads them.
    fn drift(&self) -> Option<DriftSum> {
        None
    }
    /// Length of the measured part.
    fn measured(&self) -> Duration;
}

/// What became of a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Kept.
    Passed,
    /// Broken.
    Failed,
    /// Nothing (or too little) was measured: a failure unless the profile allows it.
    NoData,
}

/// Of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// A number.
    Count,
    /// A share, 0 to 1.
    Fraction,
    /// Events a second of the measured part.
    PerSecond,
    /// An hour.
    PerHour,
    /// MiB an hour.
    MibPerHour,
    /// Sessions times seconds.
    SessionSeconds,
}

/// One threshold and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThresholdResult {
    /// Such as `turn_response{scenario:talk}`.
    pub key: String,
    /// Such as `p(95)<300`.
    pub expression: String,
    /// Judgement.
    pub status: Status,
    /// The run may pass: kept, or no data where that is allowed.
    pub ok: bool,
    /// The figure; of a broken window, that window's. None without data.
    pub value: Option<f64>,
    /// What it was compared with.
    pub limit: f64,
    /// Of both.
    pub unit: Unit,
    /// What the figure rests on: samples, or events that could have counted.
    pub samples: u64,
    /// Judged in every span of this length instead of the whole.
    pub window_s: Option<f64>,
    /// Seconds of the measured part after which a window was first broken.
    pub broken_at_s: Option<f64>,
    /// It ended the run.
    pub aborted_run: bool,
}

/// A figure and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figure {
    pub(super) value: f64,
    pub(super) samples: u64,
}

/// So many of so many sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    count: u64,
    of: u64,
}

/// What a counter is a part of: its rate is the share of this, and without any of this there is no data. A counter without such a whole has
/// a rate per second.
pub fn whole_of(counter: Counter) -> Option<Counter> {
    match counter {
        Counter::TurnsAnswered | Counter::TurnsMissed | Counter::TurnsInterrupted | Counter::TurnsUnspoken => Some(Counter::Turns),
        Counter::BargeInsMissed => Some(Counter::BargeInsJudged),
        Counter::BargeInsJudged => Some(Counter::BargeIns),
        Counter::SequenceGaps => Some(Counter::AudioNumbered),
        Counter::StaleFrames | Counter::Underruns => Some(Counter::FramesReceived),
        Counter::ResponsesSpurious | Counter::BargeInsFalse => Some(Counter::Responses),
        Counter::SendDrops => Some(Counter::FramesSent),
        Counter::TalkOverUs => Some(Counter::SpeechUs),
        // The real-time factor.
        Counter::PacedMediaUs => Some(Counter::PacedWallUs),
        Counter::FramesSent
        | Counter::FramesReceived
        | Counter::AudioNumbered
        | Counter::Turns
        | Counter::Responses
        | Counter::BargeIns
        | Counter::ToolCalls
        | Counter::UnderrunUs
        | Counter::ServerErrors
        | Counter::SpeechUs
        | Counter::PacedWallUs
        | Counter::GoingAways
        | Counter::SessionsResumed
        | Counter::SessionsCutShort => None,
    }
}

impl Threshold {
    /// Unit of its figure.
    pub fn unit(&self) -> Unit {
        match (self.key.measure, self.expression.aggregate) {
            (Measure::Leak(Leak::Rss), _) => Unit::MibPerHour,
            (Measure::Leak(_), _) => Unit::PerHour,
            (Measure::Drift(Drift::GhostSeconds | Drift::FalseCapacitySeconds), _) => Unit::SessionSeconds,
            (Measure::Gauge(_) | Measure::Drift(Drift::Most), _) | (_, Aggregate::Count) => Unit::Count,
            (Measure::Latency(..), Aggregate::Rate) => Unit::PerSecond,
            (Measure::Latency(..), _) => Unit::Ms,
            (Measure::Counter(counter), _) if whole_of(counter).is_none() => Unit::PerSecond,
            (Measure::Counter(_) | Measure::Sessions(_), _) => Unit::Fraction,
        }
    }

    /// The figure, or none without data. `before`: of sessions, those that are before the window.
    pub(super) fn figure(&self, source: &impl Source, window: Option<Duration>, before: Share) -> Option<Figure> {
        let figure = match self.key.measure {
            Measure::Latency(metric, basis) => self.latency(source, metric, basis, window),
            Measure::Counter(counter) => self.counter(source, counter, window),
            Measure::Sessions(sessions) => self.sessions(source, sessions, before),
            Measure::Gauge(gauge) => Some(self.gauge(source, gauge)),
            Measure::Leak(leak) => source.leak(leak).map(|(value, samples)| Figure { value, samples }),
            Measure::Drift(drift) => source.drift().map(|sum| Figure { value: drift_of(drift, sum), samples: sum.looks }),
        }?;
        (figure.samples >= self.spec.min_samples.max(1) && figure.value.is_finite()).then_some(figure)
    }

    fn latency(&self, source: &impl Source, metric: Metric, basis: Basis, window: Option<Duration>) -> Option<Figure> {
        let samples = source.latency(metric, basis, &self.key.filter, window)?;
        let ms = |us: u64| us as f64 / 1_000.0;
        let quantile = |q| histogram::quantile(&samples, q).map(ms);
        let value = match self.expression.aggregate {
            Aggregate::Avg => histogram::mean(&samples).map(|us| us / 1_000.0),
            Aggregate::Min => histogram::min(&samples).map(ms),
            Aggregate::Med => quantile(0.5),
            Aggregate::Max => histogram::max(&samples).map(ms),
            Aggregate::Percentile(percentile) => quantile(percentile / 100.0),
            Aggregate::Count => Some(samples.len() as f64),
            Aggregate::Rate => per_second(samples.len(), window.unwrap_or_else(|| source.measured())),
            Aggregate::Value => None,
        }?;
        Some(Figure { value, samples: samples.len() })
    }

    fn counter(&self, source: &impl Source, counter: Counter, window: Option<Duration>) -> Option<Figure> {
        let filter = &self.key.filter;
        let count = source.counter(counter, filter, window);
        // `count==0` where nothing could have been counted proves nothing.
        let samples = match whole_of(counter) {
            Some(whole) => source.counter(whole, filter, window).max(count),
            None => source.sessions(filter).attempted,
        };
        let value = match (self.expression.aggregate, whole_of(counter)) {
            (Aggregate::Count, _) => Some(count as f64),
            (_, Some(_)) => share(count, samples),
            (_, None) => per_second(count, window.unwrap_or_else(|| source.measured())),
        }?;
        Some(Figure { value, samples })
    }

    /// Sessions up to now, if it is about sessions.
    pub(super) fn sessions_by_now(&self, source: &impl Source) -> Option<Share> {
        match self.key.measure {
            Measure::Sessions(sessions) => Some(self.share_of(source, sessions)),
            _ => None,
        }
    }

    fn share_of(&self, source: &impl Source, sessions: Sessions) -> Share {
        let funnel = source.sessions(&self.key.filter);
        let (count, of) = match sessions {
            Sessions::Attempted => (funnel.attempted, funnel.requested),
            Sessions::Established => (funnel.established, funnel.requested),
            Sessions::Failed => (funnel.sessions_failed(), funnel.requested),
            Sessions::Completed => (funnel.completed, funnel.established),
            Sessions::Interrupted => (funnel.interrupted, funnel.established),
        };
        Share { count, of }
    }

    fn sessions(&self, source: &impl Source, sessions: Sessions, before: Share) -> Option<Figure> {
        let now = self.share_of(source, sessions);
        let count = now.count.saturating_sub(before.count);
        // Those that end in a window may have begun before it.
        let of = now.of.saturating_sub(before.of).max(count);
        let value = if self.expression.aggregate == Aggregate::Count { Some(count as f64) } else { share(count, of) }?;
        Some(Figure { value, samples: of })
    }

    fn gauge(&self, source: &impl Source, gauge: Gauge) -> Figure {
        let (now, peak) = source.gauge(gauge);
        let value = if self.expression.aggregate == Aggregate::Max { peak } else { now };
        Figure { value: value as f64, samples: source.sessions(&self.key.filter).attempted }
    }
}

fn drift_of(drift: Drift, sum: DriftSum) -> f64 {
    match drift {
        Drift::GhostSeconds => sum.ghost_seconds,
        Drift::FalseCapacitySeconds => sum.false_capacity_seconds,
        Drift::Most => sum.most as f64,
    }
}

fn share(count: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| count as f64 / of as f64)
}

fn per_second(count: u64, time: Duration) -> Option<f64> {
    (!time.is_zero()).then(|| count as f64 / time.as_secs_f64())
}
