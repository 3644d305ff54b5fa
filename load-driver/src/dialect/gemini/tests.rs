use proto::frame::{ClientAudio, Outcome, ResponseWish};

use super::*;
use crate::plan::Agent;

fn service(detection: TurnDetection) -> Arc<Service> {
    let agent = Agent { turn_detection: detection, instructions: Some("be brief".to_owned()), ..Agent::default() };
    Arc::new(Service { input: AudioFormat::Pcm16k, output: AudioFormat::Pcm24k, agent, ..Service::default() })
}

fn gemini(detection: TurnDetection) -> GeminiLive {
    GeminiLive::new(&service(detection))
}

fn say(gemini: &mut GeminiLive, event: ClientEvent) -> Vec<Value> {
    let mut to = Exchange::default();
    gemini.encode(event, &mut to);
    std::iter::from_fn(|| to.next_wire())
        .map(|wire| match wire {
            Wire::Text(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn hear(gemini: &mut GeminiLive, message: &str) -> Vec<ServerEvent> {
    let mut to = Exchange::default();
    gemini.decode(Wire::Text(message.to_owned()), &mut to);
    std::iter::from_fn(|| to.next_event()).map(|event| event.expect("a message")).collect()
}

fn audio(payload: Vec<u8>) -> ClientEvent {
    ClientEvent::Audio(ClientAudio { sequence: 0, timestamp_us: 0, payload: payload.into(), ack: false })
}

/// The end of a conversation's script: events by name, with the number of the response.
fn names(events: &[ServerEvent]) -> Vec<String> {
    events
        .iter()
        .map(|event| match event {
            ServerEvent::ResponseStart { response, turn, .. } => format!("start {} of {}", response.0, turn.0),
            ServerEvent::Audio(audio) => format!("audio {} of {}", audio.sequence, audio.response.0),
            ServerEvent::ResponseEnd { response, status, frames } => format!("end {} {status:?} {frames}", response.0),
            ServerEvent::Transcript { turn, text, last } => format!("{}: {text}{}", turn.0, if *last { "." } else { "" }),
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn the_setup_asks_for_what_the_profile_says() {
    let start = SessionStart { voice: "Puck".to_owned(), tools: vec!["lookup".to_owned()], ..SessionStart::default() };
    for (detection, disabled) in [(TurnDetection::ServerVad, false), (TurnDetection::None, true)] {
        let said = say(&mut gemini(detection), ClientEvent::Start(start.clone()));
        let setup = &said[0]["setup"];
        assert_eq!(setup["model"], MODEL);
        assert_eq!(setup["generationConfig"]["speechConfig"]["voiceConfig"]["prebuiltVoiceConfig"]["voiceName"], "Puck");
        assert_eq!(setup["systemInstruction"]["parts"][0]["text"], "be brief");
        assert_eq!(setup["tools"][0]["functionDeclarations"][0]["name"], "lookup");
        assert_eq!(setup["realtimeInputConfig"]["automaticActivityDetection"]["disabled"], disabled);
    }
    let named = Service { agent: Agent { model: Some("x".to_owned()), ..Agent::default() }, ..(*service(TurnDetection::None)).clone() };
    assert_eq!(GeminiLive::new(&Arc::new(named)).setup(&start)["setup"]["model"], "models/x");
}

#[test]
fn resumption_is_asked_for_where_the_profile_says_so_and_its_newest_handle_is_told() {
    let asked = |resume: bool, handle: &str| {
        let agent = Agent { resume, ..Agent::default() };
        let service = Service { agent, ..(*service(TurnDetection::ServerVad)).clone() };
        let start = SessionStart { resume: handle.to_owned(), ..SessionStart::default() };
        GeminiLive::new(&Arc::new(service)).setup(&start)["setup"].get("sessionResumption").cloned()
    };
    assert_eq!(asked(false, ""), None);
    assert_eq!(asked(true, ""), Some(json!({})));
    assert_eq!(asked(true, "h-1"), Some(json!({ "handle": "h-1" })));
    let mut gemini = gemini(TurnDetection::ServerVad);
    for told in [
        r#"{"sessionResumptionUpdate":{"newHandle":"h-1","resumable":true,"lastConsumedClientMessageIndex":"7"}}"#,
        r#"{"session_resumption_update":{"new_handle":"h-1","resumable":true}}"#,
    ] {
        assert_eq!(hear(&mut gemini, told), [ServerEvent::Resumable { handle: "h-1".to_owned() }]);
    }
    for nothing in [
        r#"{"sessionResumptionUpdate":{"newHandle":"h-2","resumable":false}}"#,
        r#"{"sessionResumptionUpdate":{"newHandle":"h-2"}}"#,
        r#"{"sessionResumptionUpdate":{"newHandle":"","resumable":true}}"#,
        r#"{"sessionResumptionUpdate":{"resumable":true}}"#,
    ] {
        assert_eq!(hear(&mut gemini, nothing), [], "{nothing}");
    }
}

#[test]
fn audio_goes_as_the_service_wants_it_and_speech_is_marked_only_where_the_caller_finds_it() {
    let sent = json!({ "realtimeInput": { "audio": { "mimeType": "audio/pcm;rate=16000", "data": "AAAA/w==" } } });
    let (quiet, loud) = (vec![0, 0, 0, 0xff], AudioFormat::Pcm16k.encode(&[4_000; 320]).to_vec());
    let mark = |started| ClientEvent::Speech(SpeechMarker { started, timestamp_us: 0 });
    let mut by_server = gemini(TurnDetection::ServerVad);
    assert_eq!(say(&mut by_server, audio(quiet.clone())), std::slice::from_ref(&sent));
    assert_eq!(say(&mut by_server, audio(loud.clone())).len(), 1);
    for event in [mark(true), mark(false), ClientEvent::Commit, ClientEvent::BargeIn { response: None, heard_ms: 0 }] {
        assert_eq!(say(&mut by_server, event), Vec::<Value>::new());
    }
    let (start, end) = (json!({ "realtimeInput": { "activityStart": {} } }), json!({ "realtimeInput": { "activityEnd": {} } }));
    let mut by_caller = gemini(TurnDetection::None);
    assert_eq!(say(&mut by_caller, audio(quiet.clone())), [sent]);
    // By markers.
    assert_eq!(say(&mut by_caller, mark(true)), std::slice::from_ref(&start));
    assert_eq!(say(&mut by_caller, audio(loud.clone())).len(), 1);
    assert_eq!(say(&mut by_caller, mark(false)), std::slice::from_ref(&end));
    // By a commit: the first loud audio begins it.
    assert_eq!(say(&mut by_caller, audio(loud))[0], start);
    assert_eq!(say(&mut by_caller, ClientEvent::Commit), [end]);
    assert_eq!(say(&mut by_caller, ClientEvent::Respond(ResponseWish::default())), Vec::<Value>::new());
    assert_eq!(say(&mut by_caller, ClientEvent::BargeIn { response: None, heard_ms: 0 }), [start]);
}

#[test]
fn an_answer_begins_with_its_audio_and_ends_with_the_turn() {
    let mut gemini = gemini(TurnDetection::ServerVad);
    let accepted = hear(&mut gemini, r#"{"setupComplete":{"sessionId":"s"}}"#);
    assert!(
        matches!(&accepted[..], [ServerEvent::Accepted(accepted)] if accepted.session_id == "s" && accepted.output == AudioFormat::Pcm24k)
    );
    let mut all = Vec::new();
    let camel = r#"{"serverContent":{"modelTurn":{"parts":[{"text":"hm","thought":true},{"inlineData":{"mimeType":"audio/pcm;rate=24000","data":"AAAA"}}]}}}"#;
    let snake = r#"{"server_content":{"model_turn":{"parts":[{"inline_data":{"mime_type":"audio/pcm","data":"_-8="}}]}}}"#;
    for message in [
        r#"{"serverContent":{"inputTranscription":{"text":"book"}}}"#,
        r#"{"server_content":{"input_transcription":{"text":" it","finished":true}}}"#,
        camel,
        snake,
        r#"{"serverContent":{"outputTranscription":{"text":"sure"}}}"#,
        r#"{"serverContent":{"generationComplete":true}}"#,
        r#"{"serverContent":{"turnComplete":true},"usageMetadata":{"totalTokenCount":9}}"#,
        r#"{"serverContent":{"inputTranscription":{"text":"stop"}}}"#,
        camel,
        r#"{"serverContent":{"interrupted":true}}"#,
        camel,
        r#"{"server_content":{"turn_complete":true}}"#,
        snake,
        r#"{"serverContent":{"turnComplete":true}}"#,
        r#"{"serverContent":{"interrupted":true}}"#,
        r#"{"sessionResumptionUpdate":{"newHandle":"x","resumable":true}}"#,
        r#"{"somethingNew":{}}"#,
    ] {
        all.extend(hear(&mut gemini, message));
    }
    assert_eq!(
        names(&all),
        [
            "1: book",
            "1: book it.",
            "start 1 of 1",
            "audio 0 of 1",
            "audio 1 of 1",
            "end 1 Completed 2",
            "2: stop",
            "start 2 of 2",
            "audio 2 of 2",
            "end 2 Interrupted 1",
            "audio 3 of 2",
            "start 3 of 0",
            "audio 4 of 3",
            "end 3 Completed 1",
            "end 0 Interrupted 0",
            r#"Resumable { handle: "x" }"#,
        ]
    );
}

#[test]
fn a_tool_call_ends_what_was_said_before_it() {
    let mut gemini = gemini(TurnDetection::ServerVad);
    let sound = r#"{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm","data":"AAA="}}]}}}"#;
    let mut all = hear(&mut gemini, sound);
    all.extend(hear(&mut gemini, r#"{"toolCall":{"functionCalls":[{"id":"7","name":"f","args":{"a":1}}]}}"#));
    assert_eq!(names(&all[..2]), ["start 1 of 0", "audio 0 of 1"]);
    assert_eq!(names(&all[3..4]), ["end 1 Completed 1"]);
    assert_eq!(all[2], ServerEvent::ToolCall { call_id: "7".to_owned(), name: "f".to_owned(), arguments: r#"{"a":1}"#.to_owned() });
    let result = |output: &str, failed| ClientEvent::ToolResult { call_id: "7".to_owned(), output: output.to_owned(), failed };
    let sent = say(&mut gemini, result(r#"{"ok":true}"#, false));
    assert_eq!(sent, [json!({ "toolResponse": { "functionResponses": [{ "id": "7", "name": "f", "response": { "ok": true } }] } })]);
    assert_eq!(say(&mut gemini, result("no", true))[0]["toolResponse"]["functionResponses"][0]["response"], json!({ "error": "no" }));
    assert_eq!(names(&hear(&mut gemini, sound)), ["start 2 of 0", "audio 1 of 2"]);
    let cancelled = hear(&mut gemini, r#"{"tool_call_cancellation":{"ids":["7"]}}"#);
    assert_eq!(cancelled, [ServerEvent::ToolCancel { call_id: "7".to_owned() }]);
    for n in 0..100 {
        hear(&mut gemini, &format!(r#"{{"toolCall":{{"functionCalls":[{{"id":"{n}"}}]}}}}"#));
    }
    assert_eq!(gemini.calls.len(), CALLS_KEPT);
}

#[test]
fn the_end_is_told_by_who_closed_and_why() {
    let end = |script: &[&str], goodbye: bool, code: u16| {
        let mut gemini = gemini(TurnDetection::ServerVad);
        for message in script {
            hear(&mut gemini, message);
        }
        let mut to = Exchange::default();
        if goodbye {
            gemini.encode(ClientEvent::End { reason: String::new() }, &mut to);
            assert_eq!(to.next_wire(), Some(Wire::Close(1000)));
        }
        gemini.closed(code, &mut to);
        to.next_event()
    };
    let complete = r#"{"setupComplete":{}}"#;
    assert!(matches!(end(&[complete], true, 1000), Some(Ok(ServerEvent::Ended(ended))) if ended.outcome == Outcome::Completed));
    assert_eq!(end(&[complete], false, 1000), None);
    assert_eq!(end(&[complete], true, 1011), None);
    let code = |event| match event {
        Some(Ok(ServerEvent::Error(error))) => Some(error.code),
        _ => None,
    };
    assert_eq!(code(end(&[complete, r#"{"goAway":{"timeLeft":"9.5s"}}"#], false, 1011)), Some(ErrorCode::Deadline));
    assert_eq!(code(end(&[], false, 1007)), Some(ErrorCode::InvalidArgument));
}

#[test]
fn warnings_and_activity_are_told() {
    let mut gemini = gemini(TurnDetection::ServerVad);
    assert_eq!(hear(&mut gemini, r#"{"goAway":{"timeLeft":"9.5s"}}"#), [ServerEvent::GoingAway { left_ms: 9_500 }]);
    assert_eq!(hear(&mut gemini, r#"{"go_away":{}}"#), [ServerEvent::GoingAway { left_ms: 0 }]);
    let activity = r#"{"voiceActivity":{"voiceActivityType":"ACTIVITY_START","audioOffset":"1.25s"}}"#;
    assert_eq!(hear(&mut gemini, activity), [ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: 1_250_000 })]);
    assert!(matches!(&hear(&mut gemini, r#"{"error":{"code":429}}"#)[..], [ServerEvent::Error(error)] if !error.fatal));
    for odd in [r#"{"goAway":{"timeLeft":"NaNs"}}"#, r#"{"goAway":{"timeLeft":"-1s"}}"#, r#"{"goAway":{"timeLeft":"1e99s"}}"#] {
        assert_eq!(hear(&mut gemini, odd).len(), 1);
    }
}

#[test]
fn what_is_no_message_is_malformed() {
    for (message, code) in [
        ("hello", ErrorCode::MalformedMessage),
        (r#"{"serverContent":7}"#, ErrorCode::MalformedMessage),
        (r#"{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm","data":"!"}}]}}}"#, ErrorCode::BadAudio),
        (
            r#"{"serverContent":{"modelTurn":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=16000","data":"AAA="}}]}}}"#,
            ErrorCode::UnsupportedFormat,
        ),
    ] {
        let mut to = Exchange::default();
        gemini(TurnDetection::ServerVad).decode(Wire::Text(message.to_owned()), &mut to);
        assert!(matches!(to.next_event(), Some(Err(error)) if error.code == code), "{message}");
    }
}
