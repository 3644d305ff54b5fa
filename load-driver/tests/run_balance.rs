//! Quality of balance of a run, and policies one after the other.

mod run_support;

use std::{fs, path::Path};

use run_support::{Done, Run, eventually, schema};
use rustix::process::Signal;
use serde_json::Value;

/// 24 sessions over two backends that know their caps, each in turn.
const TWO: &str = "
name: two
driver: {shards: 1, max_schedule_lag: 2s}
backends: [{server: {max_sessions: 40}}, {server: {max_sessions: 10}}]
scenarios:
  talk:
    executor: constant-arrival-rate
    rate: 12
    duration: 2s
    gracefulStop: 10s
    conversations: [{turns: [{wait: 100ms, say: {synth: 300ms}, response: 500ms}]}]
";

#[test]
fn a_run_tells_how_its_sessions_were_spread() {
    let done = Run::of(TWO).finish().exits(0);
    let assigned: Vec<u64> = done.at("/balance/assigned").as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    assert_eq!(assigned.len(), 2, "{}", done.shown());
    assert_eq!(assigned.iter().sum::<u64>(), done.count("/funnel/attempted"));
    assert_eq!(done.count("/balance/assignments"), done.count("/funnel/attempted"));
    assert!(done.count("/funnel/attempted") >= 20 && assigned.iter().all(|n| *n >= 10), "{assigned:?}");
    // The same number on a quarter of the room: uneven, by the caps.
    let figure = |name: &str| done.at(&format!("/balance/{name}")).as_f64().unwrap_or_else(|| panic!("no {name}"));
    assert!((0.5..1.0).contains(&figure("sessions/jain")) && figure("sessions/peak") > figure("sessions/mean"), "{}", done.shown());
    assert!(figure("sessions/peak") <= 1.0);
    let (startup, table) = (figure("startup_p99_ms"), done.latency("session_startup", "response", "p99_ms"));
    assert!((startup - table).abs() < 1e-9, "{startup} {table}");
    assert!((figure("counter_error_max"), figure("counter_error_min")) == (0.0, 0.0), "{}", done.at("/balance"));
    let done = done.says("balance\n").says("sessions/cap");
    assert!(!done.has_file("comparison.json"), "there is nothing to compare");
}

#[test]
fn of_one_backend_there_is_no_balance_to_tell() {
    let profile = TWO.replace("backends: [{server: {max_sessions: 40}}, {server: {max_sessions: 10}}]", "server: {max_sessions: 40}");
    let done = Run::of(&profile).finish().exits(0);
    assert!(!done.stdout.contains("sessions/cap"), "{}", done.stdout);
    assert_eq!(done.count("/balance/assigned/0"), done.count("/funnel/attempted"));
}

#[test]
fn of_one_policy_what_is_expected_is_judged() {
    let met = format!("{TWO}routing: {{policy: round_robin}}\nexpectations: ['round_robin.assignments > 5', 'round_robin.share_0 > 0']\n");
    let done = Run::of(&met).finish().exits(0).says("round_robin.assignments > 5  holds");
    assert_eq!(comparison(&done)["policies"].as_array().map(Vec::len), Some(1));
    let unmet =
        format!("{TWO}routing: {{policy: round_robin}}\nexpectations: ['round_robin.recovery_s < 5', 'round_robin.assignments > 5000']\n");
    let done = Run::of(&unmet).finish();
    assert_eq!(done.code(), Some(99), "{}", done.shown());
    let done = done.says("fails: not measured").says("assignments > 5000  fails");
    assert_eq!(done.count("/exit/code"), 0, "the run itself was good");
}

/// As the published schema says.
fn comparison(done: &Done) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("comparison.schema.json");
    let published: Value = serde_json::from_str(&fs::read_to_string(path).expect("committed")).expect("JSON");
    let comparison: Value = serde_json::from_str(&done.file("comparison.json")).expect("JSON");
    assert_eq!(schema::faults(&published, &comparison), Vec::<String>::new());
    comparison
}

#[test]
fn several_policies_have_a_run_each_and_are_compared() {
    let profile =
        format!("{TWO}routing: {{policy: [round_robin, random]}}\nexpectations: ['random.assignments == round_robin.assignments']\n");
    let done = Run::of(&profile).finish();
    assert_eq!(done.code(), Some(0), "{}", done.shown());
    let comparison = comparison(&done);
    assert_eq!(comparison["expectations"][0]["holds"], true);
    for (n, policy) in ["round_robin", "random"].into_iter().enumerate() {
        let summary: Value = serde_json::from_str(&done.file(&format!("{policy}/summary.json"))).expect("JSON");
        assert_eq!(summary["resolved_profile"]["routing"]["policy"], policy);
        assert_eq!(comparison["policies"][n]["policy"], policy);
        assert_eq!(comparison["policies"][n]["balance"], summary["balance"]);
        assert_eq!(summary["funnel"]["attempted"], 24, "the same plan");
    }
    done.says("policies\n").says("  holds (24, 24)");
}

#[test]
fn an_interrupt_ends_the_series() {
    let profile = format!("{TWO}routing: {{policy: [round_robin, random]}}\n").replace("duration: 2s", "duration: 60s");
    let going = Run::of(&profile).begin();
    eventually("sessions", || going.stderr().contains("running:").then_some(()));
    going.signal(Signal::INT);
    let done = going.finish();
    assert_eq!(done.code(), Some(105), "{}", done.shown());
    assert!(done.has_file("round_robin/summary.json") && !done.has_file("random/summary.json"), "{}", done.shown());
    let comparison = comparison(&done);
    assert_eq!(comparison["policies"].as_array().map(Vec::len), Some(1));
    assert_eq!(comparison["policies"][0]["balance"], Value::Null, "half a run proves nothing");
}
