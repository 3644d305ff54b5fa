//! Faults that the timeline makes on sessions, by fractions, over two transports and two dialects, in this process and in a worker's: each is made, each
//! is marked, and the counters are exact; where they are not, the defect is named.

mod run_support;

use run_support::{Done, Row, Run};
use serde_json::Value;

/// Sessions that last; `worker` runs in a process of its own, because it is stopped for a moment.
const PROFILE: &str = "
name: faults-on-sessions
target: {embedded: {backends: 2}}
server: {keepalive_interval: 500ms, keepalive_timeout: 5s, think: 20ms}
counters: {interval: 100ms, window: 6s, half_open_window: 9s, settle: 6s}
driver: {shards: 2, max_schedule_lag: 30s}
defaults:
  executor: constant-sessions
  sessions: 12
  duration: 11s
  gracefulStop: 1s
  session_length: 60s
  conversations: [{turns: [{wait: 100ms, say: {synth: 300ms}, response: 500ms}]}]
scenarios:
  grpc: {protocol: grpc}
  websocket: {protocol: websocket}
  openai: {dialect: openai_realtime}
  worker: {protocol: grpc, sessions: 6}
faults:
  - {at: 500ms, kind: stop, duration: 100ms, target: {scenario: worker}}
  - {at: 2s, kind: cancel, fraction: 0.5}
  - {at: 3s, kind: tcp_fin, fraction: 0.5}
  - {at: 4s, kind: tcp_rst, fraction: 0.5}
  - {at: 5s, kind: half_open, fraction: 0.4}
  - {at: 6s, kind: slow_reader, fraction: 0.5, duration: 2s}
  - {at: 8500ms, kind: race, fraction: 0.5}
  - {at: 9500ms, kind: reconnect_storm, backoff: 300ms, jitter: 500ms}
";

/// Of a kind of end, over all protocols.
fn killed(done: &Done, kind: &str) -> u64 {
    done.rows().iter().filter(|row| row.name.split(' ').next() == Some(kind)).map(|row| row.killed).sum()
}

