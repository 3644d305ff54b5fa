//! Everything that a client of OpenAI Realtime can say wrong, and the ends of its sessions: told in the API's own words, counted exactly.

mod common;

use std::time::Duration;

use agent_server::runtime::clock::Clock;
use common::{
    Server,
    foreign::{Foreign, Heard},
    openai::{PATH, Talker, audio, of},
};
use proto::time::Micros;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

fn server() -> Server {
    Server::start(&["--response=constant(500ms)"])
}

/// What is wrong, and what it is told: code and parameter. There is an item `said`, and no audio.
fn wrong() -> Vec<(Value, &'static str, Value)> {
    let item = |item: Value| json!({ "type": "conversation.item.create", "event_id": "mine", "item": item });
    let session = |session: Value| json!({ "type": "session.update", "event_id": "mine", "session": session });
    let message = |content: Value| item(json!({ "type": "message", "role": "user", "content": content }));
    let event = |kind: &str, more: Value| {
        let mut event = json!({ "type": kind, "event_id": "mine" });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    vec![
        (json!({ "event_id": "mine" }), "missing_required_parameter", json!("type")),
        (event("response.creat", json!({})), "invalid_value", json!("type")),
        (json!({ "type": 7, "event_id": "mine" }), "invalid_type", json!("type")),
        (event("input_audio_buffer.append", json!({})), "missing_required_parameter", json!("audio")),
        (event("input_audio_buffer.append", json!({ "audio": 7 })), "invalid_type", json!("audio")),
        (event("input_audio_buffer.append", json!({ "audio": "not base64!" })), "invalid_value", json!("audio")),
        (event("input_audio_buffer.commit", json!({})), "input_audio_buffer_commit_empty", Value::Null),
        (event("session.update", json!({})), "missing_required_parameter", json!("session")),
        (session(json!({ "type": "chat" })), "invalid_value", json!("session.type")),
        (session(json!({ "instructions": 1 })), "invalid_type", json!("session.instructions")),
        (session(json!({ "instructions": "x".repeat(200_000) })), "string_above_max_length", json!("session.instructions")),
        (session(json!({ "output_modalities": ["smell"] })), "invalid_value", json!("session.output_modalities")),
        (session(json!({ "tools": [{ "type": "function" }] })), "missing_required_parameter", json!("session.tools[0].name")),
        (session(json!({ "tools": [{ "name": "a" }, { "name": "a" }] })), "invalid_value", json!("session.tools[1].name")),
        (session(json!({ "tool_choice": "maybe" })), "invalid_value", json!("session.tool_choice")),
        (session(json!({ "input_audio_format": "mp3" })), "invalid_value", json!("session.input_audio_format")),
        (
            session(json!({ "audio": { "input": { "format": { "type": "audio/pcm", "rate": 16_000 } } } })),
            "invalid_value",
            json!("session.audio.input.format.rate"),
        ),
        (
            session(json!({ "audio": { "input": { "turn_detection": { "type": "magic" } } } })),
            "invalid_value",
            json!("session.audio.input.turn_detection.type"),
        ),
        (
            session(json!({ "turn_detection": { "silence_duration_ms": -5 } })),
            "invalid_value",
            json!("session.turn_detection.silence_duration_ms"),
        ),
        (session(json!({ "turn_detection": { "threshold": 2 } })), "invalid_value", json!("session.turn_detection.threshold")),
        (session(json!({ "voice": "" })), "invalid_value", json!("session.voice")),
        (event("conversation.item.create", json!({})), "missing_required_parameter", json!("item")),
        (item(json!({ "role": "user" })), "missing_required_parameter", json!("item.type")),
        (item(json!({ "type": "dance" })), "invalid_value", json!("item.type")),
        (item(json!({ "type": "message", "role": "user" })), "missing_required_parameter", json!("item.content")),
        (item(json!({ "type": "message", "role": "ghost", "content": [] })), "invalid_value", json!("item.role")),
        (message(json!([{ "type": "output_text", "text": "" }])), "invalid_value", json!("item.content[0].type")),
        (message(json!([{ "type": "input_text" }])), "missing_required_parameter", json!("item.content[0].text")),
        (message(json!([{ "type": "input_audio", "audio": "?" }])), "invalid_value", json!("item.content[0].audio")),
        (message(json!([{ "type": "input_text", "text": "x".repeat(70_000) }])), "string_above_max_length", json!("item.content")),
        (item(json!({ "id": "said", "type": "message", "role": "user", "content": [] })), "invalid_value", json!("item.id")),
        (
            event(
                "conversation.item.create",
                json!({ "previous_item_id": "none", "item": { "type": "message", "role": "user", "content": [] } }),
            ),
            "item_create_invalid_previous_item_id",
            json!("previous_item_id"),
        ),
        (event("conversation.item.retrieve", json!({})), "missing_required_parameter", json!("item_id")),
        (event("conversation.item.delete", json!({ "item_id": "none" })), "item_delete_invalid_item_id", json!("item_id")),
        (event("conversation.item.truncate", json!({ "item_id": "said" })), "missing_required_parameter", json!("content_index")),
        (
            event("conversation.item.truncate", json!({ "item_id": "none", "content_index": 0, "audio_end_ms": 0 })),
            "item_truncate_invalid_item_id",
            json!("item_id"),
        ),
        (
            event("conversation.item.truncate", json!({ "item_id": "said", "content_index": 0, "audio_end_ms": 0 })),
            "unsupported_content_type",
            json!("item_id"),
        ),
        (event("response.cancel", json!({})), "response_cancel_not_active", Value::Null),
        (event("response.create", json!({ "response": { "conversation": "mine" } })), "invalid_value", json!("response.conversation")),
        (event("response.create", json!({ "response": { "metadata": "x" } })), "invalid_type", json!("response.metadata")),
        (event("response.create", json!({ "response": 7 })), "invalid_type", json!("response")),
    ]
}

#[tokio::test]
async fn whatever_is_said_wrong_costs_one_error_and_no_session() {
    let server = server();
    let mut talker = Talker::by_hand(server.address).await;
    talker
        .say(json!({ "type": "conversation.item.create", "item": { "id": "said", "type": "message", "role": "user", "content": [] } }))
        .await;
    talker.until("conversation.item.done").await;
    for (event, code, param) in wrong() {
        talker.say(event.clone()).await;
        let error = talker.error().await;
        assert_eq!((&error["code"], &error["param"], &error["event_id"]), (&json!(code), &param, &json!("mine")), "{event}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    for text in ["", "hello", "{", "[1,2]", "7", "null", "{\"type\":\"session.update\",}"] {
        talker.foreign.text(text).await;
        assert_eq!(talker.error().await["code"], "invalid_json", "{text}");
    }
    talker.foreign.binary(&[0xff, 0xfe]).await;
    assert_eq!(talker.error().await["code"], "invalid_json");
    talker.foreign.text(&format!("{{\"type\":\"response.create\",\"x\":\"{}\"}}", "x".repeat(5_000_000))).await;
    assert_eq!(talker.error().await["code"], "event_too_large");
    // Accepted without a word, and the session is as it was.
    talker.say(json!({ "type": "output_audio_buffer.clear" })).await;
    talker.say(json!({ "type": "response.create" })).await;
    assert_eq!(audio(&talker.all_until("response.done").await, None).len(), 25 * 960);
    talker.close().await;
    let snapshot = server.expect_ends(&[("completed", 1)]).await;
    assert_eq!(snapshot.frames_in, 0);
}

/// An event of this type, however busy the machine is.
async fn patiently(talker: &mut Talker, kind: &str) -> Value {
    for _ in 0..9 {
        if let Ok(event) = tokio::time::timeout(Duration::from_secs(10), talker.until(kind)).await {
            return event;
        }
    }
    panic!("no {kind}");
}

#[tokio::test]
async fn fifteen_mebibytes_are_taken_at_once_and_more_is_refused() {
    // Without optimisation both sides are busy with it for seconds.
    let server = Server::start(&["--keepalive-timeout=60s"]);
    let mut talker = Talker::by_hand(server.address).await;
    let most = 15 * 1024 * 1024;
    // An A is six bits of silence.
    let append = |bytes: usize| format!("{{\"type\":\"input_audio_buffer.append\",\"audio\":\"{}\"}}", "A".repeat(bytes / 3 * 4));
    talker.foreign.text(&append(most + 3)).await;
    let error = patiently(&mut talker, "error").await["error"].take();
    assert_eq!((&error["code"], &error["param"]), (&json!("string_above_max_length"), &json!("audio")));
    talker.foreign.text(&append(most)).await;
    talker.say(json!({ "type": "input_audio_buffer.commit" })).await;
    patiently(&mut talker, "input_audio_buffer.committed").await;
    talker.close().await;
    let snapshot = server.expect_ends(&[("completed", 1)]).await;
    // A second of audio is 48,000 bytes: each is a frame of the session, and what is left of the last.
    assert_eq!(snapshot.frames_in, (most as u64).div_ceil(48_000));
    // Over the limit of a message nothing is read: the connection is over.
    let mut talker = Talker::by_hand(server.address).await;
    let header = [0x81, 0xff, 0, 0, 0, 0, 0x01, 0x60, 0, 0, 1, 2, 3, 4];
    talker.foreign.socket.get_mut().write_all(&header).await.unwrap();
    let error = talker.error().await;
    assert_eq!(error["code"], "message_too_large", "{error}");
    assert_eq!(talker.foreign.next().await, Heard::Closed(Some(1009)));
    server.expect_ends(&[("completed", 1), ("failed", 1)]).await;
}

/// Whatever a session may be set to comes back whole, escapes and all, and what is too much is refused.
#[tokio::test]
async fn the_largest_sessions_come_back_whole() {
    let server = server();
    let mut talker = Talker::new(server.address).await;
    let instructions = "\"\n".repeat(64 * 1024);
    let tool = |n: usize, letter: &str| json!({ "type": "function", "name": format!("f{n}"), "description": letter.repeat(7_000) });
    let tools = |letter: &str| (0..32).map(|n| tool(n, letter)).collect::<Vec<_>>();
    let session = talker.update(json!({ "instructions": instructions, "tools": tools("\n") })).await;
    assert_eq!((&session["instructions"], &session["tools"]), (&json!(instructions), &json!(tools("\n"))));
    talker.say(json!({ "type": "session.update", "session": { "tools": tools("\u{1}") } })).await;
    let error = talker.until("error").await;
    assert_eq!((&error["error"]["code"], &error["error"]["param"]), (&json!("string_above_max_length"), &json!("session")));
    // A text of which every letter is six on the wire.
    let item =
        json!({ "id": "i", "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "\u{1}".repeat(65_000) }] });
    talker.say(json!({ "type": "conversation.item.create", "item": item })).await;
    assert_eq!(talker.until("conversation.item.done").await["item"]["content"], item["content"]);
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

/// As the API has it, where the server is not set to a shorter life.
#[tokio::test]
async fn sessions_live_for_an_hour_unless_the_server_is_set_to_less() {
    for (args, seconds) in [(&[][..], 3_600), (&["--max-duration=10m"], 600), (&["--max-duration=3h"], 3_600)] {
        let server = Server::start(args);
        let (_talker, session) = Talker::open(server.address, PATH, &[]).await;
        let now = Clock::start().unix_us(Micros::ZERO) / 1_000_000;
        let left = session["expires_at"].as_u64().unwrap() - now;
        assert!((seconds - 60..=seconds).contains(&left), "{args:?}: {left}");
    }
}

#[tokio::test]
async fn a_session_expires_as_the_api_says() {
    let server = Server::start(&["--max-duration=3s", "--response=constant(5s)"]);
    let mut talker = Talker::new(server.address).await;
    talker.say(json!({ "type": "response.create" })).await;
    let heard = talker.all_until("error").await;
    let error = &heard.last().unwrap()["error"];
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!("session_expired"), &json!("Your session hit the maximum duration of 3 seconds."))
    );
    assert_eq!(of(&heard, "response.done")[0]["response"]["status"], "failed");
    assert_eq!(talker.foreign.next().await, Heard::Closed(Some(1001)));
    server.expect_ends(&[("timed_out", 1)]).await;
}

#[tokio::test]
async fn a_server_that_is_full_refuses_the_upgrade_and_a_lost_client_is_counted() {
    let server = Server::start(&["--max-sessions=1"]);
    let talker = Talker::new(server.address).await;
    let refused = Foreign::try_open(server.address, PATH, &[]).await.err().unwrap();
    assert_eq!(refused.0, 503, "{}", refused.1);
    drop(talker);
    server.expect_ends(&[("cancelled", 1)]).await;
    // A name that no session can have is the client's mistake, and no session.
    let mut foreign = Foreign::open(server.address, PATH, &[("x-client-ref", &"x".repeat(200))]).await;
    assert!(matches!(foreign.next().await, Heard::Json(event) if event["error"]["code"] == "invalid_value"));
    assert_eq!(foreign.next().await, Heard::Closed(Some(1008)));
    server.expect_ends(&[("cancelled", 1)]).await;
}
