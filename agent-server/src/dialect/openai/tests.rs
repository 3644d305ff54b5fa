use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use proto::{
    base64,
    frame::{AgentAudio, ResponseStatus, SpeechMarker, TurnTaking},
    ids::{ResponseId, TurnId},
};
use serde_json::Value;

use super::{fault::Object, items::*, *};

/// What a dialect makes of something: events for the session, JSON for the client.
#[derive(Debug, Default)]
struct Said {
    events: Vec<Result<ClientEvent, SessionError>>,
    messages: Vec<Value>,
}

fn with(dialect: &mut Realtime, f: impl FnOnce(&mut Realtime, &mut Exchange<'_, Frame>)) -> Said {
    let mut said = Said::default();
    let Said { events, messages } = &mut said;
    let mut to = |frame| match frame {
        Frame::Text(text) => messages.push(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))),
        Frame::Binary(_) => panic!("only text is sent"),
    };
    f(dialect, &mut Exchange::new(&mut |event| events.push(event), &mut to));
    said
}

fn hear(dialect: &mut Realtime, text: &str) -> Said {
    with(dialect, |dialect, to| dialect.decode(Frame::Text(text.into()), to))
}

fn tell(dialect: &mut Realtime, event: ServerEvent) -> Vec<Value> {
    let said = with(dialect, |dialect, to| dialect.encode(event, to));
    assert!(said.events.iter().all(Result::is_ok), "{said:?}");
    said.messages
}

fn accepted() -> ServerEvent {
    ServerEvent::Accepted(SessionAccepted {
        session_id: "s-1".to_owned(),
        backend_id: "b".to_owned(),
        boot_id: "c".to_owned(),
        input: AudioFormat::Pcm24k,
        output: AudioFormat::Pcm24k,
        max_duration_ms: 60_000,
        idle_timeout_ms: 1_000,
    })
}

fn started(beta: bool) -> Realtime {
    let mut dialect = Realtime::new(beta, Kind::Realtime, "m".to_owned(), "anna".to_owned());
    let start = with(&mut dialect, Dialect::open);
    let [Ok(ClientEvent::Start(start))] = &start.events[..] else { panic!("{start:?}") };
    assert_eq!((start.client_ref.as_str(), start.input, start.output), ("anna", AudioFormat::Pcm24k, AudioFormat::Pcm24k));
    assert_eq!(start.turns, TurnTaking { silence_ms: 500, resume: false, ..TurnTaking::default() });
    let created = tell(&mut dialect, accepted());
    assert_eq!((&created[0]["type"], &created[0]["session"]["id"]), (&json!("session.created"), &json!("s-1")));
    dialect
}

fn audio(response: u64) -> ServerEvent {
    let payload = Bytes::from_static(&[1; 960]);
    ServerEvent::Audio(AgentAudio { sequence: 0, timestamp_us: 0, payload, response: ResponseId(response) })
}

fn audio_of(said: &Said) -> Vec<(u64, u64, Bytes)> {
    let audio = said.events.iter().filter_map(|event| match event {
        Ok(ClientEvent::Audio(audio)) => Some((audio.sequence, audio.timestamp_us, audio.payload.clone())),
        _ => None,
    });
    audio.collect()
}

#[test]
fn upgrades_tell_the_names_and_the_kind() {
    let open = |query: &str, name: &'static str, value: &'static str| {
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_static(value))]);
        let mut opened = (WEBSOCKET.open)(&Upgrade { path: "/v1/realtime", query, headers: &headers }).unwrap();
        let mut created = Value::Null;
        let mut message = |frame| {
            if let Frame::Text(text) = frame {
                created = serde_json::from_str(&text).unwrap();
            }
        };
        opened.dialect.encode(accepted(), &mut Exchange::new(&mut |_| {}, &mut message));
        (created["session"].take(), opened.subprotocol)
    };
    let (session, protocol) = open("model=a%2Fb", "authorization", "Bearer x");
    assert_eq!((&session["model"], &session["type"], protocol), (&json!("a/b"), &json!("realtime"), None));
    let (session, protocol) = open("", "sec-websocket-protocol", "realtime, openai-insecure-api-key.x, openai-beta.realtime-v1");
    assert_eq!((session["modalities"].is_array(), protocol), (true, Some(HeaderValue::from_static("realtime"))));
    let (session, protocol) = open("intent=transcription", "sec-websocket-protocol", "other");
    assert_eq!((&session["type"], protocol), (&json!("transcription"), None));
    assert!((WEBSOCKET.serves)("/openai/v1/realtime") && !(WEBSOCKET.serves)("/v1/realtimes"));
}

