use proptest::prelude::*;
use proto::time::Micros;

use super::*;
use crate::record::{Sample, ShardRecorder};

const START: u64 = 1_700_000_000_000_000;

fn labels(n: usize) -> Vec<ScenarioLabel> {
    (0..n)
        .map(|n| ScenarioLabel { name: format!("s{n}"), protocol: Protocol::Grpc, dialect: crate::plan::Dialect::Native, expect: None })
        .collect()
}

fn report(shard: usize, second: u64, scenarios: Vec<ScenarioInterval>) -> IntervalReport {
    let from_us = START + second * 1_000_000;
    IntervalReport { shard, from_us, to_us: from_us + 1_000_000, active: 10, speaking: 3, tasks: 0, warmup: false, scenarios }
}

fn taken(metric: Metric, values: &[u64]) -> Vec<ScenarioInterval> {
    let mut recorder = ShardRecorder::new(1);
    for value in values {
        recorder.record(0, &Sample { metric, intended: Micros(0), actual: Micros(value / 2), to: Micros(*value) });
    }
    recorder.count(0, Counter::Turns, values.len() as u64);
    recorder.take()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// artillery 898, k6-operator 413/392: workers' percentiles were averaged. Here N workers' histogram is the one recorder's.
    #[test]
    fn n_recorders_merge_into_what_one_recorder_took(
        samples in prop::collection::vec((0..4usize, 0..3u16, 0..5u64, 0..2 * histogram::LIMIT_US, 0..1_000_000u64), 0..150)
    ) {
        let mut one = ShardRecorder::new(3);
        let mut many: Vec<ShardRecorder> = (0..4).map(|_| ShardRecorder::new(3)).collect();
        let mut single = Registry::new(START, labels(3));
        let mut merged = Registry::new(START, labels(3));
        for second in 0..5 {
            for (worker, scenario, at, value, wait) in samples.iter().filter(|s| s.2 == second) {
                let intended = Micros(at * 1_000_000);
                let sample = Sample {
                    metric: Metric::ALL[(value % 3) as usize], intended, actual: Micros(intended.0 + wait), to: Micros(intended.0 + value),
                };
                one.record(*scenario, &sample);
                many[*worker].record(*scenario, &sample);
            }
            single.add(report(0, second, one.take()));
            for (worker, recorder) in many.iter_mut().enumerate() {
                merged.add(report(worker, second, recorder.take()));
            }
        }
        for metric in Metric::ALL.into_iter().take(3) {
            for scenario in 0..3 {
                prop_assert_eq!(single.latency(metric, |n| n == scenario), merged.latency(metric, |n| n == scenario));
            }
            let (a, b) = (single.latency(metric, |_| true), merged.latency(metric, |_| true));
            if let (Some(a), Some(b)) = (&a, &b) {
                for q in [0.0, 0.5, 0.9, 0.99, 1.0] {
                    prop_assert_eq!(histogram::quantile(&a.0, q), histogram::quantile(&b.0, q));
                }
                prop_assert_eq!((a.0.min(), a.0.max()), (b.0.min(), b.0.max()));
            }
            prop_assert_eq!(a, b);
        }
        prop_assert_eq!(single.clamped(|_| true), merged.clamped(|_| true));
    }

    /// What the closed seconds hold, added up, is what the totals hold: the interval log and the summary tell the same story.
    #[test]
    fn seconds_add_up_to_the_totals(order in prop::collection::vec((0..8u64, 1..100_000u64), 1..60)) {
        let mut registry = Registry::new(START, labels(1));
        let mut seconds = Vec::new();
        for (second, value) in &order {
            seconds.extend(registry.add(report(0, *second, taken(Metric::TurnResponse, &[*value]))));
        }
        seconds.extend(registry.finish());
        let mut sum = histogram::empty();
        for second in &seconds {
            histogram::merge(&mut sum, &second.latencies[&Metric::TurnResponse].0);
        }
        prop_assert_eq!(Some(sum), registry.latency(Metric::TurnResponse, |_| true).map(|pair| pair.0));
    }
}

#[test]
fn warm_up_is_shown_and_not_counted() {
    let mut registry = Registry::new(START, labels(1));
    registry.add(IntervalReport { warmup: true, ..report(0, 0, taken(Metric::Connect, &[900, 900])) });
    registry.add(report(0, 1, taken(Metric::Connect, &[100])));
    registry.finish();
    let (response, service) = registry.latency(Metric::Connect, |_| true).unwrap();
    assert_eq!((response.len(), response.max(), service.max()), (1, 100, 50));
    assert_eq!(registry.counter(Counter::Turns, |_| true), 1);
    assert_eq!(registry.warmup_samples(), 2);
    assert_eq!(registry.measured(), Duration::from_secs(1));
    let points = &registry.series().points;
    assert_eq!((points[0].warmup, points[0].counts["turns"], points[1].warmup), (true, 2, false));
}

