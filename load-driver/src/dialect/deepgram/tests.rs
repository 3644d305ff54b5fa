use proto::{
    frame::{ClientAudio, Outcome},
    ids::ResponseId,
};

use super::*;
use crate::plan::Agent;

fn new(agent: Agent) -> Deepgram {
    Deepgram::new(&Arc::new(Service { input: AudioFormat::Pcm16k, output: AudioFormat::Alaw8k, agent, ..Service::default() }))
}

fn said(dialect: &mut Deepgram, event: ClientEvent) -> Vec<Wire> {
    let mut to = Exchange::default();
    dialect.encode(event, &mut to);
    std::iter::from_fn(|| to.next_wire()).collect()
}

fn json_of(wires: &[Wire]) -> Value {
    let [Wire::Text(text)] = wires else { panic!("{wires:?}") };
    serde_json::from_str(text).unwrap()
}

fn heard(dialect: &mut Deepgram, wire: Wire) -> Vec<ServerEvent> {
    let mut to = Exchange::default();
    dialect.decode(wire, &mut to);
    std::iter::from_fn(|| to.next_event()).map(Result::unwrap).collect()
}

fn text(message: &Value) -> Wire {
    Wire::Text(message.to_string())
}

/// Events by name, with the number of the response.
fn names(dialect: &mut Deepgram, wires: &[Wire]) -> Vec<String> {
    let all = wires.iter().flat_map(|wire| heard(dialect, wire.clone()));
    all.map(|event| match event {
        ServerEvent::ResponseStart { response, turn, .. } => format!("start {} of {}", response.0, turn.0),
        ServerEvent::Audio(audio) => format!("audio {} of {}", audio.sequence, audio.response.0),
        ServerEvent::ResponseEnd { response, status, frames } => format!("end {} {status:?} {frames}", response.0),
        ServerEvent::Transcript { turn, text, .. } => format!("{}: {text}", turn.0),
        ServerEvent::Speech(marker) => format!("speech {}", marker.started),
        ServerEvent::Committed { turn } => format!("committed {}", turn.0),
        ServerEvent::Answering { turn } => format!("answering {}", turn.0),
        other => format!("{other:?}"),
    })
    .collect()
}

#[test]
fn settings_hold_what_the_profile_says() {
    let agent = Agent {
        model: Some("m".to_owned()),
        voice: Some("v".to_owned()),
        instructions: Some("i".to_owned()),
        greets: true,
        ..Agent::default()
    };
    let start = SessionStart {
        input: AudioFormat::Pcm16k,
        output: AudioFormat::Alaw8k,
        tools: vec!["lookup".to_owned()],
        ..SessionStart::default()
    };
    let settings = json_of(&said(&mut new(agent), ClientEvent::Start(start)));
    assert_eq!(settings["audio"]["input"], json!({"encoding": "linear16", "sample_rate": 16_000}));
    assert_eq!(settings["audio"]["output"], json!({"encoding": "alaw", "sample_rate": 8_000, "container": "none"}));
    let agent = &settings["agent"];
    assert_eq!((&agent["think"]["provider"]["model"], &agent["think"]["prompt"]), (&json!("m"), &json!("i")));
    assert_eq!((&agent["speak"]["provider"]["model"], &agent["think"]["functions"][0]["name"]), (&json!("v"), &json!("lookup")));
    assert!(agent["greeting"].is_string());
}

#[test]
fn the_session_is_named_by_the_server_or_by_its_request() {
    for (applied, id) in [(json!({"type": "SettingsApplied", "session_id": "s-1"}), "s-1"), (json!({"type": "SettingsApplied"}), "r-1")] {
        let mut dialect = new(Agent::default());
        assert!(heard(&mut dialect, text(&json!({"type": "Welcome", "request_id": "r-1"}))).is_empty());
        let all = heard(&mut dialect, text(&applied));
        assert!(matches!(&all[..], [ServerEvent::Accepted(accepted)] if accepted.session_id == id), "{all:?}");
    }
}

#[test]
fn turns_and_responses_are_numbered_as_they_come() {
    let audio = || Wire::Binary(vec![1; 160].into());
    let of = |kind: &str| text(&json!({"type": kind}));
    let spoken = |role: &str, content: &str| text(&json!({"type": "ConversationText", "role": role, "content": content}));
    let mut dialect = new(Agent::default());
    let script = [
        of("UserStartedSpeaking"),
        spoken("user", "hello"),
        of("AgentThinking"),
        of("AgentStartedSpeaking"),
        spoken("assistant", "yes"),
        audio(),
        audio(),
        of("AgentAudioDone"),
        of("UserStartedSpeaking"),
        spoken("user", "and"),
        // Without a word before its audio.
        audio(),
        of("UserStartedSpeaking"),
        audio(),
        spoken("user", "stop"),
        audio(),
        spoken("assistant", "fine"),
        audio(),
        of("AgentAudioDone"),
        of("AgentAudioDone"),
        of("SomethingNew"),
    ];
    assert_eq!(
        names(&mut dialect, &script),
        [
            "speech true",
            "committed 1",
            "1: hello",
            "answering 1",
            "start 1 of 1",
            "audio 0 of 1",
            "audio 1 of 1",
            "end 1 Completed 2",
            "speech true",
            "committed 2",
            "2: and",
            "start 2 of 2",
            "audio 2 of 2",
            "speech true",
            "end 2 Interrupted 1",
            "audio 3 of 2",
            "committed 3",
            "3: stop",
            "audio 4 of 2",
            "start 3 of 3",
            "audio 5 of 3",
            "end 3 Completed 1",
        ]
    );
}

