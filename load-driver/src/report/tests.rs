mod files;
mod live;
mod verdicts;

use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;
use proto::{frame::Outcome, ids::PlanIndex, time::Micros};

use super::{
    build::{Known, summary},
    summary::{ConvergenceRow, CountersSection, CountersStatus, FaultRow, FindingRow, ProcessCost},
    *,
};
use crate::{
    compare,
    engine::IntervalReport,
    ledger::{FailureCause, Finish, Funnels, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId},
    plan::{Dialect, EndKind, Expect, FaultName, Protocol},
    record::{Counter, Measurements, Metric, Registry, Sample, ScenarioLabel, ShardRecorder},
    system::{ProcessTrack, SaturationLimits},
    threshold::{Monitor, Spec, Threshold},
};

const START: u64 = 1_700_000_000_000_000;
const LIMITS: SaturationLimits = SaturationLimits { lag_p99_ms: 10.0, cores: 2.0 };

fn labels() -> Vec<ScenarioLabel> {
    [("talk", Protocol::Grpc, Dialect::Native), ("listen", Protocol::Websocket, Dialect::Twilio)]
        .map(|(name, protocol, dialect)| ScenarioLabel { name: name.into(), protocol, dialect, expect: None })
        .into()
}

fn run_info() -> RunInfo {
    RunInfo {
        run_id: "0badcafe".into(),
        seed: 7,
        profile: "profiles/quickstart.yaml".into(),
        version: "0.1.0".into(),
        targets: vec!["embedded".into()],
        started_at_us: START,
        planned_s: 30.0,
        graceful_stop_s: 30.0,
        warmup_s: 5.0,
        scenarios: vec!["talk".into(), "listen".into()],
        injected: vec!["fault vad_drop".into()],
    }
}

fn session(ledger: &mut Ledger, index: u64, scenario: u16, end: Option<LedgerEvent>) {
    let protocol = if scenario == 0 { Protocol::Grpc } else { Protocol::Websocket };
    let accepted = LedgerEvent::Accepted { session_id: format!("s{index}"), backend_id: "b".into(), boot_id: "x".into() };
    let mut events = vec![
        LedgerEvent::Scheduled { scenario, protocol, end: EndKind::Graceful, client_ref: format!("run-{index}") },
        LedgerEvent::Attempted { backend: Some(0), report_age_us: None },
    ];
    match end {
        Some(LedgerEvent::Failed { cause }) => events.push(LedgerEvent::Failed { cause }),
        other => events.extend([Some(accepted), other].into_iter().flatten()),
    }
    let entries = events.into_iter().map(|event| LedgerEntry { index: PlanIndex(index), at_us: START, event }).collect();
    ledger.entries(SourceId { worker: 0, shard: 0 }, entries, START);
}

fn ledger() -> Ledger {
    Ledger::new(LedgerConfig::new("run", START, Vec::new()))
}

/// Of a run that is over.
fn funnels(mut ledger: Ledger) -> Funnels {
    let verdict = ledger.verdict();
    assert!(verdict.irregular.is_empty(), "{:?}", verdict.irregular);
    verdict.funnels
}

fn completed() -> LedgerEvent {
    LedgerEvent::Ended { finish: Finish::Goodbye(Outcome::Completed) }
}

/// A run with figures by hand.
fn recorded() -> (Registry, Ledger) {
    let mut registry = Registry::new(START, labels());
    let mut recorder = ShardRecorder::new(2);
    let mut ledger = ledger();
    for second in 0..10u64 {
        for n in 0..100u64 {
            let at = second * 1_000_000;
            let sample = |metric, wait: u64, service: u64| Sample {
                metric,
                intended: Micros(at),
                actual: Micros(at + wait),
                to: Micros(at + wait + service),
            };
            let scenario = u16::from(n % 4 == 0);
            recorder.record(scenario, &sample(Metric::ScheduleLag, n * 10, 0));
            recorder.record(scenario, &sample(Metric::TurnResponse, n * 10, 300_000 + n * 1_000));
            recorder.record(scenario, &sample(Metric::SessionStartup, 0, 1_500 + n));
            recorder.count(scenario, Counter::FramesSent, 12);
            recorder.count(scenario, Counter::FramesReceived, 20);
            recorder.count(scenario, Counter::Turns, 1);
            recorder.count(scenario, Counter::TurnsAnswered, 1);
        }
        if second == 9 {
            recorder.record(0, &Sample { metric: Metric::TurnResponse, intended: Micros(0), actual: Micros(0), to: Micros(u64::MAX) });
        }
        let from_us = START + second * 1_000_000;
        let scenarios = recorder.take();
        let warmup = second < 2;
        registry.add(IntervalReport {
            shard: 0,
            from_us,
            to_us: from_us + 1_000_000,
            active: 40,
            speaking: 12,
            tasks: 0,
            warmup,
            scenarios,
        });
    }
    registry.finish();
    for index in 0..40 {
        session(&mut ledger, index, u16::from(index % 4 == 0), Some(completed()));
    }
    session(&mut ledger, 50, 0, Some(LedgerEvent::Ended { finish: Finish::Forced(EndKind::TcpRst) }));
    (registry, ledger)
}

