//! Pipecat's protobuf transport, with RTVI messages or without.
//!
//! A bot with RTVI is accepted when it says `bot-ready`, or anything else; one without (`agent.without_rtvi`) when the connection stands.
//!
//! No message names a response. RTVI says when the bot begins and stops to speak, but beside the audio and not in step with it: a busy bot was seen
//! to say `bot-started-speaking` 300 ms after the first of its audio. So all audio is of response 0, and the caller tells responses apart by their
//! sound; what RTVI says of their ends only helps it.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use prost::Message as _;
use proto::{
    audio::AudioFormat,
    frame::{AgentAudio, ClientEvent, ErrorCode, ResponseStatus, ServerEvent, SessionAccepted, SessionError, SessionStart, SpeechMarker},
    ids::{ResponseId, TurnId},
    pipecat::{self, frame::Frame as Kind},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Dialect, Exchange, Wire, parting::Parting};
use crate::plan::Service;

/// Tool calls that wait for their results; a bot that makes more is not answered the oldest.
const CALLS_MAX: usize = 32;

/// One session.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what was seen of the peer, each by itself")]
pub(super) struct Pipecat {
    input: AudioFormat,
    output: AudioFormat,
    without_rtvi: bool,
    /// Tools that are answered for the bot.
    tools: Vec<String>,
    accepted: bool,
    /// The bot has said something by RTVI.
    rtvi: bool,
    /// The bot sends frames for its interruptions: what RTVI says of them is no news.
    interrupts: bool,
    /// Open calls: id, name, arguments.
    calls: Vec<(String, String, Value)>,
    /// Of messages that were sent.
    id: u64,
    /// Messages with audio that came.
    heard: u64,
    media_us: u64,
    parting: Parting,
}

#[derive(Debug, Deserialize)]
struct Rtvi<'a> {
    #[serde(borrow)]
    label: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    data: Value,
}

impl Pipecat {
    /// As the service wants it.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        Self {
            input: service.input,
            output: service.output,
            without_rtvi: service.agent.without_rtvi,
            tools: Vec::new(),
            accepted: false,
            rtvi: false,
            interrupts: false,
            calls: Vec::new(),
            id: 0,
            heard: 0,
            media_us: 0,
            parting: Parting::default(),
        }
    }

    fn next_id(&mut self) -> u64 {
        self.id += 1;
        self.id
    }

    fn ask(&mut self, kind: &str, data: &Value, to: &mut Exchange) {
        if self.without_rtvi {
            return;
        }
        let id = self.next_id().to_string();
        let data = json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data}).to_string();
        send(Kind::Message(pipecat::MessageFrame { data }), to);
    }

    /// Whatever the bot says, it is there.
    fn accept(&mut self, about: Option<&Value>, to: &mut Exchange) {
        if std::mem::replace(&mut self.accepted, true) {
            return;
        }
        let text = |key: &str| about.and_then(|about| about.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned();
        to.event(ServerEvent::Accepted(SessionAccepted {
            session_id: text("session_id"),
            backend_id: text("backend_id"),
            boot_id: text("boot_id"),
            input: self.input,
            output: self.output,
            max_duration_ms: 0,
            idle_timeout_ms: 0,
        }));
    }

    fn event(&mut self, event: ServerEvent, to: &mut Exchange) {
        self.accept(None, to);
        to.event(event);
    }

    fn hear(&mut self, bytes: Bytes, to: &mut Exchange) -> Result<(), SessionError> {
        let frame = pipecat::Frame::decode(bytes).map_err(|error| wrong(format!("no pipecat.Frame: {error}")))?;
        match frame.frame {
            Some(Kind::Audio(audio)) => self.hear_audio(audio, to)?,
            Some(Kind::Message(message)) => {
                // An application's own message may have any form.
                if let Ok(message) = serde_json::from_str::<Rtvi<'_>>(&message.data)
                    && message.label == "rtvi-ai"
                {
                    self.hear_rtvi(&message.kind, &message.data, to);
                }
            }
            Some(Kind::Interruption(_)) => {
                self.interrupts = true;
                self.end(ResponseStatus::Interrupted, to);
            }
            // RTVI says it too, and says whether it is the last word.
            Some(Kind::Transcription(said)) if !self.rtvi => {
                self.event(ServerEvent::Transcript { turn: TurnId(0), text: said.text, last: true }, to);
            }
            // Frames that later bots may send are not for us.
            Some(Kind::Transcription(_) | Kind::Text(_)) | None => {}
        }
        Ok(())
    }

    fn hear_audio(&mut self, audio: pipecat::AudioRawFrame, to: &mut Exchange) -> Result<(), SessionError> {
        if audio.sample_rate != self.output.sample_rate() || audio.num_channels > 1 {
            let (rate, channels) = (audio.sample_rate, audio.num_channels);
            let message = format!("the bot speaks at {rate} Hz, {channels} channel(s), and the profile's `format` is {}", self.output);
            return Err(SessionError::fatal(ErrorCode::UnsupportedFormat, message));
        }
        if !audio.audio.len().is_multiple_of(2) {
            return Err(SessionError::fatal(ErrorCode::BadAudio, format!("{} bytes of audio are no whole samples", audio.audio.len())));
        }
        if audio.audio.is_empty() {
            return Ok(());
        }
        let (sequence, timestamp_us, response) = (self.heard, self.media_us, ResponseId(0));
        self.heard += 1;
        self.media_us += self.output.duration_us(audio.audio.len());
        self.event(ServerEvent::Audio(AgentAudio { sequence, timestamp_us, payload: audio.audio, response }), to);
        Ok(())
    }

    fn end(&mut self, status: ResponseStatus, to: &mut Exchange) {
        self.event(ServerEvent::ResponseEnd { response: ResponseId(0), status, frames: 0 }, to);
    }

    fn hear_rtvi(&mut self, kind: &str, data: &Value, to: &mut Exchange) {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.rtvi = true;
        match kind {
            "bot-ready" => self.accept(data.get("about"), to),
            "user-started-speaking" | "user-stopped-speaking" => {
                let started = kind == "user-started-speaking";
                self.event(ServerEvent::Speech(SpeechMarker { started, timestamp_us: 0 }), to);
            }
            "user-transcription" => {
                let last = data.get("final").and_then(Value::as_bool).unwrap_or(true);
                self.event(ServerEvent::Transcript { turn: TurnId(0), text: text("text"), last }, to);
            }
            "bot-stopped-speaking" => self.end(ResponseStatus::Completed, to),
            "bot-interrupted" if !self.interrupts => self.end(ResponseStatus::Interrupted, to),
            "llm-function-call" => self.called(data, "args", to),
            // What the bot answers itself is told as well: only what the profile declared is ours.
            "llm-function-call-in-progress" if self.tools.contains(&text("function_name")) => self.called(data, "arguments", to),
            "llm-function-call-stopped" => {
                let call_id = text("tool_call_id");
                if let Some(at) = self.calls.iter().position(|(id, ..)| *id == call_id) {
                    self.calls.remove(at);
                    self.event(ServerEvent::ToolCancel { call_id }, to);
                }
            }
            "error" => {
                let fatal = data.get("fatal").and_then(Value::as_bool).unwrap_or(false);
                self.event(ServerEvent::Error(SessionError { code: ErrorCode::Internal, message: text("error"), fatal }), to);
            }
            "error-response" => {
                self.event(ServerEvent::Error(SessionError::warning(ErrorCode::InvalidArgument, text("error"))), to);
            }
            _ => {}
        }
    }

    fn called(&mut self, data: &Value, arguments: &str, to: &mut Exchange) {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (call_id, name) = (text("tool_call_id"), text("function_name"));
        if self.calls.iter().any(|(id, ..)| *id == call_id) {
            return;
        }
        let arguments = data.get(arguments).cloned().unwrap_or_else(|| json!({}));
        if self.calls.len() == CALLS_MAX {
            self.calls.remove(0);
        }
        self.calls.push((call_id.clone(), name.clone(), arguments.clone()));
        self.event(ServerEvent::ToolCall { call_id, name, arguments: arguments.to_string() }, to);
    }

    fn answer_call(&mut self, call_id: &str, output: &str, to: &mut Exchange) {
        let Some(at) = self.calls.iter().position(|(id, ..)| id == call_id) else { return };
        let (id, name, arguments) = self.calls.remove(at);
        let result = serde_json::from_str(output).unwrap_or_else(|_| json!(output));
        let data = json!({"function_name": name, "tool_call_id": id, "arguments": arguments, "result": result});
        self.ask("llm-function-call-result", &data, to);
    }

    fn start(&mut self, start: SessionStart, to: &mut Exchange) {
        self.tools = start.tools;
        let about = json!({"library": "load-driver", "library_version": env!("CARGO_PKG_VERSION")});
        self.ask("client-ready", &json!({"version": "1.0.0", "about": about}), to);
        if self.without_rtvi {
            self.accept(None, to);
        }
    }
}

