//! A client of OpenAI Realtime that knows of nothing but JSON.

use std::net::SocketAddr;

use proto::{audio::AudioFormat, base64};
use serde_json::{Value, json};

use super::foreign::{Foreign, Heard, silence, speech};

pub const PATH: &str = "/v1/realtime?model=gpt-realtime";
/// The header of clients that speak the first version.
pub const BETA: (&str, &str) = ("openai-beta", "realtime=v1");

/// One connection, and the format of its audio.
pub struct Talker {
    pub foreign: Foreign,
    pub format: AudioFormat,
}

impl Talker {
    /// Connects, and gives the session of `session.created`.
    pub async fn open(address: SocketAddr, target: &str, headers: &[(&'static str, &str)]) -> (Self, Value) {
        let mut foreign = Foreign::open(address, target, headers).await;
        let Heard::Json(mut created) = foreign.next().await else { panic!("no session.created") };
        assert_eq!(created["type"], "session.created");
        (Self { foreign, format: AudioFormat::Pcm24k }, created["session"].take())
    }

    /// As most tests want it.
    pub async fn new(address: SocketAddr) -> Self {
        Self::open(address, PATH, &[]).await.0
    }

    /// A session whose detector is off.
    pub async fn by_hand(address: SocketAddr) -> Self {
        let mut talker = Self::new(address).await;
        talker.update(json!({ "audio": { "input": { "turn_detection": null, "transcription": { "model": "whisper-1" } } } })).await;
        talker
    }

    pub async fn say(&mut self, event: Value) {
        self.foreign.json(event).await;
    }

    pub async fn update(&mut self, session: Value) -> Value {
        self.say(json!({ "type": "session.update", "session": session })).await;
        self.until("session.updated").await["session"].take()
    }

    pub async fn append(&mut self, audio: &[u8]) {
        self.say(json!({ "type": "input_audio_buffer.append", "audio": base64::encode(audio) })).await;
    }

    /// So many ms of speech, as fast as it goes.
    pub async fn speech(&mut self, ms: u64) {
        for frame in speech(self.format, ms) {
            self.append(&frame).await;
        }
    }

    /// Speech and the silence that ends it.
    pub async fn turn(&mut self) {
        self.speech(400).await;
        self.append(&silence(self.format, 600).concat()).await;
    }

    /// Everything up to an event of this type, it included.
    pub async fn all_until(&mut self, kind: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            match self.foreign.next().await {
                Heard::Json(event) => {
                    let done = event["type"] == kind;
                    all.push(event);
                    if done {
                        return all;
                    }
                }
                other => panic!("{other:?} instead of {kind}, after {all:?}"),
            }
        }
    }

    pub async fn until(&mut self, kind: &str) -> Value {
        self.foreign.until_type(kind).await
    }

    /// The error that is the next thing said.
    pub async fn error(&mut self) -> Value {
        match self.foreign.next().await {
            Heard::Json(mut event) if event["type"] == "error" => event["error"].take(),
            other => panic!("{other:?} is no error"),
        }
    }

    /// Says goodbye as clients do, and waits for the answer.
    pub async fn close(mut self) {
        self.foreign.socket.close(None).await.unwrap();
        while !matches!(self.foreign.next().await, Heard::Closed(_)) {}
    }
}

/// The types of events, each run of one type once.
pub fn types(events: &[Value]) -> Vec<&str> {
    let mut all: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    all.dedup();
    all
}

/// The events of one type.
pub fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// The audio of a response, or of all.
pub fn audio(events: &[Value], response: Option<&str>) -> Vec<u8> {
    let deltas =
        events.iter().filter(|event| matches!(event["type"].as_str(), Some("response.output_audio.delta" | "response.audio.delta")));
    let deltas = deltas.filter(|event| response.is_none_or(|id| event["response_id"] == id));
    deltas.flat_map(|event| base64::decode(event["delta"].as_str().unwrap()).unwrap()).collect()
}
