//! A driver that is killed in the middle of a run loses one interval at most, and another one goes on.

mod run_support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use run_support::{Run, alive, backend::Backend, eventually};
use rustix::process::Signal;
use serde_json::Value;

const PROFILE: &str = "
name: soak
seed: 11
driver: {checkpoint: 1s, shards: 1, max_schedule_lag: 10s}
counters: {interval: 100ms}
target: embedded
scenarios:
  churn: {executor: constant-sessions, sessions: 6, duration: 14s, session_length: 700ms,
    conversations: [{turns: [{wait: 100ms, say: {synth: 200ms}, response: 200ms}]}]}
thresholds:
  sessions_failed: ['rate==0']
";

fn json(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn driver(arguments: &[&str], folder: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_load-driver"))
        .args(&arguments[..1])
        .arg(folder)
        .args(&arguments[1..])
        .env_remove("GITHUB_ACTIONS")
        .env_remove("GITHUB_STEP_SUMMARY")
        .output()
        .expect("runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), text)
}

fn results(root: &Path) -> Option<PathBuf> {
    fs::read_dir(root.join("out")).ok()?.next()?.ok().map(|entry| entry.path())
}

fn at(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer}"))
}

/// Kills the driver once its checkpoint has so many sessions that are over; its folder.
fn killed(run: Run, completed: u64) -> (run_support::Going, PathBuf, Value) {
    let going = run.begin();
    let root = going.root().to_owned();
    let checkpoint = eventually("a checkpoint", || {
        let checkpoint = json(&results(&root)?.join("checkpoint.json"))?;
        (checkpoint.pointer("/funnel/completed")?.as_u64()? >= completed).then_some(checkpoint)
    });
    let folder = results(&root).expect("results");
    let (code, text) = driver(&["resume"], &folder);
    assert_eq!(code, Some(104), "{text}");
    assert!(text.contains("still goes on: the driver with pid"), "{text}");
    going.signal(Signal::KILL);
    eventually("the end of the driver", || (!alive(going.pid())).then_some(()));
    (going, folder, checkpoint)
}

#[test]
fn killed_reported_and_resumed_nothing_is_lost_but_an_interval_and_nothing_is_double() {
    let backend = Backend::start(&[]);
    let (_going, folder, _) = killed(Run::of(PROFILE).against(&backend), 20);
    let before = json(&folder.join("checkpoint.json")).expect("a checkpoint");

    let (code, text) = driver(&["report"], &folder);
    assert_eq!(code, Some(105), "{text}");
    assert!(text.contains("UNFINISHED") && text.contains("what came after it is missing") && !text.contains("PASSED"), "{text}");
    assert!(text.contains("load-driver resume"), "{text}");

    let at_kill = backend.eventually("no session of the killed driver", |at| at.active == 0);
    let interval = at_kill.started - at(&before, "/funnel/established");
    assert!(interval <= 6 * 4, "{interval} sessions begun after the last checkpoint");

    let (code, text) = driver(&["resume"], &folder);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("PASSED") && text.contains("its driver was killed"), "{text}");
    let summary = json(&folder.join("summary.json")).expect("a summary");
    assert!(!folder.join("checkpoint.json").exists());

    let server = backend.eventually("the end of all sessions", |at| at.active == 0);
    let (established, unseen) = (at(&summary, "/funnel/established"), at(&summary, "/segments/0/unseen_sessions"));
    assert_eq!(established + unseen, server.started, "{text}");
    assert_eq!(unseen, interval);
    let [completed, cut, failed] = ["completed", "interrupted", "failed"].map(|name| at(&summary, &format!("/funnel/{name}")));
    assert_eq!(established, completed + cut + failed);
    assert_eq!((failed, at(&summary, "/segments/0/lost_sessions")), (0, cut + at(&summary, "/funnel/aborted")));
    assert!(completed <= server.ended["completed"], "none is counted that the backend has not");
    assert!(completed > at(&before, "/funnel/completed"));
    assert_eq!((summary["counters"]["status"].as_str(), summary["segments"].as_array().map(Vec::len)), (Some("agree"), Some(2)));
    // The histograms of both: each established session has one start, and the log adds up to the summary.
    let starts = |of: &Value| -> u64 {
        let rows = of["latencies"].as_array().expect("rows");
        at(rows.iter().find(|row| row["metric"] == "session_startup").expect("the metric"), "/response/count")
    };
    assert!(starts(&summary) > starts(&before));
    let duration = summary["duration_s"].as_f64().expect("a number");
    assert!((13.0..20.0).contains(&duration), "{duration}");
    let points = summary["series"]["points"].as_array().expect("points");
    assert!(points.windows(2).all(|pair| pair[0]["at_s"].as_u64() < pair[1]["at_s"].as_u64()));
    let turns: u64 = points.iter().filter_map(|point| point["counts"]["turns"].as_u64()).sum();
    assert_eq!(turns, at(&summary, "/counts/turns"), "each second is in the series once");
    assert_eq!(
        fs::read_dir(&folder)
            .expect("a folder")
            .filter(|e| e.as_ref().expect("there").path().extension().is_some_and(|x| x == "hlog"))
            .count(),
        2
    );

    let (code, text) = driver(&["resume"], &folder);
    assert_eq!((code, text.contains("the run is over")), (Some(104), true), "{text}");
}

