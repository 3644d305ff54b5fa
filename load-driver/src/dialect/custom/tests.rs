use proto::audio::AudioFormat;
use serde_json::json;

use super::*;
use crate::{plan::Agent, profile};

/// Of a description that holds `more` beside what it must have.
fn new(send: &Value, receive: &Value) -> Custom {
    let custom: profile::Custom = serde_json::from_value(json!({"path": "/talk", "send": send, "receive": receive})).unwrap();
    let service = Service {
        output: AudioFormat::Mulaw8k,
        agent: Agent { voice: Some("a \"b\"".to_owned()), ..Agent::default() },
        custom: Some(Arc::new(Script::of(&custom))),
        ..Service::default()
    };
    Custom::new(&Arc::new(service))
}

fn said(dialect: &mut Custom, event: ClientEvent) -> Vec<Wire> {
    let mut to = Exchange::default();
    dialect.encode(event, &mut to);
    std::iter::from_fn(|| to.next_wire()).collect()
}

fn text(message: &str) -> Wire {
    Wire::Text(message.to_owned())
}

fn heard(dialect: &mut Custom, wire: Wire) -> Vec<ServerEvent> {
    let mut to = Exchange::default();
    dialect.decode(wire, &mut to);
    std::iter::from_fn(|| to.next_event()).map(Result::unwrap).collect()
}

/// Events by name, with the number of the turn and the response.
fn names(dialect: &mut Custom, messages: &[Value]) -> Vec<String> {
    let all = messages.iter().flat_map(|message| heard(dialect, text(&message.to_string())));
    all.map(|event| match event {
        ServerEvent::Accepted(accepted) => format!("accepted {}", accepted.session_id),
        ServerEvent::ResponseStart { response, turn, .. } => format!("start {} of {}", response.0, turn.0),
        ServerEvent::Audio(audio) => format!("audio {} of {}", audio.sequence, audio.response.0),
        ServerEvent::ResponseEnd { response, status, .. } => format!("end {} {status:?}", response.0),
        ServerEvent::Transcript { turn, text, last } => format!("{}: {text}{}", turn.0, if last { "." } else { "" }),
        ServerEvent::Speech(marker) => format!("speech {}", marker.started),
        ServerEvent::Committed { turn } => format!("committed {}", turn.0),
        ServerEvent::Answering { turn } => format!("answering {}", turn.0),
        other => format!("{other:?}"),
    })
    .collect()
}