#[test]
fn appends_are_read_in_any_form_and_order() {
    let mut dialect = started(false);
    let pcm = vec![3; 960];
    let text = base64::encode(&pcm);
    let escaped: String = text.chars().map(|c| if c == '/' { "\\/".to_owned() } else { format!("\\u{:04x}", c as u32) }).collect();
    for (n, event) in [
        format!("{{\"type\":\"input_audio_buffer.append\",\"audio\":\"{text}\"}}"),
        format!(" {{ \"audio\" : \"{text}\" , \"event_id\" : \"x\" , \"type\" : \"input_audio_buffer.append\" }} "),
        format!("{{\"audio\":\"{escaped}\",\"type\":\"input_audio_buffer\\u002eappend\",\"more\":{{\"type\":[1]}}}}"),
        format!("{{\"type\":\"input_audio_buffer.append\",\"event_id\":null,\"audio\":\"{}\"}}", text.trim_end_matches('=')),
        format!("{{\"type\":\"x\",\"audio\":\"\",\"type\":\"input_audio_buffer.append\",\"audio\":\"{text}\"}}"),
    ]
    .iter()
    .enumerate()
    {
        let said = hear(&mut dialect, event);
        assert_eq!(audio_of(&said), [(n as u64, n as u64 * 20_000, Bytes::from(pcm.clone()))], "{event}");
        assert!(said.messages.is_empty(), "{said:?}");
    }
    let said = hear(&mut dialect, "{\"type\":\"input_audio_buffer.append\",\"audio\":\"\"}");
    assert!(audio_of(&said).is_empty() && said.messages.is_empty(), "nothing is no error");
}

#[test]
fn long_audio_is_cut_and_half_samples_wait_for_their_other_half() {
    let mut dialect = started(false);
    let append = |bytes: &[u8]| json!({ "type": "input_audio_buffer.append", "audio": base64::encode(bytes) }).to_string();
    let pcm: Vec<u8> = (0..100_001u32).map(|n| (n % 251) as u8).collect();
    let said = audio_of(&hear(&mut dialect, &append(&pcm)));
    assert_eq!(
        said.iter().map(|(n, us, b)| (*n, *us, b.len())).collect::<Vec<_>>(),
        [(0, 0, 48_000), (1, 1_000_000, 48_000), (2, 2_000_000, 4_000)]
    );
    let rest = audio_of(&hear(&mut dialect, &append(&[9; 961])));
    assert_eq!((rest[0].2.len(), rest[0].2[0], rest[0].2[1]), (962, pcm[100_000], 9));
    // In another format the half sample is noise; media time goes on.
    hear(&mut dialect, &append(&[9; 3]));
    hear(&mut dialect, &json!({ "type": "session.update", "session": { "input_audio_format": "g711_ulaw" } }).to_string());
    let said = audio_of(&hear(&mut dialect, &append(&[9; 161])));
    let samples = (100_000 + 962 + 2) / 2;
    assert_eq!((said[0].1, said[0].2.len()), (samples * 1_000_000 / 24_000, 161));
}

#[test]
fn answers_asked_for_and_unasked_are_told_apart() {
    let mut dialect = started(false);
    let create = |topic: &str| json!({ "type": "response.create", "response": { "metadata": { "topic": topic } } }).to_string();
    let said = hear(&mut dialect, &create("mine"));
    assert!(said.events.iter().any(|event| matches!(event, Ok(ClientEvent::Respond(_)))));
    // The turn that the server found came first: its answer is not the one asked for, which the session refuses.
    tell(&mut dialect, ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: 0 }));
    tell(&mut dialect, ServerEvent::Speech(SpeechMarker { started: false, timestamp_us: 400_000 }));
    tell(&mut dialect, ServerEvent::Committed { turn: TurnId(1) });
    let created = tell(&mut dialect, ServerEvent::Answering { turn: TurnId(1) });
    assert_eq!(created[0]["response"]["metadata"], Value::Null);
    let refusal = SessionError::warning(ErrorCode::InvalidArgument, "an answer is under way");
    let error = tell(&mut dialect, ServerEvent::Error(refusal));
    assert_eq!(error[0]["error"]["code"], "conversation_already_has_active_response");
    tell(&mut dialect, ServerEvent::AnswerDropped { turn: TurnId(1), status: ResponseStatus::Interrupted });
    hear(&mut dialect, &create("again"));
    let created = tell(&mut dialect, ServerEvent::Answering { turn: TurnId(1) });
    assert_eq!(created[0]["response"]["metadata"]["topic"], "again");
}

