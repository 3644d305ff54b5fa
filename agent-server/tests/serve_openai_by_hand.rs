//! OpenAI Realtime where the client leads: committed turns, responses that it asks for, tools, items.

mod common;

use common::{
    Server,
    openai::{BETA, PATH, Talker, audio, of, types},
};
use proto::base64;
use serde_json::{Value, json};

fn server() -> Server {
    Server::start(&["--response=constant(500ms)"])
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
    let mut talker = Talker::by_hand(server.address).await;
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
    let mut talker = Talker::by_hand(server.address).await;
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
    let mut talker = Talker::by_hand(server.address).await;
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
    let mut talker = Talker::by_hand(server.address).await;
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
