use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::{recorded::Latency, *};

fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (random.random_range(1e-12..1.0), random.random_range(0.0..1.0));
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// A run of two scenarios in which each second depends on the one before.
struct Made {
    seed: u64,
    seconds: u64,
    /// What turns of `talk` take longer by.
    slower: f64,
    /// Middle of a turn.
    middle_us: f64,
    missed: u64,
    failed: u64,
}

impl Default for Made {
    fn default() -> Self {
        Self { seed: 1, seconds: 60, slower: 1.0, middle_us: 300_000.0, missed: 4, failed: 0 }
    }
}

impl Made {
    fn run(&self) -> Recorded {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let mut intervals = recorded::Intervals::default();
        let mut state = normal(&mut random);
        for at in 0..self.seconds {
            state = 0.5 * state + 0.75_f64.sqrt() * normal(&mut random);
            for (scenario, factor) in [("talk", self.slower), ("listen", 1.0)] {
                let middle = self.middle_us * factor * (0.03 * state).exp();
                let samples: Vec<(u64, u64)> = (0..20)
                    .map(|_| ((middle * (0.2 * normal(&mut random)).exp()).ln() * 200.0).round() / 200.0)
                    .map(|log| (log.exp() as u64, 1))
                    .collect();
                intervals.add(&key("turn_response", Some(scenario)), at, samples.clone());
                intervals.add("turn_response", at, samples);
            }
        }
        let n = self.seconds * 20;
        let told = |name: &str| {
            json!({
                "name": name, "funnel": {"requested": 1_000, "failed": self.failed / 2},
                "counts": {"turns": n, "turns_missed": self.missed / 2},
                "latencies": [{"metric": "turn_response", "response": {"count": n}}],
            })
        };
        let summary = json!({
            "schema_version": 3,
            "run": {"run_id": format!("run{}", self.seed), "profile": "made", "version": "0.1.0", "seed": 7},
            "generator": {"saturation": {"saturated": false, "reasons": []}, "cores": 2.0},
            "funnel": {"requested": 2_000, "failed": self.failed},
            "counts": {"turns": 2 * n, "turns_missed": self.missed},
            "latencies": [{"metric": "turn_response", "response": {"count": 2 * n}}, {"metric": "schedule_lag", "response": {"count": 9}}],
            "scenarios": [told("talk"), told("listen")],
            "resolved_profile": {"name": "made", "seed": 7, "warmup": "5s", "scenarios": {"talk": {"sessions": 20}, "listen": {"sessions": 20}}},
            "something_of_another_version": [1, 2, 3],
        });
        Recorded { summary: recorded::Told::parse(&summary.to_string()).unwrap(), intervals, unfinished: false }
    }
}

fn verdict_of(comparison: &BaselineComparison, key: &str, statistic: &str) -> Verdict {
    let row = comparison.rows.iter().find(|row| row.key == key && row.statistic == statistic);
    row.unwrap_or_else(|| panic!("no {key} {statistic} in {:#?}", comparison.rows)).verdict
}

fn against(current: &Made) -> BaselineComparison {
    compare(&Made::default().run(), &Made { seed: current.seed + 100, ..*current }.run(), Options::default())
}

/// Figures of two runs of the same process: of thirty pairs one or two may have a false alarm, at 5 % for all figures of a pair together. A minute is
/// enough for most.
#[test]
fn noise_is_no_regression() {
    let (mut alarms, mut undecided) = (0, 0);
    for seed in 0..30 {
        let [first, second] = [seed, seed + 1_000].map(|seed| Made { seed, ..Made::default() }.run());
        let comparison = compare(&first, &second, Options::default());
        let differs = |row: &&Row| matches!(row.verdict, Verdict::Worse | Verdict::Better);
        alarms += u32::from(comparison.rows.iter().any(|row| differs(&row)));
        undecided += u32::from(comparison.status == Status::Undecided);
    }
    println!("{alarms} of 30 pairs differ, {undecided} are undecided");
    assert!(alarms <= 2 && undecided <= 6, "{alarms} {undecided}");
}

