//! The run second by second, in bounded memory.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Counter, Metric, Second, histogram};

/// At most this many points; with one more, each two become one. Not more: a point has a kilobyte, and a driver that grows for an hour until its series is
/// full looks like one that leaks.
pub const MAX_POINTS: usize = 900;

/// Metrics with quantiles in the series.
pub const KEY_METRICS: [Metric; 4] = [Metric::SessionStartup, Metric::TurnResponse, Metric::FrameRtt, Metric::ScheduleLag];

/// Points of equal width from the start of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Seconds that a point covers.
    pub width_s: u64,
    /// In order of time; seconds without any report have no point.
    pub points: Vec<Point>,
}

/// What happened in `width_s` seconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Start, seconds from the start of the run.
    pub at_s: u64,
    /// Some of it belongs to the warm-up.
    pub warmup: bool,
    /// Most sessions that were live at the end of a second of it.
    pub active: u64,
    /// Most users who spoke at the end of a second of it.
    pub speaking: u64,
    /// Counters by name, summed. Divide by `width_s` for rates.
    pub counts: BTreeMap<Cow<'static, str>, u64>,
    /// By metric name.
    pub latencies: BTreeMap<Cow<'static, str>, PointLatency>,
}

/// A metric within a point, response from the intended time, all scenarios.
///
/// Quantiles cannot be averaged. Where a point covers several seconds (or a late report), these are those of the worst.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PointLatency {
    /// Samples.
    pub count: u64,
    /// Highest median of a second, milliseconds.
    pub p50_ms: f64,
    /// Highest 99th percentile of a second, milliseconds.
    pub p99_ms: f64,
}

impl Default for Series {
    fn default() -> Self {
        Self { width_s: 1, points: Vec::new() }
    }
}

impl Series {
    /// Takes a second that closed.
    pub fn add(&mut self, second: &Second) {
        let point = Point::of(second);
        self.put(point);
        while self.points.len() > MAX_POINTS {
            self.width_s *= 2;
            for point in std::mem::take(&mut self.points) {
                self.put(point);
            }
        }
    }

    fn put(&mut self, mut point: Point) {
        point.at_s -= point.at_s % self.width_s;
        match self.points.binary_search_by_key(&point.at_s, |p| p.at_s) {
            Ok(at) => self.points[at].join(&point),
            Err(at) => self.points.insert(at, point),
        }
    }
}

impl Point {
    fn of(second: &Second) -> Self {
        let latencies = KEY_METRICS.into_iter().filter_map(|metric| {
            let (response, _) = second.latencies.get(&metric)?;
            let ms = |q| histogram::quantile(response, q).map(|us| us as f64 / 1_000.0);
            Some((metric.name().into(), PointLatency { count: response.len(), p50_ms: ms(0.5)?, p99_ms: ms(0.99)? }))
        });
        let counts = Counter::ALL.into_iter().map(|c| (c, second.counts[c as usize])).filter(|(_, n)| *n > 0);
        Self {
            at_s: second.at_s,
            warmup: second.warmup,
            active: second.active,
            speaking: second.speaking,
            counts: counts.map(|(c, n)| (c.name().into(), n)).collect(),
            latencies: latencies.collect(),
        }
    }

    fn join(&mut self, other: &Self) {
        self.warmup |= other.warmup;
        self.active = self.active.max(other.active);
        self.speaking = self.speaking.max(other.speaking);
        for (name, count) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
        for (name, latency) in &other.latencies {
            let mine = self.latencies.entry(name.clone()).or_default();
            mine.count += latency.count;
            mine.p50_ms = mine.p50_ms.max(latency.p50_ms);
            mine.p99_ms = mine.p99_ms.max(latency.p99_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at_s: u64, active: u64, lag_us: u64) -> Second {
        let mut second = Second { at_s, active, ..Second::default() };
        let mut lag = histogram::empty();
        histogram::record(&mut lag, lag_us);
        second.latencies.insert(Metric::ScheduleLag, (lag, histogram::empty()));
        second.counts[Counter::Turns as usize] = 1;
        second
    }

    /// k6 763: memory is bounded however long the run.
    #[test]
    fn doubles_its_width_rather_than_its_length() {
        let mut series = Series::default();
        for at in 0..10_000 {
            series.add(&second(at, at, 1_000));
        }
        assert_eq!(series.width_s, 16);
        assert_eq!(series.points.len(), 625);
        assert_eq!(series.points.iter().map(|p| p.counts["turns"]).sum::<u64>(), 10_000, "nothing is lost");
        assert_eq!(series.points.last().unwrap().active, 9_999);
        assert!(series.points.windows(2).all(|pair| pair[0].at_s + 16 == pair[1].at_s));
    }

    /// artillery 898: quantiles are never averaged.
    #[test]
    fn a_wide_point_shows_its_worst_second() {
        let mut series = Series { width_s: 2, points: Vec::new() };
        series.add(&second(0, 5, 1_000));
        series.add(&second(1, 3, 9));
        let lag = series.points[0].latencies["schedule_lag"];
        assert_eq!((lag.count, lag.p99_ms, series.points[0].active), (2, 1.0, 5));
    }

    #[test]
    fn late_seconds_find_their_place() {
        let mut series = Series::default();
        for at in [5, 2, 5] {
            series.add(&second(at, 1, 1));
        }
        assert_eq!(series.points.iter().map(|p| (p.at_s, p.counts["turns"])).collect::<Vec<_>>(), [(2, 1), (5, 2)]);
    }
}
