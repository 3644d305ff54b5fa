//! `load-driver run` over OpenAI Realtime, against embedded servers: as a user runs it.

mod run_support;

use run_support::{Done, Run};

/// A few sessions of two turns each.
fn talk(more: &str) -> String {
    format!(
        "
name: openai
driver: {{shards: 1, max_schedule_lag: 2s}}
counters: {{interval: 100ms, window: 2s, settle: 5s}}
server: {{shards: 1, think: 50ms, response: 'constant(1200ms)'}}
defaults:
  dialect: openai_realtime
  executor: constant-sessions
  sessions: 3
  duration: 1s
  gracefulStop: 30s
  response_timeout: 15s
{more}
thresholds:
  sessions_failed: ['rate==0']
  turns_missed: ['count==0']
"
    )
}

const TURNS: &str = "
  conversations: [{turns: [{wait: 200ms, say: {synth: 700ms}}, {wait: 200ms, say: {synth: 700ms}}]}]
scenarios: {talk: {}}
";

/// Every session came to its end in order, and both sides counted the same.
#[track_caller]
fn in_order(done: Done) -> Done {
    let done = done.exits(0);
    assert_eq!((done.at("/counters/status").as_str(), done.findings()), (Some("agree"), vec![]), "{}", done.shown());
    let requested = done.count("/funnel/requested");
    assert!(requested >= 3 && requested == done.count("/funnel/completed"), "{}", done.shown());
    done
}

/// The latency has samples.
#[track_caller]
fn measures(done: &Done, metrics: &[&str]) {
    for metric in metrics {
        assert!(done.latency(metric, "response", "count") > 0.0, "no {metric}:\n{}", done.shown());
    }
}

const TURN: [&str; 6] = ["connect", "session_startup", "time_to_first_stream", "turn_response", "transcript_first", "transcript_final"];

#[test]
fn turns_that_the_server_detects() {
    for settings in ["", "  agent: {turn_detection: semantic_vad, voice: cedar, instructions: Be brief., model: other}"] {
        let done = in_order(Run::of(&talk(&format!("{settings}\n{TURNS}"))).finish());
        measures(&done, &TURN);
    }
}

#[test]
fn turns_of_the_telephone() {
    for format in ["mulaw_8k", "alaw_8k"] {
        let done = in_order(Run::of(&talk(&format!("  format: {format}\n{TURNS}"))).finish());
        measures(&done, &TURN);
    }
}

#[test]
fn the_names_of_the_beta() {
    let done = in_order(Run::of(&talk(&format!("  agent: {{beta: true}}\n{TURNS}"))).finish());
    measures(&done, &TURN);
}

#[test]
fn turns_that_the_caller_commits() {
    let done = in_order(Run::of(&talk(&format!("  agent: {{turn_detection: none}}\n{TURNS}"))).finish());
    measures(&done, &["turn_response", "transcript_final"]);
}

#[test]
fn tools_are_called_and_the_agent_goes_on() {
    let tools = "
  conversations: [{turns: [{wait: 200ms, say: {synth: 700ms}, tool: {name: lookup, takes: 100ms}}]}]
scenarios: {talk: {}}
";
    let done = in_order(Run::of(&talk(tools)).with("--set=server.tool_rate=1").finish());
    measures(&done, &["turn_response", "tool_round_trip"]);
}

#[test]
fn agents_are_interrupted_by_speech_by_message_and_by_cancelling() {
    let turns = |act: &str| format!("conversations: [{{turns: [{{wait: 200ms, say: {{synth: 700ms}}, {act}}}]}}]");
    let speech = turns("barge_in: {after: 500ms, say: {synth: 700ms}}");
    let message = turns("barge_in: {after: 500ms, explicit: true, say: {synth: 700ms}}");
    let cancel = turns("cancel: {after: 500ms}");
    let scenarios = format!("\nscenarios:\n  speech: {{{speech}}}\n  message: {{{message}}}\n  cancel: {{{cancel}}}\n");
    let done = Run::of(&talk(&scenarios)).with("--set=server.response=constant(6s)").with("--set=thresholds.barge_ins_missed=['count==0']");
    let done = in_order(done.finish());
    measures(&done, &["turn_response", "barge_in_stop"]);
}
