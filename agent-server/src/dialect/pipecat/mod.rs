//! Pipecat's WebSocket transport: protobuf frames in binary messages, RTVI messages as JSON within them ([`rtvi`]). The server is the bot.
//!
//! The connection is the start, as a Pipecat bot begins with it. Audio of the client has the rate of its first frame; the agent's has 16 kHz, or
//! what the query asks for (`sample_rate`). A bot owns its tools: `lookup`, or those of the query (`tools`, comma between them).
//!
//! | client sends | session hears | session says | client receives |
//! |---|---|---|---|
//! | `AudioRawFrame` | `Audio` | `Audio` | `AudioRawFrame` of 40 ms, in real time |
//! | `TextFrame` | `BargeIn`, `Respond` | `Transcript` | `user-transcription`; the last one also as `TranscriptionFrame` |
//! | `TranscriptionFrame` | `Hint`: the words of the turn | `Speech` | `user-started-speaking`, `user-stopped-speaking` |
//! | `InterruptionFrame` | `BargeIn` | `ResponseStart` | `bot-llm-text`, `bot-transcription`, `bot-started-speaking` |
//! | RTVI `send-text` | as `TextFrame`; `Context` unless it runs at once | `ResponseEnd` | `bot-stopped-speaking` |
//! | RTVI `llm-function-call-result` | `ToolResult` | ... interrupted, cancelled | `InterruptionFrame` and `bot-interrupted` before that |
//! | RTVI `dtmf` | `Digit` | `ToolCall` | `llm-function-call` |
//! | RTVI `client-ready` | nothing: `bot-ready` answers it | `ToolCancel` | `llm-function-call-stopped` |
//! | RTVI `client-message` | nothing: `server-response` echoes it | `Error` | `error` |
//! | RTVI `disconnect-bot`, or a close in order | `End` | `Ended` | the close, 1000 |
//!
//! An RTVI message that cannot be served is answered by `error-response` with its id, and costs nothing else. What is no frame, audio of no rate
//! that is served, and a change of rate end the session.

mod rtvi;

#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use prost::Message as _;
use proto::{
    audio::AudioFormat,
    frame::{
        AgentAudio, ClientEvent, ErrorCode, FRAME_MS, ResponseStatus, ResponseWish, ServerEvent, SessionError, SessionSettings,
        SessionStart, TurnHint,
    },
    pipecat::{self, frame::Frame as Kind},
};
use serde_json::json;

use self::rtvi::Asked;
use super::{Dialect, Exchange, Frame, Refused, Socket, Upgrade, WebSocketDialect, intake::Intake};

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "Pipecat: protobuf in binary frames, RTVI messages",
    paths: "/pipecat, /ws-client, each with an optional token after it",
    serves: |path| {
        ["/pipecat", "/ws-client"]
            .into_iter()
            .filter_map(|known| path.strip_prefix(known))
            .any(|rest| rest.is_empty() || rest.strip_prefix('/').is_some_and(|token| !token.contains('/')))
    },
    starts_at_once: true,
    max_message: 0,
    open: |upgrade| Ok((Box::new(Bot::new(upgrade)?) as Socket).into()),
};

/// Frames of the session in one of the transport.
const FRAMES_TOGETHER: usize = 2;
/// The tool of a bot whose client does not name others.
const TOOL: &str = "lookup";
/// The user of a connection.
const USER: &str = "user";

/// One connection of a client.
#[derive(Debug)]
struct Bot {
    /// Taken by the start.
    start: Option<Box<SessionStart>>,
    output: AudioFormat,
    /// Once audio has come.
    intake: Option<Intake>,
    /// The name of the session, once it is accepted.
    about: Option<serde_json::Value>,
    /// The id of a `client-ready` that was not answered yet.
    ready: Option<String>,
    /// Of the last frame.
    id: u64,
    /// Audio that does not make a frame of the transport yet.
    held: BytesMut,
    /// Milliseconds of the response under way that were sent.
    sent_ms: u32,
}

impl Bot {
    fn new(upgrade: &Upgrade<'_>) -> Result<Self, Refused> {
        let output = match upgrade.parameter("sample_rate") {
            None => AudioFormat::Pcm16k,
            Some(rate) => rate.parse().ok().and_then(AudioFormat::pcm).ok_or_else(|| Refused {
                status: StatusCode::BAD_REQUEST,
                body: "sample_rate must be 8000, 16000, 24000 or 48000".to_owned(),
            })?,
        };
        let tools = upgrade.parameter("tools").unwrap_or_else(|| TOOL.to_owned());
        let start = SessionStart {
            client_ref: upgrade.client_ref(),
            voice: upgrade.parameter("voice").unwrap_or_default(),
            output,
            tools: tools.split(',').map(str::trim).filter(|tool| !tool.is_empty()).map(str::to_owned).collect(),
            ..SessionStart::default()
        };
        Ok(Self { start: Some(Box::new(start)), output, intake: None, about: None, ready: None, id: 0, held: BytesMut::new(), sent_ms: 0 })
    }

