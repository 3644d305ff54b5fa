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

#[test]
fn what_the_simulator_predicts_stands_beside_what_was_measured() {
    // Each in turn, and none is ever full: nothing here hangs on time but the startup.
    let routed = format!("{TWO}routing: {{policy: round_robin}}\n").replace("max_sessions: 10", "max_sessions: 40");
    let met = format!("{routed}predictions: {{share_0: 0.01, assignments: 0, startup_p99_ms: 90% or 1000}}\n");
    let done = Run::of(&met).finish().exits(0).says("predictions of the simulator").says("round_robin.assignments");
    let comparison = comparison(&done);
    for (n, metric) in ["share_0", "assignments", "startup_p99_ms"].into_iter().enumerate() {
        let one = &comparison["predictions"][n];
        assert_eq!((&one["policy"], &one["metric"], &one["holds"]), (&"round_robin".into(), &metric.into(), &true.into()), "{one}");
    }
    assert_eq!(comparison["predictions"][1]["measured"], comparison["predictions"][1]["predicted"]);
    assert_eq!(comparison["predictions"][1]["measured"], done.count("/funnel/attempted") as f64);
    assert!(comparison["predictions"][2]["predicted"].as_f64() > Some(0.0));
}

#[test]
fn a_prediction_that_is_off_or_of_nothing_fails_the_run() {
    let routed = format!("{TWO}routing: {{policy: [round_robin, random]}}\n");
    // A network takes longer than the model's, if only by a microsecond; and nothing happens here that could be recovered from.
    let done = Run::of(&format!("{routed}predictions: {{startup_p50_ms: 0, recovery_s: 1000, assignments: 0}}\n")).finish();
    assert_eq!(done.code(), Some(99), "{}", done.shown());
    let comparison = comparison(&done);
    let holds: Vec<Value> = comparison["predictions"].as_array().expect("a list").iter().map(|one| one["holds"].clone()).collect();
    let each = [Value::Bool(false), Value::Null, Value::Bool(true)];
    assert_eq!(holds, [each.clone(), each].concat(), "{comparison}");
    let done = done.says("out of tolerance").says("a figure is missing");
    let summary: Value = serde_json::from_str(&done.file("random/summary.json")).expect("JSON");
    assert_eq!(summary["exit"]["code"], 0, "the run itself was good");
    assert_eq!(summary["resolved_profile"].get("predictions"), None, "they are of the series");
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
    an_interrupted_series("", 105);
}

#[test]
fn of_what_an_interrupt_cut_short_no_prediction_holds() {
    let comparison = an_interrupted_series("predictions: {share_0: 0.99}\n", 99);
    let predictions = comparison["predictions"].as_array().expect("a list");
    assert_eq!(predictions.len(), 2, "{comparison}");
    assert!(predictions.iter().all(|one| one["holds"].is_null() && one["measured"].is_null()), "{comparison}");
}

fn an_interrupted_series(more: &str, code: i32) -> Value {
    let profile = format!("{TWO}routing: {{policy: [round_robin, random]}}\n{more}").replace("duration: 2s", "duration: 60s");
    let going = Run::of(&profile).begin();
    eventually("sessions", || going.stderr().contains("running:").then_some(()));
    going.signal(Signal::INT);
    let done = going.finish();
    assert_eq!(done.code(), Some(code), "{}", done.shown());
    assert!(done.has_file("round_robin/summary.json") && !done.has_file("random/summary.json"), "{}", done.shown());
    let comparison = comparison(&done);
    assert_eq!(comparison["policies"].as_array().map(Vec::len), Some(1));
    assert_eq!(comparison["policies"][0]["balance"], Value::Null, "half a run proves nothing");
    comparison
}
