use http::{HeaderMap, HeaderValue, header};
use proto::{
    frame::{AgentAudio, SpeechMarker},
    ids::TurnId,
};

use super::*;

fn opened(query: &str) -> Result<Opened, Refused> {
    open(&Upgrade { path: PATH, query, headers: &HeaderMap::new() })
}

/// What the session hears of these messages, and what the client is told at once.
fn told(dialect: &mut dyn Dialect<In = Frame, Out = Frame>, messages: &[Value]) -> (Vec<Result<ClientEvent, SessionError>>, Vec<Value>) {
    let (mut events, mut answers) = (Vec::new(), Vec::new());
    for message in messages {
        dialect.decode(
            Frame::Text(message.to_string().into()),
            &mut Exchange::new(&mut |event| events.push(event), &mut |frame| answers.push(json_of(&frame))),
        );
    }
    (events, answers)
}

fn json_of(frame: &Frame) -> Value {
    let Frame::Text(text) = frame else { panic!("{frame:?}") };
    serde_json::from_str(text).unwrap()
}

fn said(dialect: &mut dyn Dialect<In = Frame, Out = Frame>, event: ServerEvent) -> Vec<Value> {
    let mut all = Vec::new();
    dialect.encode(event, &mut Exchange::new(&mut |event| panic!("{event:?}"), &mut |frame| all.push(json_of(&frame))));
    all
}

fn new() -> Conversation {
    Conversation::new(SessionStart::default(), false)
}

fn started() -> Conversation {
    let mut dialect = new();
    told(&mut dialect, &[json!({"type": "conversation_initiation_client_data"})]);
    dialect
}

fn accepted() -> ServerEvent {
    ServerEvent::Accepted(SessionAccepted {
        session_id: "s-1".to_owned(),
        backend_id: String::new(),
        boot_id: String::new(),
        input: AudioFormat::Pcm16k,
        output: AudioFormat::Mulaw8k,
        max_duration_ms: 0,
        idle_timeout_ms: 0,
    })
}

fn start_of(events: &[Result<ClientEvent, SessionError>]) -> &SessionStart {
    let Some(Ok(ClientEvent::Start(start))) = events.first() else { panic!("{events:?}") };
    start
}

fn audio(response: u64) -> ServerEvent {
    ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload: vec![1, 2, 3].into(), response: ResponseId(response) })
}

#[test]
fn the_first_message_starts_the_session_as_it_asks() {
    let (events, _) = told(
        &mut new(),
        &[json!({
            "type": "conversation_initiation_client_data",
            "conversation_config_override": {
                "agent": {"first_message": "hello"},
                "asr": {"user_input_audio_format": "ulaw_8000"},
                "tts": {"voice_id": "v\u{e9}1", "agent_output_audio_format": "pcm_24000"},
            },
            "dynamic_variables": {"client_tools": "weather, lookup"},
        })],
    );
    let start = start_of(&events);
    assert_eq!((start.input, start.output, start.voice.as_str()), (AudioFormat::Mulaw8k, AudioFormat::Pcm24k, "v1"));
    assert_eq!(start.tools, ["weather", "lookup"]);
    assert!(matches!(events[1..], [Ok(ClientEvent::Respond(_))]), "a greeting");
    // Any other first message starts it too.
    let (events, _) = told(&mut new(), &[json!({"user_audio_chunk": base64::encode(&[0; 640])})]);
    assert_eq!(start_of(&events), &SessionStart::default());
    assert!(matches!(events[1], Ok(ClientEvent::Audio(_))));
    assert_eq!(events.len(), 2);
}