impl Dialect for Pipecat {
    fn path(&self) -> Cow<'static, str> {
        match self.output {
            AudioFormat::Pcm16k => "/pipecat".into(),
            other => format!("/pipecat?sample_rate={}", other.sample_rate()).into(),
        }
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        match event {
            ClientEvent::Start(start) => self.start(start, to),
            ClientEvent::Audio(audio) => {
                let frame = pipecat::AudioRawFrame {
                    id: self.next_id(),
                    name: String::new(),
                    audio: audio.payload,
                    sample_rate: self.input.sample_rate(),
                    num_channels: 1,
                    pts: None,
                };
                send(Kind::Audio(frame), to);
            }
            ClientEvent::BargeIn { .. } | ClientEvent::Cancel { .. } => {
                let id = self.next_id();
                send(Kind::Interruption(pipecat::InterruptionFrame { id, name: String::new() }), to);
            }
            ClientEvent::Respond(wish) => {
                if let Some(text) = wish.text {
                    self.ask("send-text", &json!({"content": text}), to);
                }
            }
            ClientEvent::ToolResult { call_id, output, .. } => self.answer_call(&call_id, &output, to),
            ClientEvent::Digit(key) => self.ask("dtmf", &json!({"buttons": [key.to_string()]}), to),
            ClientEvent::End { .. } => {
                self.ask("disconnect-bot", &json!({}), to);
                self.parting.leave(to);
            }
            // There are no words for the rest.
            _ => {}
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        let heard = match message {
            Wire::Binary(bytes) => self.hear(bytes, to),
            Wire::Text(_) | Wire::Close(_) => {
                Err(wrong("a text frame from the bot: a pipecat.Frame is protobuf in a binary frame".to_owned()))
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

fn send(frame: Kind, to: &mut Exchange) {
    to.send(Wire::Binary(pipecat::Frame { frame: Some(frame) }.encode_to_vec().into()));
}

fn wrong(message: String) -> SessionError {
    SessionError::fatal(ErrorCode::MalformedMessage, message)
}

#[cfg(test)]
#[path = "pipecat_tests.rs"]
mod tests;
