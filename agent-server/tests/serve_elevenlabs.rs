//! The ElevenLabs dialect as a client of it meets it: a real process, a bare WebSocket.

mod common;

use common::{
    Server,
    foreign::{Foreign, Heard, frame_time, silence, speech},
};
use proto::{audio::AudioFormat, base64};
use serde_json::{Value, json};

const PATH: &str = "/v1/convai/conversation?agent_id=a";

async fn open(server: &Server) -> Foreign {
    Foreign::open(server.address, PATH, &[("x-client-ref", "mine")]).await
}

/// Opened, started, and told so.
async fn begin(server: &Server, data: Value) -> (Foreign, String) {
    let mut client = open(server).await;
    let mut first = json!({"type": "conversation_initiation_client_data"});
    first.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
    client.json(first).await;
    let Heard::Json(metadata) = client.next().await else { panic!("no metadata") };
    assert_eq!(metadata["type"], "conversation_initiation_metadata");
    let id = metadata["conversation_initiation_metadata_event"]["conversation_id"].as_str().unwrap().to_owned();
    let Heard::Json(ping) = client.next().await else { panic!("no ping") };
    client.json(json!({"type": "pong", "event_id": ping["ping_event"]["event_id"]})).await;
    (client, id)
}

async fn send(client: &mut Foreign, frames: Vec<Vec<u8>>) {
    for frame in frames {
        client.json(json!({"user_audio_chunk": base64::encode(&frame)})).await;
        frame_time().await;
    }
}

/// A turn of a second.
async fn speak(client: &mut Foreign) {
    send(client, speech(AudioFormat::Pcm16k, 600)).await;
    send(client, silence(AudioFormat::Pcm16k, 700)).await;
}

fn tools() -> Value {
    json!({"dynamic_variables": {"client_tools": "weather"}})
}

#[tokio::test]
async fn a_turn_is_heard_answered_and_interrupted() {
    let server = Server::start(&["--response=constant(4s)"]);
    let (mut client, id) = begin(&server, json!({})).await;
    let sessions = server.sessions("").sessions;
    assert_eq!((sessions[0].session_id.as_str(), sessions[0].client_ref.as_str()), (id.as_str(), "mine"));
    speak(&mut client).await;
    let transcript = client.until_type("user_transcript").await;
    assert!(!transcript["user_transcription_event"]["user_transcript"].as_str().unwrap().is_empty());
    let response = client.until_type("agent_response").await;
    let whole = response["agent_response_event"]["agent_response"].as_str().unwrap().to_owned();
    for expected in 1..=10 {
        let audio = client.until_type("audio").await;
        assert_eq!(audio["audio_event"]["event_id"], expected);
        assert_eq!(base64::decode(audio["audio_event"]["audio_base_64"].as_str().unwrap()).unwrap().len(), 640);
    }
    // The user speaks over it. Whatever audio comes after the interruption belongs to the next answer.
    send(&mut client, speech(AudioFormat::Pcm16k, 300)).await;
    let interrupted = client.until_type("interruption").await["interruption_event"]["event_id"].as_u64().unwrap();
    assert!(interrupted >= 10);
    let correction = client.until_type("agent_response_correction").await;
    let correction = &correction["agent_response_correction_event"];
    assert_eq!(correction["original_agent_response"], whole.as_str());
    assert!(whole.starts_with(correction["corrected_agent_response"].as_str().unwrap()), "{correction}");
    send(&mut client, silence(AudioFormat::Pcm16k, 700)).await;
    client.until_type("agent_response").await;
    let audio = client.until_type("audio").await;
    assert!(audio["audio_event"]["event_id"].as_u64().unwrap() > interrupted);
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn tools_are_called_by_speech_and_by_text() {
    let server = Server::start(&["--response=constant(200ms)", "--tool-rate=1"]);
    let (mut client, _) = begin(&server, tools()).await;
    speak(&mut client).await;
    for _ in 0..2 {
        let call = client.until_type("client_tool_call").await;
        let call = &call["client_tool_call"];
        assert_eq!(call["tool_name"], "weather");
        assert!(call["parameters"].is_object(), "{call}");
        client.json(json!({"type": "client_tool_result", "tool_call_id": call["tool_call_id"], "result": "sun", "is_error": false})).await;
        client.until_type("audio").await;
        client.json(json!({"type": "user_message", "text": "call weather again"})).await;
    }
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn the_agent_may_speak_first_in_the_formats_asked_for() {
    let server = Server::start(&["--response=constant(200ms)"]);
    let mut client = Foreign::open(server.address, &format!("{PATH}&greeting=1&output_format=ulaw_8000"), &[]).await;
    client.json(json!({"type": "conversation_initiation_client_data"})).await;
    let audio = client.until_type("audio").await;
    assert_eq!(base64::decode(audio["audio_event"]["audio_base_64"].as_str().unwrap()).unwrap().len(), 160);
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn bad_input_is_told_and_counted_once() {
    let server = Server::start(&[]);
    // Errors that the conversation survives, all in one.
    let (mut client, _) = begin(&server, json!({})).await;
    for (message, kind) in [
        (json!({"type": "nonsense"}), "malformed_message"),
        (json!({"type": "client_tool_result", "result": 1}), "malformed_message"),
        (json!({"type": "client_tool_result", "tool_call_id": "call-9", "result": 1}), "unknown_tool_call"),
        (json!({"user_audio_chunk": "no base64!"}), "bad_audio"),
        (json!({"user_audio_chunk": "AAAA"}), "bad_audio"),
    ] {
        client.json(message.clone()).await;
        let error = client.until_type("error").await;
        assert_eq!((&error["error_event"]["error_type"], &error["error_event"]["fatal"]), (&json!(kind), &json!(false)), "{message}");
    }
    client.socket.close(None).await.unwrap();
    // Each of these ends it.
    for (text, kind, code) in [
        ("{".to_owned(), "malformed_message", 1007),
        ("[]".to_owned(), "malformed_message", 1007),
        (json!({"type": "conversation_initiation_client_data"}).to_string(), "already_started", 1008),
        ("{\"user_audio_chunk\": \"".to_owned() + &"A".repeat(2 * 1024 * 1024) + "\"}", "message_too_large", 1009),
    ] {
        let (mut client, _) = begin(&server, json!({})).await;
        client.text(&text).await;
        let error = client.until_type("error").await;
        assert_eq!((&error["error_event"]["error_type"], &error["error_event"]["fatal"]), (&json!(kind), &json!(true)));
        assert_eq!(client.next().await, Heard::Closed(Some(code)), "{kind}");
    }
    // A start that is refused is no session; nor is a connection that never said anything.
    let mut client = open(&server).await;
    client.json(json!({"type": "conversation_initiation_client_data", "conversation_config_override": {"asr": {"user_input_audio_format": "opus"}}}))
        .await;
    assert_eq!(client.until_type("error").await["error_event"]["error_type"], "unsupported_format");
    assert_eq!(client.next().await, Heard::Closed(Some(1008)));
    open(&server).await.socket.close(None).await.unwrap();
    let (status, body) = Foreign::try_open(server.address, "/v1/convai/conversation?output_format=mp3", &[]).await.err().unwrap();
    assert!(status == 400 && body.contains("ulaw_8000"), "{status} {body}");
    // A client that goes without a word is lost.
    let (client, _) = begin(&server, json!({})).await;
    drop(client);
    server.expect_ends(&[("completed", 1), ("failed", 4), ("cancelled", 1)]).await;
}