fn track() -> ProcessTrack {
    let mut track = ProcessTrack::default();
    for second in 0..10u64 {
        let usage = crate::system::Usage { cpu_us: second * 250_000, rss_bytes: 20_000_000 + second * 100_000 };
        track.add(Micros(second * 1_000_000), usage);
    }
    track
}

fn judged(registry: &Registry, funnels: &Funnels, thresholds: &[(&str, &str)]) -> Vec<crate::threshold::ThresholdResult> {
    let parsed = thresholds.iter().map(|(key, text)| Threshold::parse(key, &Spec::short(*text), &["talk", "listen"]).unwrap());
    Monitor::new(parsed.collect()).results(&Measurements { registry, funnels, leaks: None, drift: None })
}

fn known(registry: &Registry) -> Known {
    Known {
        run: run_info(),
        duration_s: 10.2,
        counters: CountersSection {
            status: CountersStatus::Agree,
            basis: "41 sessions, 12 snapshots of 1 backend".into(),
            findings: Vec::new(),
            ..CountersSection::default()
        },
        generator: build::generator(registry, &track(), LIMITS),
        costs: vec![
            ProcessCost::new("driver", 2_250_000, 32_000, 20_000_000, 20_900_000, 41),
            ProcessCost::new("backend-0", 0, 0, 0, 0, 0),
        ],
        resolved_profile: serde_json::json!({"name": "quickstart"}),
        ..Known::default()
    }
}

pub(super) fn good() -> Summary {
    let (registry, ledger) = recorded();
    let funnels = funnels(ledger);
    let thresholds = judged(
        &registry,
        &funnels,
        &[("turn_response{scenario:talk}", "p(95)<800"), ("sessions_failed", "rate<0.01"), ("turns_missed", "count==0")],
    );
    summary(&registry, &funnels, Known { thresholds, ..known(&registry) }, &[])
}

pub(super) fn bad() -> Summary {
    let (registry, mut ledger) = recorded();
    session(&mut ledger, 60, 1, Some(LedgerEvent::Failed { cause: FailureCause::ConnectionRefused }));
    session(&mut ledger, 61, 0, Some(LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Reset) }));
    let funnels = funnels(ledger);
    let thresholds = judged(
        &registry,
        &funnels,
        &[("turn_response", "p(99)<100"), ("barge_in_stop", "p(95)<300"), ("sessions_failed", "rate<0.01"), ("schedule_lag", "p(99)<10")],
    );
    let finding = FindingRow {
        name: "ghost".into(),
        class: "ghost".into(),
        size: 3,
        evidence: "3 sessions that ended are still counted".into(),
        consequences: vec!["the backend looks full by 3".into()],
        session_ids: vec!["a-1".into(), "a-2".into()],
    };
    let base = known(&registry);
    let mut generator = base.generator.clone();
    generator.saturation.saturated = true;
    generator.saturation.reasons = vec!["schedule_lag p99 is 50.0 ms, the limit 10.0 ms".into()];
    let all = Known {
        thresholds,
        counters: CountersSection {
            status: CountersStatus::Disagree,
            basis: "1 backend".into(),
            findings: vec![finding],
            ..CountersSection::default()
        },
        faults: vec![stall(None), stall(Some("needs root"))],
        convergence: vec![ConvergenceRow {
            kind: EndKind::TcpRst,
            protocol: Protocol::Grpc,
            dialect: Dialect::Native,
            killed: 20,
            detected: Some(17),
            written_off: Some(0),
            ghosts: Some(3),
            false_capacity: Some(0),
            p50_ms: Some(12.3),
            p95_ms: Some(200.0),
            p99_ms: Some(250.0),
            max_ms: Some(251.0),
        }],
        stopped_early: Some("interrupted by the user".into()),
        workers_lost: 1,
        generator,
        ..base
    };
    summary(&registry, &funnels, all, &[Exit::Interrupted])
}

