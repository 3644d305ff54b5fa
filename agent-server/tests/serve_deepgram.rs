//! The Deepgram dialect as a client of it meets it: a real process, a bare WebSocket.

mod common;

use common::{
    Server,
    foreign::{Foreign, Heard, frame_time, silence, speech},
};
use proto::audio::AudioFormat;
use serde_json::{Value, json};

const PATH: &str = "/v1/agent/converse";
const FORMAT: AudioFormat = AudioFormat::Pcm16k;

async fn open(server: &Server) -> Foreign {
    let mut client = Foreign::open(server.address, PATH, &[("x-client-ref", "mine"), ("authorization", "Token key")]).await;
    let Heard::Json(welcome) = client.next().await else { panic!("no welcome") };
    assert!(welcome["type"] == "Welcome" && !welcome["request_id"].as_str().unwrap().is_empty(), "{welcome}");
    client
}

fn settings(agent: &Value) -> Value {
    let mut whole = json!({
        "type": "Settings",
        "audio": {
            "input": {"encoding": "linear16", "sample_rate": 16_000},
            "output": {"encoding": "alaw", "sample_rate": 8_000, "container": "none"},
        },
        "agent": {"listen": {}, "think": {}, "speak": {}},
    });
    whole["agent"].as_object_mut().unwrap().extend(agent.as_object().unwrap().clone());
    whole
}

/// Opened, started, and told so; with the session's id.
async fn begin(server: &Server, agent: Value) -> (Foreign, String) {
    let mut client = open(server).await;
    client.json(settings(&agent)).await;
    let Heard::Json(applied) = client.next().await else { panic!("no settings") };
    assert_eq!(applied["type"], "SettingsApplied");
    (client, applied["session_id"].as_str().unwrap().to_owned())
}

async fn send(client: &mut Foreign, frames: Vec<Vec<u8>>) {
    for frame in frames {
        client.binary(&frame).await;
        frame_time().await;
    }
}

async fn speak(client: &mut Foreign) {
    send(client, speech(FORMAT, 600)).await;
    send(client, silence(FORMAT, 700)).await;
}

/// Types of what comes until one of them, and the frames of audio among it.
async fn until(client: &mut Foreign, last: &str) -> (Vec<String>, usize) {
    let (mut kinds, mut frames) = (Vec::new(), 0);
    loop {
        match client.next().await {
            Heard::Binary(audio) => {
                assert_eq!(audio.len(), 160);
                frames += 1;
            }
            Heard::Json(message) => {
                let mut kind = message["type"].as_str().unwrap().to_owned();
                if let Some(role) = message["role"].as_str() {
                    kind = format!("{kind} {role}");
                }
                kinds.push(kind);
                if message["type"] == last {
                    return (kinds, frames);
                }
            }
            Heard::Closed(code) => panic!("closed with {code:?} after {kinds:?}"),
        }
    }
}