#[test]
fn each_is_made_on_its_share_of_the_sessions_and_the_counters_are_exact() {
    let done = Run::of(PROFILE).finish().exits(0);
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert_eq!(done.count("/funnel/failed") + done.count("/funnel/not_established"), 0, "{}", done.shown());
    // 42 sessions at any time, for whoever is struck is followed by another; fewer where the machine takes its time with that.
    for kind in ["cancel", "tcp_fin", "tcp_rst", "half_open", "slow_reader", "race"] {
        assert!((3..=32).contains(&done.struck(kind)), "{}", done.made(kind));
    }
    // The table by kind has all of them, and nobody else.
    assert_eq!(killed(&done, "cancel"), done.struck("cancel") + done.struck("race"), "{}", done.shown());
    assert_eq!(killed(&done, "tcp_fin"), done.struck("tcp_fin"), "{}", done.shown());
    assert_eq!(killed(&done, "tcp_rst"), done.struck("tcp_rst") + done.struck("reconnect_storm"), "{}", done.shown());
    assert_eq!(killed(&done, "half_open"), done.struck("half_open"), "{}", done.shown());
    for Row { name, killed, detected, ghosts, false_capacity, .. } in done.rows() {
        assert_eq!((detected, ghosts, false_capacity), (killed, 0, 0), "{name}: {}", done.shown());
    }
    for kind in ["cancel", "tcp_fin", "tcp_rst", "half_open"] {
        let of = |row: &Value| row["kind"] == kind && row["killed"].as_u64() > Some(0);
        let rows = done.at("/convergence").as_array().expect("a list").iter().filter(|row| of(row)).count();
        assert_eq!(rows, 3, "{kind} over gRPC, WebSocket and OpenAI Realtime: {}", done.shown());
    }

    // Nobody read for a while; what came meanwhile was heard after it.
    let deaf = done.made("slow_reader");
    assert!(deaf["ended_s"].as_f64() >= deaf["planned_s"].as_f64().map(|at| at + 2.0), "{deaf}");
    // Who of the struck waits for an answer just then is a matter of the machine's pace, so not each scenario need show it.
    let heard_late = |scenario: &str| done.latency_of(scenario, "turn_response", "max_ms") > 700.0;
    assert!(["grpc", "websocket", "openai"].iter().any(|scenario| heard_late(scenario)), "{}", done.shown());

    assert_eq!(done.made("race")["without"], "a deadline over openai_realtime, whose sessions cannot ask for one");
    // Everybody came back, each after its backoff.
    let storm = done.made("reconnect_storm");
    let figure = |name: &str| storm["figures"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {storm}"));
    let all = done.struck("reconnect_storm") as f64;
    assert!(all >= 20.0, "{storm}");
    assert_eq!((figure("came_back"), figure("gave_up"), figure("dials_failed")), (all, 0.0, 0.0), "{storm}");
    assert!(figure("all_back_after_s") > 0.3, "{storm}");
    assert!(figure("peak_dials_per_s") >= all / 4.0 && figure("peak_dials_per_s") <= all, "{storm}");
    assert!(figure("peak_dialling") >= 1.0, "{storm}");
    // What was not made in full is said where CI reads.
    assert!(done.file("junit.xml").contains("made without a deadline over openai_realtime"), "{}", done.file("junit.xml"));
    assert!(done.stdout.contains("WITHOUT a deadline"), "{}", done.stdout);
}

#[test]
fn a_ghost_is_found_among_those_that_are_struck() {
    let done = Run::of(PROFILE).with("--defect").with("ghost=0.2").finish().exits(98);
    let strikes = done.strikes("ghost");
    assert!(strikes >= 5, "{}", done.shown());
    assert_eq!(done.findings(), [("ghost", strikes)], "{}", done.shown());
    let ghosts: u64 = done.rows().iter().map(|row| row.ghosts).sum();
    assert!((1..=strikes).contains(&ghosts), "{}", done.shown());
}

/// Half-open sessions, and races that the deadline won: however they looked from here, the backend ended them by a timeout.
#[test]
fn a_backend_that_forgets_to_count_timeouts_is_named_in_races_too() {
    let done = Run::of(PROFILE).with("--defect").with("forget_on_timeout=0.5").finish().exits(98);
    let strikes = done.strikes("forget_on_timeout");
    assert!(strikes >= 3, "{}", done.shown());
    assert_eq!(done.findings(), [("forget_on_timeout", strikes)], "{}", done.shown());
}

/// A storm that finds nobody at home for a while: who fails tries again, ever more seldom, and is one session all the time.
#[test]
fn a_storm_after_the_death_of_the_backend_comes_back_when_the_backend_does() {
    let faults = "faults:
  - {at: 1500ms, kind: reconnect_storm, target: {backend: 0}, backoff: 200ms, jitter: 100ms}
  - {at: 1600ms, kind: kill_backend, dead_for: 1500ms, target: {backend: 0}}
";
    let (head, _) = PROFILE.split_once("faults:\n  -").expect("faults");
    let pinned = head.replace("defaults:\n", "defaults:\n  backend: 0\n").replace("duration: 11s", "duration: 10s");
    let done = Run::of(&format!("{pinned}{faults}")).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    let storm = done.made("reconnect_storm");
    let figure = |name: &str| storm["figures"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {storm}"));
    let all = done.struck("reconnect_storm") as f64;
    assert!(all >= 20.0 && figure("dials_failed") >= 1.0, "{storm}");
    assert_eq!((figure("came_back"), figure("gave_up")), (all, 0.0), "{storm}");
    assert!(figure("all_back_after_s") > 1.4, "{storm}");
    // A try that fails is no session that fails.
    assert_eq!(done.at("/errors").get("connection_refused"), None, "{}", done.shown());
}

/// Each takes a file descriptor: those of backends that have found out are given back, and none is kept to the end of a night.
#[test]
fn silent_sockets_are_let_go_once_their_backend_has_found_out() {
    let profile = "
name: silent
target: embedded
server: {keepalive_interval: 500ms, keepalive_timeout: 500ms}
counters: {window: 3s, half_open_window: 8s, settle: 10s}
driver: {max_schedule_lag: 30s}
defaults:
  executor: constant-sessions
  sessions: 15
  duration: 15s
  session_length: 300ms
  end: half_open
  conversations: [{turns: [{wait: 10s}]}]
scenarios:
  grpc: {protocol: grpc}
  websocket: {protocol: websocket}
";
    let done = Run::of(profile).finish().exits(0);
    let silent = killed(&done, "half_open");
    assert!(silent > 200, "{}", done.shown());
    let rows = done.at("/leaks").as_array().expect("a list");
    let row = rows.iter().find(|row| row["process"] == "driver" && row["what"] == "fds").expect("a row");
    // What is silent now, and what every driver has.
    assert!(row["last"].as_f64() < Some(silent as f64 / 2.0), "{row} of {silent}");
}
