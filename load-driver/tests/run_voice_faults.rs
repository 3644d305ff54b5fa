//! Both directions for each fault of a voice backend: a run that names it and nothing else, and the same run without it that names nothing.

mod run_support;

use run_support::{Done, Run};

/// The shipped profile, made short.
const PROFILE: &str = include_str!("../../profiles/voice-faults.yaml");

fn findings(done: &Done) -> Vec<(&str, u64)> {
    let all = done.at("/voice/findings").as_array().expect("a list");
    all.iter().map(|f| (f["kind"].as_str().expect("a kind"), f["size"].as_u64().expect("a size"))).collect()
}

/// Kinds with this status.
fn kinds<'a>(done: &'a Done, status: &str) -> Vec<&'a str> {
    let all = done.at("/voice/kinds").as_array().expect("a list");
    all.iter().filter(|row| row["status"] == status).map(|row| row["kind"].as_str().expect("a kind")).collect()
}

/// The run names this fault alone. Gives its size, and how often it came about.
#[track_caller]
fn named(fault: &str, kind: &str) -> (u64, u64) {
    let done = Run::of(PROFILE).with("--fault").with(fault).finish().exits(99).says(&format!("✗ {kind} x "));
    let found = findings(&done);
    let [(name, size)] = found[..] else { panic!("not one finding: {found:?}\n{}", done.shown()) };
    assert_eq!(name, kind, "{}", done.shown());
    assert_eq!(done.findings(), [], "the counters are right\n{}", done.shown());
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
    assert!(done.file("junit.xml").contains("voice fault"), "in the report for CI");
    let strikes = done.strikes(kind);
    assert!(strikes > 0, "{kind} never came about");
    (size, strikes)
}

#[test]
fn a_clean_backend_is_put_to_every_test_and_none_is_found() {
    let done = Run::of(PROFILE).finish().exits(0);
    assert_eq!(findings(&done), []);
    assert_eq!(kinds(&done, "clean").len(), 11, "not judged: {:?}\n{}", kinds(&done, "not_judged"), done.shown());
}

#[test]
fn stale_audio_after_barge_in_is_named() {
    let (size, strikes) = named("stale_audio_after_barge_in=0.5", "stale_audio_after_barge_in");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn output_gaps_are_named() {
    let (size, strikes) = named("output_gaps=0.5", "output_gaps");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn ghosts_after_the_hangup_are_named_and_are_no_defect_of_the_counters() {
    let (size, strikes) = named("ghost_after_hangup=0.5:7s", "ghost_after_hangup");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn silent_sessions_are_named() {
    let (size, strikes) = named("silent_session=0.5", "silent_session");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn a_missing_turn_end_is_named() {
    let (size, strikes) = named("no_turn_end=0.5", "no_turn_end");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn double_responses_are_named() {
    let (size, strikes) = named("double_response=0.5", "double_response");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn dropped_speech_is_named() {
    let (size, strikes) = named("vad_drop=0.5", "vad_drop");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn cross_talk_is_named() {
    let (size, strikes) = named("cross_talk=0.5", "cross_talk");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn sessions_that_an_edge_wedges_are_named() {
    let (size, strikes) = named("truncate_edge", "truncate_edge");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn a_leaking_pool_is_named() {
    named("pool_leak", "pool_leak");
}

#[test]
fn an_admission_race_is_named() {
    let (size, _) = named("admission_race=0.5", "admission_race");
    assert_eq!(size, 1);
}