#[test]
fn a_commit_that_the_session_refuses_is_an_empty_one() {
    let mut dialect = started(false);
    let append = json!({ "type": "input_audio_buffer.append", "audio": base64::encode(&[0; 9_600]) }).to_string();
    hear(&mut dialect, &append);
    let said = hear(&mut dialect, "{\"type\":\"input_audio_buffer.commit\",\"event_id\":\"e\"}");
    assert!(said.messages.is_empty() && said.events.contains(&Ok(ClientEvent::Commit)));
    let refusal = SessionError::warning(ErrorCode::InvalidArgument, "nothing was heard");
    let error = &tell(&mut dialect, ServerEvent::Error(refusal))[0]["error"];
    assert_eq!((&error["code"], &error["event_id"]), (&json!("input_audio_buffer_commit_empty"), &json!("e")));
}

#[test]
fn words_come_with_the_audio_in_which_they_are_said() {
    let mut dialect = started(false);
    tell(&mut dialect, ServerEvent::Answering { turn: TurnId(0) });
    tell(&mut dialect, ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(0), text: "one two three".to_owned() });
    let mut words = Vec::new();
    for frame in 0..41 {
        for message in tell(&mut dialect, audio(1)) {
            if message["type"] == "response.output_audio_transcript.delta" {
                words.push((frame, message["delta"].as_str().unwrap().to_owned()));
            } else {
                assert_eq!(message["type"], "response.output_audio.delta");
                assert_eq!(base64::decode(message["delta"].as_str().unwrap()).unwrap(), [1; 960]);
                assert!(message["response_id"].is_string() && message["item_id"].is_string() && message["event_id"].is_string());
            }
        }
    }
    assert_eq!(words, [(0, "one".to_owned()), (20, " two".to_owned()), (40, " three".to_owned())]);
    let end = ServerEvent::ResponseEnd { response: ResponseId(1), status: ResponseStatus::Interrupted, frames: 41 };
    let done = tell(&mut dialect, end).into_iter().find(|event| event["type"] == "response.done").unwrap();
    assert_eq!(done["response"]["output"][0]["content"][0]["transcript"], "one two three");
}

#[test]
fn audio_of_a_response_that_was_given_up_is_heard_under_its_name() {
    let mut dialect = started(false);
    let created = tell(&mut dialect, ServerEvent::Answering { turn: TurnId(1) });
    tell(&mut dialect, ServerEvent::AnswerDropped { turn: TurnId(1), status: ResponseStatus::Interrupted });
    // The next one is worked at meanwhile.
    let next = tell(&mut dialect, ServerEvent::Answering { turn: TurnId(2) });
    let start = |response, turn| ServerEvent::ResponseStart { response: ResponseId(response), turn: TurnId(turn), text: String::new() };
    assert_eq!(tell(&mut dialect, start(1, 1)), Vec::<Value>::new());
    assert_eq!(tell(&mut dialect, audio(1))[0]["response_id"], created[0]["response"]["id"]);
    tell(&mut dialect, start(2, 2));
    assert_eq!(tell(&mut dialect, audio(2))[0]["response_id"], next[0]["response"]["id"]);
    // Tried again, it has a name of its own.
    tell(&mut dialect, ServerEvent::AnswerDropped { turn: TurnId(3), status: ResponseStatus::Interrupted });
    let again = tell(&mut dialect, ServerEvent::Answering { turn: TurnId(3) });
    tell(&mut dialect, start(3, 3));
    assert_eq!(tell(&mut dialect, audio(3))[0]["response_id"], again[0]["response"]["id"]);
}

