use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::*;
use crate::{
    ledger::{DriftSum, Funnel},
    record::{Counter, histogram},
    threshold::{Basis, Filter, Gauge, Spec, Unit},
};

/// Figures by hand: per second one list of response times, ms.
#[derive(Default)]
struct Fake {
    seconds: Vec<Vec<u64>>,
    counts: BTreeMap<Counter, u64>,
    funnel: Funnel,
    drift: Option<DriftSum>,
}

impl Source for Fake {
    fn latency(&self, _: Metric, basis: Basis, _: &Filter, window: Option<Duration>) -> Option<Histogram<u64>> {
        let skip = window.map_or(0, |w| self.seconds.len().saturating_sub(w.as_secs() as usize));
        let mut samples = histogram::empty();
        for ms in self.seconds[skip..].iter().flatten() {
            histogram::record(&mut samples, if basis == Basis::Service { ms * 100 } else { ms * 1_000 });
        }
        (!samples.is_empty()).then_some(samples)
    }

    fn counter(&self, counter: Counter, _: &Filter, _: Option<Duration>) -> u64 {
        self.counts.get(&counter).copied().unwrap_or(0)
    }

    fn sessions(&self, _: &Filter) -> Funnel {
        self.funnel
    }

    fn gauge(&self, _: Gauge) -> (u64, u64) {
        (3, 12)
    }

    fn drift(&self) -> Option<DriftSum> {
        self.drift
    }

    fn measured(&self) -> Duration {
        Duration::from_secs(self.seconds.len() as u64)
    }
}

fn threshold(key: &str, spec: &Spec) -> Threshold {
    Threshold::parse(key, spec, &["talk"]).unwrap_or_else(|e| panic!("{e}"))
}

fn judged(key: &str, expression: &str, source: &Fake) -> ThresholdResult {
    Monitor::new(vec![threshold(key, &Spec::short(expression))]).results(source).remove(0)
}

fn some_sessions() -> Funnel {
    Funnel { requested: 10, attempted: 10, established: 8, completed: 7, interrupted: 1, not_established: 2, ..Funnel::default() }
}

#[test]
fn figures_by_hand() {
    // 1..=100 ms: p95 is the 95th sample; below 2,048 us exact, above rounded up by less than 0.1 %.
    let source = Fake {
        seconds: vec![(1..=50).collect(), (51..=100).collect()],
        counts: BTreeMap::from([
            (Counter::Turns, 200),
            (Counter::TurnsMissed, 3),
            (Counter::ToolCalls, 9),
            (Counter::FramesReceived, 1_000),
            (Counter::StaleFrames, 0),
        ]),
        funnel: some_sessions(),
        drift: Some(DriftSum { looks: 40, ghost_seconds: 12.5, false_capacity_seconds: 0.0, most: 7 }),
    };
    for (key, expression, value, unit) in [
        ("ghost_seconds", "value<60", 12.5, Unit::SessionSeconds),
        ("false_capacity_seconds", "value==0", 0.0, Unit::SessionSeconds),
        ("drift_max", "value<=7", 7.0, Unit::Count),
        ("turn_response", "p(95)<96", 95.0, Unit::Ms),
        ("turn_response{basis:service}", "p(95)<9.6", 9.5, Unit::Ms),
        ("turn_response", "min<=1", 1.0, Unit::Ms),
        ("turn_response", "avg<51", 50.5, Unit::Ms),
        ("turn_response", "med<50.1", 50.0, Unit::Ms),
        ("turn_response", "count==100", 100.0, Unit::Count),
        ("turn_response", "rate==50", 50.0, Unit::PerSecond),
        ("turns_missed", "rate<0.016", 0.015, Unit::Fraction),
        ("tool_calls", "rate>4", 4.5, Unit::PerSecond),
        ("stale_frames", "count==0", 0.0, Unit::Count),
        ("established", "rate>=0.8", 0.8, Unit::Fraction),
        ("sessions_failed", "count<=2", 2.0, Unit::Count),
        ("sessions_completed", "rate>0.87", 0.875, Unit::Fraction),
        ("active", "max>=12", 12.0, Unit::Count),
        ("active", "value==3", 3.0, Unit::Count),
    ] {
        let result = judged(key, expression, &source);
        let got = result.value.unwrap();
        assert!((got - value).abs() <= value / 1_000.0, "{key}: {expression}: {got}");
        assert_eq!((result.status, result.ok, result.unit), (Status::Passed, true, unit), "{key}: {expression}");
    }
    for (key, expression) in
        [("turn_response", "p(95)<95"), ("turn_response", "max<100"), ("established", "rate>0.8"), ("turns_missed", "count==0")]
    {
        let result = judged(key, expression, &source);
        assert_eq!((result.status, result.ok), (Status::Failed, false), "{key}: {expression}");
    }
}

