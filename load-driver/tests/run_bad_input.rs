//! What users and targets do wrong: an exit code of its own for each, and a message that says what and where.

mod run_support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    thread,
};

use run_support::{Run, backend::Backend};
use rustix::process::Signal;

/// Four silent sessions of both protocols, and what is appended.
fn quiet(more: &str) -> String {
    format!(
        "
name: quiet
driver: {{shards: 1, max_schedule_lag: 2s, connect_timeout: 2s}}
counters: {{window: 2s, half_open_window: 3s, settle: 3s}}
defaults:
  executor: constant-sessions
  sessions: 2
  duration: 2s
  gracefulStop: 1s
  start_timeout: 2s
  conversations: [{{turns: [{{wait: 300ms}}]}}]
scenarios:
  grpc: {{protocol: grpc}}
  websocket: {{protocol: websocket}}
{more}"
    )
}

#[test]
fn an_invalid_profile_is_shown_where_it_is_wrong() {
    let profile = "name: typo\nscenarios:\n  talk:\n    executor: constant-sessions\n    sessions: 2\n    durations: 30s\n";
    Run::of(profile)
        .finish()
        .exits(104)
        .says("unknown key `durations`")
        .says("profile.yaml:6:5")
        .says("\n6 |     durations: 30s\n  |     ^\n")
        .says("did you mean `duration`?")
        .has_no_summary();
}

#[test]
fn a_profile_that_is_not_there_is_named() {
    Run::of("").with("extra").finish().exits(104).says("extra");
    Run::of("scenarios: {}").finish().exits(104).says("profile.yaml");
}

#[test]
fn a_run_of_no_session_is_no_pass() {
    let profile = "
scenarios:
  nobody:
    executor: poisson-arrivals
    rate: 0.001
    duration: 1s
    protocol: grpc
    conversations: [{turns: [{wait: 300ms}]}]
";
    Run::of(profile).finish().exits(104).says("no session begins").has_no_summary();
}

#[test]
fn overrides_reach_the_run_and_wrong_ones_are_refused() {
    let done = Run::of(&quiet("")).with("--set").with("scenarios.grpc.sessions=3").with("--set").with("seed=7").finish().exits(0);
    assert_eq!(done.at("/resolved_profile/scenarios/grpc/sessions"), 3);
    assert_eq!(done.at("/run/seed"), 7);
    assert!(done.scenario("grpc")["funnel"]["requested"].as_u64() > done.scenario("websocket")["funnel"]["requested"].as_u64());
    Run::of(&quiet("")).with("--set=scenarios.grpc.session=3").finish().exits(104).says("scenarios.grpc.session").says("sessions");
    Run::of(&quiet("")).with("--set=nonsense").finish().exits(104).says("nonsense");
}

#[test]
fn defects_are_for_embedded_backends() {
    let refused = Run::of(&quiet("")).with("--defect=ghost=0.1").with("--target=127.0.0.1:7000").finish();
    refused.exits(104).says("--defect ghost=0.1").says("embedded").has_no_summary();
    Run::of(&quiet("")).with("--defect=ghoul=0.1").finish().exits(104).says("ghoul").says("forget_on_timeout").has_no_summary();
    // What a server would refuse at its start is refused before anything starts.
    Run::of(&quiet("")).with("--fault=pool_leak").finish().exits(104).says("server.max_sessions").has_no_summary();
}

/// A port where nobody listens: it was free a moment ago.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("bound")
}

#[test]
fn a_refused_target_is_unusable() {
    let target = nobody();
    let done = Run::of(&quiet("")).with(&format!("--target={target}")).finish().exits(106);
    done.says(&target.to_string()).says("refused").has_no_summary();
}

/// Speaks HTTP, but not to agents.
fn web_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            thread::spawn(move || {
                // Whoever leaves before the answer needs none.
                let _ = socket.read(&mut [0; 4_096]);
                let _ = socket.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            });
        }
    });
    address
}

