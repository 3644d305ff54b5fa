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

/// The run names this fault alone. Gives its size, and how often it came about. A share is asked for only where many sessions qualify: of a few, in
/// the order in which they happen to come, every other one may be none.
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
server: {shards: 1, think: constant(1200ms), response: constant(2s)}
counters: {window: 2s}
defaults:
  executor: constant-sessions
  sessions: 3
  duration: 1s
  gracefulStop: 40s
  response_timeout: 3s
  conversations:
    - turns:
        - {wait: 300ms, say: {synth: 600ms}, barge_in: {from: speech_end, after: 900ms, say: {synth: 1200ms}}}
        - {wait: 400ms, say: {synth: 600ms}}
scenarios:
";

/// The user breaks in by speech, and goes on for long.
const BREAK_IN: &str = "
name: break-in
target: {embedded: {backends: 1}}
server: {shards: 1, think: constant(300ms), response: constant(2500ms)}
counters: {window: 2s}
defaults:
  executor: constant-sessions
  sessions: 8
  duration: 1s
  gracefulStop: 40s
  response_timeout: 8s
  conversations:
    - turns: [{wait: 'uniform(200ms, 3s)', say: {synth: 600ms}, barge_in: {after: 900ms, say: {synth: 1800ms}}}]
scenarios:
";

/// Three questions; what has no end is given up.
const GIVE_UP: &str = "
name: give-up
target: {embedded: {backends: 1}}
server: {shards: 1, think: constant(300ms), response: constant(600ms)}
counters: {window: 2s}
defaults:
  executor: constant-sessions
  sessions: 3
  duration: 12s
  gracefulStop: 40s
  response_timeout: 2s
  conversations:
    - turns: [{wait: 300ms, say: {synth: 500ms}}, {wait: 300ms, say: {synth: 500ms}}, {wait: 300ms, say: {synth: 500ms}}]
scenarios:
";

/// With a scenario for each of these.
fn talking(profile: &str, dialects: &[&str]) -> Run {
    let scenarios = dialects.iter().map(|dialect| format!("  {}: {{dialect: {dialect}}}\n", dialect.replace('_', "-")));
    Run::of(&scenarios.fold(profile.to_owned(), |all, one| all + &one)).with("--set").with("driver.max_schedule_lag=5s")
}

/// Audio that should have been thrown away is named alone.
#[track_caller]
fn stale(run: Run) {
    named_stale(&run.with("--fault").with("stale_audio_after_barge_in").finish().exits(99));
}

#[track_caller]
fn named_stale(done: &Done) {
    let found = findings(done);
    let [("stale_audio_after_barge_in", size)] = found[..] else { panic!("{found:?}\n{}", done.shown()) };
    assert!(size <= done.strikes("stale_audio_after_barge_in"), "{}", done.shown());
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
}

/// The answer was given up before it began.
#[test]
fn stale_audio_of_an_answer_that_had_not_begun_is_named() {
    stale(talking(SPEAK_AGAIN, &["native"]));
}

#[test]
fn openai_realtime_names_stale_audio_of_an_answer_that_had_not_begun() {
    stale(talking(SPEAK_AGAIN, &["openai_realtime"]));
}

#[test]
fn who_speaks_again_before_the_answer_finds_nothing() {
    let run = || talking(SPEAK_AGAIN, &["native", "openai_realtime"]);
    let clean = run().finish().exits(0);
    assert_eq!(findings(&clean), []);
    assert!(kinds(&clean, "clean").contains(&"stale_audio_after_barge_in"), "{}", clean.shown());
    assert!(clean.count("/counts/turns_interrupted") > 0, "nobody spoke again\n{}", clean.shown());
    let strained = run().with("--set").with("server.think=uniform(300ms, 5s)").with("--set").with("defaults.sessions=25").finish().exits(0);
    assert_eq!(findings(&strained), []);
    assert!(strained.count("/counts/turns_missed") > 0, "too little strain\n{}", strained.shown());
}

/// Where the wire does not say whose audio it is, it is named if it is seen, which takes half a second without a stall of a busy machine: once in
/// some runs. Nothing else is named meanwhile.
#[track_caller]
fn stale_if_seen(dialect: &str) {
    for _ in 0..5 {
        let done = talking(BREAK_IN, &[dialect]).with("--fault").with("stale_audio_after_barge_in").finish();
        if !findings(&done).is_empty() {
            return named_stale(&done.exits(99));
        }
        assert!(kinds(&done, "not_judged").contains(&"stale_audio_after_barge_in"), "{}", done.shown());
    }
    panic!("{dialect}: never seen");
}

/// And never called absent. It is not found in a clean run, be it strained.
#[test]
fn where_audio_has_no_name_nothing_is_found_in_a_clean_run() {
    let run = talking(BREAK_IN, &["twilio", "pipecat", "elevenlabs", "deepgram", "gemini_live", "ces"]);
    let clean = run.with("--set").with("server.think=uniform(0s, 1s)").finish().exits(0);
    assert_eq!(findings(&clean), []);
    assert!(kinds(&clean, "not_judged").contains(&"stale_audio_after_barge_in"), "{}", clean.shown());
    assert!(clean.count("/counts/barge_ins") > 0, "nobody broke in\n{}", clean.shown());
}

#[test]
fn twilio_names_stale_audio_if_it_is_seen() {
    stale_if_seen("twilio");
}

#[test]
fn pipecat_names_stale_audio_if_it_is_seen() {
    stale_if_seen("pipecat");
}

#[test]
fn elevenlabs_names_stale_audio_if_it_is_seen() {
    stale_if_seen("elevenlabs");
}

#[test]
fn deepgram_names_stale_audio_if_it_is_seen() {
    stale_if_seen("deepgram");
}

#[test]
fn gemini_live_names_stale_audio_if_it_is_seen() {
    stale_if_seen("gemini_live");
}

#[test]
fn ces_names_stale_audio_if_it_is_seen() {
    stale_if_seen("ces");
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
        let done = over(dialect, kind).exits(99);
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
    let (size, strikes) = named("stale_audio_after_barge_in", "stale_audio_after_barge_in");
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
    let (size, strikes) = named("silent_session", "silent_session");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn a_missing_turn_end_is_named() {
    let (size, strikes) = named("no_turn_end", "no_turn_end");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn double_responses_are_named() {
    let (size, strikes) = named("double_response", "double_response");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn dropped_speech_is_named() {
    let (size, strikes) = named("vad_drop", "vad_drop");
    assert!(size <= strikes, "{size} of {strikes}");
}

#[test]
fn cross_talk_is_named() {
    let (size, strikes) = named("cross_talk", "cross_talk");
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

/// In some sessions every end is kept back, in a dialect that names no responses: what comes after it looks like more of the same.
#[track_caller]
fn lost_ends_are_named(dialect: &str) {
    let done = talking(GIVE_UP, &[dialect]).with("--fault").with("no_turn_end=0.5").finish().exits(99);
    let found = findings(&done);
    let [("no_turn_end", size)] = found[..] else { panic!("{found:?}\n{}", done.shown()) };
    assert!(size <= done.strikes("no_turn_end"), "{}", done.shown());
    assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
}

#[test]
fn deepgram_names_ends_that_never_come() {
    lost_ends_are_named("deepgram");
}

#[test]
fn ces_names_ends_that_never_come() {
    lost_ends_are_named("ces");
}
