//! A run against an earlier one, and reports of results, as a CI job has them.

mod run_support;

use std::{path::Path, process::Command};

use run_support::{Done, Run};

/// Quick turns, many of them: long enough to tell.
fn run(think: &str) -> Run {
    let profile = format!(
        "
name: talk
driver: {{shards: 1, max_schedule_lag: 2s}}
server: {{think: '{think}'}}
defaults:
  executor: constant-sessions
  sessions: 12
  duration: 25s
  gracefulStop: 10s
  conversations: [{{turns: [{{wait: 'uniform(50ms, 2s)', say: {{synth: 300ms}}, response: 300ms}}]}}]
scenarios:
  grpc: {{protocol: grpc}}
  websocket: {{protocol: websocket, format: mulaw_8k}}
"
    );
    Run::of(&profile)
}

/// What the driver prints, and how it ends.
fn driver(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_load-driver"));
    for name in ["GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"] {
        command.env_remove(name);
    }
    let output = command.args(arguments).output().expect("runs");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

fn path(done: &Done) -> &str {
    done.folder().to_str().expect("a path")
}

fn verdict(done: &Done, key: &str, statistic: &str) -> String {
    let rows = done.at("/comparison/rows").as_array().expect("a list");
    let row = rows.iter().find(|row| row["key"] == key && row["statistic"] == statistic);
    row.unwrap_or_else(|| panic!("no {key} {statistic}:\n{}", done.shown()))["verdict"].as_str().expect("a name").to_owned()
}

/// The same again passes, a slower backend does not; and the results say so again when they are asked.
#[test]
fn a_slower_backend_is_a_regression_and_the_same_one_is_not() {
    let first = run("uniform(80ms, 160ms)").finish().exits(0);
    let page = tempfile::NamedTempFile::new().expect("a file");
    let in_ci =
        |run: Run| run.environment("GITHUB_ACTIONS", "true").environment("GITHUB_STEP_SUMMARY", page.path().to_str().expect("a path"));
    // What a busy machine adds to a turn differs from run to run, and is no part of this test.
    let against = |run: Run| in_ci(run).with("--baseline").with(path(&first)).with("--tolerance=100%").with("--floor=100ms");

    // On a busy machine half a minute may be too short to tell, and that is no pass; worse it is never.
    let same = against(run("uniform(80ms, 160ms)")).finish();
    let same_code = if same.at("/comparison/status") == "no_regression" { 0 } else { 99 };
    let same = same.exits(same_code);
    assert_ne!(same.at("/comparison/status"), "regression", "{}", same.shown());
    assert!(!same.stdout.contains("::error title=worse"), "{}", same.stdout);

    let slow = against(run("uniform(1500ms, 1600ms)")).finish().exits(99).says("REGRESSION");
    for key in ["turn_response", "turn_response{scenario:grpc}", "turn_response{scenario:websocket}"] {
        assert_eq!(verdict(&slow, key, "p(50)"), "worse", "{key}\n{}", slow.shown());
    }
    assert_ne!(verdict(&slow, "sessions_failed", "rate"), "worse");
    assert!(slow.stdout.contains("::error title=worse than the baseline%3A turn_response p(50)::"), "{}", slow.stdout);
    assert!(slow.file("junit.xml").contains("<failure message=\"turn_response p(50) was"), "{}", slow.file("junit.xml"));
    assert!(slow.file("summary.md").contains("REGRESSION"));
    let steps = std::fs::read_to_string(page.path()).expect("a page");
    assert!(steps.matches(": talk\n").count() == 2 && steps.contains("## ❌ FAILED (exit code 99): talk\n"), "{steps}");

    // `compare` says what the run said.
    let compare = |format: &str| driver(&["compare", path(&first), path(&slow), "--tolerance=100%", "--floor=100ms", "--format", format]);
    let (code, json) = compare("json");
    let compared: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, &compared), (Some(99), slow.at("/comparison")));
    assert!(compare("terminal").1.contains("REGRESSION") && compare("markdown").1.starts_with("### Against the baseline"));
    let (compared, shown) = driver(&["compare", path(&first), path(&same), "--tolerance=100%", "--floor=100ms"]);
    assert_eq!(compared, Some(same_code), "{shown}");

    // `report` says what the run said, and ends as it did.
    let (code, text) = driver(&["report", path(&slow)]);
    assert_eq!(code, Some(99), "{text}");
    assert!(slow.stdout.contains(text.trim()), "{text}\n{}", slow.stdout);
    for (format, file) in [("markdown", "summary.md"), ("junit", "junit.xml")] {
        let (code, text) = driver(&["report", path(&slow), "--format", format]);
        assert_eq!((code, text), (Some(99), slow.file(file)), "{format}");
    }
    let again: serde_json::Value = serde_json::from_str(&driver(&["report", path(&slow), "--format", "json"]).1).expect("JSON");
    assert_eq!((&again["run"], &again["exit"], &again["thresholds"]), (slow.at("/run"), slow.at("/exit"), slow.at("/thresholds")));
    assert!(driver(&["report", path(&slow), "--format", "annotations"]).1.starts_with("::error "));
    // All that is left of a run that was killed: no pass, whatever it says.
    let cut = tempfile::tempdir().expect("a folder");
    std::fs::copy(first.folder().join("summary.json"), cut.path().join("checkpoint.json")).expect("copied");
    let (code, text) = driver(&["report", cut.path().to_str().expect("a path")]);
    assert!(code == Some(105) && text.contains("UNFINISHED"), "{code:?} {text}");
    // A log that lost its end is no log of the run.
    let summary = cut.path().join("summary.json");
    std::fs::copy(first.folder().join("summary.json"), &summary).expect("copied");
    let log = first.file("latencies.hlog");
    let lines: Vec<&str> = log.lines().collect();
    std::fs::write(cut.path().join("latencies.hlog"), lines[..lines.len() / 2].join("\n") + "\n").expect("written");
    let (code, text) = driver(&["compare", path(&first), cut.path().to_str().expect("a path")]);
    assert!(code == Some(104) && text.contains("a part of the log is missing"), "{code:?} {text}");
    // A verdict that the rest of the summary forbids is none.
    let mut told: serde_json::Value = serde_json::from_str(&first.file("summary.json")).expect("JSON");
    told["counters"]["status"] = "disagree".into();
    std::fs::write(&summary, told.to_string()).expect("written");
    let (code, text) = driver(&["report", cut.path().to_str().expect("a path")]);
    assert!(code == Some(98) && text.contains("FAILED exit 98"), "{code:?} {text}");
}

