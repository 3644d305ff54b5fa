//! `load-driver run` with Gemini Live, against embedded backends that speak it.

mod run_support;

use run_support::{Run, backend::Backend};

const PROFILE: &str = "
name: gemini
driver: {shards: 1, max_schedule_lag: 2s}
server: {think: 50ms, response: 1500ms, tool_rate: 1}
defaults:
  dialect: gemini_live
  executor: constant-sessions
  sessions: 2
  duration: 5s
  gracefulStop: 15s
  session_length: 4s
  send_silence: true
scenarios:
  talk:
    conversations: [{turns: [{wait: 100ms, say: {synth: 600ms}}]}]
  interrupt:
    conversations: [{turns: [{wait: 100ms, say: {synth: 600ms}, barge_in: {after: 300ms, say: {synth: 500ms}}}]}]
  tools:
    conversations: [{turns: [{wait: 100ms, say: {synth: 600ms}, tool: {name: lookup, takes: 50ms}}]}]
  marked:
    agent: {turn_detection: none}
    markers: true
    conversations: [{turns: [{wait: 100ms, say: {synth: 600ms}}]}]
  committed:
    agent: {turn_detection: none}
    conversations: [{turns: [{wait: 100ms, say: {synth: 600ms}, barge_in: {after: 300ms, say: {synth: 500ms}}}]}]
thresholds:
  turns_missed: ['count==0']
  barge_ins_missed: ['count==0']
  stale_frames: ['count==0']
  sessions_failed: ['rate==0']
  'tool_round_trip{scenario:tools}': ['count>0']
  'turn_response{scenario:talk}': ['count>0']
  'turn_response{scenario:marked}': ['count>0']
  'barge_in_stop{scenario:interrupt}': ['count>0']
  'barge_in_stop{scenario:committed}': ['count>0']
  'transcript_final{scenario:marked}': ['count>0']
";

#[test]
fn every_latency_that_the_dialect_has_is_measured_and_counters_agree() {
    let done = Run::of(PROFILE).finish().exits(0);
    assert_eq!(done.findings(), []);
    for metric in [
        "connect",
        "session_startup",
        "time_to_first_stream",
        "turn_response",
        "barge_in_stop",
        "barge_in_signal",
        "barge_in_last_packet",
        "barge_in_silent",
        "tool_round_trip",
        "transcript_first",
        "transcript_final",
    ] {
        assert!(done.latency(metric, "response", "count") > 0.0, "{metric}");
    }
    assert!(done.latency("turn_response", "response", "p50_ms") >= 50.0, "the think time is in it");
}

#[test]
fn who_is_warned_of_the_end_leaves_before_it() {
    let profile = "
name: deadline
driver: {shards: 1, max_schedule_lag: 2s}
defaults: {dialect: gemini_live, executor: constant-sessions, sessions: 2, duration: 1s, gracefulStop: 20s}
scenarios:
  long: {conversations: [{turns: [{wait: 15s, say: {synth: 300ms}}]}]}
thresholds: {sessions_failed: ['rate==0']}
";
    // Told a tenth of that before.
    let backend = Backend::start(&["--max-duration", "4s"]);
    let done = Run::of(profile).against(&backend).finish().exits(0);
    assert_eq!(done.findings(), []);
    let snapshot = backend.eventually("both sessions end", |snapshot| snapshot.active == 0);
    assert_eq!(snapshot.ended.get("completed"), Some(&snapshot.started));
    assert!(snapshot.started >= 2);
}
