//! Ctrl-C, once and twice, a hangup, and an end without a warning.

mod run_support;

use std::time::Duration;

use run_support::{Run, alive, backend::Backend, eventually};
use rustix::process::Signal;

/// Eight people who stay on the line for a minute.
const LONG: &str = "
name: long
driver: {shards: 1, max_schedule_lag: 2s}
counters: {settle: 60s}
defaults: {executor: constant-sessions, sessions: 4, duration: 60s, session_length: 60s, conversations: [{turns: [{wait: 100ms}]}]}
scenarios:
  grpc: {protocol: grpc}
  websocket: {protocol: websocket}
";

#[test]
fn once_everybody_says_goodbye_and_partial_results_stay() {
    ended_by(Signal::INT);
}

#[test]
fn a_terminal_that_goes_away_ends_a_run_as_well() {
    ended_by(Signal::HUP);
}

/// `nohup` is kept to.
#[test]
fn a_run_that_was_started_without_hangups_goes_on() {
    let backend = Backend::start(&[]);
    let going = Run::of(LONG).against(&backend).through("trap '' HUP; exec \"$@\"").begin();
    backend.eventually("eight sessions", |snapshot| snapshot.active == 8);
    going.signal(Signal::HUP);
    // Goodbyes would come at once.
    let sent_us = backend.snapshot().captured_at_us;
    backend.eventually("another second", |snapshot| snapshot.captured_at_us > sent_us + 1_000_000);
    assert_eq!(backend.snapshot().active, 8);
    going.signal(Signal::TERM);
    let done = going.finish().exits(105);
    assert_eq!(done.count("/funnel/established"), 8);
}

fn ended_by(signal: Signal) {
    let backend = Backend::start(&[]);
    let going = Run::of(LONG).against(&backend).begin();
    backend.eventually("eight sessions", |snapshot| snapshot.active == 8);
    going.signal(signal);
    let done = going.finish().exits(105).says("interrupted");
    assert_eq!(done.at("/stopped_early"), "interrupted");
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert_eq!(done.count("/funnel/established"), 8);
    assert_eq!(done.count("/funnel/completed") + done.count("/funnel/interrupted"), 8);
    assert_eq!(done.count("/funnel/failed"), 0);
    assert!(done.count("/latencies/1/response/count") >= 8, "the samples are kept");
    let snapshot = backend.snapshot();
    assert_eq!(
        (snapshot.active, snapshot.ended.get("completed"), snapshot.ended.values().sum()),
        (0, Some(&8), 8_u64),
        "not everybody said goodbye"
    );
    assert!(done.file("junit.xml").contains("interrupted"));
}

/// The backend stands still, so neither goodbyes nor counters would ever come: the first Ctrl-C alone would wait for a minute and more.
#[test]
fn twice_it_ends_at_once() {
    let backend = Backend::start(&[]);
    let mut going = Run::of(LONG).against(&backend).begin();
    backend.eventually("eight sessions", |snapshot| snapshot.active == 8);
    backend.signal(Signal::STOP);
    let mut sent = 0;
    while !going.over() {
        assert!(sent < 60, "interrupted for a quarter of a minute, and it still runs");
        going.signal(Signal::INT);
        sent += 1;
        std::thread::sleep(Duration::from_millis(250));
    }
    let done = going.finish();
    assert_ne!(done.code(), Some(0));
    assert!(done.at("/exit/reasons").as_array().expect("a list").contains(&"interrupted".into()), "{}", done.shown());
}

/// Neither backends nor workers outlive a driver that was killed.
#[test]
fn a_killed_driver_leaves_no_process_behind() {
    let profile = LONG.replace("grpc: {protocol: grpc}", "grpc: {protocol: grpc, end: kill_worker, kill_at: 60s}");
    let going = Run::of(&profile).begin();
    let (backend, worker) = (going.child("backend"), going.child("worker"));
    assert!(alive(backend) && alive(worker));
    going.signal(Signal::KILL);
    eventually("the backend is gone", || (!alive(backend)).then_some(()));
    eventually("the worker is gone", || (!alive(worker)).then_some(()));
}