#[test]
fn a_web_server_is_no_agent() {
    // Its counters cannot be read either: nothing to poll must not become something to complain about without end.
    let target = web_server();
    let done = Run::of(&quiet("")).with(&format!("--target={target}")).finish().exits(106);
    assert_eq!(done.count("/funnel/established"), 0);
    assert!(done.stderr.lines().count() < 100, "{} lines", done.stderr.lines().count());
    let causes: Vec<&String> = done.at("/errors").as_object().expect("a map").keys().collect();
    assert!(!causes.is_empty());
    for cause in causes {
        assert!(done.stdout.contains(cause.as_str()), "{cause} is not shown:\n{}", done.stdout);
    }
}

#[test]
fn a_silent_listener_is_no_agent() {
    // Its backlog takes connections, and nobody ever reads from them.
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let target = listener.local_addr().expect("bound");
    let done = Run::of(&quiet("")).with(&format!("--target={target}")).finish().exits(106);
    assert_eq!(done.count("/funnel/established"), 0);
    done.says("timeout");
}

#[test]
fn a_failed_threshold_has_its_exit_code_and_says_what_was_measured() {
    let done = Run::of(&quiet("thresholds: {session_startup: ['p(95)<0.001'], sessions_failed: ['rate==0']}")).finish().exits(99);
    done.says("p(95)<0.001");
}

#[test]
fn a_threshold_without_data_fails() {
    let done = Run::of(&quiet("thresholds: {tool_round_trip: ['p(95)<1000']}")).finish().exits(99).says("no data");
    assert_eq!(done.at("/thresholds/0/status"), "no_data");
    assert_eq!(done.at("/thresholds/0/ok"), false);
}

/// No clock of a tick of a millisecond keeps a microsecond.
#[test]
fn a_saturated_generator_is_no_pass() {
    let profile = quiet("thresholds: {schedule_lag: ['count>=100']}").replace("max_schedule_lag: 2s", "max_schedule_lag: 1us");
    let done = Run::of(&profile).with("--set=scenarios.grpc.send_silence=true").finish().exits(97).says("schedule");
    assert_eq!(done.at("/generator/saturation/saturated"), true);
    assert_eq!(done.at("/thresholds/0/ok"), true, "the test itself wants enough samples");
}

/// Five sessions in a process that is planned to be killed, long after the test.
const IN_A_WORKER: &str = "
name: worker
driver: {shards: 1, max_schedule_lag: 2s}
scenarios:
  killed: {executor: constant-sessions, sessions: 5, duration: 8s, gracefulStop: 1s, end: kill_worker, kill_at: 8s, conversations: [{turns: [{wait: 200ms}]}]}
  steady: {executor: constant-sessions, sessions: 2, duration: 8s, gracefulStop: 1s, conversations: [{turns: [{wait: 200ms}]}]}
";

#[test]
fn a_lost_worker_degrades_the_run() {
    let backend = Backend::start(&[]);
    let going = Run::of(IN_A_WORKER).against(&backend).begin();
    let worker = going.child("worker");
    backend.eventually("the worker's sessions", |snapshot| snapshot.active >= 6);
    run_support::send(worker, Signal::KILL);
    let done = going.finish();
    assert_eq!(done.count("/workers_lost"), 1, "{}", done.shown());
    let reasons = done.at("/exit/reasons").as_array().expect("a list").clone();
    assert!(reasons.contains(&"degraded".into()), "{reasons:?}");
    done.exits(96).says("lost");
}

/// A kill that finds no session is no proof, and no pass. Stopped while it still prepares its sounds, the worker never begins.
/// A worker plans from the same profile as the driver: scenarios have their numbers by the order of the file, not of the alphabet.
#[test]
fn a_worker_runs_the_scenario_that_is_its_own() {
    let profile = quiet(
        "  talkers: {protocol: grpc, sessions: 5}
  abrupt: {protocol: websocket, end: kill_worker, kill_at: 1500ms, session_length: 1m}",
    );
    let done = Run::of(&profile).finish().exits(0);
    assert_eq!(done.scenario("abrupt")["funnel"]["requested"], 2, "one session in each place, until the kill");
    let driver = &done.at("/costs")[0];
    assert!(driver["sessions_peak"].as_u64().is_some_and(|n| n <= 9), "sessions of workers are no cost of this process: {driver}");
    let killed = done.at("/convergence").as_array().expect("rows").clone();
    let killed = killed.iter().find(|row| row["kind"] == "kill_worker" && row["protocol"] == "websocket").expect("a row");
    assert_eq!((&killed["killed"], &killed["detected"]), (&2.into(), &2.into()), "{killed}");
}

