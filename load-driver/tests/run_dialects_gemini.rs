//! `load-driver run` with Gemini Live, against embedded backends that speak it.

mod run_support;

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use run_support::{Run, backend::Backend};
use tokio_tungstenite::tungstenite::{
    self, Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

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
    let done = Run::of(profile).against(&backend).finish().exits(106).says("ended early by the backend");
    assert_eq!(done.findings(), []);
    // Not one turn was spoken, though each session came to a good end.
    assert_eq!(done.count("/counts/sessions_cut_short"), done.count("/funnel/completed"), "{}", done.shown());
    let snapshot = backend.eventually("both sessions end", |snapshot| snapshot.active == 0);
    assert_eq!(snapshot.ended.get("completed"), Some(&snapshot.started));
    assert!(snapshot.started >= 2);
}

/// Two conversations of nine turns, whose sessions are resumed.
fn resuming(more: &str) -> String {
    format!(
        "
name: resume
driver: {{shards: 1, max_schedule_lag: 2s}}
defaults:
  dialect: gemini_live
  agent: {{resume: true}}
  executor: constant-sessions
  sessions: 2
  duration: 1s
  gracefulStop: 60s
scenarios:
  long: {{conversations: [{{turns: [{turns}]}}]}}
thresholds: {{sessions_failed: ['rate==0'], turns_missed: ['count==0'], turns_unspoken: ['count==0'], sessions_resumed: ['count>1']}}
{more}",
        turns = ["{wait: 1s, say: {synth: 400ms}}"; 9].join(", ")
    )
}

#[test]
fn conversations_go_on_when_the_backend_gives_their_sessions_up() {
    // Whoever dialled before the old session is over would be refused.
    let backend = Backend::start(&["--max-duration", "10s", "--max-sessions", "2", "--think", "50ms", "--response", "400ms"]);
    let done = Run::of(&resuming("")).against(&backend).finish().exits(0);
    assert_eq!(done.findings(), []);
    assert_eq!((done.count("/counts/turns"), done.count("/counts/turns_unspoken")), (18, 0), "{}", done.shown());
    let resumed = done.count("/counts/sessions_resumed");
    assert!(resumed >= 2, "{}", done.shown());
    assert_eq!(done.count("/counts/going_aways"), resumed, "{}", done.shown());
    assert!(done.latency("resumption", "response", "count") >= 2.0);
    let snapshot = backend.eventually("all sessions end", |snapshot| snapshot.active == 0);
    assert_eq!(snapshot.started, 2 + resumed, "each connection is a session of its own");
    assert_eq!(snapshot.ended.get("completed"), Some(&snapshot.started));
}

#[test]
fn they_go_on_in_the_process_that_a_plan_kills_as_well() {
    let backend = Backend::start(&["--max-duration", "10s", "--max-sessions", "2", "--think", "50ms", "--response", "400ms"]);
    let killed = "--set=scenarios.long.end=kill_worker";
    let done = Run::of(&resuming("")).with(killed).with("--set=scenarios.long.kill_at=16s").against(&backend).finish().exits(0);
    assert_eq!(done.findings(), []);
    assert!(done.count("/counts/sessions_resumed") >= 2, "{}", done.shown());
    assert!(done.at("/errors").as_object().expect("a map").is_empty(), "{}", done.shown());
}

/// A service that gives every session up at once, and takes back none.
fn forgetful() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a stream");
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(stream: TcpStream) -> Result<(), Box<tungstenite::Error>> {
    // A connection that is only looked at is no session.
    let Ok(mut socket) = tungstenite::accept(stream) else { return Ok(()) };
    let setup = socket.read()?.into_text()?;
    if setup.contains(r#""handle":"h-1""#) {
        socket.close(Some(CloseFrame { code: CloseCode::Policy, reason: "session not found".into() }))?;
    } else {
        let update = r#"{"sessionResumptionUpdate":{"newHandle":"h-1","resumable":true}}"#;
        for message in [r#"{"setupComplete":{}}"#, update, r#"{"goAway":{"timeLeft":"5s"}}"#] {
            socket.send(Message::text(message))?;
        }
    }
    loop {
        socket.read()?;
    }
}

/// Each session is over in order before a word was said: nothing of that is a pass, nor a reason to dial as fast as the machine can.
#[test]
fn sessions_that_the_backend_sends_away_are_cut_short_and_their_turns_missed() {
    let url = format!("ws://{}", forgetful());
    let profile = resuming("").replace("agent: {resume: true}", "agent: {}").replace(", sessions_resumed: ['count>1']", "");
    let done = Run::of(&profile).with("--target").with(&url).finish().exits(106).says("ended early by the backend");
    let cut = done.count("/counts/sessions_cut_short");
    assert_eq!(done.count("/counts/turns_missed"), 9 * cut, "{}", done.shown());
    // Two lanes for a second, each with a second between its sessions.
    assert!((2..=4).contains(&cut), "{}", done.shown());
    assert_eq!(done.count("/funnel/completed"), cut, "{}", done.shown());
}

#[test]
fn a_conversation_that_the_backend_does_not_take_back_is_a_failure_that_counts_its_turns() {
    let url = format!("ws://{}", forgetful());
    let done = Run::of(&resuming("")).with("--target").with(&url).finish().exits(106).says("not_resumed");
    let errors = done.at("/errors").as_object().expect("a map");
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["not_resumed"], "{}", done.shown());
    let failed = errors["not_resumed"].as_u64().expect("a number");
    assert!(failed >= 2, "{}", done.shown());
    assert!(done.at("/exit/reasons").as_array().is_some_and(|reasons| reasons.len() == 2), "the thresholds too\n{}", done.shown());
    // None was spoken, and each was due.
    for counter in ["turns_unspoken", "turns_missed", "turns"] {
        assert_eq!(done.count(&format!("/counts/{counter}")), 9 * failed, "{counter}\n{}", done.shown());
    }
    assert_eq!(done.count("/counts/sessions_resumed"), 0);
}
