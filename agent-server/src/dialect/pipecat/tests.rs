use http::HeaderMap;
use proto::{
    frame::{SessionAccepted, SpeechMarker},
    ids::{ResponseId, TurnId},
};
use serde_json::Value;

use super::*;

/// What came of a step.
#[derive(Debug, Default)]
struct Came {
    events: Vec<Result<ClientEvent, SessionError>>,
    frames: Vec<Kind>,
}

impl Came {
    fn of(step: impl FnOnce(&mut Exchange<'_, Frame>)) -> Self {
        let (mut events, mut frames) = (Vec::new(), Vec::new());
        step(&mut Exchange::new(&mut |event| events.push(event), &mut |frame| frames.push(frame)));
        let kind = |frame| match frame {
            Frame::Binary(bytes) => pipecat::Frame::decode(bytes).unwrap().frame.unwrap(),
            Frame::Text(text) => panic!("a text frame: {text}"),
        };
        Self { events, frames: frames.into_iter().map(kind).collect() }
    }

    fn event(self) -> Result<ClientEvent, SessionError> {
        assert!(self.events.len() == 1 && self.frames.is_empty(), "{self:?}");
        self.events.into_iter().next().unwrap()
    }

    fn messages(self) -> Vec<Value> {
        let json = |frame| match frame {
            Kind::Message(message) => {
                let value: Value = serde_json::from_str(&message.data).unwrap();
                assert_eq!(value["label"], "rtvi-ai");
                value
            }
            other => panic!("{other:?}"),
        };
        self.frames.into_iter().map(json).collect()
    }

    fn types(self) -> Vec<String> {
        let name = |frame| match frame {
            Kind::Message(message) => serde_json::from_str::<Value>(&message.data).unwrap()["type"].as_str().unwrap().to_owned(),
            Kind::Audio(audio) => format!("audio {}", audio.audio.len()),
            Kind::Interruption(_) => "InterruptionFrame".to_owned(),
            Kind::Transcription(said) => format!("TranscriptionFrame {}", said.text),
            Kind::Text(text) => panic!("{text:?}"),
        };
        self.frames.into_iter().map(name).collect()
    }
}

fn bot(query: &str) -> Result<Bot, Refused> {
    let mut headers = HeaderMap::new();
    headers.insert(proto::frame::CLIENT_REF_HEADER, "run-1".parse().unwrap());
    Bot::new(&Upgrade { path: "/pipecat", query, headers: &headers })
}

fn open(query: &str) -> (Bot, SessionStart) {
    let mut bot = bot(query).unwrap();
    let Ok(ClientEvent::Start(start)) = Came::of(|to| bot.open(to)).event() else { panic!("no start") };
    (bot, start)
}

fn hear(bot: &mut Bot, frame: Kind) -> Came {
    let bytes = pipecat::Frame { frame: Some(frame) }.encode_to_vec();
    Came::of(|to| bot.decode(Frame::Binary(bytes.into()), to))
}

fn ask(bot: &mut Bot, message: &Value) -> Came {
    hear(bot, Kind::Message(pipecat::MessageFrame { data: message.to_string() }))
}

fn say(bot: &mut Bot, event: ServerEvent) -> Came {
    Came::of(|to| bot.encode(event, to))
}

fn user_audio(rate: u32, bytes: usize) -> Kind {
    Kind::Audio(pipecat::AudioRawFrame { audio: vec![0; bytes].into(), sample_rate: rate, num_channels: 1, ..Default::default() })
}

fn agent_audio() -> ServerEvent {
    ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload: vec![1; 640].into(), response: ResponseId(1) })
}

fn accepted() -> ServerEvent {
    ServerEvent::Accepted(SessionAccepted {
        session_id: "s-1".into(),
        backend_id: "b".into(),
        boot_id: "p".into(),
        input: AudioFormat::Pcm16k,
        output: AudioFormat::Pcm16k,
        max_duration_ms: 0,
        idle_timeout_ms: 0,
    })
}

#[test]
fn paths_take_a_token_and_nothing_else() {
    for (path, served) in [
        ("/pipecat", true),
        ("/ws-client", true),
        ("/ws-client/abc.def", true),
        ("/pipecat/", true),
        ("/pipecats", false),
        ("/ws-client/a/b", false),
        ("/ws", false),
    ] {
        assert_eq!((WEBSOCKET.serves)(path), served, "{path}");
    }
}

#[test]
fn the_connection_is_the_start() {
    let (_, start) = open("");
    assert_eq!((start.input, start.output), (AudioFormat::Pcm16k, AudioFormat::Pcm16k));
    assert_eq!((start.client_ref.as_str(), &start.tools[..]), ("run-1", &["lookup".to_owned()][..]));
    let (_, start) = open("token=t&sample_rate=24000&tools=a,b&voice=v");
    assert_eq!((start.output, start.tools.len(), start.voice.as_str()), (AudioFormat::Pcm24k, 2, "v"));
    assert_eq!(bot("sample_rate=44100").unwrap_err().status, StatusCode::BAD_REQUEST);
}

