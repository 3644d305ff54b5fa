//! Twilio Media Streams. The driver is the telephone network: it connects to a bot, as Twilio does when somebody calls.
//!
//! The bot never says that it is ready, so a session counts as accepted once `connected` and `start` are written. It names no responses either:
//! its audio is of response 0, and the caller tells them apart by the silence between them. `clear` throws away what was not played yet, which is
//! the end of response 0, interrupted; a `mark` is echoed by the caller when what came before it was played.

use std::{borrow::Cow, fmt::Write as _, sync::Arc};

use bytes::Bytes;
use proto::{
    base64,
    frame::{
        AgentAudio, ClientAudio, ClientEvent, ErrorCode, MAX_NAME_BYTES, ResponseStatus, ServerEvent, SessionAccepted, SessionError,
        SessionStart,
    },
    ids::ResponseId,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Dialect, Exchange, Wire, parting::Parting};
use crate::plan::Service;

/// One call.
#[derive(Debug)]
pub(super) struct Twilio {
    stream: String,
    call: String,
    account: String,
    /// Of the messages and of the chunks of audio that were sent.
    sequence: u64,
    chunk: u64,
    /// Messages with audio that came.
    heard: u64,
    media_us: u64,
    parting: Parting,
}

/// A message of the bot. What is not read here may be anything.
#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, rename = "streamSid")]
    stream: Option<Cow<'a, str>>,
    #[serde(borrow)]
    media: Option<Media<'a>>,
    #[serde(borrow)]
    mark: Option<Mark<'a>>,
}

