use http::{HeaderMap, header};
use proto::{
    frame::{AgentAudio, SessionAccepted},
    ids::{ResponseId, TurnId},
};

use super::*;

fn new() -> Conversation {
    Conversation::new("mine".to_owned(), "request-1".to_owned())
}

fn started() -> Conversation {
    let mut dialect = new();
    told(&mut dialect, vec![text(&settings())]);
    dialect
}

fn settings() -> Value {
    json!({
        "type": "Settings",
        "audio": {
            "input": {"encoding": "linear16", "sample_rate": 16_000.0},
            "output": {"encoding": "mulaw", "sample_rate": 8_000, "container": "none"},
        },
        "agent": {
            "listen": {"provider": {"type": "deepgram", "model": "nova-3"}},
            "think": {"provider": {"type": "open_ai"}, "functions": [
                {"name": "weather", "parameters": {}}, {"name": "elsewhere", "endpoint": {"url": "https://example.com"}},
            ]},
            "speak": {"provider": {"type": "deepgram", "model": "aura-2-thalia-en"}},
        },
    })
}

fn text(message: &Value) -> Frame {
    Frame::Text(message.to_string().into())
}

fn json_of(frame: &Frame) -> Value {
    match frame {
        Frame::Text(text) => serde_json::from_str(text).unwrap(),
        Frame::Binary(bytes) => json!({"binary": bytes.len()}),
    }
}

fn told(dialect: &mut Conversation, frames: Vec<Frame>) -> (Vec<Result<ClientEvent, SessionError>>, Vec<Value>) {
    let (mut events, mut answers) = (Vec::new(), Vec::new());
    for frame in frames {
        dialect.decode(frame, &mut Exchange::new(&mut |event| events.push(event), &mut |frame| answers.push(json_of(&frame))));
    }
    (events, answers)
}

fn said(dialect: &mut Conversation, event: ServerEvent) -> Vec<Value> {
    let mut all = Vec::new();
    dialect.encode(event, &mut Exchange::new(&mut |event| panic!("{event:?}"), &mut |frame| all.push(json_of(&frame))));
    all
}

fn error_of(dialect: &mut Conversation, frame: Frame) -> (Value, bool) {
    let (events, _) = told(dialect, vec![frame]);
    let [Err(error)] = &events[..] else { panic!("{events:?}") };
    let all = said(dialect, ServerEvent::Error(error.clone()));
    assert!(!all[0]["description"].as_str().unwrap().is_empty());
    (all[0]["code"].clone(), error.fatal)
}

#[test]
fn settings_start_the_session() {
    let mut dialect = new();
    let (events, _) = told(&mut dialect, vec![text(&settings())]);
    let [Ok(ClientEvent::Start(start))] = &events[..] else { panic!("{events:?}") };
    assert_eq!((start.input, start.output), (AudioFormat::Pcm16k, AudioFormat::Mulaw8k));
    assert_eq!((start.client_ref.as_str(), start.voice.as_str()), ("mine", "aura-2-thalia-en"));
    assert_eq!(start.tools, ["weather"], "functions with an endpoint are the server's own");
    // Without audio, with providers in lists, and with a greeting.
    let other = json!({"type": "Settings", "agent": {
        "greeting": "Hello!", "think": [{"functions": [{"name": "a"}]}], "speak": [{"provider": {"voice": "v"}}],
    }});
    let (events, _) = told(&mut new(), vec![text(&other)]);
    let [Ok(ClientEvent::Start(start)), Ok(ClientEvent::Respond(_))] = &events[..] else { panic!("{events:?}") };
    assert_eq!((start.input, start.output, start.voice.as_str()), (AudioFormat::Pcm24k, AudioFormat::Pcm24k, "v"));
    assert_eq!(start.tools, ["a"]);
}

#[test]
fn welcome_comes_first_and_the_session_is_named_when_it_is_there() {
    let mut all = Vec::new();
    new().open(&mut Exchange::new(&mut |event| panic!("{event:?}"), &mut |frame| all.push(json_of(&frame))));
    assert_eq!(all, [json!({"type": "Welcome", "request_id": "request-1"})]);
    let accepted = ServerEvent::Accepted(SessionAccepted {
        session_id: "s-1".to_owned(),
        backend_id: String::new(),
        boot_id: String::new(),
        input: AudioFormat::Pcm16k,
        output: AudioFormat::Pcm16k,
        max_duration_ms: 0,
        idle_timeout_ms: 0,
    });
    assert_eq!(said(&mut started(), accepted), [json!({"type": "SettingsApplied", "session_id": "s-1"})]);
    let mut headers = HeaderMap::new();
    for (offered, selected) in [("token, key", "token"), ("bearer, jwt", "bearer")] {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered));
        let opened = open(&Upgrade { path: PATHS[0], query: "", headers: &headers }).unwrap();
        assert_eq!(opened.subprotocol, Some(HeaderValue::from_static(selected)));
    }
}

