//! Gemini Live against a real server process, by a bare WebSocket client.

mod common;

use common::{
    Server,
    foreign::{Foreign, Heard, silence, speech},
    within,
};
use futures_util::{SinkExt, StreamExt};
use proto::{audio::AudioFormat, base64};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

const PATH: &str = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";

async fn open(server: &Server, setup: Value) -> Foreign {
    let mut client = Foreign::open(server.address, PATH, &[("x-client-ref", "me")]).await;
    client.json(json!({ "setup": setup })).await;
    client
}

/// The next message, with its one key.
async fn next(client: &mut Foreign) -> (String, Value) {
    match client.next().await {
        Heard::Json(Value::Object(object)) => object.into_iter().next().expect("a key"),
        other => panic!("{other:?}"),
    }
}

/// Speech and the silence after it, at once and in one message.
fn turn(format: AudioFormat) -> Value {
    let audio = [speech(format, 600), silence(format, 1_000)].concat().concat();
    json!({ "audio": { "data": base64::encode(&audio), "mimeType": format!("audio/pcm;rate={}", format.sample_rate()) } })
}

/// What is told of an answer, up to `turnComplete`: keys of `serverContent` in order, repeated ones once; bytes of audio; words.
async fn answer(client: &mut Foreign) -> (Vec<String>, usize, String) {
    let (mut keys, mut bytes, mut words): (Vec<String>, usize, String) = (Vec::new(), 0, String::new());
    loop {
        let (kind, content) = next(client).await;
        assert_eq!(kind, "serverContent");
        for part in content["modelTurn"]["parts"].as_array().into_iter().flatten() {
            assert_eq!(part["inlineData"]["mimeType"], "audio/pcm;rate=24000");
            bytes += base64::decode(part["inlineData"]["data"].as_str().expect("text")).expect("base64").len();
        }
        words.push_str(content["outputTranscription"]["text"].as_str().unwrap_or_default());
        let key = content.as_object().expect("an object").keys().next().expect("a key").clone();
        if !keys.contains(&key) {
            keys.push(key.clone());
        }
        if key == "turnComplete" {
            return (keys, bytes, words);
        }
    }
}

async fn closed(client: &mut Foreign) -> (u16, String) {
    loop {
        match within("a close", client.socket.next()).await {
            Some(Ok(Message::Close(Some(frame)))) => return (frame.code.into(), frame.reason.to_string()),
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn audio_is_understood_and_answered_in_every_rate_and_frame() {
    let server = Server::start(&["--response=constant(900ms)"]);
    let setup = json!({ "model": "models/x", "inputAudioTranscription": {}, "output_audio_transcription": {} });
    let mut client = open(&server, setup).await;
    let (kind, complete) = next(&mut client).await;
    assert_eq!(kind, "setupComplete");
    assert_eq!(server.sessions("").sessions[0].session_id, complete["sessionId"].as_str().expect("an id"));
    for (n, format) in [AudioFormat::Pcm16k, AudioFormat::Pcm8k, AudioFormat::Pcm24k, AudioFormat::Pcm48k].into_iter().enumerate() {
        let message = json!({ "realtimeInput": turn(format) }).to_string();
        if n % 2 == 0 {
            client.text(&message).await;
        } else {
            client.binary(message.as_bytes()).await;
        }
        let (keys, bytes, words) = answer(&mut client).await;
        assert_eq!(keys, ["inputTranscription", "modelTurn", "outputTranscription", "generationComplete", "turnComplete"], "{format}");
        assert_eq!(bytes, 900 * 48, "{format}");
        assert_eq!(words.split(' ').count(), 2, "{words}");
    }
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1)]).await;
    assert_eq!(server.ends("").ends[0].client_ref, "me");
}