    fn hear(&mut self, bytes: Bytes, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        let frame =
            pipecat::Frame::decode(bytes).map_err(|error| fatal(ErrorCode::MalformedMessage, format!("no pipecat.Frame: {error}")))?;
        match frame.frame.ok_or_else(|| fatal(ErrorCode::MalformedMessage, "a pipecat.Frame with nothing in it that is known"))? {
            Kind::Audio(audio) => self.hear_audio(&audio, to)?,
            Kind::Text(text) => self.hear_text(text.text, true, to),
            Kind::Transcription(said) => to.event(ClientEvent::Hint(TurnHint { text: Some(said.text), ..TurnHint::default() })),
            Kind::Interruption(_) => self.interrupt(to),
            Kind::Message(message) => self.hear_message(&message.data, to)?,
        }
        Ok(())
    }

    fn hear_audio(&mut self, audio: &pipecat::AudioRawFrame, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        // A frame without that field is of one channel.
        let format = AudioFormat::pcm(audio.sample_rate).filter(|_| audio.num_channels <= 1).ok_or_else(|| {
            let message = format!(
                "audio at {} Hz, {} channel(s) is not served: use 8000, 16000, 24000 or 48000 Hz, mono",
                audio.sample_rate, audio.num_channels
            );
            fatal(ErrorCode::UnsupportedFormat, message)
        })?;
        if self.intake.is_none() && format != AudioFormat::default() {
            to.event(ClientEvent::Configure(Box::new(SessionSettings { input: Some(format), ..SessionSettings::default() })));
        }
        let intake = self.intake.get_or_insert_with(|| Intake::new(format));
        if intake.format() != format {
            let message = format!("audio at {} Hz after audio at {} Hz: keep one rate", audio.sample_rate, intake.format().sample_rate());
            return Err(fatal(ErrorCode::UnsupportedFormat, message));
        }
        intake.take(&audio.audio, to)
    }

    /// The user writes instead of speaking.
    fn hear_text(&self, text: String, at_once: bool, to: &mut Exchange<'_, Frame>) {
        if at_once {
            self.interrupt(to);
            to.event(ClientEvent::Respond(ResponseWish { text: Some(text), ..ResponseWish::default() }));
        } else {
            to.event(ClientEvent::Context { role: "user".to_owned(), text });
        }
    }

    fn interrupt(&self, to: &mut Exchange<'_, Frame>) {
        to.event(ClientEvent::BargeIn { response: None, heard_ms: self.sent_ms });
    }

    fn hear_message(&mut self, data: &str, to: &mut Exchange<'_, Frame>) -> Result<(), SessionError> {
        let (id, asked) = rtvi::asked(data)?;
        match asked {
            Asked::Ready => {
                self.ready = Some(id);
                self.answer_ready(to);
            }
            Asked::Text { text, at_once } => self.hear_text(text, at_once, to),
            Asked::Result { call_id, output } => to.event(ClientEvent::ToolResult { call_id, output, failed: false }),
            Asked::Keys(keys) => keys.into_iter().for_each(|key| to.event(ClientEvent::Digit(key))),
            Asked::Echo(data) => answer(&id, "server-response", data, to),
            Asked::Disconnect => to.event(ClientEvent::End { reason: "disconnect-bot".to_owned() }),
            Asked::Wrong(error) => answer(&id, "error-response", json!({"error": error}), to),
        }
        Ok(())
    }

    /// Once both sides are ready.
    fn answer_ready(&mut self, to: &mut Exchange<'_, Frame>) {
        let Some(about) = &self.about else { return };
        let Some(id) = self.ready.take() else { return };
        let data = json!({"version": rtvi::VERSION, "about": about});
        answer(&id, "bot-ready", data, to);
    }

    fn next_id(&mut self) -> u64 {
        self.id += 1;
        self.id
    }

    fn say(&mut self, audio: &AgentAudio, to: &mut Exchange<'_, Frame>) {
        self.sent_ms = self.sent_ms.saturating_add(FRAME_MS as u32);
        self.held.extend_from_slice(&audio.payload);
        if self.held.len() >= FRAMES_TOGETHER * self.output.frame_bytes() {
            self.say_held(to);
        }
    }

    fn say_held(&mut self, to: &mut Exchange<'_, Frame>) {
        if self.held.is_empty() {
            return;
        }
        let audio = self.held.split().freeze();
        let frame = pipecat::AudioRawFrame {
            id: self.next_id(),
            name: String::new(),
            audio,
            sample_rate: self.output.sample_rate(),
            num_channels: 1,
            pts: None,
        };
        send(Kind::Audio(frame), to);
    }