/// What could not be compared after the run is refused before it.
#[test]
fn a_baseline_of_another_load_is_refused_before_anything_starts() {
    let tiny = "name: tiny\nscenarios: {talk: {executor: constant-sessions, sessions: 1, duration: 1s, gracefulStop: 5s, conversations: [{turns: [{wait: 100ms, say: {synth: 200ms}}]}]}}\n";
    let first = Run::of(tiny).finish();
    let refused =
        |run: Run, baseline: &Path| run.with("--baseline").with(baseline.to_str().expect("a path")).finish().exits(104).has_no_summary();
    refused(Run::of(&tiny.replace("sessions: 1", "sessions: 2")), first.folder()).says("scenarios.talk.sessions was 1, and is 2");
    refused(Run::of(tiny), Path::new("no/such/folder")).says("no results in no/such/folder");
    let bare = tempfile::tempdir().expect("a folder");
    std::fs::copy(first.folder().join("summary.json"), bare.path().join("summary.json")).expect("copied");
    refused(Run::of(tiny), bare.path()).says("latencies.hlog must lie beside summary.json");
    refused(Run::of(tiny).with("--set").with("routing={policy: [random, round_robin]}"), first.folder()).says("several policies");
    // A second of one session tells nothing, and that is no pass.
    Run::of(tiny).with("--baseline").with(path(&first)).finish().exits(99).says("UNDECIDED");
    let (code, text) = driver(&["compare", path(&first), "no/such/folder"]);
    assert!(code == Some(104) && text.contains("no results in no/such/folder"), "{code:?} {text}");
}