/// wrk2 138/90/117, k6 6195: a run of nothing is clean.
#[test]
fn a_run_of_nothing_has_no_figures_and_no_panic() {
    let mut registry = Registry::new(START, labels(2));
    assert!(registry.finish().is_empty());
    assert!(registry.latency(Metric::Connect, |_| true).is_none());
    assert_eq!((registry.measured(), registry.gauges(), registry.peaks()), (Duration::ZERO, (0, 0), (0, 0)));
    let json = serde_json::to_string(registry.series()).unwrap();
    assert_eq!(json, r#"{"width_s":1,"points":[]}"#);
}

#[test]
fn gauges_add_up_over_shards_and_a_late_shard_makes_no_dip() {
    let mut registry = Registry::new(START, labels(1));
    let mut closed = Vec::new();
    for second in 0..6 {
        closed.extend(registry.add(report(0, second, Vec::new())));
        if second != 3 {
            closed.extend(registry.add(report(1, second, Vec::new())));
        }
    }
    assert!(closed[1..].iter().all(|s| (s.active, s.speaking) == (20, 6)), "{closed:?}");
    registry.shard_gone(1);
    assert_eq!((registry.gauges(), registry.peaks()), ((10, 3), (20, 6)));
}

/// Seconds close later than they are: each has the sessions of its own time, to the last, and the peak is theirs.
#[test]
fn a_second_shows_the_sessions_of_its_own_time() {
    let mut registry = Registry::new(START, labels(1));
    let level = [5, 40, 30, 20, 10];
    let mut closed = Vec::new();
    for (second, active) in (0..).zip(level) {
        for shard in 0..2 {
            closed.extend(registry.add(IntervalReport { active, speaking: active / 5, ..report(shard, second, Vec::new()) }));
        }
    }
    registry.shard_gone(0);
    registry.shard_gone(1);
    closed.extend(registry.finish());
    assert_eq!(closed.iter().map(|s| s.active).collect::<Vec<_>>(), level.map(|n| 2 * n));
    assert_eq!(closed.iter().map(|s| s.speaking).collect::<Vec<_>>(), level.map(|n| 2 * (n / 5)));
    assert_eq!((registry.peaks(), registry.gauges()), ((80, 16), (0, 0)));
}

/// A killed worker said that it had sessions, and will never say that it has none.
#[test]
fn sessions_of_a_shard_that_is_gone_do_not_stay() {
    let mut registry = Registry::new(START, labels(1));
    let mut closed = Vec::new();
    for second in 0..8 {
        closed.extend(registry.add(report(0, second, Vec::new())));
        if second < 3 {
            closed.extend(registry.add(report(1, second, Vec::new())));
        }
        if second == 2 {
            registry.shard_gone(1);
        }
    }
    closed.extend(registry.finish());
    assert_eq!(closed.iter().map(|s| s.active).collect::<Vec<_>>(), [20, 20, 20, 10, 10, 10, 10, 10]);
}

#[test]
fn jitter_of_the_shard_clock_keeps_one_report_a_second() {
    let mut registry = Registry::new(START, labels(1));
    for second in 0..10u64 {
        let jitter = if second % 2 == 0 { 40_000 } else { 0 };
        let from_us = START + second * 1_000_000 + jitter;
        registry.add(IntervalReport { from_us, to_us: from_us + 1_000_000, ..report(0, 0, taken(Metric::Connect, &[1])) });
    }
    registry.finish();
    assert_eq!(registry.series().points.len(), 10);
}

#[test]
fn a_window_sees_only_its_own_time() {
    let mut registry = Registry::new(START, labels(1));
    registry.keep_recent(Duration::from_secs(3), [Metric::TurnResponse]);
    for second in 0..50 {
        let mut scenarios = taken(Metric::TurnResponse, &[second * 1_000]);
        scenarios.extend(taken(Metric::Connect, &[1]));
        registry.add(report(0, second, scenarios));
    }
    let window = Duration::from_secs(2);
    let (response, _) = registry.recent_latency(window, Metric::TurnResponse, |_| true).unwrap();
    assert_eq!((response.len(), response.min() / 1_000), (2, 48));
    assert!(registry.recent_latency(window, Metric::Connect, |_| true).is_none(), "not asked for");
    assert_eq!(registry.recent_counter(window, Counter::Turns, |_| true), 4);
    assert!(registry.recent.intervals.len() <= 2 * 3, "bounded by the window");
}