    fn begin(&mut self, text: &str, to: &mut Exchange<'_, Frame>) {
        self.sent_ms = 0;
        self.held.clear();
        tell("bot-llm-text", Some(json!({"text": text})), to);
        tell("bot-llm-stopped", None, to);
        tell("bot-transcription", Some(json!({"text": text})), to);
        tell("bot-tts-started", None, to);
        tell("bot-started-speaking", None, to);
    }

    fn end(&mut self, status: ResponseStatus, to: &mut Exchange<'_, Frame>) {
        self.sent_ms = 0;
        if status == ResponseStatus::Completed {
            self.say_held(to);
        } else {
            self.held.clear();
            let id = self.next_id();
            send(Kind::Interruption(pipecat::InterruptionFrame { id, name: String::new() }), to);
            tell("bot-interrupted", None, to);
        }
        tell("bot-tts-stopped", None, to);
        tell("bot-stopped-speaking", None, to);
    }

    fn understand(&mut self, text: String, last: bool, to: &mut Exchange<'_, Frame>) {
        let timestamp = rtvi::timestamp(self.intake.as_ref().map_or(0, Intake::media_us));
        tell("user-transcription", Some(json!({"text": text, "user_id": USER, "timestamp": timestamp, "final": last})), to);
        if last {
            let id = self.next_id();
            let said = pipecat::TranscriptionFrame { id, name: String::new(), text, user_id: USER.to_owned(), timestamp };
            send(Kind::Transcription(said), to);
        }
    }
}

impl Dialect for Bot {
    type In = Frame;
    type Out = Frame;

    fn open(&mut self, to: &mut Exchange<'_, Frame>) {
        if let Some(start) = self.start.take() {
            to.event(ClientEvent::Start(*start));
        }
    }

    fn decode(&mut self, message: Frame, to: &mut Exchange<'_, Frame>) {
        let heard = match message {
            Frame::Binary(bytes) => self.hear(bytes, to),
            Frame::Text(_) => Err(fatal(ErrorCode::MalformedMessage, "a text frame: a pipecat.Frame is protobuf in a binary frame")),
        };
        if let Err(error) = heard {
            to.error(error);
        }
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Frame>) {
        match event {
            ServerEvent::Accepted(accepted) => {
                self.about = Some(json!({
                    "library": "agent-server",
                    "session_id": accepted.session_id,
                    "backend_id": accepted.backend_id,
                    "boot_id": accepted.boot_id,
                }));
                self.answer_ready(to);
            }
            ServerEvent::Speech(marker) => {
                tell(if marker.started { "user-started-speaking" } else { "user-stopped-speaking" }, None, to);
            }
            ServerEvent::Transcript { text, last, .. } => self.understand(text, last, to),
            ServerEvent::Answering { .. } => tell("bot-llm-started", None, to),
            ServerEvent::ResponseStart { text, .. } => self.begin(&text, to),
            ServerEvent::Audio(audio) => self.say(&audio, to),
            ServerEvent::ResponseEnd { status, .. } => self.end(status, to),
            ServerEvent::ToolCall { call_id, name, arguments } => {
                let arguments: serde_json::Value = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
                let data = json!({"function_name": name, "tool_call_id": call_id, "args": arguments});
                tell("llm-function-call", Some(data), to);
            }
            ServerEvent::ToolCancel { call_id } => {
                tell("llm-function-call-stopped", Some(json!({"tool_call_id": call_id, "cancelled": true})), to);
            }
            ServerEvent::Error(error) => {
                tell("error", Some(json!({"error": error.message, "fatal": error.fatal})), to);
            }
            // RTVI has no words for the rest.
            ServerEvent::Committed { .. }
            | ServerEvent::AnswerDropped { .. }
            | ServerEvent::Ack { .. }
            | ServerEvent::Context { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::Resumable { .. }
            | ServerEvent::GoingAway { .. }
            | ServerEvent::Ended(_) => {}
        }
    }

    /// Most clients just close.
    fn closed(&mut self, code: u16, to: &mut Exchange<'_, Frame>) {
        if matches!(code, 1000 | 1005) {
            to.event(ClientEvent::End { reason: "closed".to_owned() });
        }
    }
}

/// Answers a message of this id.
fn answer(id: &str, kind: &str, data: serde_json::Value, to: &mut Exchange<'_, Frame>) {
    send(Kind::Message(pipecat::MessageFrame { data: rtvi::message(kind, Some(id), Some(data)) }), to);
}

fn tell(kind: &str, data: Option<serde_json::Value>, to: &mut Exchange<'_, Frame>) {
    send(Kind::Message(pipecat::MessageFrame { data: rtvi::message(kind, None, data) }), to);
}

fn send(frame: Kind, to: &mut Exchange<'_, Frame>) {
    to.message(Frame::Binary(pipecat::Frame { frame: Some(frame) }.encode_to_vec().into()));
}

fn fatal(code: ErrorCode, message: impl Into<String>) -> SessionError {
    SessionError::fatal(code, message)
}
