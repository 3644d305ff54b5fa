//! Faults that the relay makes: each is felt, each ends, and the counters agree in all; what is wrong with them is found all the same.

mod run_support;

use run_support::{Done, Run};

/// Two backends: the relay strikes the second. What is felt there is compared with the first, in the same run.
fn profile(length: &str, faults: &str) -> String {
    format!(
        "
name: network
target: {{embedded: {{backends: 2}}}}
server: {{keepalive_interval: 1s, keepalive_timeout: 10s, think: 20ms}}
counters: {{window: 3s, half_open_window: 12s, settle: 15s}}
driver: {{shards: 2, max_schedule_lag: 30s}}
defaults:
  executor: constant-sessions
  sessions: 6
  duration: 5s
  gracefulStop: 6s
  session_length: {length}
  conversations: [{{turns: [{{wait: 100ms}}]}}]
scenarios:
  grpc-calm: {{protocol: grpc, backend: 0}}
  grpc-struck: {{protocol: grpc, backend: 1}}
  ws-calm: {{protocol: websocket, backend: 0}}
  ws-struck: {{protocol: websocket, backend: 1}}
faults:
{faults}"
    )
}

/// The same where a silent peer is found soon: within 4 s, and the fault is longer.
fn impatient(length: &str, faults: &str) -> String {
    profile(length, faults)
        .replace("keepalive_timeout: 10s", "keepalive_timeout: 3s")
        .replace("half_open_window: 12s", "half_open_window: 6s")
        .replace("max_schedule_lag: 30s", "max_schedule_lag: 30s, connect_timeout: 3s")
        .replace("duration: 5s", "duration: 7s")
}

const SHORT: &str = "uniform(300ms, 900ms)";

fn funnel(done: &Done, scenario: &str, what: &str) -> u64 {
    done.scenario(scenario)["funnel"][what].as_u64().unwrap_or_else(|| panic!("no {what}"))
}

#[track_caller]
fn agrees(done: &Done) {
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert_eq!(done.off(), (0, 0, 0.0, 0.0), "{}", done.shown());
    for scenario in ["grpc-calm", "ws-calm"] {
        assert_eq!(funnel(done, scenario, "failed"), 0, "{scenario}: {}", done.shown());
        assert!(funnel(done, scenario, "completed") >= 3, "{scenario}: {}", done.shown());
    }
}

/// Only bounds from below: nothing comes before its time, however slow the machine is.
#[test]
fn a_delay_is_felt_by_those_it_strikes_and_by_nobody_else() {
    let faults = "  - {at: 0s, kind: delay, delay: 300ms, jitter: 20ms, duration: 30s, target: {backend: 1}}\n";
    let talk = profile(SHORT, faults).replace("{wait: 100ms}", "{wait: 100ms, say: {synth: 200ms}}");
    let done = Run::of(&talk).finish();
    agrees(&done);
    assert!(done.struck("delay") > 0);
    for protocol in ["grpc", "ws"] {
        let (calm, late) = (format!("{protocol}-calm"), format!("{protocol}-struck"));
        // There and back again.
        for metric in ["session_startup", "turn_response"] {
            let least = done.latency_of(&late, metric, "min_ms");
            assert!(least >= 600.0, "{metric} {least}: {}", done.shown());
        }
        assert!(done.latency_of(&calm, "session_startup", "min_ms") < 600.0, "{}", done.shown());
        assert!(funnel(&done, &late, "completed") >= 3, "{}", done.shown());
        assert_eq!(funnel(&done, &late, "failed"), 0, "{}", done.shown());
    }
}

#[test]
fn a_stall_shorter_than_the_keepalive_is_recovered_from() {
    let faults = "  - {at: 1500ms, kind: stall, duration: 800ms, target: {backend: 1}}\n";
    // Arrivals: where a session begins when another is over, none begins within the stall, since no goodbye is answered.
    let arrivals = profile(SHORT, faults).replace("constant-sessions\n  sessions: 6", "constant-arrival-rate\n  rate: 10");
    let done = Run::of(&arrivals).finish();
    agrees(&done);
    assert!(done.struck("stall") > 0);
    for scenario in ["grpc-struck", "ws-struck"] {
        assert!(funnel(&done, scenario, "completed") >= 3, "{}", done.shown());
        assert_eq!(funnel(&done, scenario, "failed"), 0, "{}", done.shown());
        // Whoever began in it waited for its end.
        assert!(done.latency_of(scenario, "session_startup", "max_ms") > 300.0, "{}", done.shown());
    }
}