#[test]
fn the_first_audio_fixes_the_rate() {
    let (mut bot, _) = open("");
    let came = hear(&mut bot, user_audio(24_000, 1_920));
    let [Ok(ClientEvent::Configure(settings)), Ok(ClientEvent::Audio(audio))] = &came.events[..] else { panic!("{came:?}") };
    assert_eq!((settings.input, audio.payload.len()), (Some(AudioFormat::Pcm24k), 1_920));
    assert!(matches!(hear(&mut bot, user_audio(24_000, 960)).event(), Ok(ClientEvent::Audio(audio)) if audio.timestamp_us == 40_000));
    let error = hear(&mut bot, user_audio(16_000, 640)).event().unwrap_err();
    assert!(error.fatal && error.code == ErrorCode::UnsupportedFormat, "{error:?}");
    let odd = hear(&mut bot, user_audio(24_000, 961)).event().unwrap_err();
    assert!(!odd.fatal && odd.code == ErrorCode::BadAudio, "{odd:?}");
    let (mut bot, _) = open("");
    assert!(matches!(hear(&mut bot, user_audio(16_000, 640)).event(), Ok(ClientEvent::Audio(_))), "nothing to configure");
    let error = hear(&mut open("").0, user_audio(44_100, 640)).event().unwrap_err();
    assert!(error.fatal && error.message.contains("44100 Hz"), "{error:?}");
}

#[test]
fn a_bot_is_ready_when_both_sides_are() {
    let ready = json!({"label": "rtvi-ai", "type": "client-ready", "id": "r1", "data": {"version": "1.0.0", "about": {"library": "x"}}});
    for client_first in [true, false] {
        let (mut bot, _) = open("");
        let mut came = Vec::new();
        for client in [client_first, !client_first] {
            came.extend(if client { ask(&mut bot, &ready) } else { say(&mut bot, accepted()) }.messages());
        }
        let [message] = &came[..] else { panic!("{came:?}") };
        assert_eq!((&message["type"], &message["id"]), (&json!("bot-ready"), &json!("r1")));
        assert_eq!(message["data"]["about"]["session_id"], "s-1");
    }
}

#[test]
fn a_response_is_told_before_and_after_its_audio() {
    let (mut bot, _) = open("");
    let start = ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: "two words".into() };
    let messages = say(&mut bot, start).messages();
    assert_eq!(messages[0], json!({"label": "rtvi-ai", "type": "bot-llm-text", "data": {"text": "two words"}}));
    assert_eq!(messages.last().unwrap()["type"], "bot-started-speaking");
    // Two frames of the session are one here; the last may be half as long.
    let frames: Vec<_> = (0..3).flat_map(|_| say(&mut bot, agent_audio()).frames).collect();
    let [Kind::Audio(audio)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((audio.audio.len(), audio.sample_rate, audio.num_channels), (1_280, 16_000, 1));
    let end = |status| ServerEvent::ResponseEnd { response: ResponseId(1), status, frames: 3 };
    assert_eq!(say(&mut bot, end(ResponseStatus::Completed)).types(), ["audio 640", "bot-tts-stopped", "bot-stopped-speaking"]);
    // What was held back is not said after an interruption.
    say(&mut bot, agent_audio());
    let interrupted = say(&mut bot, end(ResponseStatus::Interrupted)).types();
    assert_eq!(interrupted, ["InterruptionFrame", "bot-interrupted", "bot-tts-stopped", "bot-stopped-speaking"]);
}