#[test]
fn audio_after_the_end_is_heard_where_a_response_was_stopped() {
    for (beta, name) in [(false, "response.output_audio.delta"), (true, "response.audio.delta")] {
        let mut dialect = started(beta);
        let created = tell(&mut dialect, ServerEvent::Answering { turn: TurnId(1) });
        tell(&mut dialect, ServerEvent::ResponseStart { response: ResponseId(1), turn: TurnId(1), text: "one".to_owned() });
        tell(&mut dialect, audio(1));
        let end = ServerEvent::ResponseEnd { response: ResponseId(1), status: ResponseStatus::Interrupted, frames: 1 };
        tell(&mut dialect, end);
        let old = |said: &[Value]| {
            let [delta] = said else { panic!("{said:?}") };
            assert_eq!((&delta["type"], &delta["response_id"]), (&json!(name), &created[0]["response"]["id"]));
            assert_eq!(base64::decode(delta["delta"].as_str().unwrap()).unwrap(), [1; 960]);
        };
        old(&tell(&mut dialect, audio(1)));
        // The next one is worked at, and then heard: each piece goes to its own.
        tell(&mut dialect, ServerEvent::Answering { turn: TurnId(2) });
        old(&tell(&mut dialect, audio(1)));
        tell(&mut dialect, ServerEvent::ResponseStart { response: ResponseId(2), turn: TurnId(2), text: String::new() });
        assert_ne!(tell(&mut dialect, audio(2))[0]["response_id"], created[0]["response"]["id"]);
        let end = ServerEvent::ResponseEnd { response: ResponseId(2), status: ResponseStatus::Completed, frames: 1 };
        tell(&mut dialect, end);
        assert_eq!(tell(&mut dialect, audio(2)), Vec::<Value>::new(), "only what was stopped can go on");
    }
}

#[test]
fn nothing_is_read_before_the_session_is_there() {
    let mut dialect = Realtime::new(false, Kind::Realtime, String::new(), String::new());
    assert!(dialect.must_wait());
    tell(&mut dialect, accepted());
    assert!(!dialect.must_wait());
}

#[test]
fn the_largest_session_fits_into_a_message_and_a_larger_one_changes_nothing() {
    let mut dialect = started(false);
    let update = |session: Value| json!({ "type": "session.update", "event_id": "e", "session": session }).to_string();
    let tool = |n: usize, letter: &str| json!({ "type": "function", "name": format!("f{n}"), "description": letter.repeat(7_000) });
    let tools = |letter: &str| (0..32).map(|n| tool(n, letter)).collect::<Vec<_>>();
    // Two bytes each, once they are written.
    let instructions = "\"\n".repeat(64 * 1024);
    let said = hear(&mut dialect, &update(json!({ "instructions": instructions, "tools": tools("\n") })));
    let told = &said.messages[0];
    assert_eq!((&told["type"], &told["session"]["instructions"]), (&json!("session.updated"), &json!(instructions)));
    let bytes = told.to_string().len();
    assert!((700_000..=super::super::WRITTEN_MAX).contains(&bytes), "{bytes}");
    // Six bytes each.
    let said = hear(&mut dialect, &update(json!({ "instructions": "small", "tools": tools("\u{1}") })));
    let error = &said.messages[0]["error"];
    assert_eq!(
        (&error["code"], &error["param"], &error["event_id"]),
        (&json!("string_above_max_length"), &json!("session"), &json!("e")),
        "{error}"
    );
    assert_eq!(dialect.settings.instructions, instructions);
    let choice = json!({ "type": "mcp", "name": "x".repeat(20_000) });
    let said = hear(&mut dialect, &update(json!({ "tool_choice": choice })));
    assert_eq!(said.messages[0]["error"]["param"], "session.tool_choice");
}