/// k6 1346/1053: a threshold without data passed.
#[test]
fn no_data_is_a_failure_unless_allowed() {
    let nothing = Fake::default();
    for (key, expression) in [
        ("turn_response", "p(95)<300"),
        ("turn_response", "count<10"),
        ("stale_frames", "count==0"),
        ("turns_missed", "rate<0.01"),
        ("server_errors", "count==0"),
        ("sessions_failed", "rate<0.01"),
        ("sessions_failed", "count==0"),
        ("active", "max<5"),
    ] {
        let result = judged(key, expression, &nothing);
        assert_eq!((result.status, result.ok, result.value), (Status::NoData, false, None), "{key}: {expression}");
        let allowed = Spec { allow_no_data: true, ..Spec::short(expression) };
        let result = Monitor::new(vec![threshold(key, &allowed)]).results(&nothing).remove(0);
        assert_eq!((result.status, result.ok), (Status::NoData, true), "{key}: {expression}");
    }
    // Sessions, but none with what the counter is a part of.
    let silent = Fake { funnel: some_sessions(), seconds: vec![vec![]], ..Fake::default() };
    assert_eq!(judged("stale_frames", "count==0", &silent).status, Status::NoData);
    assert_eq!(judged("server_errors", "count==0", &silent).status, Status::Passed);
}

#[test]
fn too_few_samples_are_no_data() {
    let spec = Spec { min_samples: 4, ..Spec::short("max<10") };
    let few = Fake { seconds: vec![vec![1, 2, 3]], ..Fake::default() };
    assert_eq!(Monitor::new(vec![threshold("connect", &spec)]).results(&few)[0].status, Status::NoData);
    let enough = Fake { seconds: vec![vec![1, 2, 3, 4]], ..Fake::default() };
    assert_eq!(Monitor::new(vec![threshold("connect", &spec)]).results(&enough)[0].status, Status::Passed);
}

#[test]
fn aborts_after_the_delay_and_remembers_why() {
    let spec = Spec { abort_on_fail: true, delay_abort_eval: Duration::from_secs(2), ..Spec::short("max<100") };
    let mut monitor = Monitor::new(vec![threshold("connect", &Spec::short("max<1")), threshold("connect", &spec)]);
    let mut source = Fake { seconds: vec![vec![900]], ..Fake::default() };
    assert!(monitor.tick(&source, true).is_none(), "within the delay; and the other one may not abort");
    source.seconds = vec![vec![5], vec![6]];
    assert!(monitor.tick(&source, true).is_none(), "it holds");
    source.seconds.push(vec![500]);
    let stop = monitor.tick(&source, true).unwrap();
    assert!(stop.aborted_run && stop.broken_at_s == Some(3.0) && !stop.ok);
    source.seconds = vec![vec![5]];
    let results = monitor.results(&source);
    assert_eq!(results[1].status, Status::Failed, "it stays broken");
    assert!(!results[0].aborted_run);
}

/// k6 1136: no windowed thresholds. A short stall in a long run is diluted; the window sees it.
#[test]
fn a_window_must_hold_everywhere() {
    let spec = Spec { window: Some(Duration::from_secs(2)), ..Spec::short("avg<100") };
    let mut monitor = Monitor::new(vec![threshold("connect", &spec)]);
    assert_eq!(monitor.windows(), Some((Duration::from_secs(2), vec![Metric::Connect])));
    let mut source = Fake::default();
    for second in 0..100 {
        source.seconds.push(vec![if second == 50 { 300 } else { 10 }]);
        assert!(monitor.tick(&source, true).is_none(), "it does not abort the run");
    }
    assert!(judged("connect", "avg<100", &source).ok, "over the whole run nothing is seen");
    let result = monitor.results(&source).remove(0);
    assert_eq!((result.status, result.broken_at_s, result.window_s), (Status::Failed, Some(51.0), Some(2.0)));
    assert!((result.value.unwrap() - 155.0).abs() < 0.2);
}