#[test]
fn a_slower_scenario_is_a_regression_and_named() {
    let comparison = against(&Made { slower: 1.2, ..Made::default() });
    assert_eq!((comparison.status, comparison.exit()), (Status::Regression, Exit::ThresholdFailed));
    for statistic in ["p(50)", "p(95)"] {
        assert_eq!(verdict_of(&comparison, "turn_response{scenario:talk}", statistic), Verdict::Worse);
    }
    assert_ne!(verdict_of(&comparison, "turn_response{scenario:listen}", "p(50)"), Verdict::Worse);
    let row = comparison.rows.iter().find(|row| row.key == "turn_response{scenario:talk}").unwrap();
    let (change, low, high) = (row.change.unwrap(), row.change_low.unwrap(), row.change_high.unwrap());
    assert!(low < change && change < high && (0.15..0.25).contains(&change) && low > 0.05, "{row:?}");
    // The other way round it is better, and passes.
    let faster = compare(&Made { slower: 1.2, seed: 9, ..Made::default() }.run(), &Made::default().run(), Options::default());
    assert_eq!((faster.status, verdict_of(&faster, "turn_response{scenario:talk}", "p(50)")), (Status::NoRegression, Verdict::Better));
}

#[test]
fn what_does_not_matter_is_no_regression() {
    let slower = Made { slower: 1.2, ..Made::default() };
    let tolerant = compare(&Made::default().run(), &Made { seed: 3, ..slower }.run(), Options { tolerance: 0.5, ..Options::default() });
    assert_eq!(tolerant.status, Status::NoRegression);
    assert_eq!(verdict_of(&tolerant, "turn_response{scenario:talk}", "p(50)"), Verdict::NoDifference);
    // A fifth of 0.3 ms is nothing that anybody hears.
    let quick = Made { middle_us: 300.0, ..Made::default() };
    let fast = compare(&quick.run(), &Made { seed: 3, slower: 1.2, ..quick }.run(), Options::default());
    assert_eq!(verdict_of(&fast, "turn_response{scenario:talk}", "p(50)"), Verdict::NoDifference);
}

#[test]
fn shares_are_compared() {
    let comparison = against(&Made { missed: 90, failed: 40, ..Made::default() });
    assert_eq!(comparison.status, Status::Regression);
    for key in ["turns_missed", "turns_missed{scenario:talk}", "sessions_failed", "sessions_failed{scenario:listen}"] {
        assert_eq!(verdict_of(&comparison, key, "rate"), Verdict::Worse, "{key}");
    }
    let same = against(&Made::default());
    assert_eq!(verdict_of(&same, "turns_missed", "rate"), Verdict::NoDifference);
    assert_eq!(verdict_of(&same, "sessions_failed", "rate"), Verdict::NoDifference);
}

/// A wrong pass is the worst fault: what was measured and is no more is no improvement.
#[test]
fn what_is_gone_is_worse() {
    let mut current = Made::default().run();
    current.summary.latencies.clear();
    for scenario in &mut current.summary.scenarios {
        scenario.latencies.clear();
    }
    let comparison = compare(&Made::default().run(), &current, Options::default());
    assert_eq!(comparison.status, Status::Regression);
    let row = comparison.of(Verdict::Worse).next().unwrap();
    assert_eq!((row.key.as_str(), row.reason.as_str()), ("turn_response", "2400 samples in the baseline, none in the current run"));
    // Late audio may be gone by merit, and a few samples by chance.
    for (metric, count, verdict) in
        [("audio_gap", 500, Verdict::NotComparable), ("connect", 19, Verdict::NotComparable), ("connect", 20, Verdict::Worse)]
    {
        let mut had = Made::default().run();
        had.summary.latencies.push(Latency { metric: metric.into(), response: Some(recorded::Samples { count }) });
        had.intervals.add(metric, 3, [(9, count)]);
        let comparison = compare(&had, &Made::default().run(), Options::default());
        assert_eq!(verdict_of(&comparison, metric, "count"), verdict, "{metric}");
    }
    let mut silent = Made::default().run();
    silent.summary.counts.clear();
    let comparison = compare(&Made::default().run(), &silent, Options::default());
    assert_eq!(verdict_of(&comparison, "turns_missed", "rate"), Verdict::Worse);
}

#[test]
fn too_short_to_tell_is_no_pass() {
    let short = Made { seconds: 6, missed: 0, ..Made::default() };
    let comparison = compare(&short.run(), &Made { seed: 5, ..short }.run(), Options::default());
    assert_eq!((comparison.status, comparison.exit()), (Status::Undecided, Exit::ThresholdFailed), "{:#?}", comparison.rows);
    let mut bare = Made::default().run();
    bare.intervals = recorded::Intervals::default();
    let comparison = compare(&bare, &Made::default().run(), Options::default());
    assert_eq!(comparison.status, Status::Undecided);
    assert!(comparison.notes.iter().any(|note| note.contains("the baseline has no interval log")), "{:?}", comparison.notes);
}