#[test]
fn the_query_chooses_formats_greeting_and_subprotocol() {
    let mut dialect = opened("agent_id=a&input_format=pcm_8000&output_format=ulaw_8000&greeting=1").unwrap().dialect;
    let (events, _) = told(&mut *dialect, &[json!({"type": "conversation_initiation_client_data"})]);
    assert_eq!((start_of(&events).input, start_of(&events).output), (AudioFormat::Pcm8k, AudioFormat::Mulaw8k));
    assert_eq!(events.len(), 2);
    let refused = opened("input_format=opus").unwrap_err();
    assert!(refused.status == StatusCode::BAD_REQUEST && refused.body.contains("pcm_16000"), "{refused:?}");
    let mut headers = HeaderMap::new();
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("other, convai"));
    let opened = open(&Upgrade { path: PATH, query: "", headers: &headers }).unwrap();
    assert_eq!(opened.subprotocol, Some(HeaderValue::from_static("convai")));
}

#[test]
fn messages_become_events() {
    let mut dialect = started();
    let (events, _) = told(
        &mut dialect,
        &[
            json!({"type": "client_tool_result", "tool_call_id": "call-1", "result": {"a": 1}, "is_error": true}),
            json!({"type": "user_message", "text": "call weather"}),
            json!({"type": "contextual_update", "text": "it rains"}),
            json!({"type": "user_activity"}),
            json!({"type": "feedback", "score": "like", "event_id": 1}),
            json!({"type": "pong", "event_id": 9}),
        ],
    );
    assert_eq!(
        events.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        [
            ClientEvent::ToolResult { call_id: "call-1".to_owned(), output: r#"{"a":1}"#.to_owned(), failed: true },
            ClientEvent::BargeIn { response: None, heard_ms: u32::MAX },
            ClientEvent::Respond(ResponseWish { text: Some("call weather".to_owned()), ..ResponseWish::default() }),
            ClientEvent::Context { role: "system".to_owned(), text: "it rains".to_owned() },
            ClientEvent::Context { role: "user".to_owned(), text: String::new() },
        ]
    );
}

#[test]
fn what_is_wrong_is_said_and_only_what_is_no_message_ends_it() {
    for (message, code, fatal) in [
        (json!({"type": "user_massage"}), ErrorCode::MalformedMessage, false),
        (json!({"no": 1}), ErrorCode::MalformedMessage, false),
        (json!({"type": "user_message"}), ErrorCode::MalformedMessage, false),
        (json!({"type": "client_tool_result"}), ErrorCode::MalformedMessage, false),
        (json!({"user_audio_chunk": "*"}), ErrorCode::BadAudio, false),
        (json!({"user_audio_chunk": "AA=="}), ErrorCode::BadAudio, false),
        (json!({"user_audio_chunk": 7}), ErrorCode::MalformedMessage, true),
        (json!(["AAAA"]), ErrorCode::MalformedMessage, true),
        (json!({"type": "conversation_initiation_client_data"}), ErrorCode::AlreadyStarted, true),
    ] {
        let (events, _) = told(&mut started(), std::slice::from_ref(&message));
        let [Err(error)] = &events[..] else { panic!("{message}: {events:?}") };
        assert_eq!((error.code, error.fatal), (code, fatal), "{message}: {error}");
    }
    let (events, _) = told(
        &mut new(),
        &[json!({"type": "conversation_initiation_client_data",
            "conversation_config_override": {"asr": {"user_input_audio_format": "pcm_22050"}}})],
    );
    assert!(matches!(&events[..], [Err(error)] if error.code == ErrorCode::UnsupportedFormat && error.fatal), "{events:?}");
}

#[test]
fn events_become_messages() {
    let mut dialect = started();
    let all = said(&mut dialect, accepted());
    let metadata = &all[0]["conversation_initiation_metadata_event"];
    assert_eq!(metadata["conversation_id"], "s-1");
    assert_eq!((&metadata["agent_output_audio_format"], &metadata["user_input_audio_format"]), (&json!("ulaw_8000"), &json!("pcm_16000")));
    assert_eq!(all[1]["ping_event"], json!({"event_id": 1, "ping_ms": null}));
    let text = "all that is said".to_owned();
    let all = said(&mut dialect, ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text });
    assert_eq!(all, [json!({"type": "agent_response", "agent_response_event": {"agent_response": "all that is said"}})]);
    for event_id in 1..=2 {
        let all = said(&mut dialect, audio(1));
        assert_eq!(all, [json!({"type": "audio", "audio_event": {"audio_base_64": "AQID", "event_id": event_id}})]);
    }
    let end = |status| ServerEvent::ResponseEnd { response: ResponseId(1), status, frames: 2 };
    assert!(said(&mut dialect, end(ResponseStatus::Completed)).is_empty());
    let all = said(&mut dialect, end(ResponseStatus::Interrupted));
    assert_eq!(all, [json!({"type": "interruption", "interruption_event": {"event_id": 2}})]);
    let context =
        || ServerEvent::Context { role: "agent".to_owned(), text: "all".to_owned(), response: Some(ResponseId(1)), heard_ms: 400 };
    let all = said(&mut dialect, context());
    assert_eq!(
        all[0]["agent_response_correction_event"],
        json!({"original_agent_response": "all that is said", "corrected_agent_response": "all"})
    );
    assert!(said(&mut dialect, context()).is_empty(), "once");
    assert_eq!(said(&mut dialect, audio(2))[0]["audio_event"]["event_id"], 3, "not taken for what was interrupted");
    let call = ServerEvent::ToolCall { call_id: "call-1".to_owned(), name: "weather".to_owned(), arguments: r#"{"a":1}"#.to_owned() };
    assert_eq!(
        said(&mut dialect, call)[0]["client_tool_call"],
        json!({"tool_name": "weather", "tool_call_id": "call-1", "parameters": {"a": 1}})
    );
    let error = ServerEvent::Error(SessionError::fatal(ErrorCode::Idle, "nothing"));
    assert_eq!(said(&mut dialect, error)[0]["error_event"], json!({"error_type": "idle", "message": "nothing", "fatal": true}));
    let speech = ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: 0 });
    assert_eq!(said(&mut dialect, speech)[0]["vad_score_event"]["vad_score"], 0.95);
}