#[test]
fn a_tool_is_chosen_among_those_that_the_session_has() {
    let tool = |name: &str| json!([{ "type": "function", "name": name }]);
    let append = json!({ "type": "input_audio_buffer.append", "audio": base64::encode(&[0; 960]) }).to_string();
    let hints = |said: &Said| said.events.iter().filter(|event| matches!(event, Ok(ClientEvent::Hint(_)))).count();
    let mut dialect = started(false);
    let settings = json!({ "tools": tool("mine"), "tool_choice": { "type": "function", "name": "mine" } });
    hear(&mut dialect, &json!({ "type": "session.update", "session": settings }).to_string());
    hear(&mut dialect, &json!({ "type": "response.create", "response": { "tools": tool("other"), "tool_choice": "auto" } }).to_string());
    assert_eq!(hints(&hear(&mut dialect, &append)), 0, "the session has another tool for this response");
    tell(&mut dialect, ServerEvent::Answering { turn: TurnId(0) });
    assert_eq!(hints(&hear(&mut dialect, &append)), 0);
    tell(&mut dialect, ServerEvent::AnswerDropped { turn: TurnId(0), status: ResponseStatus::Cancelled });
    let said = hear(&mut dialect, &append);
    assert!(matches!(&said.events[..2], [Ok(ClientEvent::Configure(_)), Ok(ClientEvent::Hint(_))]), "{said:?}");
}

#[test]
fn requests_that_wait_are_bounded() {
    let mut dialect = started(false);
    for n in 0..=ASKED_MAX {
        let said = hear(&mut dialect, "{\"type\":\"response.create\"}");
        assert_eq!(said.messages.is_empty(), n < ASKED_MAX, "{said:?}");
    }
}

#[test]
fn a_conversation_forgets_its_oldest() {
    let item = |n: usize, text: &str| Item { id: format!("i{n}"), status: COMPLETED, body: Body::Written { text: text.to_owned() } };
    let mut items = Items::default();
    for n in 0..5_000 {
        assert_eq!(items.push(item(n, "")), n.checked_sub(1).map(|before| format!("i{before}")));
    }
    assert!(items.get("i903").is_none() && items.get("i904").is_some() && items.get("i4999").is_some());
    let long = "x".repeat(60_000);
    for n in 5_000..5_100 {
        items.push(item(n, &long));
    }
    assert!(items.bytes() <= 1024 * 1024 && items.get("i5099").is_some() && items.get("i5000").is_none());
    items.change("i5099", |item| item.body = Body::Written { text: String::new() });
    items.remove("i5098");
    let left = (5_000..5_100).filter(|n| items.get(&format!("i{n}")).is_some()).count();
    assert!(items.bytes() < left * 60_100, "{} bytes for {left}", items.bytes());
}

#[test]
fn settings_are_taken_whole_or_not_at_all() {
    let settings = Settings::new(Kind::Realtime, String::new());
    let patch = json!({ "instructions": "new", "voice": "ash", "audio": { "input": { "turn_detection": { "threshold": "high" } } } });
    let Value::Object(patch) = patch else { unreachable!() };
    assert!(settings.with(&patch).is_err());
    let Value::Object(patch) =
        json!({ "turn_detection": { "silence_duration_ms": 0, "create_response": false }, "tools": [{ "name": "a" }] })
    else {
        unreachable!()
    };
    let new = settings.with(&patch).unwrap();
    let changes = new.changes(&settings).unwrap();
    assert_eq!(changes.turns, Some(TurnTaking { respond: false, silence_ms: 1, resume: false, ..TurnTaking::default() }));
    assert_eq!((changes.tools, changes.input, changes.voice), (Some(vec!["a".to_owned()]), None, None));
    assert_eq!(new.changes(&new), None);
    assert_eq!(settings.with(&Object::new()).unwrap(), settings);
}