#[test]
fn what_cannot_be_compared_is_refused_and_named() {
    let refused = |change: &dyn Fn(&mut Recorded)| {
        let mut current = Made::default().run();
        change(&mut current);
        let comparison = compare(&Made::default().run(), &current, Options::default());
        assert!(comparison.rows.is_empty());
        (comparison.status, comparison.exit().code(), comparison.refused.join("; "))
    };
    let (status, code, why) = refused(&|run| run.summary.resolved_profile["scenarios"]["talk"]["sessions"] = 50.into());
    assert_eq!((status, code), (Status::NotComparable, 104));
    assert_eq!(why, "the profile differs: scenarios.talk.sessions was 20, and is 50");
    let (status, code, why) =
        refused(&|run| run.summary.generator.saturation = recorded::Saturation { saturated: true, reasons: vec!["lag".into()] });
    assert_eq!((status, code), (Status::Saturated, 97));
    assert!(why.contains("the generator of the current run was saturated (lag)"), "{why}");
    let (status, code, why) = refused(&|run| {
        run.summary.generator.saturation = recorded::Saturation { saturated: true, reasons: vec!["lag".into()] };
        run.summary.resolved_profile["scenarios"]["talk"]["sessions"] = 50.into();
    });
    assert_eq!((status, code), (Status::NotComparable, 104), "the worse of both: {why}");
    for (change, said) in [
        (&(|run: &mut Recorded| run.unfinished = true) as &dyn Fn(&mut Recorded), "not over"),
        (&|run| run.summary.stopped_early = Some("interrupted".into()), "ended early: interrupted"),
        (&|run| run.summary.workers_lost = 1, "lost a worker"),
        (&|run| run.summary.resolved_profile = Value::Null, "scenarios was"),
    ] {
        let (status, code, why) = refused(change);
        assert_eq!((status, code), (Status::NotComparable, 104));
        assert!(why.contains(said), "{why}");
    }
    // What may differ is noted.
    let mut other = Made::default().run();
    other.summary.resolved_profile["thresholds"] = json!({"turn_response": ["p(95)<1"]});
    other.summary.resolved_profile["server"] = json!({"think": "1s"});
    other.summary.run.version = "9.9.9".into();
    let comparison = compare(&Made::default().run(), &other, Options::default());
    assert_eq!(comparison.status, Status::NoRegression);
    assert_eq!(comparison.notes, ["load-driver was 0.1.0, and is 9.9.9", "`server` of the profile was absent, and is {\"think\":\"1s\"}"]);
}

#[test]
fn no_summary_is_said() {
    for (text, said) in [("{}", "no schema_version"), ("[1", "EOF"), (r#"{"schema_version": 3, "funnel": 7}"#, "invalid type")] {
        let error = recorded::Told::parse(text).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(Recorded::read(empty.path()).unwrap_err().to_string().contains("neither summary.json nor checkpoint.json"));
}

/// A log that lost a part tells of another run than the summary: the rest of it may look as good as any.
#[test]
fn a_log_without_a_part_of_its_samples_is_not_compared() {
    let whole = Made { seed: 3, ..Made::default() }.run();
    assert!(unfit("current run", &whole).is_empty());
    let part = Made { seed: 3, seconds: 15, ..Made::default() }.run().intervals;
    for (baseline, current) in [
        (Made::default().run(), Recorded { intervals: part.clone(), ..whole.clone() }),
        (Recorded { intervals: part, ..whole.clone() }, Made::default().run()),
    ] {
        let comparison = compare(&baseline, &current, Options::default());
        assert_eq!((comparison.status, comparison.exit()), (Status::NotComparable, Exit::InvalidProfile));
        assert!(comparison.refused[0].contains("has 600 samples of turn_response, and its summary 2400"), "{:?}", comparison.refused);
    }
    // One sample that only one scenario lacks.
    let mut more = whole.clone();
    more.intervals.add(&key("turn_response", Some("talk")), 3, [(9, 1)]);
    assert!(unfit("current run", &more)[0].contains("turn_response{scenario:talk}"));
}
