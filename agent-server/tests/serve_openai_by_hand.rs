//! OpenAI Realtime where the client leads: committed turns, responses that it asks for, tools, items; and everything that it can say wrong.

mod common;

use common::{
    Server,
    foreign::{Foreign, Heard},
    openai::{BETA, PATH, Talker, audio, of, types},
};
use proto::base64;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

fn server() -> Server {
    Server::start(&["--response=constant(500ms)"])
}

/// A session whose detector is off.
async fn by_hand(server: &Server) -> Talker {
    let mut talker = Talker::new(server.address).await;
    talker.update(json!({ "audio": { "input": { "turn_detection": null, "transcription": { "model": "whisper-1" } } } })).await;
    talker
}

fn weather() -> Value {
    json!([
        { "type": "function", "name": "weather", "parameters": { "type": "object", "properties": { "query": { "type": "string" } } } },
        { "type": "function", "name": "book", "parameters": {} },
    ])
}

#[tokio::test]
async fn a_committed_turn_is_answered_when_the_client_asks() {
    let server = server();
    let mut talker = by_hand(&server).await;
    for round in 0..2 {
        talker.speech(300).await;
        talker.say(json!({ "type": "input_audio_buffer.commit" })).await;
        let heard = talker.all_until("conversation.item.input_audio_transcription.completed").await;
        assert_eq!(
            types(&heard),
            [
                "input_audio_buffer.committed",
                "conversation.item.added",
                "conversation.item.done",
                "conversation.item.input_audio_transcription.completed"
            ],
            "round {round}"
        );
        assert_eq!(heard[3]["usage"]["seconds"], 0.3);
        let metadata = json!({ "client_event_id": format!("mine {round}") });
        talker.say(json!({ "type": "response.create", "event_id": "r", "response": { "metadata": metadata, "voice": "sage" } })).await;
        let heard = talker.all_until("rate_limits.updated").await;
        assert_eq!(types(&heard)[..2], ["response.created", "response.output_item.added"]);
        assert_eq!((&heard[0]["response"]["metadata"], &heard[0]["response"]["status"]), (&metadata, &json!("in_progress")));
        let done = &of(&heard, "response.done")[0]["response"];
        assert_eq!((&done["metadata"], &done["audio"]["output"]["voice"]), (&metadata, &json!("sage")));
        assert_eq!(audio(&heard, None).len(), 25 * 960);
    }
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn a_greeting_and_an_answer_to_text_need_no_audio() {
    let server = server();
    let mut talker = Talker::new(server.address).await;
    talker.say(json!({ "type": "response.create" })).await;
    assert_eq!(audio(&talker.all_until("response.done").await, None).len(), 25 * 960);
    for text_only in [false, true] {
        let content = json!([{ "type": "input_text", "text": "How are you?" }]);
        talker
            .say(json!({ "type": "conversation.item.create", "item": { "id": format!("my-{text_only}"), "type": "message", "role": "user", "content": content } }))
            .await;
        let added = talker.until("conversation.item.added").await;
        assert_eq!((&added["item"]["content"], &added["item"]["status"]), (&content, &json!("completed")));
        let modalities = if text_only { json!(["text"]) } else { json!(["audio"]) };
        talker.say(json!({ "type": "response.create", "response": { "output_modalities": modalities } })).await;
        let heard = talker.all_until("response.done").await;
        let done = &of(&heard, "response.done")[0]["response"];
        assert_eq!(done["output_modalities"], modalities);
        if !text_only {
            assert_eq!(audio(&heard, None).len(), 25 * 960);
            continue;
        }
        assert!(heard.iter().all(|event| !event["type"].as_str().unwrap().contains("audio")), "{:?}", types(&heard));
        let said: String = of(&heard, "response.output_text.delta").iter().map(|event| event["delta"].as_str().unwrap()).collect();
        assert!(!said.is_empty());
        assert_eq!(of(&heard, "response.output_text.done")[0]["text"], said.as_str());
        assert_eq!(of(&heard, "response.content_part.done")[0]["part"], json!({ "type": "text", "text": said }));
        assert_eq!(done["output"][0]["content"], json!([{ "type": "output_text", "text": said }]));
        assert_eq!(done["usage"]["output_token_details"]["audio_tokens"], 0);
    }
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn a_tool_is_called_and_its_result_answered() {
    let server = server();
    let mut talker = by_hand(&server).await;
    talker.update(json!({ "tools": weather() })).await;
    // By choice, by name, and because the text says so.
    let ways = [
        (json!({ "tool_choice": "required" }), "weather"),
        (json!({ "tool_choice": { "type": "function", "name": "book" } }), "book"),
        (
            json!({ "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Please call book now." }] }] }),
            "book",
        ),
        (json!({ "tools": [{ "type": "function", "name": "only_here" }], "tool_choice": "required" }), "only_here"),
        (json!({ "tool_choice": "required" }), "weather"),
    ];
    let mut calls = Vec::new();
    for (response, tool) in ways {
        talker.say(json!({ "type": "response.create", "response": response })).await;
        let heard = talker.all_until("rate_limits.updated").await;
        assert_eq!(
            types(&heard),
            [
                "response.created",
                "response.output_item.added",
                "conversation.item.added",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "conversation.item.done",
                "response.output_item.done",
                "response.done",
                "rate_limits.updated",
            ]
        );
        let item = &of(&heard, "response.output_item.done")[0]["item"];
        assert_eq!((&item["type"], &item["name"], &item["status"]), (&json!("function_call"), &json!(tool), &json!("completed")));
        let begun = &of(&heard, "response.output_item.added")[0]["item"];
        assert_eq!((&begun["arguments"], &begun["call_id"], &begun["status"]), (&json!(""), &item["call_id"], &json!("in_progress")));
        let deltas: String =
            of(&heard, "response.function_call_arguments.delta").iter().map(|event| event["delta"].as_str().unwrap()).collect();
        assert_eq!(item["arguments"], deltas.as_str());
        assert!(serde_json::from_str::<Value>(&deltas).unwrap().is_object());
        let arguments = of(&heard, "response.function_call_arguments.done")[0];
        assert_eq!(
            (&arguments["arguments"], &arguments["name"], &arguments["call_id"]),
            (&item["arguments"], &json!(tool), &item["call_id"])
        );
        assert_eq!(of(&heard, "response.done")[0]["response"]["output"], json!([item]));
        let call_id = item["call_id"].as_str().unwrap().to_owned();
        let output = json!({ "type": "function_call_output", "call_id": call_id, "output": "{\"sunny\":true}" });
        talker.say(json!({ "type": "conversation.item.create", "item": output })).await;
        assert_eq!(talker.until("conversation.item.done").await["item"]["output"], "{\"sunny\":true}");
        talker.say(json!({ "type": "response.create", "response": { "tool_choice": "auto" } })).await;
        let heard = talker.all_until("rate_limits.updated").await;
        assert_eq!(audio(&heard, None).len(), 25 * 960, "{tool}: {:?}", types(&heard));
        calls.push(call_id);
    }
    // Late, or again: it is in the conversation, and changes nothing.
    let output = json!({ "type": "function_call_output", "call_id": calls[0], "output": "again" });
    talker.say(json!({ "type": "conversation.item.create", "item": output })).await;
    assert_eq!(talker.until("conversation.item.done").await["item"]["output"], "again");
    let output = json!({ "type": "function_call_output", "call_id": "call_never", "output": "" });
    talker.say(json!({ "type": "conversation.item.create", "item": output, "event_id": "e" })).await;
    let error = talker.error().await;
    assert_eq!(
        (&error["code"], &error["param"], &error["event_id"]),
        (&json!("invalid_tool_call_id"), &json!("item.call_id"), &json!("e"))
    );
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn a_choice_of_tools_holds_for_turns_that_the_server_finds() {
    let server = Server::start(&["--response=constant(100ms)", "--tool-rate=1"]);
    let mut talker = Talker::new(server.address).await;
    talker.update(json!({ "tools": weather(), "tool_choice": { "type": "function", "name": "book" } })).await;
    for _ in 0..2 {
        talker.turn().await;
        let heard = talker.all_until("response.done").await;
        assert_eq!(of(&heard, "response.function_call_arguments.done")[0]["name"], "book");
        // Speech before the result takes the call back; the turn after it is a new one.
    }
    talker.update(json!({ "tool_choice": "none" })).await;
    for _ in 0..2 {
        talker.turn().await;
        assert_eq!(audio(&talker.all_until("response.done").await, None).len(), 5 * 960);
    }
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn a_response_is_cancelled_at_any_moment() {
    let server = Server::start(&["--response=constant(5s)"]);
    let mut talker = by_hand(&server).await;
    let create = || json!({ "type": "response.create" });
    let cancelled = json!({ "type": "cancelled", "reason": "client_cancelled" });
    // At once, while the agent thinks, while it speaks.
    for until in [None, Some("response.created"), Some("response.output_audio.delta")] {
        talker.say(create()).await;
        if let Some(until) = until {
            talker.until(until).await;
        }
        talker.say(json!({ "type": "response.cancel" })).await;
        let done = talker.until("response.done").await;
        assert_eq!((&done["response"]["status"], &done["response"]["status_details"]), (&json!("cancelled"), &cancelled), "{until:?}");
        talker.until("rate_limits.updated").await;
        talker.say(json!({ "type": "response.cancel", "event_id": "late" })).await;
        let error = talker.error().await;
        assert_eq!((&error["code"], &error["event_id"]), (&json!("response_cancel_not_active"), &json!("late")));
    }
    // Another at once after a cancel is what clients do to replace an answer.
    talker.say(create()).await;
    let id = talker.until("response.created").await["response"]["id"].clone();
    talker.say(json!({ "type": "response.cancel", "response_id": "resp_other" })).await;
    assert_eq!(talker.error().await["code"], "response_cancel_not_active");
    talker.say(json!({ "type": "response.cancel", "response_id": id })).await;
    talker.say(create()).await;
    talker.say(create()).await;
    let heard = talker.all_until("error").await;
    assert_eq!(of(&heard, "response.done")[0]["response"]["id"], id);
    let second = of(&heard, "response.created")[0]["response"]["id"].as_str().unwrap();
    let error = &heard.last().unwrap()["error"];
    assert_eq!(error["code"], "conversation_already_has_active_response");
    assert!(error["message"].as_str().unwrap().contains(second), "{error}");
    talker.until("response.output_audio.delta").await;
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn a_response_beside_the_conversation_leaves_it_as_it_was() {
    let server = server();
    let mut talker = by_hand(&server).await;
    let note = |text: &str| json!({ "type": "conversation.item.create", "item": { "type": "message", "role": "system", "content": [{ "type": "input_text", "text": text }] } });
    talker.say(note("one")).await;
    let first = talker.until("conversation.item.done").await;
    talker
        .say(json!({ "type": "response.create", "response": { "conversation": "none", "output_modalities": ["text"], "metadata": { "topic": "aside" }, "input": [] } }))
        .await;
    let heard = talker.all_until("rate_limits.updated").await;
    assert!(!types(&heard).iter().any(|kind| kind.starts_with("conversation.")), "{:?}", types(&heard));
    assert_eq!(heard[0]["response"]["conversation_id"], Value::Null);
    let item = of(&heard, "response.done")[0]["response"]["output"][0]["id"].clone();
    talker.say(json!({ "type": "conversation.item.retrieve", "item_id": item })).await;
    assert_eq!(talker.error().await["code"], "item_retrieve_invalid_item_id");
    talker.say(note("two")).await;
    assert_eq!(talker.until("conversation.item.added").await["previous_item_id"], first["item"]["id"]);
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn items_are_placed_retrieved_and_deleted() {
    let server = server();
    let mut talker = Talker::open(server.address, PATH, &[BETA]).await.0;
    let item = |id: &str, role: &str, content: Value| json!({ "id": id, "type": "message", "role": role, "content": content });
    let create =
        |item: Value, before: Option<&str>| json!({ "type": "conversation.item.create", "item": item, "previous_item_id": before });
    let text = |kind: &str| json!([{ "type": kind, "text": "hello" }]);
    let mut expected = Vec::new();
    for (made, at, before) in [
        (item("b", "user", text("input_text")), None, None),
        (item("c", "assistant", text("text")), None, Some("b")),
        (item("a", "system", text("input_text")), Some("root"), None),
        (
            item("bb", "user", json!([{ "type": "input_audio", "audio": base64::encode(&[0; 64]), "transcript": "hm" }])),
            Some("b"),
            Some("b"),
        ),
        (json!({ "id": "d", "type": "function_call", "name": "weather", "call_id": "old", "arguments": "{}" }), None, Some("c")),
        (json!({ "id": "e", "type": "function_call_output", "call_id": "old", "output": "sun" }), None, Some("d")),
    ] {
        talker.say(create(made.clone(), at)).await;
        let created = talker.until("conversation.item.created").await;
        assert_eq!((&created["previous_item_id"], &created["item"]["id"]), (&json!(before), &made["id"]));
        expected.push(created["item"].clone());
    }
    assert_eq!(expected[3]["content"], json!([{ "type": "input_audio", "transcript": "hm" }]), "audio is not kept");
    for item in &expected {
        talker.say(json!({ "type": "conversation.item.retrieve", "item_id": item["id"] })).await;
        assert_eq!(talker.until("conversation.item.retrieved").await["item"], *item);
        talker.say(json!({ "type": "conversation.item.delete", "item_id": item["id"] })).await;
        assert_eq!(talker.until("conversation.item.deleted").await["item_id"], item["id"]);
        for deed in ["retrieve", "delete"] {
            talker.say(json!({ "type": format!("conversation.item.{deed}"), "item_id": item["id"] })).await;
            let error = talker.error().await;
            assert_eq!((&error["code"], &error["param"]), (&json!(format!("item_{deed}_invalid_item_id")), &json!("item_id")));
        }
    }
    talker.close().await;
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn whatever_is_said_wrong_costs_one_error_and_no_session() {
    let server = server();
    let mut talker = by_hand(&server).await;
    let item = |item: Value| json!({ "type": "conversation.item.create", "event_id": "mine", "item": item });
    let session = |session: Value| json!({ "type": "session.update", "event_id": "mine", "session": session });
    let message = |content: Value| item(json!({ "type": "message", "role": "user", "content": content }));
    let event = |kind: &str, more: Value| {
        let mut event = json!({ "type": kind, "event_id": "mine" });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    talker
        .say(json!({ "type": "conversation.item.create", "item": { "id": "said", "type": "message", "role": "user", "content": [] } }))
        .await;
    talker.until("conversation.item.done").await;
    let wrong = [
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
    ];
    for (event, code, param) in wrong {
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

#[tokio::test]
async fn fifteen_mebibytes_are_taken_at_once_and_more_is_refused() {
    let server = server();
    let mut talker = by_hand(&server).await;
    let most = vec![0; 15 * 1024 * 1024];
    talker.append(&most).await;
    talker.append(&[&most[..], &[0; 2]].concat()).await;
    let error = talker.error().await;
    assert_eq!((&error["code"], &error["param"]), (&json!("string_above_max_length"), &json!("audio")));
    talker.say(json!({ "type": "input_audio_buffer.commit" })).await;
    talker.until("input_audio_buffer.committed").await;
    // A second of audio is 48,000 bytes: each is a frame of the session, and what is left of the last.
    let frames = most.len().div_ceil(48_000) as u64;
    talker.close().await;
    let snapshot = server.expect_ends(&[("completed", 1)]).await;
    assert_eq!(snapshot.frames_in, frames);
    // Over the limit of a message nothing is read: the connection is over.
    let mut talker = by_hand(&server).await;
    let header = [0x81, 0xff, 0, 0, 0, 0, 0x01, 0x60, 0, 0, 1, 2, 3, 4];
    talker.foreign.socket.get_mut().write_all(&header).await.unwrap();
    let error = talker.error().await;
    assert_eq!(error["code"], "message_too_large", "{error}");
    assert_eq!(talker.foreign.next().await, Heard::Closed(Some(1009)));
    server.expect_ends(&[("completed", 1), ("failed", 1)]).await;
}

#[tokio::test]
async fn a_session_expires_as_the_api_says() {
    let server = Server::start(&["--max-duration=1s", "--response=constant(5s)"]);
    let mut talker = Talker::new(server.address).await;
    talker.say(json!({ "type": "response.create" })).await;
    let heard = talker.all_until("error").await;
    let error = &heard.last().unwrap()["error"];
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!("session_expired"), &json!("Your session hit the maximum duration of 1 second."))
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