/// The run begins when every worker has its plan: a slow one costs time, and no kill finds nobody.
#[test]
fn a_run_waits_for_a_worker_that_is_slow_to_begin() {
    let profile = "
name: slow-worker
driver: {shards: 1, max_schedule_lag: 20s}
counters: {settle: 5s}
scenarios:
  killed: {executor: constant-sessions, sessions: 5, duration: 4s, end: kill_worker, kill_at: 3s, conversations: [{turns: [{wait: 200ms}]}]}
  steady: {executor: constant-sessions, sessions: 2, duration: 4s, conversations: [{turns: [{wait: 200ms}]}]}
";
    let going = Run::of(profile).begin();
    let worker = going.child("worker");
    run_support::send(worker, Signal::STOP);
    std::thread::sleep(std::time::Duration::from_secs(2));
    run_support::send(worker, Signal::CONT);
    let done = going.finish().exits(0);
    assert_eq!(done.scenario("killed")["funnel"]["established"], 5);
    let rows = done.at("/convergence").as_array().expect("rows").clone();
    assert!(rows.iter().any(|row| row["kind"] == "kill_worker" && row["detected"] == 5), "{rows:?}");
}

/// Eight seconds of sessions, in the midst of which the test kills the backend.
fn long_enough_to_kill() -> String {
    quiet("").replace("duration: 2s", "duration: 8s")
}

/// What it had counted is gone, and no plan says that it may be: nothing is proven.
fn unproven(done: run_support::Done) {
    let done = done.exits(98).says("no answer after its last session ended");
    assert_eq!(done.findings(), [("unverified", 1)]);
    assert!(done.count("/funnel/established") > 0, "{}", done.shown());
    assert!(!done.at("/errors").as_object().expect("a map").is_empty(), "{}", done.shown());
}

#[test]
fn an_embedded_backend_that_dies_unasked_is_no_pass() {
    let going = Run::of(&long_enough_to_kill()).begin();
    let backend = going.child("backend");
    // Lines come at the start and every 5 s.
    run_support::eventually("the second look at the progress", || (going.stderr().matches(" running: ").count() > 1).then_some(()));
    run_support::send(backend, Signal::KILL);
    unproven(going.finish());
}

#[test]
fn a_backend_of_others_that_dies_is_no_pass() {
    let backend = Backend::start(&[]);
    let going = Run::of(&long_enough_to_kill()).against(&backend).begin();
    // Of four at a time: some are over in order by then.
    backend.eventually("sessions", |snapshot| snapshot.started >= 8);
    backend.signal(Signal::KILL);
    unproven(going.finish());
}

#[test]
fn too_few_file_descriptors_are_said_before_anything_starts() {
    let profile = quiet("").replace("sessions: 2", "sessions: 500");
    let done = Run::of(&profile).through("ulimit -n 200; exec \"$@\"").finish().exits(104).has_no_summary();
    // 500 WebSocket sessions have a connection each; gRPC streams share theirs.
    let needed = done.stderr.split_once("needs about ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(needed.is_some_and(|needed| (500..900).contains(&needed)), "{}", done.stderr);
    done.says("this process may have 200").says("ulimit -Hn");
}

#[test]
fn a_soft_limit_is_raised_as_far_as_it_goes() {
    Run::of(&quiet("")).through("ulimit -Sn 64; exec \"$@\"").finish().exits(0);
}

#[test]
fn a_reader_that_went_away_costs_nothing_but_the_text() {
    // The reader is gone before the first word.
    let done = Run::of(&quiet("")).through("{ \"$@\"; echo \"ended with $?\" >&2; } | true").finish();
    assert!(done.stderr.contains("ended with 0"), "{}", done.stderr);
    assert_eq!(done.at("/exit/code"), 0);
}