#[test]
fn ghosts_of_the_killed_driver_are_found_and_named() {
    // Whatever breaks stays counted: all that was under way at the kill.
    let backend = Backend::start(&["--defect", "ghost=1"]);
    let profile = PROFILE.replace("interval: 100ms", "interval: 100ms, window: 1s, half_open_window: 1s, settle: 1s").replace("14s", "8s");
    let (_going, folder, _) = killed(Run::of(&profile).against(&backend), 6);
    let (code, text) = driver(&["resume"], &folder);
    assert_eq!(code, Some(98), "{text}");
    let summary = json(&folder.join("summary.json")).expect("a summary");
    let ghosts = &summary["counters"]["findings"][0];
    assert_eq!(ghosts["name"], "ghost", "{text}");
    assert_eq!(ghosts["size"].as_i64(), Some(backend.snapshot().active), "{text}");
    assert!(ghosts["evidence"].as_str().expect("words").contains("the driver that was killed"), "{text}");
}

#[test]
fn embedded_backends_die_with_their_driver_and_fresh_ones_are_started() {
    let profile = PROFILE.replace("14s", "6s");
    let (_going, folder, _) = killed(Run::of(&profile), 6);
    let (code, text) = driver(&["resume"], &folder);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("fresh ones were started"), "{text}");
    let summary = json(&folder.join("summary.json")).expect("a summary");
    assert!(summary.pointer("/segments/0/unseen_sessions").is_some_and(Value::is_null), "nobody is left to tell: {text}");
    assert!(text.contains("how many were begun after its last checkpoint is not known"), "{text}");
    assert_eq!(summary["funnel"]["failed"], 0);
}