#[test]
fn functions_are_answered_by_name_in_both_spellings() {
    let mut dialect = new(Agent::default());
    let request = json!({"type": "FunctionCallRequest", "functions": [
        {"id": "a", "name": "lookup", "arguments": "{}", "client_side": true},
        {"id": "b", "name": "theirs", "arguments": "{}", "client_side": false},
    ]});
    let all = heard(&mut dialect, text(&request));
    assert_eq!(all, [ServerEvent::ToolCall { call_id: "a".to_owned(), name: "lookup".to_owned(), arguments: "{}".to_owned() }]);
    let old = json!({"type": "FunctionCallRequest", "function_call_id": "c", "function_name": "old", "input": {"x": 1}});
    let all = heard(&mut dialect, text(&old));
    assert_eq!(all, [ServerEvent::ToolCall { call_id: "c".to_owned(), name: "old".to_owned(), arguments: r#"{"x":1}"#.to_owned() }]);
    let result = |id: &str| ClientEvent::ToolResult { call_id: id.to_owned(), output: "o".to_owned(), failed: false };
    assert_eq!(
        json_of(&said(&mut dialect, result("a"))),
        json!({"type": "FunctionCallResponse", "id": "a", "name": "lookup", "content": "o"})
    );
    let cancelled = json!({"type": "FunctionCallCancelled", "functions": [{"id": "c", "name": "old"}]});
    assert_eq!(heard(&mut dialect, text(&cancelled)), [ServerEvent::ToolCancel { call_id: "c".to_owned() }]);
    assert_eq!(json_of(&said(&mut dialect, result("c")))["name"], "");
}

#[test]
fn audio_is_bare_and_errors_say_whether_they_end_it() {
    let mut dialect = new(Agent::default());
    let frame = ClientAudio { sequence: 0, timestamp_us: 0, payload: vec![1, 2].into(), ack: false };
    assert_eq!(said(&mut dialect, ClientEvent::Audio(frame)), [Wire::Binary(vec![1, 2].into())]);
    assert_eq!(json_of(&said(&mut dialect, ClientEvent::Commit)), json!({"type": "ForceEndTurn"}));
    for (kind, code, expected, fatal) in [
        ("Warning", "SOMETHING", ErrorCode::Internal, false),
        ("Error", "UNPARSABLE_CLIENT_MESSAGE", ErrorCode::MalformedMessage, true),
        ("Error", "CLIENT_MESSAGE_TIMEOUT", ErrorCode::Idle, true),
    ] {
        let all = heard(&mut dialect, text(&json!({"type": kind, "code": code, "description": "d"})));
        assert_eq!(all, [ServerEvent::Error(SessionError { code: expected, message: format!("{code}: d"), fatal })]);
    }
    let mut to = Exchange::default();
    dialect.closed(1008, &mut to);
    assert!(matches!(to.next_event(), Some(Ok(ServerEvent::Ended(ended))) if ended.outcome == Outcome::TimedOut));
    for text in ["{", r#"{"type":"FunctionCallRequest","functions":[{}]}"#] {
        dialect.decode(Wire::Text(text.to_owned()), &mut to);
        assert!(matches!(to.next_event(), Some(Err(_))), "{text}");
    }
}

/// The service closes a session in which neither audio nor `KeepAlive` comes; the caller sends a frame at half of that.
#[test]
fn a_silence_is_kept_alive() {
    let mut deepgram = new(Agent::default());
    let accepted = heard(&mut deepgram, text(&json!({"type": "SettingsApplied"})));
    assert!(matches!(&accepted[..], [ServerEvent::Accepted(accepted)] if accepted.idle_timeout_ms == 10_000));
    let mut frame = |at_ms: u64| {
        let audio = ClientAudio { sequence: 0, timestamp_us: at_ms * 1_000, payload: vec![0; 640].into(), ack: false };
        let all = said(&mut deepgram, ClientEvent::Audio(audio));
        assert!(matches!(all.last(), Some(Wire::Binary(_))));
        all.iter().filter(|wire| matches!(wire, Wire::Text(text) if text.contains("KeepAlive"))).count()
    };
    assert_eq!([0, 20, 1_000, 6_000, 6_020, 11_000].map(&mut frame), [0, 0, 0, 1, 0, 1]);
}

/// A service that does not say when its answer is over.
#[test]
fn after_an_end_that_was_given_up_an_onset_ends_nothing_and_a_late_end_is_still_its_own() {
    let [started, done, onset] = ["AgentStartedSpeaking", "AgentAudioDone", "UserStartedSpeaking"].map(|kind| text(&json!({"type": kind})));
    let audio = Wire::Binary(vec![0; 160].into());
    let mut dialect = new(Agent::default());
    assert_eq!(names(&mut dialect, &[started.clone(), audio.clone()]), ["start 1 of 0", "audio 0 of 1"]);
    assert_eq!(said(&mut dialect, ClientEvent::GiveUp { response: ResponseId(1) }), []);
    let next = [onset.clone(), started.clone(), audio.clone()];
    assert_eq!(names(&mut dialect, &next), ["speech true", "start 2 of 1", "audio 1 of 2"]);
    said(&mut dialect, ClientEvent::GiveUp { response: ResponseId(1) });
    assert_eq!(names(&mut dialect, std::slice::from_ref(&audio)), ["audio 2 of 2"], "that is long over");
    said(&mut dialect, ClientEvent::GiveUp { response: ResponseId(2) });
    assert_eq!(names(&mut dialect, &[done.clone(), done.clone()]), ["end 2 Completed 2"]);
    assert_eq!(names(&mut dialect, &[started, audio, onset]), ["start 3 of 1", "audio 3 of 3", "speech true", "end 3 Interrupted 1"]);
}
