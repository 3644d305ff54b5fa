//! `load-driver run` with Google CES over gRPC, against embedded backends that speak it.

mod run_support;

use run_support::{Run, backend::Backend};

const PROFILE: &str = "
name: ces
driver: {shards: 1, max_schedule_lag: 2s}
server: {think: 50ms, response: 1500ms, tool_rate: 1}
defaults:
  dialect: ces
  executor: constant-sessions
  sessions: 2
  duration: 5s
  gracefulStop: 15s
  session_length: 4s
  send_silence: true
scenarios:
  talk:
    end: [{kind: graceful, weight: 1}, {kind: cancel, weight: 1}]
    conversations: [{turns: [{wait: 100ms, say: {synth: 600ms}}]}]
  interrupt:
    format: alaw_8k
    conversations: [{turns: [{wait: 100ms, say: {synth: 600ms}, barge_in: {after: 300ms, say: {synth: 500ms}}}]}]
  tools:
    format: pcm16_48k
    conversations: [{turns: [{wait: 100ms, say: {synth: 600ms}, tool: {name: lookup, takes: 50ms}}]}]
thresholds:
  turns_missed: ['count==0']
  barge_ins_missed: ['count==0']
  stale_frames: ['count==0']
  sessions_failed: ['rate==0']
  'tool_round_trip{scenario:tools}': ['count>0']
  'turn_response{scenario:talk}': ['count>0']
  'barge_in_stop{scenario:interrupt}': ['count>0']
";

/// Half-closes are goodbyes and cancels are not, or the counters would not agree with the ledger.
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
    ] {
        assert!(done.latency(metric, "response", "count") > 0.0, "{metric}");
    }
    assert!(done.latency("turn_response", "response", "p50_ms") >= 50.0, "the think time is in it");
}

#[test]
fn a_session_that_the_backend_ends_is_what_the_backend_counted() {
    let profile = "
name: ended
target: embedded
driver: {shards: 1, max_schedule_lag: 2s}
server: {shards: 1, idle_timeout: 1s}
defaults: {dialect: ces, executor: constant-sessions, duration: 3s, gracefulStop: 20s, expect: timed_out}
scenarios:
  long: {sessions: 2, conversations: [{turns: [{wait: 4s, say: {synth: 300ms}}]}]}
";
    let done = Run::of(profile).finish().exits(0);
    assert_eq!(done.findings(), []);
    assert!(done.count("/funnel/interrupted") >= 2 && done.count("/funnel/failed") == 0, "{}", done.shown());
}

#[test]
fn a_session_counts_as_accepted_only_when_the_backend_took_it() {
    let profile = "
name: full
driver: {shards: 1, max_schedule_lag: 2s}
defaults: {dialect: ces, executor: constant-sessions, duration: 1s, gracefulStop: 20s}
scenarios:
  held: {sessions: 2, conversations: [{turns: [{wait: 3s, say: {synth: 300ms}}]}]}
  refused: {sessions: 2, startTime: 500ms, expect: rejected, conversations: [{turns: [{wait: 3s, say: {synth: 300ms}}]}]}
";
    let backend = Backend::start(&["--max-sessions", "2"]);
    let done = Run::of(profile).against(&backend).finish().exits(0);
    assert_eq!(done.findings(), []);
    let snapshot = backend.eventually("the sessions end", |snapshot| snapshot.active == 0);
    assert!(snapshot.rejected > 0);
    assert_eq!(snapshot.ended.get("completed"), Some(&snapshot.started));
}
