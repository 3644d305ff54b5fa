use bytes::Bytes;
use proptest::prelude::*;
use proto::frame::{
    AgentAudio, ClientAudio, Outcome, ResponseStatus, ResponseWish, ServerEvent, SessionAccepted, SessionStart, SpeechMarker, TurnTaking,
};

use super::*;
use crate::plan::{Agent, Claim, TurnDetection};

/// One session and all that came of it since it was asked last.
struct Bench {
    dialect: OpenaiRealtime,
    exchange: Exchange,
}

impl Bench {
    fn of(agent: Agent, format: AudioFormat) -> Self {
        let service = Service { input: format, output: format, agent, ..Service::default() };
        Self { dialect: OpenaiRealtime::new(&Arc::new(service)), exchange: Exchange::default() }
    }

    /// Accepted, with what was asked for.
    fn open() -> Self {
        let mut bench = Self::of(Agent::default(), AudioFormat::Pcm24k);
        bench.say(ClientEvent::Start(start(AudioFormat::Pcm24k)));
        bench.hear(r#"{"type":"session.created","session":{"id":"sess_1"}}"#);
        let events = bench.hear(r#"{"type":"session.updated","session":{"id":"sess_1"}}"#);
        assert!(matches!(&events[..], [ServerEvent::Accepted(_)]), "{events:?}");
        bench
    }

    fn say(&mut self, event: ClientEvent) -> Vec<Value> {
        self.dialect.encode(event, &mut self.exchange);
        self.sent()
    }

    fn sent(&mut self) -> Vec<Value> {
        let mut sent = Vec::new();
        while let Some(wire) = self.exchange.next_wire() {
            match wire {
                Wire::Text(text) => sent.push(serde_json::from_str(&text).expect("JSON")),
                Wire::Close(code) => sent.push(json!({ "close": code })),
                Wire::Binary(_) => panic!("a binary frame"),
            }
        }
        sent
    }

    fn heard(&mut self, text: &str) -> Vec<Result<ServerEvent, SessionError>> {
        self.dialect.decode(Wire::Text(text.to_owned()), &mut self.exchange);
        std::iter::from_fn(|| self.exchange.next_event()).collect()
    }

    #[track_caller]
    fn hear(&mut self, text: &str) -> Vec<ServerEvent> {
        self.heard(text).into_iter().collect::<Result<_, _>>().expect("events of the dialect")
    }

    #[track_caller]
    fn complains(&mut self, text: &str) -> String {
        match &self.heard(text)[..] {
            [Err(error)] => error.message.clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn start(format: AudioFormat) -> SessionStart {
    SessionStart { input: format, output: format, ..SessionStart::default() }
}

fn audio(name: &str, response: &str, samples: usize) -> String {
    let delta = base64::encode(&vec![0; samples * 2]);
    json!({"type": name, "response_id": response, "item_id": "item_of_it", "output_index": 0, "content_index": 0, "delta": delta})
        .to_string()
}

fn created(id: &str) -> String {
    json!({"type": "response.created", "response": {"id": id, "status": "in_progress", "output": [], "metadata": null}}).to_string()
}

fn done(id: &str, status: &str, reason: Option<&str>) -> String {
    let details = reason.map(|reason| json!({"type": status, "reason": reason}));
    json!({"type": "response.done", "response": {"id": id, "status": status, "status_details": details, "output": []}}).to_string()
}

fn ended(response: u64, status: ResponseStatus, frames: u32) -> ServerEvent {
    ServerEvent::ResponseEnd { response: ResponseId(response), status, frames }
}

fn response_start(response: u64, turn: u64) -> ServerEvent {
    ServerEvent::ResponseStart { response: ResponseId(response), turn: TurnId(turn), text: String::new() }
}

#[test]
fn the_session_is_asked_for_in_the_nested_form() {
    let agent = Agent {
        model: Some("own model/1".to_owned()),
        instructions: Some("Be brief.".to_owned()),
        turn_detection: TurnDetection::SemanticVad,
        ..Agent::default()
    };
    let mut bench = Bench::of(agent, AudioFormat::Pcm24k);
    assert_eq!(bench.dialect.path(), "/v1/realtime?model=own%20model/1");
    assert!(bench.dialect.headers().is_empty());
    let start = SessionStart { voice: "cedar".to_owned(), tools: vec!["lookup".to_owned()], ..start(AudioFormat::Pcm24k) };
    let tool = json!({"type": "function", "name": "lookup", "description": "lookup", "parameters": {"type": "object", "properties": {}}});
    let session = json!({
        "type": "realtime",
        "output_modalities": ["audio"],
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {"model": ask::TRANSCRIBER},
                "turn_detection": {"type": "semantic_vad", "create_response": true, "interrupt_response": true},
            },
            "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "cedar"},
        },
        "instructions": "Be brief.",
        "tools": [tool],
        "tool_choice": "auto",
    });
    assert_eq!(bench.say(ClientEvent::Start(start)), [json!({"type": "session.update", "session": session})]);
}

#[test]
fn the_session_is_asked_for_in_the_form_of_the_beta() {
    let mut bench = Bench::of(Agent { beta: true, turn_detection: TurnDetection::None, ..Agent::default() }, AudioFormat::Mulaw8k);
    assert_eq!(bench.dialect.path(), "/v1/realtime?model=gpt-realtime");
    let headers = bench.dialect.headers();
    assert_eq!(
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect::<Vec<_>>(),
        [("openai-beta", &b"realtime=v1"[..])]
    );
    let turns = TurnTaking { detect: false, ..TurnTaking::default() };
    let asked = bench.say(ClientEvent::Start(SessionStart { turns, ..start(AudioFormat::Mulaw8k) }));
    let session = json!({
        "modalities": ["text", "audio"],
        "input_audio_format": "g711_ulaw",
        "output_audio_format": "g711_ulaw",
        "input_audio_transcription": {"model": ask::TRANSCRIBER},
        "turn_detection": null,
    });
    assert_eq!(asked, [json!({"type": "session.update", "session": session})]);
}

#[test]
fn a_session_is_accepted_once_it_is_created_and_as_asked() {
    for nested in [true, false] {
        let mut bench = Bench::of(Agent::default(), AudioFormat::Alaw8k);
        bench.say(ClientEvent::Start(start(AudioFormat::Alaw8k)));
        let formats = if nested {
            json!({"audio": {"input": {"format": {"type": "audio/pcma"}}, "output": {"format": {"type": "audio/pcm", "rate": 24000}}}})
        } else {
            json!({"input_audio_format": "g711_alaw", "output_audio_format": "pcm16"})
        };
        let mut session = json!({"id": "sess_1", "expires_at": 4_000_000_000_u64});
        session.as_object_mut().expect("a map").extend(formats.as_object().expect("a map").clone());
        // Those of the default, before the update.
        let created = json!({"type": "session.created", "session": {"id": "sess_1", "input_audio_format": "pcm16"}});
        assert_eq!(bench.hear(&created.to_string()), []);
        let updated = json!({"type": "session.updated", "session": session}).to_string();
        let events = bench.hear(&updated);
        let [ServerEvent::Accepted(SessionAccepted { session_id, input, output, idle_timeout_ms, max_duration_ms, .. })] = &events[..]
        else {
            panic!("{events:?}")
        };
        // The format of the agent's audio is not the one that was asked for: the caller is to see that.
        assert_eq!((session_id.as_str(), *input, *output), ("sess_1", AudioFormat::Alaw8k, AudioFormat::Pcm24k));
        assert_eq!((*idle_timeout_ms, *max_duration_ms), (0, 0));
        assert_eq!(bench.hear(&updated), [], "accepted once");
    }
}

#[test]
fn what_is_wrong_before_acceptance_is_fatal() {
    let mut bench = Bench::of(Agent::default(), AudioFormat::Pcm24k);
    bench.say(ClientEvent::Start(start(AudioFormat::Pcm24k)));
    let error = r#"{"type":"error","error":{"type":"invalid_request_error","code":"invalid_value","message":"No such voice.","param":"session.voice"}}"#;
    let [ServerEvent::Error(error)] = &bench.hear(error)[..] else { panic!() };
    assert_eq!((error.code, error.fatal), (ErrorCode::InvalidArgument, true));
    assert_eq!(error.message, "No such voice. (type invalid_request_error) (code invalid_value) (param session.voice)");

    let odd = r#"{"type":"session.updated","session":{"audio":{"input":{"format":"opus"}}}}"#;
    let [ServerEvent::Error(error)] = &bench.hear(odd)[..] else { panic!() };
    assert_eq!((error.code, error.fatal), (ErrorCode::UnsupportedFormat, true));
}

#[test]
fn audio_is_appended_as_base64() {
    let mut bench = Bench::open();
    let payload = Bytes::from_static(&[0xfb, 0xef, 0xff, 0x00]);
    let said = bench.say(ClientEvent::Audio(ClientAudio { sequence: 0, timestamp_us: 0, payload, ack: true }));
    assert_eq!(said, [json!({"type": "input_audio_buffer.append", "audio": "++//AA=="})]);
}

/// One turn, with the names of the GA, with those of the beta, and with both in one stream.
#[test]
fn a_turn_with_the_names_of_both_versions() {
    for [item, delta] in [
        ["conversation.item.added", "response.output_audio.delta"],
        ["conversation.item.created", "response.audio.delta"],
        ["conversation.item.created", "response.output_audio.delta"],
        ["conversation.item.done", "response.audio.delta"],
    ] {
        let mut bench = Bench::open();
        let speech = |started, ms: u64| ServerEvent::Speech(SpeechMarker { started, timestamp_us: ms * 1_000 });
        let transcript = |text: &str, last| ServerEvent::Transcript { turn: TurnId(1), text: text.to_owned(), last };
        assert_eq!(
            bench.hear(r#"{"type":"input_audio_buffer.speech_started","audio_start_ms":320,"item_id":"item_1"}"#),
            [speech(true, 320)]
        );
        assert_eq!(
            bench.hear(r#"{"type":"input_audio_buffer.speech_stopped","audio_end_ms":1500,"item_id":"item_1"}"#),
            [speech(false, 1_500)]
        );
        assert_eq!(
            bench.hear(r#"{"type":"input_audio_buffer.committed","item_id":"item_1","previous_item_id":null}"#),
            [ServerEvent::Committed { turn: TurnId(1) }]
        );
        let user = json!({"type": item, "item": {"id": "item_1", "type": "message", "role": "user"}, "previous_item_id": null});
        assert_eq!(bench.hear(&user.to_string()), []);
        let kind = "conversation.item.input_audio_transcription";
        assert_eq!(
            bench.hear(&json!({"type": format!("{kind}.delta"), "item_id": "item_1", "delta": "What's "}).to_string()),
            [transcript("What's ", false)]
        );
        assert_eq!(bench.hear(&created("resp_1")), [ServerEvent::Answering { turn: TurnId(1) }]);
        assert_eq!(
            bench.hear(&json!({"type": format!("{kind}.delta"), "item_id": "item_1", "delta": "on \u{201e}it"}).to_string()),
            [transcript("What's on \u{201e}it", false)]
        );
        let first = bench.hear(&audio(delta, "resp_1", 480));
        assert!(matches!(&first[..], [_, ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, .. })]), "{first:?}");
        assert_eq!(first[0], response_start(1, 1));
        let second = bench.hear(&audio(delta, "resp_1", 4_800));
        let [ServerEvent::Audio(second)] = &second[..] else { panic!("{second:?}") };
        assert_eq!((second.sequence, second.timestamp_us, second.payload.len(), second.response), (1, 20_000, 9_600, ResponseId(1)));
        assert_eq!(bench.hear(&done("resp_1", "completed", None)), [ended(1, ResponseStatus::Completed, 2)]);
        assert_eq!(bench.hear(&done("resp_1", "completed", None)), [], "once");
        // The transcript may come long after.
        assert_eq!(
            bench.hear(&json!({"type": format!("{kind}.completed"), "item_id": "item_1", "transcript": "What's on it?"}).to_string()),
            [transcript("What's on it?", true)]
        );
    }
}

#[test]
fn responses_end_as_the_server_says() {
    let mut bench = Bench::open();
    let ends = [
        ("completed", None, ResponseStatus::Completed),
        ("cancelled", Some("turn_detected"), ResponseStatus::Interrupted),
        ("cancelled", Some("client_cancelled"), ResponseStatus::Cancelled),
        ("failed", None, ResponseStatus::Failed),
        ("incomplete", Some("max_output_tokens"), ResponseStatus::Failed),
    ];
    for (number, (status, reason, expected)) in (1..).zip(ends) {
        // One that is never heard has no number.
        let silent = format!("silent_{number}");
        bench.hear(&created(&silent));
        assert_eq!(bench.hear(&done(&silent, status, reason)), [ServerEvent::AnswerDropped { turn: TurnId(0), status: expected }]);
        let id = format!("resp_{number}");
        bench.hear(&created(&id));
        bench.hear(&audio("response.output_audio.delta", &id, 480));
        assert_eq!(bench.hear(&done(&id, status, reason)), [ended(number, expected, 1)]);
        // What comes late is told as what it is.
        let late = bench.hear(&audio("response.output_audio.delta", &id, 480));
        assert!(matches!(&late[..], [ServerEvent::Audio(AgentAudio { response, .. })] if response.0 == number), "{late:?}");
    }
}

#[test]
fn audio_of_a_response_that_was_given_up_comes_after_its_end() {
    for (status, reason, end) in [
        ("cancelled", Some("turn_detected"), Some(ResponseStatus::Interrupted)),
        ("cancelled", Some("client_cancelled"), Some(ResponseStatus::Cancelled)),
        ("completed", None, None),
    ] {
        let mut bench = Bench::open();
        bench.hear(&created("resp_1"));
        bench.hear(&done("resp_1", status, reason));
        // Another one to the same turn is another one.
        bench.hear(&created("resp_2"));
        let heard = bench.hear(&audio("response.output_audio.delta", "resp_1", 480));
        let ends = heard.iter().find(|event| matches!(event, ServerEvent::ResponseEnd { .. }));
        assert_eq!(ends.cloned(), end.map(|status| ended(1, status, 0)), "{heard:?}");
        assert!(matches!(heard.last(), Some(ServerEvent::Audio(AgentAudio { response: ResponseId(1), .. }))), "{heard:?}");
        let heard = bench.hear(&audio("response.output_audio.delta", "resp_2", 480));
        assert!(matches!(&heard[..], [start, ServerEvent::Audio(_)] if *start == response_start(2, 0)), "{heard:?}");
    }
}

#[test]
fn an_interruption_cancels_and_truncates() {
    let mut bench = Bench::open();
    let barge_in = |heard_ms| ClientEvent::BargeIn { response: Some(ResponseId(1)), heard_ms };
    let truncate = |ms| json!({"type": "conversation.item.truncate", "item_id": "item_of_it", "content_index": 0, "audio_end_ms": ms});
    assert_eq!(bench.say(barge_in(0)), Vec::<Value>::new(), "nothing is said");
    bench.hear(&created("resp_1"));
    bench.hear(&audio("response.output_audio.delta", "resp_1", 2_400));
    let cancel = json!({"type": "response.cancel", "response_id": "resp_1"});
    assert_eq!(bench.say(barge_in(80)), [cancel.clone(), truncate(80)]);
    assert_eq!(bench.say(ClientEvent::Cancel { response: None }), [cancel]);
    bench.hear(&done("resp_1", "cancelled", Some("client_cancelled")));
    // Nothing is left to cancel; there are 100 ms of it and no more.
    assert_eq!(bench.say(ClientEvent::Cancel { response: Some(ResponseId(1)) }), Vec::<Value>::new());
    assert_eq!(bench.say(ClientEvent::Truncate { response: ResponseId(1), heard_ms: 300 }), [truncate(100)]);
    // A claim of more than there was is made on purpose, and so is one of nothing. What the server says to it ends no session.
    let beyond = Claim::Beyond.heard_ms();
    assert_eq!(bench.say(ClientEvent::Truncate { response: ResponseId(1), heard_ms: beyond }), [truncate(beyond)]);
    assert_eq!(bench.say(barge_in(Claim::Nothing.heard_ms())), [truncate(0)]);
    let refused = r#"{"type":"error","error":{"type":"invalid_request_error","code":"invalid_value","message":"already shorter","param":"audio_end_ms"}}"#;
    assert!(matches!(&bench.hear(refused)[..], [ServerEvent::Error(SessionError { fatal: false, .. })]));
    let truncated = r#"{"type":"conversation.item.truncated","item_id":"item_of_it","content_index":0,"audio_end_ms":100}"#;
    assert!(matches!(&bench.hear(truncated)[..], [ServerEvent::Context { heard_ms: 100, response: Some(ResponseId(1)), .. }]));
    // The cancel and the end crossed.
    let crossed = r#"{"type":"error","error":{"type":"invalid_request_error","code":"response_cancel_not_active","message":"none"}}"#;
    assert_eq!(bench.hear(crossed), []);
    bench.hear(&created("resp_2"));
    assert!(matches!(&bench.hear(crossed)[..], [ServerEvent::Error(SessionError { fatal: false, .. })]));
}

fn call(id: &str, name: Option<&str>) -> String {
    let mut event = json!({
        "type": "response.function_call_arguments.done", "response_id": "resp_1", "item_id": format!("item_{id}"), "output_index": 0, "call_id": id,
        "arguments": r#"{"city":"Bergen"}"#,
    });
    if let Some(name) = name {
        event["name"] = name.into();
    }
    event.to_string()
}

fn item(kind: &str, id: &str, status: &str, arguments: &str) -> String {
    let item = json!({"id": format!("item_{id}"), "type": "function_call", "call_id": id, "name": "weather", "status": status, "arguments": arguments});
    json!({"type": kind, "response_id": "resp_1", "output_index": 0, "item": item}).to_string()
}

fn tool_call(id: &str) -> ServerEvent {
    ServerEvent::ToolCall { call_id: id.to_owned(), name: "weather".to_owned(), arguments: r#"{"city":"Bergen"}"#.to_owned() }
}

fn result(id: &str) -> ClientEvent {
    ClientEvent::ToolResult { call_id: id.to_owned(), output: "rain".to_owned(), failed: false }
}

fn output(id: &str) -> Value {
    json!({"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": id, "output": "rain"}})
}

#[test]
fn a_call_is_told_once_whatever_tells_it() {
    // As the GA has it, as the beta has it, by the item alone.
    for (begun, arguments_done, item_done) in
        [(true, Some(true), true), (true, Some(false), true), (false, None, true), (true, Some(true), false)]
    {
        let mut bench = Bench::open();
        bench.hear(&created("resp_1"));
        let mut told = Vec::new();
        if begun {
            told.extend(bench.hear(&item("response.output_item.added", "call_1", "in_progress", "")));
        }
        if let Some(named) = arguments_done {
            told.extend(bench.hear(&call("call_1", named.then_some("weather"))));
        }
        if item_done {
            told.extend(bench.hear(&item("response.output_item.done", "call_1", "completed", r#"{"city":"Bergen"}"#)));
        }
        assert_eq!(told, [tool_call("call_1")], "{begun} {arguments_done:?} {item_done}");
        assert_eq!(bench.hear(&done("resp_1", "completed", None)), [], "no response was heard");
    }
    let mut bench = Bench::open();
    bench.hear(&created("resp_1"));
    assert_eq!(bench.hear(&item("response.output_item.done", "call_1", "incomplete", "{")), []);
}

#[test]
fn the_answer_is_asked_for_when_every_call_is_answered_and_the_response_done() {
    let create = json!({"type": "response.create"});
    let mut bench = Bench::open();
    bench.hear(&created("resp_1"));
    bench.hear(&call("call_1", Some("weather")));
    bench.hear(&call("call_2", Some("weather")));
    assert_eq!(bench.say(result("call_1")), [output("call_1")]);
    assert_eq!(bench.say(result("call_2")), [output("call_2")]);
    bench.hear(&done("resp_1", "completed", None));
    assert_eq!(bench.sent(), std::slice::from_ref(&create));

    // After the end of the response at once.
    bench.hear(&created("resp_1b"));
    bench.hear(&call("call_3", Some("weather")));
    bench.hear(&done("resp_1b", "completed", None));
    assert_eq!(bench.say(result("call_3")), [output("call_3"), create]);

    // The user went on instead: the server answers that by itself.
    bench.hear(&created("resp_2"));
    bench.hear(&call("call_4", Some("weather")));
    assert_eq!(bench.say(result("call_4")), [output("call_4")]);
    bench.hear(r#"{"type":"input_audio_buffer.committed","item_id":"item_9"}"#);
    bench.hear(&done("resp_2", "cancelled", Some("turn_detected")));
    assert_eq!(bench.sent(), Vec::<Value>::new());
}

#[test]
fn turns_of_the_clients_own() {
    let mut bench = Bench::open();
    assert_eq!(bench.say(ClientEvent::Commit), [json!({"type": "input_audio_buffer.commit"})]);
    assert_eq!(bench.say(ClientEvent::Respond(ResponseWish::default())), [json!({"type": "response.create"})]);
    assert_eq!(bench.say(ClientEvent::Discard), [json!({"type": "input_audio_buffer.clear"})]);
}

#[test]
fn errors_leave_the_session_alive_unless_they_end_it() {
    let mut bench = Bench::open();
    for (kind, code, expected, fatal) in [
        ("invalid_request_error", "conversation_already_has_active_response", ErrorCode::InvalidArgument, false),
        ("invalid_request_error", "input_audio_buffer_commit_empty", ErrorCode::BadAudio, false),
        ("server_error", "", ErrorCode::Internal, false),
        ("requests", "rate_limit_exceeded", ErrorCode::Overloaded, false),
        ("insufficient_quota", "insufficient_quota", ErrorCode::Overloaded, true),
        ("invalid_request_error", "invalid_api_key", ErrorCode::InvalidArgument, true),
        ("invalid_request_error", "session_expired", ErrorCode::Deadline, true),
    ] {
        let error = json!({"type": "error", "event_id": "e", "error": {"type": kind, "code": code, "message": "m", "param": null, "event_id": null}});
        let [ServerEvent::Error(error)] = &bench.hear(&error.to_string())[..] else { panic!() };
        assert_eq!((error.code, error.fatal), (expected, fatal), "{code}");
    }
    bench.dialect.closed(1001, &mut bench.exchange);
    let Some(Ok(ServerEvent::Ended(ended))) = bench.exchange.next_event() else { panic!() };
    assert_eq!(ended.outcome, Outcome::TimedOut);
}

#[test]
fn a_goodbye_is_a_close_and_only_our_own_is_one() {
    let mut bench = Bench::open();
    bench.dialect.closed(1000, &mut bench.exchange);
    assert!(bench.exchange.next_event().is_none());
    assert_eq!(bench.say(ClientEvent::End { reason: "done".to_owned() }), [json!({"close": 1000})]);
    bench.dialect.closed(1000, &mut bench.exchange);
    let Some(Ok(ServerEvent::Ended(ended))) = bench.exchange.next_event() else { panic!() };
    assert_eq!(ended.outcome, Outcome::Completed);
}

#[test]
fn only_what_is_understood_must_have_its_shape() {
    let mut bench = Bench::open();
    for ignored in [
        r#"{"type":"rate_limits.updated","rate_limits":[{"name":"requests","limit":1000}]}"#,
        r#"{"type":"response.content_part.added","part":{"type":"audio"},"response_id":"r","item_id":"i"}"#,
        r#"{"type":"response.mcp_call.delta","delta":{"some":["thing"]},"error":"new"}"#,
    ] {
        assert_eq!(bench.hear(ignored), [], "{ignored}");
    }
    for (wrong, named) in [
        ("no JSON", "no event: "),
        ("[]", "without type"),
        (r#"{"kind":"error"}"#, "without type"),
        (r#"{"type":7}"#, "no event: "),
        (r#"{"type":"response.output_audio.delta","response_id":"r","delta":"!"}"#, "response.output_audio.delta: `delta` is no base64"),
        (r#"{"type":"response.audio.delta","response_id":"r","delta":[1]}"#, "response.audio.delta: "),
        (r#"{"type":"response.done"}"#, "response.done without response"),
        (r#"{"type":"session.updated"}"#, "session.updated without session"),
    ] {
        let message = bench.complains(wrong);
        assert!(message.contains(named), "{wrong}: {message}");
    }
    let long = "x".repeat(200);
    assert!(bench.complains(&created(&long)).contains("response id"));
    assert!(bench.complains(&audio("response.audio.delta", &long, 1)).contains("more than 128 bytes"));
    // Text in a binary frame is JSON all the same.
    bench.dialect.decode(Wire::Binary(created("resp_1").into_bytes().into()), &mut bench.exchange);
    assert_eq!(bench.exchange.next_event(), Some(Ok(ServerEvent::Answering { turn: TurnId(0) })));
    bench.dialect.decode(Wire::Binary(Bytes::from_static(&[0xff])), &mut bench.exchange);
    assert!(matches!(bench.exchange.next_event(), Some(Err(_))));
}

fn any_event() -> impl Strategy<Value = String> {
    let kinds = prop::sample::select(vec![
        "session.created",
        "session.updated",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.committed",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
        "conversation.item.truncated",
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_audio.delta",
        "response.audio.delta",
        "response.function_call_arguments.done",
        "response.done",
        "error",
        "response.new",
    ]);
    let id = || prop::sample::select(vec!["", "a", "b", "c"]);
    let delta = prop::sample::select(vec!["", "AAAA", "AAA", "A", "\u{e9}"]);
    (kinds, [id(), id(), id(), id()], delta, any::<f64>(), any::<Option<u8>>()).prop_map(|(kind, [one, two, three, four], delta, ms, cut)| {
        let text = json!({
            "type": kind, "response_id": one, "item_id": two, "call_id": three, "name": four, "delta": delta, "transcript": delta, "arguments": delta,
            "audio_start_ms": ms, "audio_end_ms": ms, "session": {"id": one, "expires_at": ms, "input_audio_format": four},
            "response": {"id": one, "status": four, "status_details": {"reason": two}},
            "item": {"id": two, "type": "function_call", "call_id": three, "name": four, "arguments": delta},
            "error": {"type": one, "code": two, "message": delta},
        })
        .to_string();
        // A part of it, at times.
        let cut = cut.filter(|cut| cut % 4 == 0).map_or(text.len(), usize::from).min(text.len());
        String::from_utf8_lossy(&text.as_bytes()[..cut]).into_owned()
    })
}

fn any_word() -> impl Strategy<Value = ClientEvent> {
    let response = || any::<Option<u8>>().prop_map(|number| number.map(|number| ResponseId(u64::from(number % 4))));
    prop_oneof![
        Just(ClientEvent::Commit),
        (response(), any::<u32>()).prop_map(|(response, heard_ms)| ClientEvent::BargeIn { response, heard_ms }),
        response().prop_map(|response| ClientEvent::Cancel { response }),
        (0..4_u64, any::<u32>()).prop_map(|(number, heard_ms)| ClientEvent::Truncate { response: ResponseId(number), heard_ms }),
        "[a-c]?".prop_map(|id| result(&id)),
    ]
}

proptest! {
    #[test]
    fn anything_may_come(all in prop::collection::vec(prop_oneof![any_event().prop_map(Ok), any_word().prop_map(Err), ".*".prop_map(Ok)], 0..60)) {
        let mut bench = Bench::of(Agent::default(), AudioFormat::Pcm24k);
        bench.say(ClientEvent::Start(start(AudioFormat::Pcm24k)));
        let (mut accepted, mut sequence, mut started, mut ended) = (0, 0, 0, Vec::new());
        for one in all {
            match one {
                Err(word) => { bench.say(word); }
                Ok(text) => for event in bench.heard(&text).into_iter().flatten() {
                    match event {
                        ServerEvent::Accepted(_) => accepted += 1,
                        ServerEvent::Audio(audio) => {
                            prop_assert_eq!(audio.sequence, sequence);
                            prop_assert!((1..=started).contains(&audio.response.0));
                            sequence += 1;
                        }
                        ServerEvent::ResponseStart { response, .. } => {
                            started += 1;
                            prop_assert_eq!(response.0, started);
                        }
                        ServerEvent::ResponseEnd { response, .. } => {
                            prop_assert!((1..=started).contains(&response.0) && !ended.contains(&response));
                            ended.push(response);
                        }
                        _ => {}
                    }
                },
            }
        }
        prop_assert!(accepted <= 1);
        prop_assert!(bench.dialect.items.len() <= REMEMBERED && bench.dialect.answers.len() <= REMEMBERED);
    }
}
