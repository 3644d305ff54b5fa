//! Runs against fleets: settings of each backend, a front that picks, a name that gives the backends, a kill in mid-run.

mod run_support;

use run_support::{Done, Run, backend::Backend, front::Front};

/// What a session does is of no account here. Twenty sessions, in a second.
const SCENARIOS: &str = "
driver: {shards: 1, max_schedule_lag: 2s}
counters: {interval: 50ms, window: 2s, half_open_window: 8s, settle: 8s}
defaults:
  executor: constant-arrival-rate
  rate: 10
  duration: 1s
  gracefulStop: 20s
  session_length: uniform(1s, 2s)
  ack_every: 0
  own_connection: true
  conversations: [{turns: [{wait: 200ms, say: {synth: 300ms}, response: 300ms}]}]
scenarios:
  grpc: {protocol: grpc}
  websocket: {protocol: websocket}
";

fn member(backend: &Backend) -> String {
    format!("{{address: '{}', admin: '{}'}}", backend.address, backend.admin)
}

/// Two backends with names and further flags of their own, and a front before them.
fn fronted(flags: [&[&str]; 2]) -> ([Backend; 2], Front, String) {
    let backends = ["left", "right"].into_iter().zip(flags).map(|(id, flags)| Backend::start(&[&["--backend-id", id], flags].concat()));
    let backends: [Backend; 2] = backends.collect::<Vec<_>>().try_into().ok().expect("two");
    let front = Front::before(backends.iter().map(|backend| backend.address).collect());
    let head = format!("target: ['{}']\nbackends: [{}, {}]\n", front.address, member(&backends[0]), member(&backends[1]));
    (backends, front, head)
}

fn funnel(done: &Done, step: &str) -> u64 {
    done.count(&format!("/funnel/{step}"))
}

#[test]
fn each_backend_has_its_own_settings() {
    // Ten sessions go to each; the first takes two at a time, and none is over before the last has come.
    let fleet = "server: {shards: 1}\nbackends: [{server: {max_sessions: 2}}, {server: {max_sessions: 50}}]\n";
    let done = Run::of(&format!("{fleet}{SCENARIOS}"))
        .with("--set=scenarios.grpc.session_length=3s")
        .with("--set=scenarios.websocket.session_length=3s")
        .with("--set=scenarios.grpc.expect=rejected")
        .with("--set=scenarios.websocket.expect=rejected")
        .finish()
        .exits(0);
    assert_eq!(done.at("/counters/status"), "agree");
    assert_eq!((funnel(&done, "requested"), funnel(&done, "established"), funnel(&done, "refused_as_planned")), (20, 12, 8));
    assert!(done.file("backend-0.json").contains("\"max_sessions\": 2") && done.file("backend-1.json").contains("\"max_sessions\": 50"));
}

#[test]
fn sessions_behind_a_front_are_counted_where_it_sends_them() {
    let (backends, front, head) = fronted([&[], &[]]);
    let done = Run::of(&format!("{head}{SCENARIOS}")).finish().exits(0);
    assert_eq!((done.at("/counters/status").as_str(), done.findings()), (Some("agree"), vec![]));
    assert_eq!(funnel(&done, "completed"), 20);
    let started = backends.each_ref().map(|backend| backend.snapshot().started);
    assert_eq!(started, [10, 10]);
    assert!(
        done.at("/counters/basis").as_str().is_some_and(|basis| basis.contains("2 backend processes, 20 sessions")),
        "{}",
        done.shown()
    );
    let targets = done.at("/run/targets").as_array().expect("a list").iter().map(|target| target.as_str().expect("text").to_owned());
    let expected =
        [format!("front {}", front.address), format!("backend {}", backends[0].address), format!("backend {}", backends[1].address)];
    assert_eq!(targets.collect::<Vec<_>>(), expected);
}

/// Every cut of a connection shows at the backend behind it, and the one that forgets is caught through the front.
#[test]
fn a_backend_that_counts_wrongly_is_caught_through_the_front() {
    for (defect, flag) in [("ghost", "ghost=0.4"), ("double_decrement", "double_decrement=0.4")] {
        let (backends, _front, head) = fronted([&[], &["--defect", flag]]);
        let cut = SCENARIOS.replace("  ack_every: 0\n", "  ack_every: 0\n  end: cancel\n");
        let done = Run::of(&format!("{head}{cut}")).finish().exits(98).says(defect);
        let strikes = backends[1].snapshot().defects[defect];
        assert!(strikes >= 2, "{defect} struck {strikes} times: that proves little");
        assert_eq!(done.findings(), [(defect, strikes)], "{}", done.shown());
    }
}

#[test]
fn a_front_whose_backends_cannot_be_told_apart_is_refused() {
    let backends = [Backend::start(&["--backend-id", "same"]), Backend::start(&["--backend-id", "same"])];
    let front = Front::before(backends.iter().map(|backend| backend.address).collect());
    let head = format!("target: ['{}']\nbackends: [{}, {}]\n", front.address, member(&backends[0]), member(&backends[1]));
    Run::of(&format!("{head}{SCENARIOS}")).finish().exits(106).says("`same`").says("--backend-id").has_no_summary();
}

#[test]
fn a_front_or_a_backend_that_is_not_there_is_told_before_the_run() {
    let (_backends, front, head) = fronted([&[], &[]]);
    let gone = front.address;
    drop(front);
    Run::of(&format!("{head}{SCENARIOS}")).finish().exits(106).says(&gone.to_string()).has_no_summary();
    let (backends, _front, head) = fronted([&[], &[]]);
    let [_left, right] = backends;
    let admin = right.admin;
    drop(right);
    Run::of(&format!("{head}{SCENARIOS}")).finish().exits(106).says("counters").says(&admin.to_string()).has_no_summary();
}

#[test]
fn a_name_gives_the_backends() {
    let backend = Backend::start(&[]);
    let (port, admin) = (backend.address.port(), backend.admin.port());
    let head = format!("backends: {{dns: 'localhost:{port}', admin_port: {admin}}}\n");
    let done = Run::of(&format!("{head}{SCENARIOS}")).finish().exits(0).says(&format!("localhost:{port} (1 backend)"));
    assert_eq!(done.at("/counters/status"), "agree");
    assert_eq!((funnel(&done, "completed"), backend.snapshot().started), (20, 20));
    drop(backend);
    Run::of(&format!("{head}{SCENARIOS}")).finish().exits(106).says(&port.to_string()).has_no_summary();
}

/// The twenty sessions live when one of two backends dies: half of them are dropped, and neither failed nor completed. Others go on beside.
#[test]
fn sessions_on_a_backend_that_is_killed_are_dropped() {
    let fleet = "backends: [{server: {shards: 1}}, {server: {shards: 1}, killed: 3s, dead_for: 1s}]\n";
    let beside = "  beside: {protocol: grpc, backend: 0, rate: 1, duration: 4s}\n";
    let done = Run::of(&format!("{fleet}{SCENARIOS}{beside}thresholds: {{sessions_failed: ['rate==0']}}\n"))
        .with("--set=scenarios.grpc.session_length=6s")
        .with("--set=scenarios.websocket.session_length=6s")
        .finish()
        .exits(0)
        .says("dropped by a kill");
    assert_eq!((done.at("/counters/status").as_str(), done.findings()), (Some("agree"), vec![]));
    assert_eq!((funnel(&done, "established"), funnel(&done, "completed"), funnel(&done, "interrupted")), (24, 14, 10));
    assert_eq!((funnel(&done, "dropped"), funnel(&done, "failed")), (10, 0));
}