#[tokio::test]
async fn text_is_answered_a_tool_is_called_and_its_result_resumes_the_agent() {
    let server = Server::start(&["--response=constant(200ms)"]);
    let tools = json!([{ "functionDeclarations": [{ "name": "lookup" }] }]);
    let mut client = open(&server, json!({ "model": "models/x", "tools": tools, "sessionResumption": { "transparent": true } })).await;
    assert_eq!(next(&mut client).await.0, "setupComplete");
    let (kind, first) = next(&mut client).await;
    assert_eq!(
        (kind.as_str(), &first["resumable"], &first["lastConsumedClientMessageIndex"]),
        ("sessionResumptionUpdate", &json!(true), &json!("1"))
    );
    client
        .json(json!({ "client_content": { "turns": [{ "role": "user", "parts": [{ "text": "use lookup" }] }], "turn_complete": true } }))
        .await;
    let (kind, call) = next(&mut client).await;
    let call = &call["functionCalls"][0];
    assert_eq!((kind.as_str(), &call["name"], &call["args"]["query"]), ("toolCall", &json!("lookup"), &json!("use lookup")));
    client
        .json(json!({ "tool_response": { "functionResponses": [{ "id": call["id"], "name": "lookup", "response": { "ok": 1 } }] } }))
        .await;
    let (keys, bytes, _) = answer(&mut client).await;
    assert_eq!((keys, bytes), (vec!["modelTurn".to_owned(), "generationComplete".to_owned(), "turnComplete".to_owned()], 9_600));
    let (_, second) = next(&mut client).await;
    // A result that comes twice is let go.
    client.json(json!({ "toolResponse": { "functionResponses": [{ "id": call["id"], "response": {} }] } })).await;
    // Its handle opens another session, which may answer in text.
    let handle = second["newHandle"].clone();
    let setup = json!({ "model": "m", "generationConfig": { "responseModalities": ["TEXT"] }, "sessionResumption": { "handle": handle } });
    let mut resumed = open(&server, setup).await;
    assert_eq!(next(&mut resumed).await.0, "setupComplete");
    assert_eq!(next(&mut resumed).await.0, "sessionResumptionUpdate");
    resumed.json(json!({ "realtimeInput": { "text": "hello" } })).await;
    let part = resumed.until(|message| message["serverContent"]["modelTurn"].is_object()).await;
    assert!(part["serverContent"]["modelTurn"]["parts"][0]["text"].is_string(), "{part}");
    resumed.until(|message| message["serverContent"]["turnComplete"] == true).await;
    for mut client in [client, resumed] {
        client.socket.close(None).await.unwrap();
    }
    server.expect_ends(&[("completed", 2)]).await;
}

#[tokio::test]
async fn an_answer_is_interrupted_by_speech_by_a_marker_and_by_text() {
    let server = Server::start(&["--response=constant(20s)"]);
    let marked = json!({ "model": "m", "realtimeInputConfig": { "automaticActivityDetection": { "disabled": true } } });
    for (setup, begin, interrupt) in [
        (json!({ "model": "m" }), vec![turn(AudioFormat::Pcm16k)], turn(AudioFormat::Pcm16k)),
        (marked, vec![json!({ "activityStart": {} }), json!({ "activityEnd": {} })], json!({ "activityStart": {} })),
        (json!({ "model": "m" }), vec![json!({ "text": "talk" })], json!({ "text": "stop" })),
    ] {
        let mut client = open(&server, setup).await;
        for input in begin {
            client.json(json!({ "realtimeInput": input })).await;
        }
        client.until(|message| message["serverContent"]["modelTurn"].is_object()).await;
        client.json(json!({ "realtimeInput": interrupt })).await;
        let (keys, ..) = answer(&mut client).await;
        let keys: Vec<&str> = keys.iter().map(String::as_str).filter(|key| *key != "modelTurn").collect();
        assert_eq!(keys, ["interrupted", "turnComplete"], "{interrupt}");
        client.socket.close(None).await.unwrap();
    }
    server.expect_ends(&[("completed", 3)]).await;
}