#[derive(Debug, Deserialize)]
struct Media<'a> {
    #[serde(borrow)]
    payload: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Mark<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl Twilio {
    /// As the service wants it: it leaves no choice.
    pub(super) fn new(_service: &Arc<Service>) -> Self {
        Self {
            stream: String::new(),
            call: String::new(),
            account: String::new(),
            sequence: 0,
            chunk: 0,
            heard: 0,
            media_us: 0,
            parting: Parting::default(),
        }
    }

    /// Twilio numbers all messages of a stream but `connected`, and writes the numbers as text.
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn start(&mut self, start: SessionStart, to: &mut Exchange) {
        let SessionStart { client_ref, input, output, .. } = start;
        self.stream = sid("MZ", &client_ref);
        self.call = sid("CA", &client_ref);
        self.account = sid("AC", "");
        to.send(text(&json!({"event": "connected", "protocol": "Call", "version": "1.0.0"})));
        let sequence = self.next_sequence().to_string();
        to.send(text(&json!({
            "event": "start",
            "sequenceNumber": sequence,
            "start": {
                "accountSid": self.account,
                "streamSid": self.stream,
                "callSid": self.call,
                "tracks": ["inbound"],
                "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8_000, "channels": 1},
                "customParameters": {"client_ref": client_ref},
            },
            "streamSid": self.stream,
        })));
        to.event(ServerEvent::Accepted(SessionAccepted {
            session_id: String::new(),
            backend_id: String::new(),
            boot_id: String::new(),
            input,
            output,
            max_duration_ms: 0,
            idle_timeout_ms: 0,
        }));
    }

    fn media(&mut self, audio: &ClientAudio) -> Wire {
        let sequence = self.next_sequence();
        self.chunk += 1;
        let (stream, chunk, timestamp) = (&self.stream, self.chunk, audio.timestamp_us / 1_000);
        let mut text = String::with_capacity(200 + audio.payload.len().div_ceil(3) * 4);
        let written = write!(
            text,
            r#"{{"event":"media","sequenceNumber":"{sequence}","streamSid":"{stream}","media":{{"track":"inbound","chunk":"{chunk}","timestamp":"{timestamp}","payload":""#
        );
        debug_assert!(written.is_ok(), "a String takes anything");
        base64::encode_into(&audio.payload, &mut text);
        text.push_str(r#""}}"#);
        Wire::Text(text)
    }

    /// `what` beside what every message has.
    fn say(&mut self, event: &str, key: &str, what: &Value, to: &mut Exchange) {
        let sequence = self.next_sequence().to_string();
        to.send(text(&json!({"event": event, "sequenceNumber": sequence, "streamSid": self.stream, key: what})));
    }

    fn hear(&mut self, message: &str, to: &mut Exchange) -> Result<(), SessionError> {
        let wrong = |message: String| SessionError::fatal(ErrorCode::MalformedMessage, message);
        let message: Message<'_> =
            serde_json::from_str(message).map_err(|error| wrong(format!("no message of a media stream: {error}")))?;
        if let Some(other) = message.stream.as_deref().filter(|stream| *stream != self.stream) {
            let other: String = other.chars().take(64).collect();
            let error = format!("`{}` of stream `{other}`, not of this call's: it is not played", message.event);
            to.event(ServerEvent::Error(SessionError::warning(ErrorCode::InvalidArgument, error)));
            return Ok(());
        }
        match message.event.as_ref() {
            "media" => {
                let media = message.media.ok_or_else(|| wrong("`media` without `media`".to_owned()))?;
                let payload = base64::decode(&media.payload).ok_or_else(|| wrong("media.payload is not base64".to_owned()))?;
                if !payload.is_empty() {
                    let timestamp_us = self.media_us;
                    self.media_us += proto::audio::AudioFormat::Mulaw8k.duration_us(payload.len());
                    let (sequence, payload) = (self.heard, Bytes::from(payload));
                    self.heard += 1;
                    to.event(ServerEvent::Audio(AgentAudio { sequence, timestamp_us, payload, response: ResponseId(0) }));
                }
            }
            "mark" => {
                let mark = message.mark.ok_or_else(|| wrong("`mark` without `mark`".to_owned()))?;
                if mark.name.len() > MAX_NAME_BYTES {
                    let error = format!("a mark's name has {} bytes: it is not echoed", mark.name.len());
                    to.event(ServerEvent::Error(SessionError::warning(ErrorCode::InvalidArgument, error)));
                } else {
                    to.event(ServerEvent::Mark { name: mark.name.into_owned() });
                }
            }
            "clear" => {
                to.event(ServerEvent::ResponseEnd { response: ResponseId(0), status: ResponseStatus::Interrupted, frames: 0 });
            }
            _ => {}
        }
        Ok(())
    }
}

impl Dialect for Twilio {
    fn path(&self) -> Cow<'static, str> {
        "/twilio".into()
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        match event {
            ClientEvent::Start(start) => self.start(start, to),
            ClientEvent::Audio(audio) => {
                let media = self.media(&audio);
                to.send(media);
            }
            ClientEvent::Digit(digit) => self.say("dtmf", "dtmf", &json!({"track": "inbound_track", "digit": digit.to_string()}), to),
            ClientEvent::Played { name } => self.say("mark", "mark", &json!({"name": name}), to),
            ClientEvent::End { .. } => {
                let stop = json!({"accountSid": self.account, "callSid": self.call});
                self.say("stop", "stop", &stop, to);
                self.parting.leave(to);
            }
            // The telephone network has no words for the rest.
            _ => {}
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        let heard = match message {
            Wire::Text(text) => self.hear(&text, to),
            Wire::Binary(_) | Wire::Close(_) => {
                Err(SessionError::fatal(ErrorCode::MalformedMessage, "a binary frame from the bot: media streams are JSON in text frames"))
            }
        };
        if let Err(error) = heard {
            to.malformed(error);
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange) {
        self.parting.closed(code, to);
    }
}

fn text(message: &Value) -> Wire {
    Wire::Text(message.to_string())
}

/// A name as Twilio gives them, always the same for the same session: FNV-1a in 128 bits.
fn sid(kind: &str, of: &str) -> String {
    let bytes = kind.bytes().chain(of.bytes());
    let hash = bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("{kind}{hash:032x}")
}

#[cfg(test)]
mod tests {
    use proto::{
        audio::AudioFormat,
        frame::{Outcome, SessionEnded},
    };

    use super::*;

    fn said(twilio: &mut Twilio, event: ClientEvent) -> (Vec<Value>, Vec<ServerEvent>) {
        let mut to = Exchange::default();
        twilio.encode(event, &mut to);
        let mut wires = Vec::new();
        while let Some(wire) = to.next_wire() {
            wires.push(match wire {
                Wire::Text(text) => serde_json::from_str(&text).unwrap(),
                Wire::Close(code) => json!(code),
                Wire::Binary(_) => panic!("a binary frame"),
            });
        }
        let events = std::iter::from_fn(|| to.next_event()).map(Result::unwrap).collect();
        (wires, events)
    }

    fn heard(twilio: &mut Twilio, text: &str) -> Result<Vec<ServerEvent>, SessionError> {
        let mut to = Exchange::default();
        twilio.decode(Wire::Text(text.to_owned()), &mut to);
        assert_eq!(to.next_wire(), None);
        std::iter::from_fn(|| to.next_event()).collect()
    }

    fn call() -> Twilio {
        let mut twilio = Twilio::new(&Arc::default());
        let start = SessionStart {
            client_ref: "run-1".into(),
            input: AudioFormat::Mulaw8k,
            output: AudioFormat::Mulaw8k,
            ..SessionStart::default()
        };
        let (wires, events) = said(&mut twilio, ClientEvent::Start(start));
        assert_eq!(wires[0], json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}));
        let start = &wires[1]["start"];
        for (sid, kind) in [("streamSid", "MZ"), ("callSid", "CA"), ("accountSid", "AC")] {
            let sid = start[sid].as_str().unwrap();
            assert!(sid.len() == 34 && sid.starts_with(kind), "{sid}");
        }
        assert_eq!((&wires[1]["sequenceNumber"], &wires[1]["streamSid"]), (&json!("1"), &start["streamSid"]));
        assert_eq!(start["mediaFormat"], json!({"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}));
        assert_eq!(start["customParameters"], json!({"client_ref": "run-1"}));
        let [ServerEvent::Accepted(accepted)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((accepted.input, accepted.session_id.as_str()), (AudioFormat::Mulaw8k, ""));
        twilio
    }

    #[test]
    fn the_network_says_what_twilio_says() {
        let mut twilio = call();
        let stream = twilio.stream.clone();
        let audio = ClientAudio { sequence: 3, timestamp_us: 60_000, payload: Bytes::from_static(&[0xff; 3]), ack: true };
        assert_eq!(
            said(&mut twilio, ClientEvent::Audio(audio)).0,
            [json!({"event": "media", "sequenceNumber": "2", "streamSid": stream,
                "media": {"track": "inbound", "chunk": "1", "timestamp": "60", "payload": "////"}})]
        );
        assert_eq!(
            said(&mut twilio, ClientEvent::Digit('#')).0,
            [json!({"event": "dtmf", "sequenceNumber": "3", "streamSid": stream, "dtmf": {"track": "inbound_track", "digit": "#"}})]
        );
        assert_eq!(
            said(&mut twilio, ClientEvent::Played { name: "m".into() }).0,
            [json!({"event": "mark", "sequenceNumber": "4", "streamSid": stream, "mark": {"name": "m"}})]
        );
        assert_eq!(said(&mut twilio, ClientEvent::Commit).0, Vec::<Value>::new());
        let mut to = Exchange::default();
        twilio.closed(1000, &mut to);
        assert_eq!(to.next_event(), None, "a close without our goodbye is a cut");
        let stop = json!({"accountSid": twilio.account, "callSid": twilio.call});
        assert_eq!(
            said(&mut twilio, ClientEvent::End { reason: "done".into() }).0,
            [json!({"event": "stop", "sequenceNumber": "5", "streamSid": stream, "stop": stop}), json!(1000)]
        );
        twilio.closed(1011, &mut to);
        assert_eq!(to.next_event(), None, "a fault of the bot is no goodbye");
        twilio.closed(1000, &mut to);
        assert!(matches!(to.next_event(), Some(Ok(ServerEvent::Ended(SessionEnded { outcome: Outcome::Completed, .. })))));
    }

    #[test]
    fn the_bot_is_heard() {
        let mut twilio = call();
        let stream = twilio.stream.clone();
        let media = json!({"event": "media", "streamSid": stream, "media": {"payload": base64::encode(&[1; 200])}}).to_string();
        for (sequence, timestamp_us) in [(0, 0), (1, 25_000)] {
            let payload = Bytes::from_static(&[1; 200]);
            let audio = AgentAudio { sequence, timestamp_us, payload, response: ResponseId(0) };
            assert_eq!(heard(&mut twilio, &media), Ok(vec![ServerEvent::Audio(audio)]));
        }
        // Pipecat leaves the name of the stream out of nothing, others of everything.
        assert_eq!(heard(&mut twilio, r#"{"event":"media","media":{"payload":""}}"#), Ok(vec![]));
        let mark = json!({"event": "mark", "streamSid": stream, "mark": {"name": "end"}}).to_string();
        assert_eq!(heard(&mut twilio, &mark), Ok(vec![ServerEvent::Mark { name: "end".into() }]));
        let cleared = ServerEvent::ResponseEnd { response: ResponseId(0), status: ResponseStatus::Interrupted, frames: 0 };
        assert_eq!(heard(&mut twilio, &json!({"event": "clear", "streamSid": stream}).to_string()), Ok(vec![cleared]));
        assert_eq!(heard(&mut twilio, r#"{"event":"news"}"#), Ok(vec![]));
        let stray = heard(&mut twilio, r#"{"event":"media","streamSid":"MZother","media":{"payload":"AAAA"}}"#).unwrap();
        assert!(matches!(&stray[..], [ServerEvent::Error(error)] if !error.fatal && error.message.contains("MZother")), "{stray:?}");
    }

    #[test]
    fn what_is_no_message_is_malformed() {
        for text in [
            "hello",
            "[]",
            r#"{"media":{}}"#,
            r#"{"event":"media"}"#,
            r#"{"event":"media","media":{"payload":"?"}}"#,
            r#"{"event":"mark"}"#,
        ] {
            assert!(heard(&mut call(), text).is_err(), "{text}");
        }
        let mut to = Exchange::default();
        call().decode(Wire::Binary(Bytes::new()), &mut to);
        assert!(matches!(to.next_event(), Some(Err(_))));
    }
}