/// A run in which nothing happened.
pub(super) fn empty() -> Summary {
    let registry = Registry::new(START, labels());
    let funnels = Funnels::default();
    let thresholds = judged(&registry, &funnels, &[]);
    let generator = build::generator(&registry, &ProcessTrack::default(), LIMITS);
    summary(&registry, &funnels, Known { run: run_info(), thresholds, generator, ..Known::default() }, &[])
}

/// What could not even be dialled for want of file descriptors says nothing of the target.
#[test]
fn a_driver_without_file_descriptors_is_saturated() {
    let exit = |cause| {
        let registry = Registry::new(START, labels());
        let mut ledger = ledger();
        session(&mut ledger, 0, 0, Some(LedgerEvent::Failed { cause }));
        let funnels = funnels(ledger);
        let generator = build::generator(&registry, &ProcessTrack::default(), LIMITS);
        let made = summary(&registry, &funnels, Known { run: run_info(), generator, ..Known::default() }, &[]);
        (made.generator.saturation.saturated, made.exit.reasons.contains(&Exit::GeneratorSaturated))
    };
    assert_eq!(exit(FailureCause::TooManyFiles), (true, true));
    assert_eq!(exit(FailureCause::ConnectionRefused), (false, false));
}

/// A run that is worse than its baseline in one figure.
pub(super) fn compared() -> Summary {
    let row = |key: &str, figures: Option<(f64, f64, f64)>, verdict, reason: &str| compare::Row {
        key: key.into(),
        statistic: "p(95)".into(),
        kind: compare::Kind::Latency,
        baseline: figures.map(|f| f.0),
        current: figures.map(|f| f.1),
        change: figures.map(|f| f.2),
        change_low: figures.map(|f| f.2 - 0.02),
        change_high: figures.map(|f| f.2 + 0.02),
        p: figures.map(|_| 0.001),
        verdict,
        reason: reason.into(),
    };
    let mut summary = good();
    summary.comparison = Some(compare::BaselineComparison {
        baseline: compare::Named { run_id: "0ldc0de5".into(), ..compare::Named::default() },
        current: compare::Named { run_id: "0badcafe".into(), ..compare::Named::default() },
        tolerance: 0.05,
        floor_ms: 2.0,
        level: 0.05,
        status: compare::Status::Regression,
        refused: Vec::new(),
        notes: vec!["the seed was 1, and is 2".into()],
        rows: vec![
            row("turn_response{scenario:talk}", Some((300.0, 360.0, 0.2)), compare::Verdict::Worse, ""),
            row("session_startup", Some((10.0, 10.1, 0.01)), compare::Verdict::NoDifference, ""),
            row("connect", None, compare::Verdict::NotComparable, "8 samples, 200 are needed"),
        ],
    });
    summary.conclude(&[]);
    summary
}

