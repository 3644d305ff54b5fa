//! Twilio Media Streams as the network has them: a call from its start to its stop, an interruption, and everything that a network can say wrong.

mod common;

use common::{
    Server,
    foreign::{Foreign, Heard, frame_time, silence, speech},
};
use proto::{audio::AudioFormat, base64};
use serde_json::{Value, json};

const FORMAT: AudioFormat = AudioFormat::Mulaw8k;

fn start() -> Value {
    json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {"accountSid": "AC1", "streamSid": "MZ1", "callSid": "CA1",
        "tracks": ["inbound"], "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        "customParameters": {"client_ref": "call-1"}}})
}

fn media(payload: &[u8]) -> Value {
    json!({"event": "media", "sequenceNumber": "2", "streamSid": "MZ1",
        "media": {"track": "inbound", "chunk": "1", "timestamp": "20", "payload": base64::encode(payload)}})
}

fn stop() -> Value {
    json!({"event": "stop", "sequenceNumber": "9", "streamSid": "MZ1", "stop": {"accountSid": "AC1", "callSid": "CA1"}})
}

async fn call(server: &Server, path: &str) -> Foreign {
    let mut call = Foreign::open(server.address, path, &[]).await;
    call.json(json!({"event": "connected", "protocol": "Call", "version": "1.0.0"})).await;
    call.json(start()).await;
    call
}

/// Talks in real time, so that the detector's silence passes.
async fn talk(call: &mut Foreign, frames: Vec<Vec<u8>>) {
    for frame in frames {
        call.json(media(&frame)).await;
        frame_time().await;
    }
}

/// Bytes of audio until something else comes, which it gives too.
async fn listen(call: &mut Foreign) -> (usize, Heard) {
    let mut bytes = 0;
    loop {
        match call.next().await {
            Heard::Json(value) if value["event"] == "media" => {
                assert_eq!(value["streamSid"], "MZ1");
                bytes += base64::decode(value["media"]["payload"].as_str().unwrap()).unwrap().len();
            }
            other => return (bytes, other),
        }
    }
}

#[tokio::test]
async fn a_call_is_answered_marked_and_ends_in_order() {
    let server = Server::start(&["--response=constant(600ms)", "--endpoint-silence=200ms"]);
    for (n, path) in ["/twilio", "/ws", "/ws/s3cret", "/media-stream", "/telephony"].into_iter().enumerate() {
        let mut call = call(&server, path).await;
        talk(&mut call, speech(FORMAT, 300)).await;
        talk(&mut call, silence(FORMAT, 400)).await;
        let (bytes, then) = listen(&mut call).await;
        assert_eq!(bytes, 30 * 160, "600 ms of mu-law");
        assert_eq!(then, Heard::Json(json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "response-1"}})));
        call.json(json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "response-1"}})).await;
        call.json(json!({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": "5"}})).await;
        call.json(stop()).await;
        assert_eq!(call.next().await, Heard::Closed(Some(1000)));
        server.expect_ends(&[("completed", n as u64 + 1)]).await;
    }
    let ends = server.ends("").ends;
    assert!(ends.iter().all(|end| end.client_ref == "call-1"), "{ends:?}");
}

#[tokio::test]
async fn speech_over_the_bot_clears_what_it_said() {
    let server = Server::start(&["--response=constant(5s)", "--endpoint-silence=200ms"]);
    let mut call = call(&server, "/twilio").await;
    talk(&mut call, speech(FORMAT, 300)).await;
    talk(&mut call, silence(FORMAT, 400)).await;
    talk(&mut call, speech(FORMAT, 300)).await;
    let (bytes, then) = listen(&mut call).await;
    assert!((1..250 * 160).contains(&bytes), "{bytes}");
    assert_eq!(then, Heard::Json(json!({"event": "clear", "streamSid": "MZ1"})));
    call.json(stop()).await;
    assert_eq!(listen(&mut call).await, (0, Heard::Closed(Some(1000))), "nothing of the old answer after the clear");
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn what_a_network_says_wrong_closes_with_a_reason_and_is_counted_once() {
    let server = Server::start(&[]);
    for (first, code) in [("hello", 1007), (r#"{"event":"media","media":{"payload":""}}"#, 1008), (r#"{"event":"start","start":{}}"#, 1007)]
    {
        let mut call = Foreign::open(server.address, "/twilio", &[]).await;
        call.text(first).await;
        assert_eq!(call.next().await, Heard::Closed(Some(code)), "{first}");
    }
    server.expect_ends(&[]).await;
    let wrong = [
        (start().to_string(), 1008),
        (r#"{"event":"media","streamSid":"MZ1","media":{"payload":"?"}}"#.to_owned(), 1008),
        (r#"{"event":"media","streamSid":"MZ1","media":{"track":"outbound","payload":""}}"#.to_owned(), 1008),
        (r#"{"event":"media","streamSid":"MZ1"}"#.to_owned(), 1007),
        ("{".to_owned(), 1007),
    ];
    let failed = wrong.len() as u64 + 1;
    for (message, code) in wrong {
        let mut call = call(&server, "/twilio").await;
        call.text(&message).await;
        assert_eq!(call.next().await, Heard::Closed(Some(code)), "{message}");
    }
    let mut binary = call(&server, "/twilio").await;
    binary.binary(&[0; 160]).await;
    assert_eq!(binary.next().await, Heard::Closed(Some(1007)));
    server.expect_ends(&[("failed", failed)]).await;
    // A call that just ends was lost; what is unknown, or comes after the stop, does no harm.
    let mut lost = call(&server, "/twilio").await;
    lost.socket.close(None).await.unwrap();
    let mut odd = call(&server, "/twilio").await;
    odd.json(json!({"event": "news", "streamSid": "MZ1"})).await;
    odd.json(stop()).await;
    assert_eq!(odd.next().await, Heard::Closed(Some(1000)));
    server.expect_ends(&[("failed", failed), ("cancelled", 1), ("completed", 1)]).await;
}
