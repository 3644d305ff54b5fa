//! Pipecat's protobuf transport as a client has it: turns with RTVI messages, a tool, an interruption, and everything that a client can say wrong.

mod common;

use common::{
    Server,
    foreign::{Foreign, Heard, frame_time, silence, speech},
};
use prost::Message as _;
use proto::{
    audio::AudioFormat,
    pipecat::{self, frame::Frame as Kind},
};
use serde_json::{Value, json};

const FORMAT: AudioFormat = AudioFormat::Pcm16k;

fn bytes(frame: Kind) -> Vec<u8> {
    pipecat::Frame { frame: Some(frame) }.encode_to_vec()
}

async fn ask(client: &mut Foreign, kind: &str, data: Value) {
    let data = json!({"label": "rtvi-ai", "type": kind, "id": "id-1", "data": data}).to_string();
    client.binary(&bytes(Kind::Message(pipecat::MessageFrame { data }))).await;
}

/// Talks in real time, so that the detector's silence passes.
async fn talk(client: &mut Foreign, frames: Vec<Vec<u8>>) {
    for frame in frames {
        let frame = pipecat::AudioRawFrame { audio: frame.into(), sample_rate: 16_000, num_channels: 1, ..Default::default() };
        client.binary(&bytes(Kind::Audio(frame))).await;
        frame_time().await;
    }
}

/// What comes until an RTVI message of this type, by name; audio as its bytes.
async fn until(client: &mut Foreign, kind: &str) -> (Vec<String>, usize, Value) {
    let (mut names, mut audio) = (Vec::new(), 0);
    loop {
        let Heard::Binary(bytes) = client.next().await else { panic!("closed before `{kind}`: {names:?}") };
        match pipecat::Frame::decode(&bytes[..]).unwrap().frame.unwrap() {
            Kind::Audio(frame) => {
                assert_eq!((frame.sample_rate, frame.num_channels), (16_000, 1));
                audio += frame.audio.len();
            }
            Kind::Message(message) => {
                let message: Value = serde_json::from_str(&message.data).unwrap();
                let name = message["type"].as_str().unwrap().to_owned();
                if name == kind {
                    return (names, audio, message);
                }
                names.push(name);
            }
            Kind::Interruption(_) => names.push("InterruptionFrame".to_owned()),
            Kind::Transcription(_) => names.push("TranscriptionFrame".to_owned()),
            Kind::Text(text) => panic!("{text:?}"),
        }
    }
}

#[tokio::test]
async fn turns_and_a_tool_are_told_by_rtvi() {
    let server = Server::start(&["--response=constant(600ms)", "--endpoint-silence=200ms", "--tool-rate=1"]);
    let mut client = Foreign::open(server.address, "/ws-client/token?tools=weather", &[("x-client-ref", "run-7")]).await;
    ask(&mut client, "client-ready", json!({"version": "1.0.0", "about": {"library": "test"}})).await;
    let (_, _, ready) = until(&mut client, "bot-ready").await;
    assert_eq!(ready["id"], "id-1");
    let session = ready["data"]["about"]["session_id"].as_str().unwrap().to_owned();
    talk(&mut client, speech(FORMAT, 300)).await;
    talk(&mut client, silence(FORMAT, 400)).await;
    let (before, audio, call) = until(&mut client, "llm-function-call").await;
    assert_eq!(audio, 0);
    assert!(before.contains(&"user-started-speaking".to_owned()) && before.contains(&"TranscriptionFrame".to_owned()), "{before:?}");
    assert_eq!(call["data"]["function_name"], "weather");
    let result = json!({"function_name": "weather", "tool_call_id": call["data"]["tool_call_id"], "arguments": {}, "result": "sunny"});
    ask(&mut client, "llm-function-call-result", result).await;
    let (before, audio, _) = until(&mut client, "bot-started-speaking").await;
    assert_eq!(audio, 0, "{before:?}");
    let (_, audio, _) = until(&mut client, "bot-stopped-speaking").await;
    assert_eq!(audio, 30 * 640, "600 ms at 16 kHz");
    ask(&mut client, "disconnect-bot", Value::Null).await;
    assert_eq!(client.next().await, Heard::Closed(Some(1000)));
    server.expect_ends(&[("completed", 1)]).await;
    let end = server.ends("").ends.remove(0);
    assert_eq!((end.client_ref.as_str(), end.session_id.as_str()), ("run-7", session.as_str()));
}

#[tokio::test]
async fn speech_and_text_interrupt_the_bot() {
    let server = Server::start(&["--response=constant(5s)", "--endpoint-silence=200ms"]);
    let mut client = Foreign::open(server.address, "/pipecat?token=t", &[]).await;
    ask(&mut client, "send-text", json!({"content": "hello"})).await;
    until(&mut client, "bot-started-speaking").await;
    talk(&mut client, speech(FORMAT, 300)).await;
    let (before, audio, _) = until(&mut client, "bot-interrupted").await;
    assert!(before.contains(&"user-started-speaking".to_owned()) && before.contains(&"InterruptionFrame".to_owned()), "{before:?}");
    assert!((1..250 * 640).contains(&audio), "{audio}");
    talk(&mut client, silence(FORMAT, 400)).await;
    let (_, audio, _) = until(&mut client, "bot-started-speaking").await;
    assert_eq!(audio, 0, "nothing of the old answer after the interruption");
    client.binary(&bytes(Kind::Interruption(pipecat::InterruptionFrame::default()))).await;
    until(&mut client, "bot-interrupted").await;
    client.socket.close(None).await.unwrap();
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn what_a_client_says_wrong_is_told_and_counted_once() {
    let server = Server::start(&[]);
    let refused = Foreign::try_open(server.address, "/pipecat?sample_rate=44100", &[]).await.err().expect("refused");
    assert!(refused.0 == 400 && refused.1.contains("sample_rate"), "{refused:?}");
    let mut client = Foreign::open(server.address, "/pipecat", &[]).await;
    ask(&mut client, "dance", Value::Null).await;
    let (_, _, answer) = until(&mut client, "error-response").await;
    assert!(answer["data"]["error"].as_str().unwrap().contains("dance"), "{answer}");
    client.binary(&bytes(Kind::Message(pipecat::MessageFrame { data: "{".into() }))).await;
    let (_, _, error) = until(&mut client, "error").await;
    assert_eq!(error["data"]["fatal"], false);
    talk(&mut client, vec![vec![0; 641], vec![0; 640]]).await;
    let (_, _, error) = until(&mut client, "error").await;
    assert!(error["data"]["error"].as_str().unwrap().contains("641 bytes"), "{error}");
    let wrong_rate = pipecat::AudioRawFrame { audio: vec![0; 64].into(), sample_rate: 44_100, num_channels: 1, ..Default::default() };
    client.binary(&bytes(Kind::Audio(wrong_rate))).await;
    let (_, _, error) = until(&mut client, "error").await;
    assert_eq!(error["data"]["fatal"], true);
    assert_eq!(client.next().await, Heard::Closed(Some(1008)));
    server.expect_ends(&[("failed", 1)]).await;
    for text in [true, false] {
        let mut client = Foreign::open(server.address, "/pipecat", &[]).await;
        if text {
            client.text("{}").await;
        } else {
            client.binary(&[0xff; 9]).await;
        }
        until(&mut client, "error").await;
        assert_eq!(client.next().await, Heard::Closed(Some(1007)));
    }
    server.expect_ends(&[("failed", 3)]).await;
}
