//! OpenAI Realtime over real sockets: whole turns, in the order that its clients expect.

mod common;

use std::collections::HashSet;

use common::{
    Server,
    foreign::{Foreign, Heard, silence, speech},
    openai::{BETA, PATH, Talker, audio, of, types},
};
use proto::{audio::AudioFormat, base64};
use serde_json::{Value, json};

/// Answers of half a second.
fn server() -> Server {
    Server::start(&["--response=constant(500ms)"])
}

/// The server's ids of items and responses that events name.
fn new_ids(events: &[Value], kind: &str, path: &str) -> Vec<String> {
    of(events, kind).iter().map(|event| event.pointer(path).and_then(Value::as_str).unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_turn_found_by_the_server_is_told_in_order() {
    let server = server();
    let (mut talker, session) = Talker::open(server.address, PATH, &[("authorization", "Bearer key"), ("x-client-ref", "anna")]).await;
    assert_eq!(session["id"], server.sessions("").sessions[0].session_id);
    assert_eq!(server.sessions("").sessions[0].client_ref, "anna");
    assert_eq!((&session["model"], &session["object"]), (&json!("gpt-realtime"), &json!("realtime.session")));
    let mut events = Vec::new();
    for turn in 0..2 {
        talker.turn().await;
        let heard = talker.all_until("rate_limits.updated").await;
        assert_eq!(
            types(&heard),
            [
                "input_audio_buffer.speech_started",
                "input_audio_buffer.speech_stopped",
                "input_audio_buffer.committed",
                "conversation.item.added",
                "conversation.item.done",
                "response.created",
                "response.output_item.added",
                "conversation.item.added",
                "response.content_part.added",
                "response.output_audio_transcript.delta",
                "response.output_audio.delta",
                "response.output_audio.done",
                "response.output_audio_transcript.done",
                "response.content_part.done",
                "conversation.item.done",
                "response.output_item.done",
                "response.done",
                "rate_limits.updated",
            ],
            "turn {turn}"
        );
        // 400 ms of speech from the beginning of each second, with what the API adds: the padding before and the silence after.
        let at = turn * 1_000;
        assert_eq!(of(&heard, "input_audio_buffer.speech_started")[0]["audio_start_ms"], u64::saturating_sub(at, 300));
        assert_eq!(of(&heard, "input_audio_buffer.speech_stopped")[0]["audio_end_ms"], at + 400 + 500);
        let done = &of(&heard, "response.done")[0]["response"];
        assert_eq!(
            (&done["status"], &done["status_details"], &done["output"][0]["status"]),
            (&json!("completed"), &json!(null), &json!("completed"))
        );
        assert_eq!(done["output_modalities"], json!(["audio"]));
        let usage = &done["usage"];
        assert_eq!(usage["total_tokens"], usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap());
        assert_eq!(
            (&usage["input_token_details"]["audio_tokens"], &usage["output_token_details"]["audio_tokens"]),
            (&json!(4), &json!(10))
        );
        let said: String =
            of(&heard, "response.output_audio_transcript.delta").iter().map(|event| event["delta"].as_str().unwrap()).collect();
        assert_eq!(done["output"][0]["content"], json!([{ "type": "output_audio", "transcript": said }]));
        assert_eq!(of(&heard, "response.content_part.done")[0]["part"], json!({ "type": "audio", "transcript": said }));
        let pcm = audio(&heard, done["id"].as_str());
        assert_eq!(pcm.len(), 25 * 960, "500 ms at 24 kHz");
        assert!(AudioFormat::Pcm24k.rms(&pcm) > 1_000.0);
        events.extend(heard);
    }
    // Each item names the one before it, in order of their coming.
    let added = of(&events, "conversation.item.added");
    let mut before = Value::Null;
    for item in &added {
        assert_eq!(item["previous_item_id"], before);
        before = item["item"]["id"].clone();
    }
    assert_eq!(added.iter().map(|e| e["item"]["role"].as_str().unwrap()).collect::<Vec<_>>(), ["user", "assistant", "user", "assistant"]);
    let ids: HashSet<_> = events.iter().map(|event| event["event_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), events.len(), "no event id comes twice");
    let responses: HashSet<_> = new_ids(&events, "response.created", "/response/id").into_iter().collect();
    assert_eq!(responses.len(), 2);
    talker.close().await;
    let snapshot = server.expect_ends(&[("completed", 1)]).await;
    // 20 frames of speech and one event of silence a turn; 25 frames an answer.
    assert_eq!((snapshot.frames_in, snapshot.frames_out), (2 * 21, 2 * 25));
}

#[tokio::test]
async fn clients_of_the_first_version_get_its_names() {
    let server = server();
    let (mut talker, session) = Talker::open(server.address, PATH, &[BETA]).await;
    assert_eq!((&session["modalities"], &session["input_audio_format"]), (&json!(["audio", "text"]), &json!("pcm16")));
    assert!(session.get("audio").is_none(), "{session}");
    let session = talker
        .update(json!({
            "modalities": ["text", "audio"], "voice": "verse", "instructions": "Be kind.", "input_audio_format": "g711_ulaw",
            "output_audio_format": "g711_alaw", "input_audio_transcription": { "model": "whisper-1" }, "temperature": 0.7,
            "turn_detection": { "type": "server_vad", "silence_duration_ms": 400 }, "max_response_output_tokens": 77, "tool_choice": "none",
        }))
        .await;
    for (key, value) in [
        ("voice", json!("verse")),
        ("instructions", json!("Be kind.")),
        ("input_audio_format", json!("g711_ulaw")),
        ("output_audio_format", json!("g711_alaw")),
        ("input_audio_transcription", json!({ "model": "whisper-1" })),
        ("temperature", json!(0.7)),
        ("max_response_output_tokens", json!(77)),
        ("tool_choice", json!("none")),
    ] {
        assert_eq!(session[key], value, "{key}");
    }
    assert_eq!(session["turn_detection"]["silence_duration_ms"], 400);
    talker.format = AudioFormat::Mulaw8k;
    talker.turn().await;
    let heard = talker.all_until("rate_limits.updated").await;
    let names: HashSet<_> = types(&heard).into_iter().collect();
    for name in [
        "conversation.item.created",
        "conversation.item.input_audio_transcription.completed",
        "response.audio_transcript.delta",
        "response.audio.delta",
        "response.audio.done",
        "response.audio_transcript.done",
    ] {
        assert!(names.contains(name), "{name} is missing: {names:?}");
    }
    assert!(
        !names.iter().any(|name| name.contains("output_audio") || *name == "conversation.item.added" || *name == "conversation.item.done"),
        "{names:?}"
    );
    let transcript = of(&heard, "conversation.item.input_audio_transcription.completed")[0];
    assert_eq!(transcript["usage"], json!({ "type": "duration", "seconds": 0.4 }));
    let done = &of(&heard, "response.done")[0]["response"];
    assert_eq!((&done["output"][0]["content"][0]["type"], &done["voice"]), (&json!("audio"), &json!("verse")));
    assert_eq!(audio(&heard, None).len(), 25 * 160);
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn every_way_to_connect_is_a_session() {
    let server = server();
    let browser = [("sec-websocket-protocol", "realtime, openai-insecure-api-key.key, openai-agents-sdk.1")];
    let key = [("api-key", "key")];
    let ways = [
        ("/v1/realtime?model=gpt-realtime", &browser[..], Some("realtime")),
        ("/v1//realtime?model=gpt-realtime", &[], None),
        ("/openai/v1/realtime?model=gpt-realtime", &key, None),
        ("/v1/realtime?call_id=rtc_1", &[], None),
        ("/v1/realtime?intent=transcription", &[], None),
    ];
    for (target, headers, protocol) in ways {
        let foreign = Foreign::open(server.address, target, headers).await;
        assert_eq!(foreign.headers.get("sec-websocket-protocol").map(|value| value.to_str().unwrap()), protocol, "{target}");
        let mut talker = Talker { foreign, format: AudioFormat::Pcm24k };
        talker.until("session.created").await;
        talker.close().await;
    }
    server.expect_ends(&[("completed", 5)]).await;
}

#[tokio::test]
async fn settings_merge_and_come_back_whole() {
    let server = server();
    let (mut talker, first) = Talker::open(server.address, PATH, &[]).await;
    assert_eq!(first["audio"]["input"]["turn_detection"]["type"], "server_vad");
    let tools = json!([{ "type": "function", "name": "weather", "description": "of a city", "parameters": { "type": "object" } }]);
    let second = talker
        .update(json!({
            "type": "realtime", "instructions": "Be brief.", "tools": tools, "tool_choice": { "type": "function", "name": "weather" },
            "tracing": "auto", "max_output_tokens": 100,
            "audio": {
                "input": { "format": { "type": "audio/pcmu" }, "transcription": { "model": "gpt-4o-transcribe", "language": "en" },
                    "turn_detection": { "type": "semantic_vad", "eagerness": "high", "interrupt_response": false } },
                "output": { "voice": "marin", "format": { "type": "audio/pcma" }, "speed": 1.1 },
            },
        }))
        .await;
    for (path, value) in [
        ("/instructions", json!("Be brief.")),
        ("/tools", tools.clone()),
        ("/tool_choice/name", json!("weather")),
        ("/tracing", json!("auto")),
        ("/max_output_tokens", json!(100)),
        ("/audio/input/format", json!({ "type": "audio/pcmu" })),
        ("/audio/input/transcription/language", json!("en")),
        (
            "/audio/input/turn_detection",
            json!({ "type": "semantic_vad", "eagerness": "high", "create_response": true, "interrupt_response": false }),
        ),
        ("/audio/output", json!({ "format": { "type": "audio/pcma" }, "voice": "marin", "speed": 1.1 })),
        ("/id", first["id"].clone()),
        ("/model", json!("gpt-realtime")),
    ] {
        assert_eq!(second.pointer(path), Some(&value), "{path}");
    }
    // What is not there stays; null switches off.
    let third = talker.update(json!({ "type": "realtime", "audio": { "input": { "turn_detection": null, "transcription": null } } })).await;
    let mut expected = second.clone();
    expected["audio"]["input"]["turn_detection"] = Value::Null;
    expected["audio"]["input"]["transcription"] = Value::Null;
    assert_eq!(third, expected);
    // A client of this version may write the old names as well.
    let fourth = talker.update(json!({ "voice": "ash", "input_audio_format": "pcm16", "modalities": ["text"] })).await;
    assert_eq!((&fourth["audio"]["output"]["voice"], &fourth["output_modalities"]), (&json!("ash"), &json!(["text"])));
    assert_eq!(fourth["audio"]["input"]["format"], json!({ "type": "audio/pcm", "rate": 24_000 }));
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn transcripts_come_for_those_who_asked() {
    let server = server();
    let mut talker = Talker::new(server.address).await;
    talker.update(json!({ "audio": { "input": { "transcription": { "model": "gpt-4o-transcribe" } } } })).await;
    talker.turn().await;
    let heard = talker.all_until("rate_limits.updated").await;
    let item = &of(&heard, "input_audio_buffer.committed")[0]["item_id"];
    let done = of(&heard, "conversation.item.input_audio_transcription.completed");
    assert_eq!((done.len(), &done[0]["item_id"], &done[0]["content_index"]), (1, item, &json!(0)));
    let deltas = of(&heard, "conversation.item.input_audio_transcription.delta");
    let said: String = deltas.iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert!(!said.is_empty() && done[0]["transcript"] == said.as_str());
    assert_eq!(done[0]["usage"]["type"], "tokens");
    talker.say(json!({ "type": "conversation.item.retrieve", "item_id": item })).await;
    let kept = talker.until("conversation.item.retrieved").await;
    assert_eq!(kept["item"]["content"], json!([{ "type": "input_audio", "transcript": said }]));
    talker.close().await;
    // A session of the other kind transcribes and never answers.
    let mut scribe = Talker::open(server.address, "/v1/realtime?intent=transcription", &[]).await.0;
    let session = scribe
        .update(json!({ "type": "transcription", "audio": { "input": { "transcription": { "model": "gpt-4o-transcribe" } } } }))
        .await;
    assert_eq!(session["type"], "transcription");
    scribe.turn().await;
    let heard = scribe.all_until("conversation.item.input_audio_transcription.completed").await;
    assert!(of(&heard, "response.created").is_empty());
    scribe.say(json!({ "type": "response.create" })).await;
    assert_eq!(scribe.error().await["param"], "type");
    scribe.close().await;
    server.expect_ends(&[("completed", 2)]).await;
}

#[tokio::test]
async fn speech_during_an_answer_stops_it() {
    let server = Server::start(&["--response=constant(5s)"]);
    let mut talker = Talker::new(server.address).await;
    talker.turn().await;
    let mut first = talker.all_until("response.output_audio.delta").await;
    talker.speech(200).await;
    first.extend(talker.all_until("response.done").await);
    let tail: Vec<&str> = types(&first).into_iter().skip_while(|kind| *kind != "response.output_audio.delta").collect();
    let started = tail.iter().position(|kind| *kind == "input_audio_buffer.speech_started").unwrap();
    assert_eq!(
        tail[started..],
        [
            "input_audio_buffer.speech_started",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
    );
    let done = &of(&first, "response.done")[0]["response"];
    assert_eq!(
        (&done["status"], &done["status_details"]),
        (&json!("cancelled"), &json!({ "type": "cancelled", "reason": "turn_detected" }))
    );
    assert_eq!(done["output"][0]["status"], "incomplete");
    let (item, response) = (done["output"][0]["id"].clone(), done["id"].as_str().unwrap().to_owned());
    // What was played of it is the client's to say, and no more than there was.
    let ms = audio(&first, None).len() / 48;
    let truncate = |end: usize| json!({ "type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": end });
    talker.say(truncate(ms + 1)).await;
    let error = talker.until("error").await;
    assert_eq!(error["error"]["message"], format!("Audio content of {ms}ms is already shorter than {}ms", ms + 1));
    talker.say(truncate(ms - 20)).await;
    let truncated = talker.until("conversation.item.truncated").await;
    assert_eq!((&truncated["item_id"], &truncated["content_index"], &truncated["audio_end_ms"]), (&item, &json!(0), &json!(ms - 20)));
    // The next turn is answered, and the old answer is not heard again.
    talker.append(&silence(talker.format, 600).concat()).await;
    let later = talker.all_until("response.output_audio.delta").await;
    assert!(audio(&later, Some(&response)).is_empty());
    assert_ne!(later.last().unwrap()["response_id"], response.as_str());
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn turns_are_taken_as_the_client_wants() {
    let server = Server::start(&["--response=constant(3s)"]);
    let mut talker = Talker::new(server.address).await;
    let turns = |respond: bool, interrupt: bool| json!({ "audio": { "input": { "turn_detection": { "create_response": respond, "interrupt_response": interrupt } } } });
    talker.update(turns(false, true)).await;
    talker.turn().await;
    talker.until("conversation.item.done").await;
    // Nothing follows by itself: the next event is the answer to the next wish.
    talker.say(json!({ "type": "input_audio_buffer.clear" })).await;
    assert!(matches!(talker.foreign.next().await, Heard::Json(event) if event["type"] == "input_audio_buffer.cleared"));
    talker.update(turns(true, false)).await;
    talker.turn().await;
    let mut heard = talker.all_until("response.output_audio.delta").await;
    talker.turn().await;
    heard.extend(talker.all_until("response.done").await);
    assert_eq!(of(&heard, "input_audio_buffer.committed").len(), 2, "the turn beside the answer is taken");
    let done = &of(&heard, "response.done")[0]["response"];
    assert_eq!((&done["status"], audio(&heard, None).len()), (&json!("completed"), 150 * 960));
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn audio_of_g711_comes_and_goes() {
    let server = server();
    for (name, format) in [("audio/pcmu", AudioFormat::Mulaw8k), ("audio/pcma", AudioFormat::Alaw8k)] {
        let mut talker = Talker::new(server.address).await;
        let format_json = json!({ "type": name });
        talker.update(json!({ "audio": { "input": { "format": format_json }, "output": { "format": format_json } } })).await;
        talker.format = format;
        talker.turn().await;
        let heard = talker.all_until("response.done").await;
        let encoded = audio(&heard, None);
        assert_eq!(encoded.len(), 25 * 160, "{name}");
        assert!(format.rms(&encoded) > 1_000.0, "{name}");
        talker.close().await;
    }
    server.expect_ends(&[("completed", 2)]).await;
}

#[tokio::test]
async fn what_comes_before_the_session_waits_for_it() {
    // The acceptance is held back for as long as its cost takes.
    let server = Server::start(&["--cost=virtual:start=300ms"]);
    let mut foreign = Foreign::open(server.address, PATH, &[]).await;
    foreign.json(json!({ "type": "session.update", "session": { "instructions": "early" } })).await;
    foreign.json(json!({ "type": "nonsense" })).await;
    let mut talker = Talker { foreign, format: AudioFormat::Pcm24k };
    let heard = talker.all_until("error").await;
    assert_eq!(types(&heard), ["session.created", "session.updated", "error"]);
    assert_eq!(heard[0]["session"]["instructions"], "");
    assert_eq!((&heard[1]["session"]["instructions"], &heard[1]["session"]["id"]), (&json!("early"), &heard[0]["session"]["id"]));
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn audio_in_pieces_of_any_length_is_one_stream() {
    let server = server();
    let mut talker = Talker::new(server.address).await;
    let turn: Vec<u8> = speech(talker.format, 400).concat().into_iter().chain(silence(talker.format, 600).concat()).collect();
    // Odd lengths cut samples in two; binary frames are read as text ones are.
    for (index, piece) in turn.chunks(777).enumerate() {
        let event = json!({ "audio": base64::encode(piece), "event_id": "mine", "type": "input_audio_buffer.append" }).to_string();
        if index % 2 == 0 { talker.foreign.text(&event).await } else { talker.foreign.binary(event.as_bytes()).await }
    }
    let heard = talker.all_until("response.done").await;
    // The last loud piece may be the one that crosses into the silence.
    let end = of(&heard, "input_audio_buffer.speech_stopped")[0]["audio_end_ms"].as_u64().unwrap();
    assert!((900..=920).contains(&end), "{end}");
    assert!(of(&heard, "error").is_empty());
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}