#[test]
fn the_end_of_a_run_against_its_baseline() {
    let mut summary = compared();
    assert_eq!((summary.exit.code, summary.exit.reasons.as_slice()), (99, &[Exit::ThresholdFailed][..]));
    insta::assert_snapshot!(comparison::render(summary.comparison.as_ref().unwrap(), Style::default()));
    assert!(terminal::render(&summary, Style::default()).contains("REGRESSION: 1 worse"));
    // Where nothing could be told, why not is what must be read; of single scenarios it is not.
    let undecided = summary.comparison.as_mut().unwrap();
    undecided.status = compare::Status::Undecided;
    let one =
        compare::Row { key: "connect{scenario:talk}".into(), reason: "9 samples, 200 are needed".into(), ..undecided.rows[2].clone() };
    undecided.rows.insert(0, one);
    let text = comparison::render(undecided, Style::default());
    assert!(
        text.contains("8 samples, 200 are needed") && !text.contains("9 samples") && text.contains("1 figures are not comparable"),
        "{text}"
    );
    let summary = compared();
    let marks = annotations::render(&annotations::of(&summary));
    assert!(marks.starts_with("::error title=worse than the baseline%3A turn_response{scenario%3Atalk} p(95)::"), "{marks}");
    let xml = junit::render(&summary).unwrap();
    assert_eq!(xml.matches(r#"classname="load-driver.baseline""#).count(), 3 + 1, "{xml}");
    assert_eq!(xml.matches("<failure").count(), 1 + 1 + 1, "the figure, the baseline as a whole, the verdict: {xml}");
}

/// A comparison that was asked for and could not be made is no pass, and hides no other reason.
#[test]
fn no_comparison_is_no_pass() {
    let mut summary = compared();
    for (status, known, code) in [
        (compare::Status::NoRegression, &[][..], 0),
        (compare::Status::Undecided, &[][..], 99),
        (compare::Status::NotComparable, &[][..], 99),
        (compare::Status::Saturated, &[][..], 99),
        (compare::Status::NotComparable, &[Exit::Interrupted][..], 105),
    ] {
        summary.comparison.as_mut().unwrap().status = status;
        summary.conclude(known);
        assert_eq!(summary.exit.code, code, "{status:?}");
    }
}

/// One mark for each thing that is wrong, and none for what is well.
#[test]
fn annotations_name_what_is_wrong() {
    let marks = |summary: &Summary, level| {
        annotations::of(summary).into_iter().filter(|one| one.level == level).map(|one| one.title).collect::<Vec<_>>()
    };
    assert_eq!(
        marks(&bad(), annotations::Level::Error),
        [
            "threshold: turn_response",
            "threshold without data: barge_in_stop",
            "threshold: sessions_failed",
            "counters: ghost x 3",
            "broken: generator_not_saturated",
            "broken: no_worker_lost",
        ]
    );
    assert_eq!(marks(&bad(), annotations::Level::Warning), ["stopped early", "fault: stall"]);
    assert!(marks(&good(), annotations::Level::Error).is_empty());
    assert_eq!(marks(&empty(), annotations::Level::Notice), ["counters not checked"]);
    // A run that failed for a reason of its own kind is not silent.
    let mut interrupted = good();
    interrupted.conclude(&[Exit::Interrupted]);
    assert_eq!(marks(&interrupted, annotations::Level::Error), ["exit code 105"]);
}

/// A finished run is read back as it was; a checkpoint of one that is not over says so, whatever else it says.
#[test]
fn results_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let error = |path: &std::path::Path| results::read(path).unwrap_err().to_string();
    assert!(error(dir.path()).contains("no results in"));
    let run = dir.path().join("quickstart-0badcafe");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("checkpoint.json"), json::render(&good()).unwrap()).unwrap();
    let (found, read) = results::read(&run).unwrap();
    assert!(found.unfinished && read.unfinished);
    assert!(
        terminal::render(&read, Style::default()).contains("UNFINISHED") && !terminal::render(&read, Style::default()).contains("PASSED")
    );
    std::fs::write(run.join("summary.json"), json::render(&bad()).unwrap()).unwrap();
    for path in [run.clone(), run.join("summary.json")] {
        let (found, read) = results::read(&path).unwrap();
        assert_eq!((found.unfinished, found.folder, read), (false, run.clone(), bad()));
    }
    assert!(error(dir.path()).contains("; there is one in "), "{}", error(dir.path()));
    for (text, said) in [
        ("{}", "no schema_version"),
        ("{\"schema_version\": 2}", "its schema is 2"),
        ("{\"schema_version\": 5}", "missing field"),
        ("", "EOF"),
    ] {
        std::fs::write(run.join("summary.json"), text).unwrap();
        assert!(error(&run).contains(said), "{}", error(&run));
    }
}

#[test]
fn the_end_of_a_good_run() {
    insta::assert_snapshot!(terminal::render(&good(), Style::default()));
}

#[test]
fn the_end_of_a_bad_run() {
    insta::assert_snapshot!(terminal::render(&bad(), Style::default()));
}

/// wrk2 138/90/117, k6 6200, 6195: a run of nothing has no NaN, no infinity, no absurd rate, in any output.
#[test]
fn the_end_of_an_empty_run() {
    let nothing = empty();
    let shown = terminal::render(&nothing, Style::default());
    insta::assert_snapshot!(shown);
    for text in [shown, json::render(&nothing).unwrap(), junit::render(&nothing).unwrap(), markdown::render(&nothing)] {
        let words: Vec<String> = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
        assert!(!words.iter().any(|w| w == "nan" || w == "inf" || w == "infinity"), "{text}");
    }
    assert_eq!(nothing.exit.code, 0);
    assert!(nothing.latencies.iter().all(|row| row.response.is_none()));
}

