//! `load-driver run` over ElevenLabs Agents, Deepgram Voice Agent, and their descriptions as custom dialects, against embedded servers: as a
//! user runs it.

mod run_support;

use run_support::{Done, Run};

/// What each run here has.
fn profile(dialect: &str, more: &str) -> String {
    format!(
        "
name: talk
driver: {{shards: 1, max_schedule_lag: 2s}}
counters: {{interval: 100ms, window: 2s, settle: 5s}}
server: {{shards: 1, think: 50ms, response: 'constant(1200ms)'}}
defaults:
  {dialect}
  executor: constant-sessions
  sessions: 3
  duration: 1s
  gracefulStop: 30s
  response_timeout: 15s
  send_silence: true
{more}
thresholds:
  sessions_failed: ['rate==0']
  turns_missed: ['count==0']
  server_errors: ['count==0']
"
    )
}

const TURNS: &str = "
  conversations: [{turns: [{wait: 200ms, say: {synth: 700ms}}, {wait: 200ms, say: {synth: 700ms}}]}]
scenarios: {talk: {}}
";
const TOOLS: &str = "
  conversations: [{turns: [{wait: 200ms, say: {synth: 700ms}, tool: {name: lookup, takes: 100ms}}]}]
scenarios: {talk: {}}
";
const INTERRUPTIONS: &str = "
  conversations: [{turns: [{wait: 200ms, say: {synth: 700ms}, barge_in: {after: 500ms, say: {synth: 700ms}}}]}]
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

const TURN: [&str; 5] = ["connect", "session_startup", "time_to_first_stream", "turn_response", "transcript_final"];

/// Turns, tools and interruptions, each measured.
fn converses(dialect: &str) {
    let done = in_order(Run::of(&profile(dialect, TURNS)).finish());
    measures(&done, &TURN);
    let done = in_order(Run::of(&profile(dialect, TOOLS)).with("--set=server.tool_rate=1").finish());
    measures(&done, &["turn_response", "tool_round_trip"]);
    let done = Run::of(&profile(dialect, INTERRUPTIONS)).with("--set=server.response=constant(6s)");
    let done = in_order(done.with("--set=thresholds.barge_ins_missed=['count==0']").finish());
    measures(&done, &["turn_response", "barge_in_stop"]);
}

#[test]
fn elevenlabs() {
    converses("dialect: elevenlabs");
}

#[test]
fn elevenlabs_on_the_telephone_speaks_first() {
    let done = in_order(Run::of(&profile("dialect: elevenlabs\n  format: mulaw_8k\n  agent: {greets: true, id: a b}", TURNS)).finish());
    measures(&done, &TURN);
}

#[test]
fn deepgram() {
    converses("dialect: deepgram");
}

#[test]
fn deepgram_in_other_formats_speaks_first() {
    for format in ["alaw_8k", "pcm16_48k"] {
        let done =
            in_order(Run::of(&profile(&format!("dialect: deepgram\n  format: {format}\n  agent: {{greets: true}}"), TURNS)).finish());
        measures(&done, &TURN);
    }
}

#[test]
fn deepgram_is_told_where_turns_end() {
    let done = in_order(Run::of(&profile("dialect: deepgram\n  agent: {turn_detection: none}", TURNS)).finish());
    measures(&done, &TURN);
}

#[test]
fn a_deadline_of_the_server_is_no_loss() {
    for dialect in ["elevenlabs", "deepgram"] {
        let long = "
  conversations: [{turns: [{wait: 20s}]}]
scenarios: {talk: {expect: timed_out, gracefulStop: 5s}}
";
        let done = Run::of(&profile(&format!("dialect: {dialect}"), long))
            .with("--set=server.max_duration=1s")
            .with("--set=thresholds={sessions_failed: ['rate==0']}")
            .finish()
            .exits(0);
        assert_eq!((done.at("/counters/status").as_str(), done.findings()), (Some("agree"), vec![]), "{}", done.shown());
    }
}

/// The description of a shipped profile, for a few sessions.
fn described(name: &str) -> String {
    let text = load_driver::profile::shipped(name).expect("shipped").text;
    let (from, to) = (text.find("  dialect: custom\n").expect("there"), text.find("  executor:").expect("there"));
    let tool = text[from..to].replace("lookup_order", "lookup");
    tool.trim_start().trim_end().to_owned()
}

#[test]
fn elevenlabs_described_in_the_profile() {
    converses(&described("custom-elevenlabs"));
}

#[test]
fn deepgram_described_in_the_profile() {
    converses(&described("custom-deepgram"));
}