#[test]
fn a_stopped_backend_ends_with_its_driver_and_faults_are_told_once() {
    // One that is over, one under way at the kill, one to come.
    let faults = "
faults:
  - {at: 200ms, kind: delay, delay: 5ms, duration: 300ms}
  - {at: 1s, kind: stop, duration: 60s}
  - {at: 7s, kind: delay, delay: 5ms, duration: 500ms}
";
    let profile =
        format!("{}{faults}", PROFILE.replace("14s", "9s").replace("  sessions_failed: ['rate==0']", "  sessions_failed: ['rate<1']"));
    let going = Run::of(&profile).begin();
    let root = going.root().to_owned();
    let stopped = |checkpoint: &Value| checkpoint["faults"][1]["began_s"].is_number();
    let folder = eventually("a backend that is stopped", || {
        let folder = results(&root)?;
        json(&folder.join("checkpoint.json")).filter(stopped).map(|_| folder)
    });
    let backend = going.child("backend");
    assert!(alive(backend));
    going.signal(Signal::KILL);
    eventually("the end of the driver", || (!alive(going.pid())).then_some(()));
    eventually("the end of its backend, which cannot see that", || (!alive(backend)).then_some(()));

    // A checkpoint that says that the run was further than it was, beyond its end for one, would leave nothing to go on with.
    let checkpoint = folder.join("checkpoint.json");
    let whole = fs::read(&checkpoint).expect("a checkpoint");
    let mut changed = json(&checkpoint).expect("JSON");
    let untouched = at(&changed, "/resume/at");
    for (at_us, duration_s, part) in
        [(untouched + 900_000_000, None, "is damaged"), (untouched + 900_000_000, Some(untouched as f64 / 1e6 + 900.0), "ends at")]
    {
        changed["resume"]["at"] = at_us.into();
        if let Some(duration_s) = duration_s {
            changed["duration_s"] = duration_s.into();
        }
        fs::write(&checkpoint, changed.to_string()).expect("written");
        let (code, text) = driver(&["resume"], &folder);
        assert_eq!((code, text.contains(part)), (Some(104), true), "{text}");
        assert!(!folder.join("summary.json").exists());
    }
    fs::write(&checkpoint, whole).expect("written");

    let (code, text) = driver(&["resume"], &folder);
    let summary = json(&folder.join("summary.json")).unwrap_or_else(|| panic!("{code:?}: {text}"));
    let rows: Vec<_> = summary["faults"].as_array().expect("rows").iter().collect();
    let told: Vec<_> = rows.iter().map(|row| (row["number"].as_u64(), row["kind"].as_str(), row["skipped"].is_null())).collect();
    assert_eq!(told, [(Some(0), Some("delay"), true), (Some(1), Some("stop"), true), (Some(2), Some("delay"), true)], "{text}");
    let times = |name: &str| rows.iter().map(|row| row[name].as_f64().unwrap_or_else(|| panic!("{row}"))).collect::<Vec<_>>();
    let (began, ended) = (times("began_s"), times("ended_s"));
    assert!(ended[0] < 2.0 && ended[1] < 7.0 && (6.9..9.0).contains(&began[2]), "{began:?} {ended:?}");
    assert!(text.contains("are not made again: stop"), "{text}");
}

#[test]
fn sums_of_any_backend_are_watched_over_the_kill_as_well() {
    let sums =
        "counters: {source: prometheus, interval: 100ms, window: 1s, half_open_window: 1s, settle: 2s, url: 'http://{admin}/metrics',
  active: agent_server_sessions_active, started: agent_server_sessions_started_total}";
    let profile = PROFILE.replace("counters: {interval: 100ms}", sums).replace("14s", "8s");
    for (flags, code) in [(&["--defect", "ghost=1"][..], 98), (&[], 0)] {
        let backend = Backend::start(flags);
        let (_going, folder, before) = killed(Run::of(&profile).against(&backend), 6);
        let (ended, text) = driver(&["resume"], &folder);
        assert_eq!(ended, Some(code), "{text}");
        let summary = json(&folder.join("summary.json")).expect("a summary");
        let counted = u64::from(code != 0);
        assert_eq!(summary["counters"]["findings"].as_array().map(|all| all.len() as u64), Some(counted), "{text}");
        if code == 0 {
            let at_end = backend.snapshot();
            let (established, unseen) = (at(&summary, "/funnel/established"), at(&summary, "/segments/0/unseen_sessions"));
            assert!(established > at(&before, "/funnel/established"));
            assert_eq!(established + unseen, at_end.started, "{text}");
        } else {
            let ghosts = &summary["counters"]["findings"][0];
            assert_eq!((ghosts["name"].as_str(), ghosts["size"].as_i64()), (Some("ghost"), Some(backend.snapshot().active)), "{text}");
        }
    }
}

#[test]
fn what_cannot_be_resumed_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |part: &str| {
        let (code, text) = driver(&["resume"], folder.path());
        assert_eq!((code, text.contains(part)), (Some(104), true), "{text}");
    };
    refused("there is no checkpoint.json");
    let checkpoint = folder.path().join("checkpoint.json");
    for (text, part) in [
        ("{", "none of this version"),
        ("{\"run\": {\"version\": \"0.0.0\"}}", "version 0.0.0 wrote it"),
        (concat!("{\"run\": {\"version\": \"", env!("CARGO_PKG_VERSION"), "\"}}"), "it has no `resume`"),
        (concat!("{\"run\": {\"version\": \"", env!("CARGO_PKG_VERSION"), "\"}, \"resume\": {\"format\": 99}}"), "its format is 99"),
    ] {
        fs::write(&checkpoint, text).expect("written");
        refused(part);
    }
    fs::write(folder.path().join("summary.json"), "{}").expect("written");
    refused("the run is over");
}