#[test]
fn a_stall_longer_than_the_keepalive_ends_sessions_and_the_counters_still_agree() {
    let faults = "  - {at: 1500ms, kind: stall, duration: 5500ms, target: {backend: 1}}\n";
    let done = Run::of(&impatient("6s", faults)).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert!(done.struck("stall") > 0);
    let broken = funnel(&done, "grpc-struck", "failed") + funnel(&done, "ws-struck", "failed");
    assert!(broken > 0, "the backend gave them up: {}", done.shown());
}

#[test]
fn bandwidth_slows_down_and_breaks_nothing() {
    let faults = "  - {at: 0s, kind: bandwidth, bytes_per_s: 2000, duration: 30s, target: {backend: 1}}\n";
    // A connection that was idle has saved a little: each session has its own, which has not.
    let own = profile(SHORT, faults).replace("protocol: grpc, ", "protocol: grpc, own_connection: true, ");
    let done = Run::of(&own).finish();
    agrees(&done);
    assert!(done.struck("bandwidth") > 0);
    for (calm, slow) in [("grpc-calm", "grpc-struck"), ("ws-calm", "ws-struck")] {
        assert!(funnel(&done, slow, "completed") >= 3, "{}", done.shown());
        assert_eq!(funnel(&done, slow, "failed"), 0, "{}", done.shown());
        let of = |scenario| done.latency_of(scenario, "session_startup", "min_ms");
        assert!(of(slow) > of(calm), "{}", done.shown());
    }
}

#[test]
fn gaps_break_nothing() {
    let faults = "  - {at: 500ms, kind: gaps, gap: 300ms, period: 700ms, duration: 4s, target: {backend: 1}}\n";
    let done = Run::of(&profile(SHORT, faults)).finish();
    agrees(&done);
    assert!(done.struck("gaps") > 0);
    for scenario in ["grpc-struck", "ws-struck"] {
        assert!(funnel(&done, scenario, "completed") >= 3, "{}", done.shown());
        assert_eq!(funnel(&done, scenario, "failed"), 0, "{}", done.shown());
    }
}

#[test]
fn a_reset_strikes_its_share_of_the_connections() {
    // On connections of their own, so that the share of the connections is that of the sessions.
    let faults = "  - {at: 3s, kind: reset, fraction: 0.5, target: {backend: 1}}\n";
    let done = Run::of(&profile("20s", faults).replace("protocol: grpc, ", "protocol: grpc, own_connection: true, ")).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    let struck = done.struck("reset");
    let failed = funnel(&done, "grpc-struck", "failed") + funnel(&done, "ws-struck", "failed");
    assert_eq!(failed, struck, "{}", done.shown());
    assert!((1..=11).contains(&struck), "of 12: {struck}");
    for scenario in ["grpc-calm", "ws-calm"] {
        assert_eq!(funnel(&done, scenario, "failed"), 0, "{}", done.shown());
    }
}

const HOLE: &str = "  - {at: 1500ms, kind: blackhole, duration: 5500ms, target: {backend: 1}}\n";

#[test]
fn a_black_hole_is_found_by_the_keepalive_and_the_counters_agree() {
    let done = Run::of(&impatient("6s", HOLE)).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert!(done.struck("blackhole") >= 2, "{}", done.shown());
    let broken = funnel(&done, "grpc-struck", "failed") + funnel(&done, "ws-struck", "failed");
    assert!(broken >= 6, "{}", done.shown());
}