/// An agent that falls silent for good has no latencies that could break a threshold. The windows before must not speak for it.
#[test]
fn a_window_without_data_is_no_pass() {
    let silent_after = |seconds: usize, allow_no_data: bool| {
        let spec = Spec { window: Some(Duration::from_secs(2)), allow_no_data, ..Spec::short("max<100") };
        let mut monitor = Monitor::new(vec![threshold("connect", &spec)]);
        let mut source = Fake { seconds: vec![Vec::new(); 3], ..Fake::default() };
        monitor.tick(&source, true);
        for second in 3..12 {
            source.seconds.push(if second < seconds { vec![10] } else { Vec::new() });
            monitor.tick(&source, true);
        }
        monitor.results(&source).remove(0)
    };
    let silent = silent_after(8, false);
    assert_eq!((silent.status, silent.ok, silent.broken_at_s, silent.value), (Status::NoData, false, Some(10.0), None));
    assert!(silent_after(8, true).ok, "the profile allows it");
    assert!(silent_after(12, false).ok, "silence before the first data is a beginning");
}

#[test]
fn silence_after_the_last_session_began_is_an_end() {
    let spec = Spec { window: Some(Duration::from_secs(2)), ..Spec::short("max<100") };
    let mut monitor = Monitor::new(vec![threshold("connect", &spec)]);
    let mut source = Fake { seconds: vec![vec![10]; 3], ..Fake::default() };
    monitor.tick(&source, true);
    source.seconds.extend([Vec::new(), Vec::new(), Vec::new()]);
    monitor.tick(&source, false);
    assert!(monitor.results(&source)[0].ok);
}

#[test]
fn an_incomplete_window_is_not_judged() {
    let spec = Spec { window: Some(Duration::from_secs(5)), ..Spec::short("max<100") };
    let mut monitor = Monitor::new(vec![threshold("connect", &spec)]);
    let source = Fake { seconds: vec![vec![1_000]; 4], ..Fake::default() };
    monitor.tick(&source, true);
    assert_eq!(monitor.results(&source)[0].status, Status::NoData);

    // A run that goes on: what was measured before it is not in the window.
    let mut resumed = Monitor::new(vec![threshold("connect", &spec)]).from(Duration::from_secs(8));
    for (seconds, status) in [(12, Status::NoData), (13, Status::Failed)] {
        let source = Fake { seconds: vec![vec![1_000]; seconds], ..Fake::default() };
        resumed.tick(&source, true);
        assert_eq!(resumed.results(&source)[0].status, status, "{seconds} s");
    }
}

#[test]
fn windows_need_something_that_has_one() {
    for (key, expression, window) in
        [("active", "value<1", 5), ("leak_rss", "value<1", 5), ("connect", "count<1", 0), ("connect", "count<1", 601)]
    {
        let spec = Spec { window: Some(Duration::from_secs(window)), ..Spec::short(expression) };
        assert!(Threshold::parse(key, &spec, &["talk"]).is_err(), "{key} {window}");
    }
}

/// Three of a hundred sessions fail, all within two seconds.
#[test]
fn sessions_that_fail_together_break_a_window_and_not_the_whole() {
    let of = |window: u64, expression: &str| {
        let spec = Spec { window: Some(Duration::from_secs(window)), ..Spec::short(expression) };
        let mut monitor = Monitor::new(vec![threshold("sessions_failed", &spec)]);
        let mut source = Fake::default();
        for second in 1..=100 {
            source.seconds.push(Vec::new());
            let failed = if second < 40 { 0 } else { (second - 38_u64).min(3) };
            source.funnel = Funnel { requested: second, attempted: second, failed, ..Funnel::default() };
            monitor.tick(&source, true);
        }
        monitor.results(&source).remove(0)
    };
    let broken = of(10, "rate<0.2");
    assert_eq!((broken.status, broken.broken_at_s, broken.value, broken.samples), (Status::Failed, Some(40.0), Some(0.2), 10));
    assert_eq!(of(10, "rate<0.4").status, Status::Passed);
    assert_eq!((of(10, "count<3").broken_at_s, of(1, "count<3").status), (Some(41.0), Status::Passed));
    assert_eq!(of(50, "rate<0.2").status, Status::Passed);
}

#[test]
fn counts_that_nobody_looked_at_are_no_data() {
    for drift in [None, Some(DriftSum::default())] {
        let source = Fake { funnel: some_sessions(), drift, ..Fake::default() };
        assert_eq!(judged("drift_max", "value==0", &source).status, Status::NoData);
    }
}
