//! Both directions of the validator: it is silent on a backend that counts right, and it catches, names and sizes each way to count wrongly.

mod run_support;

use run_support::{Done, Row, Run};

/// All seven ends on both protocols, refusals, deadlines, and sessions that come and go beside them, in ten seconds. Backend 0 takes nearly
/// everything, 1 is killed, 2 is overfilled.
const FORCED_KILL: &str = "
name: small-forced-kill
target: {embedded: {backends: 3}}
driver: {shards: 1, max_schedule_lag: 2s}
server:
  shards: 1
  max_sessions: 100
  max_duration: 6s
  keepalive_interval: 1s
  keepalive_timeout: 2s
counters: {interval: 50ms, window: 2s, half_open_window: 8s, settle: 8s}
defaults:
  backend: 0
  gracefulStop: 20s
  executor: constant-arrival-rate
  rate: 6
  duration: 1s
  session_length: uniform(1s, 2500ms)
  ack_every: 0
  conversations:
    - weight: 2
      turns: [{wait: 'uniform(100ms, 800ms)', say: {synth: 500ms}, response: 'uniform(500ms, 1s)'}]
    - weight: 1
      turns: [{wait: 300ms}]
scenarios:
  graceful-grpc: {protocol: grpc, end: graceful}
  graceful-websocket: {protocol: websocket, end: graceful}
  cancel-grpc: {protocol: grpc, end: cancel}
  cancel-websocket: {protocol: websocket, end: cancel}
  tcp-fin-grpc: {protocol: grpc, end: tcp_fin, startTime: 1s}
  tcp-fin-websocket: {protocol: websocket, end: tcp_fin, startTime: 1s}
  tcp-rst-grpc: {protocol: grpc, end: tcp_rst, startTime: 2s}
  tcp-rst-websocket: {protocol: websocket, end: tcp_rst, startTime: 2s}
  half-open-grpc: {protocol: grpc, end: half_open, startTime: 3s}
  half-open-websocket: {protocol: websocket, end: half_open, startTime: 3s}
  kill-worker-grpc: {protocol: grpc, end: kill_worker, startTime: 1s, kill_at: 6s, session_length: 60s}
  kill-worker-websocket: {protocol: websocket, end: kill_worker, startTime: 1s, kill_at: 6s, session_length: 60s}
  kill-backend-grpc: {protocol: grpc, end: kill_backend, startTime: 1s, kill_at: 4s, session_length: 60s, backend: 1}
  kill-backend-websocket: {protocol: websocket, end: kill_backend, startTime: 1s, kill_at: 4s, session_length: 60s, backend: 1}
  churn-grpc: &churn
    executor: constant-sessions
    sessions: 4
    duration: 8s
    protocol: grpc
    session_length: uniform(200ms, 400ms)
    conversations: [{turns: [{wait: 50ms}]}]
  churn-websocket: {<<: *churn, protocol: websocket}
  # 120 starts for 100 places, which nobody leaves meanwhile.
  rejects-grpc: &rejects
    backend: 2
    rate: 30
    duration: 2s
    protocol: grpc
    session_length: 4s
    conversations: [{turns: [{wait: 500ms}]}]
    expect: rejected
  rejects-websocket: {<<: *rejects, protocol: websocket}
  # Stays until the backend's deadline.
  overtime-grpc: &overtime
    rate: 4
    protocol: grpc
    session_length: 60s
    conversations: [{turns: [{wait: 500ms}]}]
    expect: timed_out
  overtime-websocket: {<<: *overtime, protocol: websocket}
thresholds:
  # Kills, refusals and deadlines are what the plan asks for: nothing else may go wrong.
  sessions_failed: ['rate==0']
  drift_max: ['value<1000']
";

/// Sessions of each kind of end and protocol: 6 a second for a second.
const EACH: u64 = 6;