#[test]
fn what_is_wrong_has_the_services_own_code() {
    let wrong = |path: &str, value: Value| {
        let mut settings = settings();
        *settings.pointer_mut(path).unwrap() = value;
        text(&settings)
    };
    for (frame, code) in [
        (Frame::Binary(vec![0; 640].into()), "NON_SETTINGS_MESSAGE_BEFORE_SETTINGS"),
        (text(&json!({"type": "KeepAlive"})), "NON_SETTINGS_MESSAGE_BEFORE_SETTINGS"),
        (Frame::Text("{".into()), "UNPARSABLE_CLIENT_MESSAGE"),
        (text(&json!([1])), "UNPARSABLE_CLIENT_MESSAGE"),
        (wrong("/audio/input/encoding", json!("opus")), "INVALID_SETTINGS"),
        (wrong("/audio/input/sample_rate", json!(44_100)), "INVALID_SETTINGS"),
        (wrong("/audio/input/sample_rate", json!(16_000.5)), "INVALID_SETTINGS"),
        (wrong("/audio/input/sample_rate", json!("16000")), "INVALID_SETTINGS"),
        (wrong("/audio/input/encoding", json!(16)), "INVALID_SETTINGS"),
        (wrong("/audio/output/sample_rate", json!(16_000)), "INVALID_SETTINGS"),
        (wrong("/audio/output/container", json!("wav")), "INVALID_SETTINGS"),
        (wrong("/agent", Value::Null), "INVALID_SETTINGS"),
    ] {
        assert_eq!(error_of(&mut new(), frame.clone()), (json!(code), true), "{frame:?}");
    }
    for (frame, code, fatal) in [
        (text(&settings()), "SETTINGS_ALREADY_APPLIED", true),
        (text(&json!({"type": "Setings"})), "UNPARSABLE_CLIENT_MESSAGE", true),
        (text(&json!({"type": "FunctionCallResponse"})), "UNPARSABLE_CLIENT_MESSAGE", true),
        (text(&json!({"type": "InjectUserMessage", "content": " "})), "UNPARSABLE_CLIENT_MESSAGE", true),
        (Frame::Binary(vec![0; 641].into()), "USER_AUDIO_FORMAT", false),
    ] {
        assert_eq!(error_of(&mut started(), frame.clone()), (json!(code), fatal), "{frame:?}");
    }
}