#[tokio::test]
async fn a_tool_call_is_cancelled_when_the_user_goes_on() {
    let server = Server::start(&["--tool-rate=1"]);
    let mut client = open(&server, json!({ "model": "m", "tools": [{ "function_declarations": [{ "name": "f" }] }] })).await;
    client.json(json!({ "realtimeInput": turn(AudioFormat::Pcm16k) })).await;
    let call = client.until(|message| message["toolCall"].is_object()).await;
    let id = call["toolCall"]["functionCalls"][0]["id"].clone();
    client.json(json!({ "realtimeInput": turn(AudioFormat::Pcm16k) })).await;
    let cancelled = client.until(|message| message["toolCallCancellation"].is_object()).await;
    assert_eq!(cancelled["toolCallCancellation"]["ids"], json!([id]));
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn the_end_of_a_long_life_is_announced_and_told() {
    let server = Server::start(&["--max-duration=2s"]);
    let mut client = open(&server, json!({ "model": "m" })).await;
    let going = client.until(|message| message["goAway"].is_object()).await;
    let left: f64 =
        going["goAway"]["timeLeft"].as_str().and_then(|text| text.strip_suffix('s')).expect("seconds").parse().expect("a number");
    assert!(left > 0.0 && left <= 0.2, "{left}");
    assert_eq!(closed(&mut client).await, (1011, "Deadline expired".to_owned()));
    server.expect_ends(&[("timed_out", 1)]).await;
}

#[tokio::test]
async fn what_is_wrong_closes_with_a_reason_and_is_counted() {
    let server = Server::start(&[]);
    let setup = r#"{"setup":{"model":"m"}}"#;
    let audio = |data: &str, kind: &str| json!({ "realtimeInput": { "audio": { "data": data, "mimeType": kind } } }).to_string();
    let long = audio(&"A".repeat(6_000_000), "audio/pcm;rate=48000");
    // Never a session.
    for (message, code, told) in [
        ("hello".to_owned(), 1007, "not a BidiGenerateContentClientMessage"),
        (r#"{"realtimeInput":{"audioStreamEnd":true}}"#.to_owned(), 1008, "first message must be `setup`"),
        (r#"{"setup":{}}"#.to_owned(), 1007, "setup.model is missing"),
        (r#"{"setup":{"model":"m","sessionResumption":{"handle":"x"}}}"#.to_owned(), 1007, "handle was not issued here"),
        (r#"{"setup":{"model":"m","tools":[{"functionDeclarations":[{"name":"a b"}]}]}}"#.to_owned(), 1007, "tools[0].name"),
    ] {
        let mut client = Foreign::open(server.address, PATH, &[]).await;
        client.text(&message).await;
        let (got, reason) = closed(&mut client).await;
        assert!(got == code && reason.contains(told), "{message}: {got} {reason}");
    }
    let wrong = [
        (setup.to_owned(), 1008, "setup came twice"),
        (r#"{"what":1}"#.to_owned(), 1007, "unknown name `what`"),
        (audio("!", "audio/pcm"), 1007, "no base64"),
        (audio("AAAA", "audio/pcm"), 1007, "no whole samples"),
        (audio("AAA=", "audio/opus"), 1007, "`audio/opus` is not taken"),
        (r#"{"realtimeInput":{"activityEnd":{}}}"#.to_owned(), 1007, "automaticActivityDetection"),
        (r#"{"toolResponse":{"functionResponses":[{"id":"call-1"}]}}"#.to_owned(), 1007, "no tool call"),
    ];
    for (message, code, told) in &wrong {
        let mut client = open(&server, json!({ "model": "m" })).await;
        assert_eq!(next(&mut client).await.0, "setupComplete");
        client.text(message).await;
        let (got, reason) = closed(&mut client).await;
        assert!(got == *code && reason.contains(told), "{got} {reason}");
    }
    // What is far too long is not read to its end, so that its sender may not hear why.
    let mut client = open(&server, json!({ "model": "m" })).await;
    let _ = client.socket.send(Message::Text(audio(&"A".repeat(9_000_000), "audio/pcm").into())).await;
    // Much audio at once is no fault, and an unexpected end is a loss.
    let mut client = open(&server, json!({ "model": "m" })).await;
    client.text(&long).await;
    client.json(json!({ "realtimeInput": { "text": "still there?" } })).await;
    client.until(|message| message["serverContent"]["modelTurn"].is_object()).await;
    drop(client);
    server.expect_ends(&[("failed", 1 + wrong.len() as u64), ("cancelled", 1)]).await;
}

#[tokio::test]
async fn other_paths_of_the_api_are_served_too() {
    let server = Server::start(&[]);
    for path in [
        "/ws/google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContentConstrained?access_token=x",
        "//ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=K",
        "/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent",
    ] {
        let mut client = Foreign::open(server.address, path, &[]).await;
        client.json(json!({ "setup": { "model": "m" } })).await;
        assert_eq!(next(&mut client).await.0, "setupComplete", "{path}");
        client.socket.close(None).await.unwrap();
    }
    server.expect_ends(&[("completed", 3)]).await;
}