#[test]
fn a_backend_that_counts_right_is_met_with_silence() {
    let done = Run::of(FORCED_KILL).finish().exits(0);
    assert_eq!(done.findings(), []);
    assert_eq!(done.at("/counters/status"), "agree");
    let rows = done.rows();
    assert_eq!(rows.len(), 14, "{rows:?}");
    for kind in ["graceful", "cancel", "tcp_fin", "tcp_rst", "half_open", "kill_worker", "kill_backend"] {
        for protocol in ["grpc", "websocket"] {
            let name = format!("{kind} {protocol}");
            let row = rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"));
            // Most scenarios end gracefully beside the one that is named so.
            let killed = if kind == "graceful" { row.killed } else { EACH };
            assert!(killed >= EACH, "{row:?}");
            // What a killed backend had counted went with it; that its successor counts nothing is how the kill shows.
            let written_off = if kind == "kill_backend" { row.written_off } else { 0 };
            let detected = killed - written_off;
            assert_eq!(*row, Row { name, killed, detected, written_off, ghosts: 0, false_capacity: 0 });
        }
    }
    assert_eq!(done.off(), (0, 0, 0.0, 0.0));
    assert_eq!(done.count("/counters/ghost_ages/seen/count"), 0);
    let funnel = |scenario: &str, step: &str| done.scenario(scenario)["funnel"][step].as_u64().expect("a count");
    assert_eq!(funnel("rejects-grpc", "refused_as_planned") + funnel("rejects-websocket", "refused_as_planned"), 20, "{}", done.shown());
    assert_eq!(funnel("overtime-grpc", "requested") + funnel("overtime-websocket", "requested"), 8);
}

/// Runs against backends that count wrongly: the verdict is this defect and no other. Gives its size, and how often it struck.
#[track_caller]
fn caught(defect: &str, rate: &str) -> (u64, u64, Done) {
    let (size, done) = named(defect, rate, defect);
    (size, done.strikes(defect), done)
}

/// As [`caught`], where the finding has a name of its own.
#[track_caller]
fn named(defect: &str, rate: &str, finding: &str) -> (u64, Done) {
    let done = Run::of(FORCED_KILL).with("--defect").with(&format!("{defect}={rate}")).finish().exits(98).says(finding);
    let findings = done.findings();
    let [(name, size)] = findings[..] else { panic!("not one finding: {findings:?}\n{}", done.shown()) };
    assert_eq!(name, finding, "{}", done.shown());
    let strikes = done.strikes(defect);
    assert!(strikes >= 3, "{defect} struck {strikes} times: that proves little");
    (size, done)
}

#[track_caller]
fn caught_and_sized(defect: &str, rate: &str) -> Done {
    let (size, strikes, done) = caught(defect, rate);
    assert_eq!(size, strikes, "{}", done.shown());
    done
}

#[test]
fn ghosts_are_caught_and_sized() {
    let done = caught_and_sized("ghost", "0.1");
    let in_rows: u64 = done.rows().iter().map(|row| row.ghosts).sum();
    assert_eq!(in_rows, done.strikes("ghost"), "{:?}", done.rows());
    // Each is seen once when its window is over, and stays. They are on one backend, above what is live.
    let (most, least, ghost_s, false_s) = done.off();
    assert_eq!((most, least, false_s), (done.strikes("ghost") as i64, 0, 0.0), "{}", done.shown());
    assert!(ghost_s > 0.0, "{}", done.shown());
    for moment in ["seen", "still"] {
        assert_eq!(done.count(&format!("/counters/ghost_ages/{moment}/count")), done.strikes("ghost"), "{}", done.shown());
    }
    assert!(done.at("/counters/ghost_ages/seen/p50_s").as_f64().is_some_and(|s| s >= 2.0), "{}", done.shown());
}

#[test]
fn double_decrements_are_caught_and_sized() {
    let done = caught_and_sized("double_decrement", "0.05");
    let (most, least, ghost_s, false_s) = done.off();
    assert_eq!((most, least, ghost_s), (0, -(done.strikes("double_decrement") as i64), 0.0), "{}", done.shown());
    assert!(false_s > 0.0, "{}", done.shown());
}

#[test]
fn decrements_on_reject_are_caught_and_sized() {
    caught_and_sized("decrement_on_reject", "0.25");
}

/// Later than the window of 2 s.
#[test]
fn late_decrements_are_caught_and_sized() {
    caught_and_sized("late_decrement", "0.1:5s");
}

#[test]
fn forgotten_timeouts_are_caught_and_sized() {
    caught_and_sized("forget_on_timeout", "0.25");
}

/// Counted as ended, and there again.
#[test]
fn sessions_that_come_back_are_caught_and_sized() {
    let done = named("resurrect", "0.05", "resurrection");
    let (most, least, _, _) = done.1.off();
    assert_eq!((done.0, most, least), (done.1.strikes("resurrect"), done.0 as i64, 0), "{}", done.1.shown());
}

/// A torn snapshot shows only when something ended between its halves.
#[test]
fn torn_snapshots_are_caught() {
    let (size, strikes, done) = caught("torn_snapshot", "0.3");
    assert!(0 < size && size <= strikes, "{size} of {strikes}\n{}", done.shown());
}