/// A driver that cuts its sessions while nothing gets through: the backend hears of it late, or never, and is not blamed.
#[test]
fn ends_that_a_black_hole_swallows_are_not_held_against_the_backend() {
    let ends = "end: [{kind: tcp_rst, weight: 1}, {kind: tcp_fin, weight: 1}, {kind: cancel, weight: 1}]";
    let yaml = impatient("uniform(1s, 3s)", HOLE).replace("  gracefulStop", &format!("  {ends}\n  gracefulStop"));
    let done = Run::of(&yaml).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    let stalled = yaml.replace("blackhole", "stall");
    let done = Run::of(&stalled).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
}

/// The other way round: a black hole excuses no ghost, neither of those that it makes nor of those beside it.
#[test]
fn ghosts_are_found_through_a_black_hole() {
    let cut = impatient("uniform(1s, 3s)", HOLE).replace("  gracefulStop", "  end: tcp_rst\n  gracefulStop");
    for (yaml, defect) in [(impatient("6s", HOLE), "forget_on_timeout"), (cut, "ghost")] {
        let done = Run::of(&yaml).with("--defect").with(&format!("{defect}=0.5")).finish();
        assert_eq!(done.at("/counters/status"), "disagree", "{}", done.shown());
        let ghosts = done.findings().into_iter().filter(|(name, _)| ["ghost", "forget_on_timeout"].contains(name));
        assert_eq!(ghosts.map(|(_, size)| size).sum::<u64>(), done.strikes(defect), "{}", done.shown());
        assert!(done.strikes(defect) > 0);
    }
}

/// A worker has the relay's addresses too, and a killed backend is reached again on its port through the relay.
#[test]
fn workers_and_restarted_backends_go_through_the_relay() {
    let faults = "  - {at: 1s, kind: delay, delay: 60ms, duration: 30s}
  - {at: 1500ms, kind: stop, duration: 300ms, target: {scenario: grpc-struck}}
  - {at: 2500ms, kind: kill_backend, dead_for: 2s, target: {backend: 0}}
";
    let done = Run::of(&profile(SHORT, faults)).finish();
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    for scenario in ["grpc-calm", "ws-calm", "grpc-struck", "ws-struck"] {
        assert!(done.latency_of(scenario, "session_startup", "p50_ms") >= 100.0, "{scenario}: {}", done.shown());
        assert!(funnel(&done, scenario, "completed") >= 3, "{scenario}: {}", done.shown());
    }
    // Who dialled the dead backend was refused, as without the relay.
    let causes = &done.scenario("ws-calm")["errors"];
    assert!(causes["connection_refused"].as_u64() > Some(0), "{causes}");
}

/// The same faults of the run's own in both: the agent is not to blame for what they do to its audio, and is for what it does itself.
#[test]
fn holes_of_the_runs_own_making_are_not_held_against_the_agent() {
    // Who holds audio up once has it ahead from there on: it takes an answer for each hole.
    let faults = "  - {at: 1s, kind: gaps, gap: 300ms, period: 600ms, duration: 16s, target: {backend: 1}}\n";
    let talk = |response: &str| {
        profile("30s", faults)
            .replace("duration: 5s\n  graceful", "duration: 18s\n  graceful")
            .replace("{wait: 100ms}", &format!("{{wait: 100ms, say: {{synth: 300ms}}, response: {response}}}"))
    };
    let row = |done: &Done| {
        let all = done.at("/voice/kinds").as_array().expect("a list");
        all.iter().find(|row| row["kind"] == "output_gaps").expect("a row").clone()
    };
    let clean = Run::of(&talk("800ms")).finish().exits(0);
    assert_eq!(clean.at("/voice/findings"), &serde_json::json!([]), "{}", clean.shown());
    assert!(row(&clean)["excused"].as_u64() > Some(0), "{}", clean.shown());
    let clean = clean.says("not counted: output_gaps in ");
    // Those on the other backend are judged as ever.
    assert_eq!(row(&clean)["status"], "clean", "{}", clean.shown());
    let broken = Run::of(&talk("3s")).with("--fault").with("output_gaps").finish().exits(99);
    assert_eq!(row(&broken)["status"], "found", "{}", broken.shown());
    // All twelve calm ones, and those of the struck ones that had holes enough before or after.
    let sessions = broken.count("/voice/findings/0/sessions");
    assert!((12..=24).contains(&sessions), "{sessions}: {}", broken.shown());
}
