//! Faults that the timeline of a profile makes on processes, and what a run says of them.

mod run_support;

use run_support::Run;
use serde_json::Value;

/// Three backends; 30 sessions come and go in order while the timeline does its work.
const PROFILE: &str = "
name: faults
target: {embedded: {backends: 3}}
server: {keepalive_interval: 1s, keepalive_timeout: 5s, drain_timeout: 1s}
counters: {window: 3s, half_open_window: 8s, settle: 10s}
driver: {shards: 2, max_schedule_lag: 30s}
defaults:
  executor: constant-sessions
  sessions: 15
  duration: 8s
  gracefulStop: 8s
  session_length: uniform(300ms, 900ms)
  conversations: [{turns: [{wait: 100ms}]}]
scenarios:
  grpc: {protocol: grpc}
  websocket: {protocol: websocket}
faults:
";

#[test]
fn faults_on_processes_are_made_marked_and_end() {
    let faults = "  - {at: 1s, kind: churn, rate: 200, duration: 3s, target: {backend: 0}}
  - {at: 2s, kind: stop, duration: 1500ms, target: {backend: 0}}
  - {at: 2s, kind: drain, duration: 2s, target: {backend: 1}}
  - {at: 4s, kind: kill_backend, dead_for: 300ms, target: {backend: 2}}
  - {at: 5s, kind: cpu, cores: 0.5, duration: 1s}
";
    let done = Run::of(&format!("{PROFILE}{faults}")).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert_eq!(done.off(), (0, 0, 0.0, 0.0), "{}", done.shown());
    for (kind, struck) in [("stop", 1), ("drain", 1), ("kill_backend", 1)] {
        let row = done.fault(kind);
        assert_eq!((&row["struck"], &row["skipped"]), (&Value::from(struck), &Value::Null), "{row}");
        assert!(row["began_s"].as_f64() >= row["planned_s"].as_f64(), "{row}");
    }
    for kind in ["stop", "drain", "churn"] {
        let row = done.fault(kind);
        let lasted = row["ended_s"].as_f64().unwrap_or_default() - row["began_s"].as_f64().unwrap_or_default();
        assert!(lasted >= row["duration_s"].as_f64().unwrap_or(f64::MAX) * 0.9, "{row}");
    }
    let churn = done.fault("churn");
    assert!(churn["struck"].as_u64().unwrap_or_default() > 50, "{churn}");
    // Where there is no control group to be had, that is said, and nothing else.
    let cpu = done.fault("cpu");
    let skipped = cpu["skipped"].as_str().unwrap_or_default();
    assert!(cpu["struck"] == 3 || skipped.contains("control group"), "{cpu}");
    // Nobody but the dead one's callers, and those who were sent to it or to the drained one, failed.
    assert!(done.count("/funnel/completed") > 100, "{}", done.shown());
    assert!(done.stdout.contains("faults made on purpose"), "{}", done.shown());
    let again = done.at("/resolved_profile/faults").as_array().map(Vec::len);
    assert_eq!(again, Some(5));
}

#[test]
fn a_run_that_ends_within_a_fault_leaves_nothing_stopped() {
    let faults =
        "  - {at: 7s, kind: stop, duration: 1h, target: {backend: 0}}\n  - {at: 1s, kind: kill_backend, every: 3s, dead_for: 2s, target: {backend: 2}}
  - {at: 1100ms, kind: kill_backend, target: {backend: 2}}\n";
    let done = Run::of(&format!("{PROFILE}{faults}")).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert_eq!(done.off(), (0, 0, 0.0, 0.0), "{}", done.shown());
    assert!(done.fault("stop")["ended_s"].is_number(), "{}", done.shown());
    let kills = done.at("/faults").as_array().expect("a list").iter().filter(|row| row["kind"] == "kill_backend");
    let struck: Vec<_> = kills.map(|row| (row["struck"].as_u64(), row["without"].is_string())).collect();
    assert_eq!(struck, [(Some(1), false), (Some(0), true), (Some(1), false), (Some(1), false)], "at 1 s, in vain, at 4 s and 7 s");
    assert!(done.stdout.contains("WITHOUT backend 2, which was dead already"), "{}", done.shown());
}

#[test]
fn the_worker_of_a_scenario_can_be_stopped() {
    let faults = "  - {at: 2s, kind: stop, duration: 1s, target: {scenario: grpc}}\n";
    let done = Run::of(&format!("{PROFILE}{faults}")).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert_eq!(done.off(), (0, 0, 0.0, 0.0), "{}", done.shown());
    assert_eq!((&done.fault("stop")["struck"], &done.fault("stop")["target"]), (&Value::from(1), &Value::from("scenario grpc")));
    // The driver was not stopped with it: the other scenario had its sessions meanwhile.
    assert!(done.scenario("websocket")["funnel"]["completed"].as_u64() > Some(50), "{}", done.shown());
    assert!(done.scenario("grpc")["funnel"]["completed"].as_u64() > Some(20), "{}", done.shown());
}