/// k6 2061: how long a run takes is printed up front, graceful stop included.
#[test]
fn the_beginning() {
    insta::assert_snapshot!(terminal::opening(&run_info()), @r"
    run 0badcafe of profiles/quickstart.yaml (seed 7) on embedded
      takes 30s, then up to 30s for sessions to finish, the first 5s are warm-up
      scenarios: talk, listen
      injected into the backends: fault vad_drop
    ");
}

#[test]
fn figures_by_hand() {
    let summary = good();
    let row = |metric: &str| summary.latencies.iter().find(|r| r.metric == metric).unwrap();
    // 800 measured samples (8 of 10 s), n * 10 us for n = 0..100: p99 is the 792nd, n = 98.
    let lag = row("schedule_lag").response.unwrap();
    assert_eq!((lag.count, lag.p50_ms, lag.p99_ms, lag.max_ms), (800, 0.49, 0.98, 0.99));
    assert!(row("schedule_lag").service.unwrap().max_ms.abs() < f64::EPSILON);
    let turn = row("turn_response");
    assert_eq!((turn.response.unwrap().count, turn.clamped), (801, 1), "the clamped sample is counted and shown");
    assert_eq!(summary.warmup_samples, 600);
    assert_eq!(summary.counts["frames_sent"], 9_600);
    assert!((summary.measured_s - 8.0).abs() < 1e-9);
    assert_eq!((summary.funnel.requested, summary.funnel.completed, summary.funnel.interrupted), (41, 40, 1));
    assert_eq!(summary.costs[0].cpu_us_per_frame, Some(70.313));
    assert_eq!((summary.costs[1].cpu_us_per_frame, summary.costs[1].rss_per_session_bytes), (None, None));
    assert_eq!(summary.exit.code, 0);
}

/// k6 885, 333/652: the parts of the funnel add up to its whole, per scenario and over all.
#[test]
fn scenarios_add_up() {
    let summary = bad();
    assert_eq!(summary.scenarios.iter().map(|s| s.funnel.requested).sum::<u64>(), summary.funnel.requested);
    let turns = |row: &[summary::LatencyRow]| row.iter().find(|r| r.metric == "turn_response").unwrap().response.unwrap().count;
    assert_eq!(summary.scenarios.iter().map(|s| turns(&s.latencies)).sum::<u64>(), turns(&summary.latencies));
    assert_eq!(summary.errors.values().sum::<u64>(), summary.funnel.sessions_failed());
}

/// A fault of the timeline that was made, or was not.
fn stall(skipped: Option<&str>) -> FaultRow {
    let made = skipped.is_none();
    FaultRow {
        number: u16::from(!made),
        kind: FaultName::Stall,
        with: String::new(),
        target: "backend 0".into(),
        fraction: 0.5,
        planned_s: 3.0,
        duration_s: 2.0,
        began_s: made.then_some(3.1),
        ended_s: made.then_some(5.1),
        struck: made.then_some(7),
        skipped: skipped.map(str::to_owned),
        without: None,
        figures: std::collections::BTreeMap::new(),
    }
}

/// How strong it was tells faults of a kind apart; one that was cut lasted as long as it did.
#[test]
fn a_fault_shows_what_was_made_of_it_and_how_long_it_lasted() {
    let row = |with: &str, ended_s| FaultRow {
        kind: FaultName::Delay,
        with: with.into(),
        planned_s: 47.0,
        duration_s: 20.0,
        began_s: Some(47.0),
        ended_s,
        ..stall(None)
    };
    let momentary = FaultRow { kind: FaultName::KillBackend, with: "dead for 1s".into(), duration_s: 0.0, ended_s: None, ..stall(None) };
    let faults = vec![row("delay 200ms, jitter 50ms", Some(51.067)), row("delay 2s", None), momentary];
    let summary = Summary { faults, ..good() };
    for text in [terminal::render(&summary, Style::default()), markdown::render(&summary)] {
        let line = |with: &str| {
            let line = text.lines().find(|line| line.contains(with)).unwrap_or_else(|| panic!("no {with} in {text}"));
            line.split(['|', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        let has = |with: &str, word: &str| line(with).iter().any(|one| one == word);
        assert!(has("delay 200ms, jitter 50ms", "4.1") && !has("delay 200ms, jitter 50ms", "20.0"), "{text}");
        assert!(has("delay 2s", "20.0") && has("delay 2s", "UNDER"), "{text}");
        assert!(has("dead for 1s", "kill_backend") || has("dead for 1s", "kill\\_backend"), "{text}");
        assert!(!has("dead for 1s", "UNDER"), "{text}");
    }
    assert_eq!(serde_json::to_value(&summary).unwrap()["faults"][1]["with"], "delay 2s");
}

/// A soak has more faults than a table has rows.
#[test]
fn what_was_not_made_is_told_beyond_the_table_too() {
    let unhurt = FaultRow { struck: Some(0), ..stall(None) };
    let faults = [vec![stall(None); 150], vec![stall(Some("needs root")); 7], vec![unhurt, stall(None)]].concat();
    let summary = Summary { faults, ..good() };
    for text in [terminal::render(&summary, Style::default()), markdown::render(&summary).replace('\\', "")] {
        assert!(text.contains("of these 7 x stall, first planned at 3.0 s: skipped") && text.contains("needs root"), "{text}");
        assert!(text.contains("of these 1 x stall, first planned at 3.0 s: struck nobody"), "{text}");
        assert_eq!(text.matches("of these").count(), 2, "{text}");
    }
    let reasons: Vec<FaultRow> = (0..130).map(|n| stall(Some(&format!("reason {n}")))).collect();
    let shown = terminal::render(&Summary { faults: reasons, ..good() }, Style::default());
    assert!(shown.contains("of these 70 more were not made"), "{shown}");
}

#[test]
fn a_fault_that_was_not_made_took_no_time_and_a_small_share_is_some() {
    let shown = |fraction| rows::fault(&FaultRow { fraction, ..stall(None) })[3].clone();
    let shares = [1.0, 0.5, 0.333, 0.07, 0.025, 0.01, 0.005, 0.000_5, 1e-9, 1e-10, 0.0].map(shown);
    assert_eq!(shares, ["100 %", "50 %", "33 %", "7 %", "2.5 %", "1 %", "0.5 %", "0.05 %", "<0.000001 %", "<0.000001 %", "0 %"]);
    let for_s = |row: &FaultRow| rows::fault(row)[5].clone();
    assert_eq!((for_s(&stall(None)).as_str(), for_s(&stall(Some("needs root"))).as_str()), ("2.0", "-"));
    assert_eq!(for_s(&FaultRow { began_s: None, ended_s: None, ..stall(None) }), "-", "not reached");
}

#[test]
fn the_verdict_on_the_counters_says_what_it_is_worth() {
    let mut summary = good();
    summary.counters.confidence = Some(crate::ledger::Confidence::Totals);
    summary.counters.cannot_see = vec!["which sessions".into(), "refusals".into()];
    let (terminal, page) = (terminal::render(&summary, Style::default()), markdown::render(&summary));
    assert!(
        terminal.contains("  confidence: totals, in which") && terminal.contains("  cannot see: which sessions; refusals\n"),
        "{terminal}"
    );
    assert!(page.contains("- confidence\\: totals, in which"), "{page}");
    assert!(page.contains("- cannot see\\: which sessions\n- cannot see\\: refusals\n"), "{page}");
}

#[test]
fn why_growth_has_no_data_is_said() {
    use crate::{
        leak::{Leak, LeakRow},
        threshold::{Status, ThresholdResult},
    };
    let mut summary = good();
    let row = |process: &str, what, reason: &str| LeakRow {
        process: process.into(),
        what,
        slope_per_h: None,
        interval_per_h: None,
        per_session: None,
        last: 1.0,
        blocks: 0,
        block_s: 2,
        reason: reason.into(),
    };
    let too_short = "3 of 16 blocks of 2 s: too short";
    summary.leaks = vec![row("driver", Leak::Rss, too_short), row("backend 0", Leak::Rss, too_short), row("driver", Leak::Fds, "other")];
    let told = "leak_rss has no data of driver, backend 0: 3 of 16";
    let shown = |s: &Summary| [terminal::render(s, Style::default()), markdown::render(s).replace('\\', "")];
    assert!(shown(&summary).iter().all(|text| !text.contains("has no data of")), "nobody asked");
    let template = summary.thresholds[0].clone();
    summary.thresholds.push(ThresholdResult { key: "leak_rss".into(), status: Status::NoData, ok: false, ..template });
    for text in shown(&summary) {
        assert!(text.contains(told) && !text.contains("leak_fds"), "{text}");
    }
}

/// Findings and table add up.
#[test]
fn ghosts_that_no_kind_of_end_has_are_told_beside_the_table() {
    let mut summary = bad();
    let shown = |summary: &Summary| [terminal::render(summary, Style::default()), markdown::render(summary)];
    summary.counters.confidence = Some(crate::ledger::Confidence::Exact);
    assert!(shown(&summary).iter().all(|text| !text.contains("ghosts whose")), "the table has all three");
    summary.counters.findings[0].size = 5;
    assert!(shown(&summary).iter().all(|text| text.contains("and 2 ghosts whose sessions no plan ended")));
    summary.counters.confidence = Some(crate::ledger::Confidence::Totals);
    assert!(shown(&summary).iter().all(|text| !text.contains("ghosts whose")), "sums tell no ghost from another");
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of a whole run adds up to its summary.
#[test]
fn the_interval_log_adds_up_to_the_summary() {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    let shared = Shared::default();
    let mut log = Hlog::new(shared.clone(), "log");
    log.event(Event::Started(&run_info())).unwrap();
    let mut registry = Registry::new(START, labels());
    for second in 0..6u64 {
        let mut recorder = ShardRecorder::new(2);
        for scenario in 0..2 {
            recorder
                .record(scenario, &Sample { metric: Metric::Connect, intended: Micros(0), actual: Micros(0), to: Micros(second * 100) });
        }
        let from_us = START + second * 1_000_000;
        let report = IntervalReport {
            shard: 0,
            from_us,
            to_us: from_us + 1_000_000,
            active: 1,
            speaking: 0,
            tasks: 0,
            warmup: second < 2,
            scenarios: recorder.take(),
        };
        for closed in registry.add(report) {
            log.event(Event::Second(&closed)).unwrap();
        }
    }
    for closed in registry.finish() {
        log.event(Event::Second(&closed)).unwrap();
    }
    let bytes = shared.0.lock().unwrap().clone();
    let intervals = IntervalLogIterator::new(&bytes).filter_map(|entry| match entry.unwrap() {
        LogEntry::Interval(interval) => Some((interval.tag().map(|t| t.as_str().to_owned()), interval.max() as u64)),
        _ => None,
    });
    let connect: Vec<u64> = intervals.filter(|(tag, _)| tag.as_deref() == Some("connect")).map(|(_, max)| max).collect();
    assert_eq!(connect, [200, 300, 400, 500], "a line a second, without the warm-up");
    let total: Histogram<u64> = registry.latency(Metric::Connect, |_| true).unwrap().0;
    assert_eq!(total.len(), 8);
}

#[test]
fn costs_carry_the_dialect_of_the_run() {
    assert!(good().costs.iter().all(|cost| cost.dialect == "mixed"));
    let funnels = Funnels::default();
    for (kept, dialect) in [(0, "native"), (1, "twilio")] {
        let registry = Registry::new(START, vec![labels().remove(kept)]);
        let run = summary(&registry, &funnels, known(&registry), &[]);
        assert!(run.costs.iter().all(|cost| cost.dialect == dialect));
        assert_eq!(run.scenarios[0].dialect.name(), dialect);
    }
}

#[test]
fn what_was_not_judged_says_why() {
    use crate::voice::{VoiceFault, VoiceRow, VoiceStatus};
    let mut summary = good();
    let row = |kind, reason: &str| VoiceRow { kind, status: VoiceStatus::NotJudged, tested: 0, excused: 0, reason: reason.into() };
    summary.voice.kinds = vec![
        row(VoiceFault::CrossTalk, "nobody spoke"),
        row(VoiceFault::PoolLeak, "there is no cap"),
        row(VoiceFault::OutputGaps, "nobody spoke"),
    ];
    let text = terminal::render(&summary, Style::default());
    assert!(text.contains("not judged: cross_talk, output_gaps (nobody spoke)\n"), "{text}");
    assert!(text.contains("not judged: pool_leak (there is no cap)\n"), "{text}");
}