#[tokio::test]
async fn a_turn_is_heard_answered_and_interrupted() {
    let server = Server::start(&["--response=constant(1s)"]);
    let (mut client, id) = begin(&server, json!({})).await;
    let sessions = server.sessions("").sessions;
    assert_eq!((sessions[0].session_id.as_str(), sessions[0].client_ref.as_str()), (id.as_str(), "mine"));
    speak(&mut client).await;
    let (kinds, frames) = until(&mut client, "AgentAudioDone").await;
    assert_eq!(frames, 50);
    // The transcript comes 40 ms after the turn's end at the latest, and thinking takes 20 ms.
    assert_eq!(
        kinds,
        [
            "UserStartedSpeaking",
            "AgentThinking",
            "ConversationText user",
            "AgentStartedSpeaking",
            "ConversationText assistant",
            "AgentAudioDone"
        ]
    );
    // The user speaks over the next answer: nothing of it comes after that was noticed.
    speak(&mut client).await;
    until(&mut client, "AgentStartedSpeaking").await;
    send(&mut client, speech(FORMAT, 300)).await;
    let (_, heard) = until(&mut client, "UserStartedSpeaking").await;
    assert!(heard < 50, "{heard}");
    send(&mut client, silence(FORMAT, 700)).await;
    let (kinds, frames) = until(&mut client, "AgentStartedSpeaking").await;
    assert!(frames == 0 && kinds[0] == "AgentThinking", "{frames} {kinds:?}");
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn functions_are_called_and_the_agent_speaks_when_told_to() {
    let server = Server::start(&["--response=constant(200ms)", "--tool-rate=1"]);
    let think = json!({"greeting": "Hello!", "think": {"functions": [{"name": "weather"}]}});
    let mut client = Foreign::open(server.address, "/agent", &[("sec-websocket-protocol", "token, key")]).await;
    assert_eq!(client.headers["sec-websocket-protocol"], "token");
    client.json(settings(&think)).await;
    let (_, frames) = until(&mut client, "AgentAudioDone").await;
    assert_eq!(frames, 10, "the greeting");
    speak(&mut client).await;
    let request = client.until_type("FunctionCallRequest").await;
    let function = &request["functions"][0];
    assert_eq!((&function["name"], &function["client_side"]), (&json!("weather"), &json!(true)));
    assert!(serde_json::from_str::<Value>(function["arguments"].as_str().unwrap()).unwrap().is_object());
    client.json(json!({"type": "FunctionCallResponse", "id": function["id"], "name": "weather", "content": "sun"})).await;
    let (_, frames) = until(&mut client, "AgentAudioDone").await;
    assert_eq!(frames, 10);
    client.json(json!({"type": "InjectAgentMessage", "message": "still there?"})).await;
    client.json(json!({"type": "InjectAgentMessage", "message": "still there?"})).await;
    until(&mut client, "InjectionRefused").await;
    let (_, frames) = until(&mut client, "AgentAudioDone").await;
    assert_eq!(frames, 10);
    client.json(json!({"type": "InjectUserMessage", "content": "weather please"})).await;
    client.until_type("FunctionCallRequest").await;
    client.json(json!({"type": "InjectUserMessage", "content": "never mind"})).await;
    until(&mut client, "FunctionCallCancelled").await;
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn bad_input_is_told_and_counted_once() {
    let server = Server::start(&[]);
    let (mut client, _) = begin(&server, json!({})).await;
    client.binary(&[0; 641]).await;
    assert_eq!(client.until_type("Warning").await["code"], "USER_AUDIO_FORMAT");
    client.json(json!({"type": "FunctionCallResponse", "id": "call-7", "content": ""})).await;
    assert_eq!(client.until_type("Warning").await["code"], "UNKNOWN_FUNCTION_CALL");
    client.socket.close(None).await.unwrap();
    // Each of these ends the conversation.
    for (frame, code, close) in [
        (Ok("{".to_owned()), "UNPARSABLE_CLIENT_MESSAGE", 1007),
        (Ok(json!({"type": "Nonsense"}).to_string()), "UNPARSABLE_CLIENT_MESSAGE", 1007),
        (Ok(settings(&json!({})).to_string()), "SETTINGS_ALREADY_APPLIED", 1008),
        (Err(2 * 1024 * 1024), "MESSAGE_TOO_LARGE", 1009),
    ] {
        let (mut client, _) = begin(&server, json!({})).await;
        match frame {
            Ok(text) => client.text(&text).await,
            Err(bytes) => client.binary(&vec![0; bytes]).await,
        }
        assert_eq!(client.until_type("Error").await["code"], code);
        assert_eq!(client.next().await, Heard::Closed(Some(close)), "{code}");
    }
    // And with these there is none.
    let mut wrong = settings(&json!({}));
    wrong["audio"]["input"]["encoding"] = json!("opus");
    for (message, code, close) in [
        (wrong, "INVALID_SETTINGS", 1008),
        (json!({"type": "Settings"}), "INVALID_SETTINGS", 1008),
        (json!({"type": "KeepAlive"}), "NON_SETTINGS_MESSAGE_BEFORE_SETTINGS", 1008),
    ] {
        let mut client = open(&server).await;
        client.json(message).await;
        assert_eq!(client.until_type("Error").await["code"], code);
        assert_eq!(client.next().await, Heard::Closed(Some(close)), "{code}");
    }
    let mut client = open(&server).await;
    client.binary(&[0; 640]).await;
    assert_eq!(client.until_type("Error").await["code"], "NON_SETTINGS_MESSAGE_BEFORE_SETTINGS");
    let (client, _) = begin(&server, json!({})).await;
    drop(client);
    server.expect_ends(&[("completed", 1), ("failed", 4), ("cancelled", 1)]).await;
}

#[tokio::test]
async fn whoever_keeps_alive_is_not_idle() {
    let server = Server::start(&["--idle-timeout=1s"]);
    let (mut client, _) = begin(&server, json!({})).await;
    let (mut silent, _) = begin(&server, json!({})).await;
    for _ in 0..5 {
        client.json(json!({"type": "KeepAlive"})).await;
        for _ in 0..15 {
            frame_time().await;
        }
    }
    assert_eq!(silent.until_type("Error").await["code"], "CLIENT_MESSAGE_TIMEOUT");
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1), ("timed_out", 1)]).await;
}