#[test]
fn pings_follow_the_audio_and_tell_the_round_trip() {
    let mut dialect = started();
    said(&mut dialect, accepted());
    let tenth = || json!({"user_audio_chunk": base64::encode(&[0; 3_200])});
    // Answered after 200 ms, within the piece up to 300.
    let (_, answers) = told(&mut dialect, &[tenth(), tenth(), json!({"type": "pong", "event_id": 1})]);
    assert!(answers.is_empty(), "{answers:?}");
    let (_, answers) = told(&mut dialect, &vec![tenth(); 18]);
    assert_eq!(answers, [json!({"type": "ping", "ping_event": {"event_id": 2, "ping_ms": 300}})]);
    // A pong of another ping measures nothing.
    told(&mut dialect, &[json!({"type": "pong", "event_id": 1})]);
    let (_, answers) = told(&mut dialect, &vec![tenth(); 20]);
    assert_eq!(answers, [json!({"type": "ping", "ping_event": {"event_id": 3, "ping_ms": 300}})]);
}

#[test]
fn a_client_of_text_gets_no_audio() {
    let mut dialect = new();
    told(&mut dialect, &[json!({"type": "conversation_initiation_client_data", "conversation_config_override": {"text_only": true}})]);
    assert!(said(&mut dialect, audio(1)).is_empty());
}

#[test]
fn an_orderly_close_is_the_goodbye() {
    let closed = |dialect: &mut Conversation, code| {
        let mut events = Vec::new();
        dialect.closed(code, &mut Exchange::new(&mut |event| events.push(event), &mut |_| panic!("nobody reads it")));
        events.len()
    };
    assert_eq!((closed(&mut started(), 1000), closed(&mut started(), 1005)), (1, 1));
    assert_eq!((closed(&mut started(), 1001), closed(&mut new(), 1000)), (0, 0));
}
