//! Both directions for each fault of a voice backend: a run that names it and nothing else, and the same run without it that names nothing.

mod run_support;

use run_support::{Done, Run};

/// The shipped profile.
const PROFILE: &str = include_str!("../../profiles/voice-faults.yaml");

/// A run of it whose figures are of no account, so that a busy machine is no reason to fail.
fn run() -> Run {
    Run::of(PROFILE).with("--set").with("driver.max_schedule_lag=5s")
}

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
    let done = run().with("--fault").with(fault).finish().exits(99).says(&format!("✗ {kind} x "));
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
    let done = run().finish().exits(0);
    assert_eq!(findings(&done), []);
    assert_eq!(kinds(&done, "clean").len(), 11, "not judged: {:?}\n{}", kinds(&done, "not_judged"), done.shown());
}

/// Answers later than a caller waits, and many callers at once: slow, and nothing else.
#[test]
fn a_clean_backend_under_strain_is_slow_and_not_broken() {
    let done = run()
        .with("--set")
        .with("server.think=uniform(500ms, 4s)")
        .with("--set")
        .with("server.max_sessions=200")
        .with("--set")
        .with("scenarios.talk.sessions=60")
        .with("--set")
        .with("scenarios.interrupt.sessions=30")
        .finish()
        .exits(0);
    assert_eq!(findings(&done), []);
    assert!(done.count("/counts/turns_missed") > 0, "too little strain\n{}", done.shown());
}

/// A profile may live with what a real backend does.
#[test]
fn what_the_profile_allows_is_shown_and_fails_nothing() {
    let allowed = run().with("--set").with("voice_faults={allow: [cross_talk]}");
    let done = allowed.with("--fault").with("cross_talk=0.5").finish().exits(0).says("cross_talk x").says("(allowed)");
    assert_eq!(findings(&done).iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["cross_talk"]);
}

/// The user speaks again while the agent still thinks: it has found the end of speech 500 ms after it, and thinks for long.
const SPEAK_AGAIN: &str = "
name: speak-again
target: {embedded: {backends: 1}}
server: {shards: 1, think: constant(1200ms)}
counters: {window: 2s}
defaults: {executor: constant-sessions, duration: 7s, gracefulStop: 30s, response_timeout: 3s, dialect: native}
scenarios:
  again:
    sessions: 4
    conversations:
      - turns:
          - {wait: 300ms, say: {synth: 600ms}, response: 2s, barge_in: {from: speech_end, after: 900ms, say: {synth: 1200ms}}}
          - {wait: 400ms, say: {synth: 600ms}, response: 800ms}
";

fn speak_again(dialect: &str) -> Run {
    Run::of(&SPEAK_AGAIN.replace("native", dialect)).with("--set").with("driver.max_schedule_lag=5s")
}

/// An answer that was given up before it began plays anyway.
#[track_caller]
fn stale_before_it_began(dialect: &str) {
    let clean = speak_again(dialect).finish().exits(0);
    assert_eq!(findings(&clean), []);
    assert!(kinds(&clean, "clean").contains(&"stale_audio_after_barge_in"), "{}", clean.shown());
    assert!(clean.count("/counts/turns_interrupted") > 0, "nobody spoke again\n{}", clean.shown());
    assert_eq!(clean.count("/counts/barge_ins"), 0, "the agent had begun\n{}", clean.shown());
    let done = speak_again(dialect).with("--fault").with("stale_audio_after_barge_in").finish().exits(99);
    let found = findings(&done);
    let [("stale_audio_after_barge_in", size)] = found[..] else { panic!("{found:?}\n{}", done.shown()) };
    assert!(size <= done.strikes("stale_audio_after_barge_in"), "{}", done.shown());
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
}

#[test]
fn stale_audio_of_an_answer_that_had_not_begun_is_named() {
    stale_before_it_began("native");
}

#[test]
fn openai_realtime_names_stale_audio_of_an_answer_that_had_not_begun() {
    stale_before_it_began("openai_realtime");
}

#[test]
fn who_speaks_again_to_a_slow_backend_finds_nothing() {
    for dialect in ["native", "openai_realtime"] {
        let strained = speak_again(dialect).with("--set").with("server.think=uniform(300ms, 5s)");
        let done = strained.with("--set").with("scenarios.again.sessions=60").finish().exits(0);
        assert_eq!(findings(&done), []);
        assert!(done.count("/counts/turns_missed") > 0, "too little strain\n{}", done.shown());
    }
}

/// The same over another dialect, whose words are its own: events are what is struck and what is judged.
fn over(dialect: &str, fault: &str) -> Done {
    let profile = PROFILE.replace("  backend: 0\nscenarios:", &format!("  backend: 0\n  dialect: {dialect}\nscenarios:"));
    assert_ne!(profile, PROFILE);
    let run = Run::of(&profile).with("--set").with("driver.max_schedule_lag=5s");
    if fault.is_empty() { run.finish() } else { run.with("--fault").with(fault).finish() }
}

/// Nothing is found in a clean run, though this kind is put to the test, and this alone in one that shows it.
#[track_caller]
fn named_over(dialect: &str, kinds_due: &[&str]) {
    let clean = over(dialect, "").exits(0);
    assert_eq!(findings(&clean), []);
    for kind in kinds_due {
        assert!(kinds(&clean, "clean").contains(kind), "{kind} is not judged\n{}", clean.shown());
        let done = over(dialect, &format!("{kind}=0.5")).exits(99);
        assert_eq!(findings(&done).iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [*kind], "{}", done.shown());
    }
}

#[test]
fn openai_realtime_shows_and_names_them_too() {
    named_over("openai_realtime", &["stale_audio_after_barge_in", "output_gaps", "double_response", "vad_drop"]);
}

/// What is said before the session is accepted is heard when it is.
#[test]
fn openai_realtime_names_cross_talk() {
    named_over("openai_realtime", &["cross_talk"]);
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