/// Words of the API, so that arbitrary events say something now and then.
fn token() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u32>().prop_map(|n| json!(n)),
        any::<bool>().prop_map(|b| json!(b)),
        Just(Value::Null),
        "[a-zA-Z0-9+/=]{0,12}".prop_map(|text| json!(text)),
        prop::sample::select(vec![
            "i",
            "message",
            "user",
            "function_call",
            "audio",
            "text",
            "input_text",
            "none",
            "server_vad",
            "required"
        ])
        .prop_map(|text| json!(text)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let keys = vec![
        "type",
        "role",
        "content",
        "text",
        "audio",
        "input",
        "output",
        "format",
        "voice",
        "tools",
        "name",
        "call_id",
        "id",
        "modalities",
        "turn_detection",
        "metadata",
        "conversation",
        "tool_choice",
        "arguments",
        "rate",
        "instructions",
        "transcription",
    ];
    token().prop_recursive(4, 32, 5, move |inner| {
        let pairs = prop::collection::vec((prop::sample::select(keys.clone()), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::Array),
            pairs.prop_map(|pairs| Value::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
        ]
    })
}

fn client_event() -> impl Strategy<Value = String> {
    let types = vec![
        "session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "conversation.item.create",
        "conversation.item.retrieve",
        "conversation.item.truncate",
        "conversation.item.delete",
        "response.create",
        "response.cancel",
        "x",
    ];
    let keys =
        prop::sample::select(vec!["session", "audio", "item", "item_id", "response", "previous_item_id", "audio_end_ms", "content_index"]);
    let fields = prop::collection::vec((keys, value()), 0..4);
    let event = (prop::sample::select(types), fields).prop_map(|(kind, fields)| {
        let mut event = json!({ "type": kind, "event_id": "e" });
        for (key, value) in fields {
            event[key] = value;
        }
        event.to_string()
    });
    prop_oneof![9 => event, 1 => any::<String>()]
}

fn server_event() -> impl Strategy<Value = ServerEvent> {
    let status = || {
        prop::sample::select(vec![
            ResponseStatus::Completed,
            ResponseStatus::Interrupted,
            ResponseStatus::Cancelled,
            ResponseStatus::Failed,
        ])
    };
    let turn = || (0..4u64).prop_map(TurnId);
    prop_oneof![
        (any::<bool>(), any::<u64>()).prop_map(|(started, timestamp_us)| ServerEvent::Speech(SpeechMarker { started, timestamp_us })),
        turn().prop_map(|turn| ServerEvent::Committed { turn }),
        turn().prop_map(|turn| ServerEvent::Answering { turn }),
        (turn(), status()).prop_map(|(turn, status)| ServerEvent::AnswerDropped { turn, status }),
        (turn(), any::<String>()).prop_map(|(turn, text)| ServerEvent::ResponseStart { response: ResponseId(1), turn, text }),
        Just(audio(1)),
        status().prop_map(|status| ServerEvent::ResponseEnd { response: ResponseId(1), status, frames: 0 }),
        (turn(), any::<String>(), any::<bool>()).prop_map(|(turn, text, last)| ServerEvent::Transcript { turn, text, last }),
        (any::<String>(), any::<String>()).prop_map(|(name, arguments)| ServerEvent::ToolCall {
            call_id: "call-1".into(),
            name,
            arguments
        }),
        (0..15usize, any::<bool>()).prop_map(|(n, fatal)| {
            let codes = [ErrorCode::InvalidArgument, ErrorCode::UnknownToolCall, ErrorCode::Deadline, ErrorCode::Internal];
            ServerEvent::Error(SessionError { code: codes[n % codes.len()], message: String::new(), fatal })
        }),
        Just(ServerEvent::ToolCancel { call_id: "call-1".into() }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever comes from either side: no panic, JSON with a type and an id of its own, audio in order and within the session's limits.
    #[test]
    fn nothing_that_comes_breaks_it(
        beta: bool,
        steps in prop::collection::vec(prop_oneof![client_event().prop_map(Ok), server_event().prop_map(Err)], 0..60),
    ) {
        let mut dialect = started(beta);
        let (mut ids, mut sequence) = (std::collections::HashSet::new(), 0);
        for step in steps {
            let said = match step {
                Ok(text) => hear(&mut dialect, &text),
                Err(event) => with(&mut dialect, |dialect, to| dialect.encode(event, to)),
            };
            for (number, _, payload) in audio_of(&said) {
                prop_assert_eq!(number, sequence);
                prop_assert!(!payload.is_empty() && payload.len() <= 48_000);
                sequence += 1;
            }
            for message in said.messages {
                prop_assert!(message["type"].is_string());
                prop_assert!(ids.insert(message["event_id"].as_str().unwrap().to_owned()));
                if beta {
                    prop_assert!(message["type"] != "conversation.item.done" && !message["type"].as_str().unwrap().contains("output_audio."));
                }
            }
        }
    }
}