#[test]
fn the_user_and_the_tools_are_told() {
    let (mut bot, _) = open("");
    let marker = |started| ServerEvent::Speech(SpeechMarker { started, timestamp_us: 0 });
    assert_eq!(say(&mut bot, marker(true)).types(), ["user-started-speaking"]);
    assert_eq!(say(&mut bot, marker(false)).types(), ["user-stopped-speaking"]);
    let partial = ServerEvent::Transcript { turn: TurnId(1), text: "he".into(), last: false };
    assert_eq!(say(&mut bot, partial).messages()[0]["data"]["final"], false);
    let last = ServerEvent::Transcript { turn: TurnId(1), text: "hello".into(), last: true };
    assert_eq!(say(&mut bot, last).types(), ["user-transcription", "TranscriptionFrame hello"]);
    let call = ServerEvent::ToolCall { call_id: "c1".into(), name: "lookup".into(), arguments: r#"{"q":1}"#.into() };
    let call = say(&mut bot, call).messages().remove(0);
    assert_eq!(call["type"], "llm-function-call");
    assert_eq!(call["data"], json!({"function_name": "lookup", "tool_call_id": "c1", "args": {"q": 1}}));
    let cancelled = say(&mut bot, ServerEvent::ToolCancel { call_id: "c1".into() }).messages().remove(0);
    assert_eq!(cancelled["data"], json!({"tool_call_id": "c1", "cancelled": true}));
    let error = say(&mut bot, ServerEvent::Error(SessionError::warning(ErrorCode::BadAudio, "odd"))).messages().remove(0);
    assert_eq!(error, json!({"label": "rtvi-ai", "type": "error", "data": {"error": "odd", "fatal": false}}));
}

#[test]
fn what_a_client_asks_for_is_done() {
    let (mut bot, _) = open("");
    let message = |kind: &str, data: Value| json!({"label": "rtvi-ai", "type": kind, "id": "1", "data": data});
    let result = json!({"function_name": "lookup", "tool_call_id": "c1", "arguments": {}, "result": {"ok": true}});
    let result = ask(&mut bot, &message("llm-function-call-result", result)).event().unwrap();
    assert_eq!(result, ClientEvent::ToolResult { call_id: "c1".into(), output: r#"{"ok":true}"#.into(), failed: false });
    let came = ask(&mut bot, &message("send-text", json!({"content": "hi"})));
    assert!(
        matches!(&came.events[..], [Ok(ClientEvent::BargeIn { .. }), Ok(ClientEvent::Respond(wish))] if wish.text.as_deref() == Some("hi"))
    );
    let later = message("send-text", json!({"content": "hi", "options": {"run_immediately": false}}));
    assert!(matches!(ask(&mut bot, &later).event(), Ok(ClientEvent::Context { .. })));
    let keys = ask(&mut bot, &message("dtmf", json!({"buttons": ["1", "#"]})));
    assert_eq!(keys.events, [Ok(ClientEvent::Digit('1')), Ok(ClientEvent::Digit('#'))]);
    let echo = ask(&mut bot, &message("client-message", json!({"t": "x", "d": 1}))).messages().remove(0);
    assert_eq!((&echo["type"], &echo["data"]), (&json!("server-response"), &json!({"t": "x", "d": 1})));
    assert!(matches!(ask(&mut bot, &message("disconnect-bot", Value::Null)).event(), Ok(ClientEvent::End { .. })));
    say(&mut bot, agent_audio());
    let interruption = hear(&mut bot, Kind::Interruption(pipecat::InterruptionFrame::default())).event();
    assert_eq!(interruption, Ok(ClientEvent::BargeIn { response: None, heard_ms: 20 }));
    let said = Kind::Transcription(pipecat::TranscriptionFrame { text: "hello".into(), ..Default::default() });
    assert!(matches!(hear(&mut bot, said).event(), Ok(ClientEvent::Hint(hint)) if hint.text.as_deref() == Some("hello")));
    for (code, ends) in [(1000, 1), (1005, 1), (1001, 0), (1006, 0)] {
        assert_eq!(Came::of(|to| bot.closed(code, to)).events.len(), ends, "{code}");
    }
}

#[test]
fn what_cannot_be_served_is_answered_by_its_id() {
    for (kind, data, says) in [
        ("dance", json!({}), "unsupported type `dance`"),
        ("send-text", json!({}), "data.content"),
        ("llm-function-call-result", json!({"result": 1}), "data.tool_call_id"),
        ("llm-function-call-result", json!({"tool_call_id": "c"}), "data.result"),
        ("dtmf", json!({"buttons": ["12"]}), "data.buttons"),
        ("dtmf", json!({"buttons": []}), "data.buttons"),
    ] {
        let answer = ask(&mut open("").0, &json!({"label": "rtvi-ai", "type": kind, "id": "7", "data": data})).messages().remove(0);
        assert_eq!((&answer["type"], &answer["id"]), (&json!("error-response"), &json!("7")));
        assert!(answer["data"]["error"].as_str().unwrap().contains(says), "{answer}");
    }
    let (mut bot, _) = open("");
    let no_json = hear(&mut bot, Kind::Message(pipecat::MessageFrame { data: "{".into() })).event().unwrap_err();
    assert!(!no_json.fatal && no_json.code == ErrorCode::MalformedMessage, "{no_json:?}");
    for frame in [Frame::Text("{}".into()), Frame::Binary(vec![0xff; 5].into()), Frame::Binary(Bytes::new())] {
        let error = Came::of(|to| bot.decode(frame, to)).event().unwrap_err();
        assert!(error.fatal && error.code == ErrorCode::MalformedMessage, "{error:?}");
    }
}