#[test]
fn templates_are_filled_in() {
    let send = json!({
        "start": ["{\"hello\": \"${client_ref}\", \"voice\": \"${voice}\", \"rate\": ${output_rate}, \"tools\": ${tools}}"],
        "audio": "{\"n\": ${sequence}, \"t\": ${timestamp_ms}, \"a\": \"${audio}\", \"s\": \"${session_id}\"}",
        "interrupt": "{\"stop\": ${response}, \"heard\": ${heard_ms}}",
        "tool_result": "{\"id\": \"${call_id}\", \"out\": \"${output}\", \"bad\": ${failed}}",
        "end": "{\"bye\": true}",
        "pong": "{\"pong\": ${id}}",
    });
    let mut dialect = new(
        &send,
        &json!([
            {"kind": "ready", "when": {"/t": "ready"}, "id": "/id"}, {"kind": "ping", "when": {"/t": "ping"}, "id": "/id"},
        ]),
    );
    assert_eq!(dialect.path(), "/talk");
    let start = SessionStart {
        client_ref: "mine".to_owned(),
        output: AudioFormat::Mulaw8k,
        tools: vec!["x".to_owned()],
        ..SessionStart::default()
    };
    assert_eq!(
        said(&mut dialect, ClientEvent::Start(start)),
        [text(r#"{"hello": "mine", "voice": "a \"b\"", "rate": 8000, "tools": ["x"]}"#)]
    );
    assert_eq!(names(&mut dialect, &[json!({"t": "ready", "id": "s-1"}), json!({"t": "ready", "id": "s-1"})]), ["accepted s-1"]);
    let audio = ClientAudio { sequence: 7, timestamp_us: 140_999, payload: vec![1, 2, 3].into(), ack: false };
    assert_eq!(said(&mut dialect, ClientEvent::Audio(audio)), [text(r#"{"n": 7, "t": 140, "a": "AQID", "s": "s-1"}"#)]);
    let barge_in = ClientEvent::BargeIn { response: Some(ResponseId(2)), heard_ms: 60 };
    assert_eq!(said(&mut dialect, barge_in), [text(r#"{"stop": 2, "heard": 60}"#)]);
    assert_eq!(said(&mut dialect, ClientEvent::Cancel { response: None }), [text(r#"{"stop": 0, "heard": 0}"#)]);
    let result = ClientEvent::ToolResult { call_id: "c".to_owned(), output: "{\"a\":1}".to_owned(), failed: false };
    assert_eq!(said(&mut dialect, result), [text(r#"{"id": "c", "out": "{\"a\":1}", "bad": false}"#)]);
    assert!(said(&mut dialect, ClientEvent::Commit).is_empty());
    for (id, pong) in [(json!(7), r#"{"pong": 7}"#), (json!("x"), r#"{"pong": "x"}"#)] {
        let mut to = Exchange::default();
        dialect.decode(text(&json!({"t": "ping", "id": id}).to_string()), &mut to);
        assert_eq!(to.next_wire(), Some(text(pong)));
    }
    assert_eq!(said(&mut dialect, ClientEvent::End { reason: String::new() }), [text(r#"{"bye": true}"#), Wire::Close(1000)]);
}

fn rules() -> Value {
    json!([
        {"kind": "speech_started", "when": {"/t": "start"}},
        {"kind": "speech_stopped", "when": {"/t": "stop"}},
        {"kind": "transcript", "when": {"/t": "text", "/who": "user"}, "text": "/text", "final": {"/final": true}},
        {"kind": "agent_text", "when": {"/t": "text", "/who": "agent"}, "text": "/text"},
        {"kind": "audio", "when": {"/audio": {"exists": true}}, "data": "/audio"},
        {"kind": "interrupted", "when": {"/t": "cut"}},
        {"kind": "tool_call", "when": {"/t": "tool"}, "id": "/id", "name": "/name", "arguments": "/args"},
        {"kind": "error", "when": {"/t": "error"}, "message": "/what", "fatal": true},
    ])
}

fn user(text: &str, last: bool) -> Value {
    json!({"t": "text", "who": "user", "text": text, "final": last})
}

fn script() -> Vec<Value> {
    let audio = json!({"audio": "/w=="});
    vec![
        json!({"t": "start"}),
        user("he", false),
        json!({"t": "stop"}),
        user("hello", true),
        json!({"t": "text", "who": "agent", "text": "yes"}),
        audio.clone(),
        json!({"t": "done", "audio": "/w=="}),
        json!({"t": "start"}),
        json!({"t": "stop"}),
        json!({"t": "start"}),
        audio.clone(),
        json!({"t": "cut"}),
        audio,
        json!({"t": "nothing"}),
    ]
}

#[test]
fn where_no_end_is_told_the_caller_finds_the_answers() {
    let mut dialect = new(&json!({}), &rules());
    assert_eq!(
        names(&mut dialect, &script()),
        [
            "speech true",
            "1: he",
            "speech false",
            "committed 1",
            "1: hello.",
            "answering 1",
            "audio 0 of 0",
            "audio 1 of 0",
            "speech true",
            "speech false",
            "speech true",
            "audio 2 of 0",
            "end 0 Interrupted",
            "audio 3 of 0",
        ]
    );
}

#[test]
fn where_ends_are_told_answers_are_numbered() {
    let mut rules = rules();
    rules.as_array_mut().unwrap().push(json!({"kind": "turn_end", "when": {"/t": "done"}}));
    let mut dialect = new(&json!({}), &rules);
    assert_eq!(
        names(&mut dialect, &script()),
        [
            "speech true",
            "1: he",
            "speech false",
            "committed 1",
            "1: hello.",
            "start 1 of 1",
            "audio 0 of 1",
            // A message may be two things at once.
            "audio 1 of 1",
            "end 1 Completed",
            "speech true",
            "speech false",
            "speech true",
            "start 2 of 3",
            "audio 2 of 2",
            "end 2 Interrupted",
            "audio 3 of 2",
        ]
    );
}

#[test]
fn tools_errors_and_binary_audio_are_heard() {
    let mut dialect = new(&json!({}), &rules());
    let call = heard(&mut dialect, text(r#"{"t": "tool", "id": 3, "name": "lookup", "args": {"a": 1}}"#));
    assert_eq!(call, [ServerEvent::ToolCall { call_id: "3".to_owned(), name: "lookup".to_owned(), arguments: r#"{"a":1}"#.to_owned() }]);
    let error = heard(&mut dialect, text(r#"{"t": "error", "what": "no"}"#));
    assert_eq!(error, [ServerEvent::Error(SessionError::fatal(ErrorCode::Internal, "no"))]);
    for wrong in ["{", r#"{"audio": 1}"#, r#"{"audio": "*"}"#] {
        let mut to = Exchange::default();
        dialect.decode(text(wrong), &mut to);
        assert!(matches!(to.next_event(), Some(Err(_))), "{wrong}");
    }
    // JSON in binary frames, unless those are audio.
    assert_eq!(heard(&mut dialect, Wire::Binary(br#"{"t": "start"}"#.to_vec().into())).len(), 1);
    let mut dialect = new(&json!({}), &json!([{"kind": "audio", "binary": true}]));
    let audio = heard(&mut dialect, Wire::Binary(br#"{"t": "start"}"#.to_vec().into()));
    assert!(matches!(&audio[..], [ServerEvent::Audio(audio)] if audio.payload.len() == 14), "{audio:?}");
    // Without a rule for it the session is ready when its start is said.
    let mut to = Exchange::default();
    dialect.encode(ClientEvent::Start(SessionStart::default()), &mut to);
    assert!(matches!(to.next_event(), Some(Ok(ServerEvent::Accepted(_)))));
}

/// A backend that does not say the end that it was described with: once the caller gives it up, what comes is another answer.
#[test]
fn after_an_end_that_was_given_up_audio_is_of_the_next_answer() {
    let receive = json!([{"kind": "audio", "when": {"/op": "speak"}, "data": "/pcm"}, {"kind": "turn_end", "when": {"/op": "spoken"}}]);
    let mut dialect = new(&json!({"audio": "{\"a\": \"${audio}\"}"}), &receive);
    let (speak, spoken) = (json!({"op": "speak", "pcm": "////"}), json!({"op": "spoken"}));
    assert_eq!(names(&mut dialect, &[speak.clone(), speak.clone()]), ["start 1 of 0", "audio 0 of 1", "audio 1 of 1"]);
    assert_eq!(said(&mut dialect, ClientEvent::GiveUp { response: ResponseId(1) }), []);
    assert_eq!(names(&mut dialect, &[speak, spoken]), ["start 2 of 0", "audio 2 of 2", "end 2 Completed"]);
}
