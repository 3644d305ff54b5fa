//! Quality of balance of a run, and policies one after the other.

mod run_support;

use std::{fs, path::Path};

use run_support::{Run, eventually, schema};
use rustix::process::Signal;
use serde_json::Value;

/// 24 sessions over two backends that know their caps, each in turn.
const TWO: &str = "
name: two
driver: {shards: 1, max_schedule_lag: 2s}
backends: [{server: {max_sessions: 40}}, {server: {max_sessions: 10}}]
scenarios:
  talk:
    executor: constant-rate
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
    done.says("balance\n").says("sessions/cap").has_comparison(false);
}

#[test]
fn of_one_backend_there_is_no_balance_to_tell_but_what_is_expected_is_judged() {
    let profile = TWO.replace("backends: [{server: {max_sessions: 40}}, {server: {max_sessions: 10}}]", "server: {max_sessions: 40}");
    let met = "\nexpectations: ['round_robin.assignments > 5', 'round_robin.share_0 == 1']\n";
    let done = Run::of(&(profile.clone() + met)).finish().exits(0).says("round_robin.assignments > 5  holds").has_comparison(true);
    assert!(!done.stdout.contains("sessions/cap"), "{}", done.stdout);
    assert_eq!(done.count("/balance/assigned/0"), done.count("/funnel/attempted"));
    let unmet = "\nexpectations: ['round_robin.recovery_s < 5', 'round_robin.assignments > 5000']\n";
    let done = Run::of(&(profile.clone() + unmet)).finish();
    assert_eq!(done.code(), Some(99), "{}", done.shown());
    let done = done.says("fails: not measured").says("assignments > 5000  fails");
    assert_eq!(done.count("/exit/code"), 0, "the run itself was good");
    let wrong = "\nexpectations: ['round_robin.herds < 5']\n";
    Run::of(&(profile + wrong)).finish().exits(104).has_no_summary().says("did you mean `herd`?");
}