#[test]
fn messages_become_events_and_are_acknowledged() {
    let (events, answers) = told(
        &mut started(),
        [
            json!({"type": "KeepAlive"}),
            json!({"type": "FunctionCallResponse", "id": "call-1", "name": "weather", "content": "sun"}),
            json!({"type": "FunctionCallResponse", "function_call_id": "call-2", "output": {"a": 1}}),
            json!({"type": "UpdatePrompt", "prompt": "be brief"}),
            json!({"type": "UpdateSpeak", "speak": {"provider": {"type": "deepgram", "model": "aura"}}}),
            json!({"type": "UpdateThink", "think": {"functions": [{"name": "other"}]}}),
            json!({"type": "UpdateListen", "listen": {}}),
            json!({"type": "ForceEndTurn"}),
        ]
        .iter()
        .map(text)
        .collect(),
    );
    let result = |call_id: &str, output: &str| ClientEvent::ToolResult { call_id: call_id.into(), output: output.into(), failed: false };
    let configure = |settings| ClientEvent::Configure(Box::new(settings));
    assert_eq!(
        events.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        [
            ClientEvent::Context { role: "user".to_owned(), text: String::new() },
            result("call-1", "sun"),
            result("call-2", r#"{"a":1}"#),
            ClientEvent::Context { role: "system".to_owned(), text: "be brief".to_owned() },
            configure(SessionSettings { voice: Some("aura".to_owned()), ..SessionSettings::default() }),
            configure(SessionSettings { tools: Some(vec!["other".to_owned()]), ..SessionSettings::default() }),
        ]
    );
    let kinds: Vec<_> = answers.iter().map(|answer| answer["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["PromptUpdated", "SpeakUpdated", "ThinkUpdated", "ListenUpdated"]);
}

#[test]
fn the_agent_is_made_to_speak_only_when_nobody_does_unless_it_shall_interrupt() {
    let inject = |behavior: &str| text(&json!({"type": "InjectAgentMessage", "message": "hello", "behavior": behavior}));
    let mut dialect = started();
    let (events, answers) = told(&mut dialect, vec![inject("default")]);
    assert!(matches!(&events[..], [Ok(ClientEvent::Respond(wish))] if wish.text.as_deref() == Some("hello")), "{events:?}");
    assert!(answers.is_empty());
    let (events, answers) = told(&mut dialect, vec![inject("default")]);
    assert!(events.is_empty() && answers[0]["type"] == "InjectionRefused", "{answers:?}");
    let (events, _) = told(&mut dialect, vec![inject("interrupt")]);
    assert!(matches!(events[..], [Ok(ClientEvent::BargeIn { .. }), Ok(ClientEvent::Respond(_))]), "{events:?}");
    let (events, answers) = told(&mut dialect, vec![text(&json!({"type": "InjectUserMessage", "content": "call weather"}))]);
    assert!(matches!(events[..], [Ok(ClientEvent::BargeIn { .. }), Ok(ClientEvent::Respond(_))]), "{events:?}");
    assert_eq!(answers, [json!({"type": "ConversationText", "role": "user", "content": "call weather"})]);
}

#[test]
fn a_turn_is_told_in_order() {
    let mut dialect = started();
    let speech = |started, timestamp_us| ServerEvent::Speech(SpeechMarker { started, timestamp_us });
    let end = |status| ServerEvent::ResponseEnd { response: ResponseId(1), status, frames: 1 };
    let start = || ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: "fine".to_owned() };
    let audio = ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload: vec![1, 2].into(), response: ResponseId(1) });
    assert_eq!(said(&mut dialect, speech(true, 0)), [json!({"type": "UserStartedSpeaking"})]);
    told(&mut dialect, vec![Frame::Binary(vec![0; 32_000].into())]);
    assert!(said(&mut dialect, speech(false, 600_000)).is_empty());
    let transcript = ServerEvent::Transcript { turn: TurnId(1), text: "how are you".to_owned(), last: true };
    assert_eq!(said(&mut dialect, transcript), [json!({"type": "ConversationText", "role": "user", "content": "how are you"})]);
    assert_eq!(said(&mut dialect, ServerEvent::Answering { turn: TurnId(1) })[0]["type"], "AgentThinking");
    let all = said(&mut dialect, start());
    assert_eq!(all[0], json!({"type": "AgentStartedSpeaking", "total_latency": 0.4, "tts_latency": 0.0, "ttt_latency": 0.4}));
    assert_eq!(all[1], json!({"type": "ConversationText", "role": "assistant", "content": "fine"}));
    assert_eq!(said(&mut dialect, audio), [json!({"binary": 2})]);
    assert_eq!(said(&mut dialect, end(ResponseStatus::Completed)), [json!({"type": "AgentAudioDone"})]);
    // Interrupted: by speech there is no further word, by a message there is.
    said(&mut dialect, start());
    assert_eq!(said(&mut dialect, end(ResponseStatus::Interrupted)), [json!({"type": "AgentAudioDone"})]);
    said(&mut dialect, start());
    said(&mut dialect, speech(true, 700_000));
    assert!(said(&mut dialect, end(ResponseStatus::Interrupted)).is_empty());
}

#[test]
fn functions_are_asked_for_and_cancelled_by_name() {
    let mut dialect = started();
    let call = ServerEvent::ToolCall { call_id: "call-1".to_owned(), name: "weather".to_owned(), arguments: "{}".to_owned() };
    assert_eq!(
        said(&mut dialect, call),
        [
            json!({"type": "FunctionCallRequest", "functions": [{"id": "call-1", "name": "weather", "arguments": "{}", "client_side": true}]})
        ]
    );
    let cancelled = said(&mut dialect, ServerEvent::ToolCancel { call_id: "call-1".to_owned() });
    assert_eq!(cancelled, [json!({"type": "FunctionCallCancelled", "functions": [{"id": "call-1", "name": "weather"}]})]);
}
