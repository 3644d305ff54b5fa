//! `ElevenLabs` Agents.
//!
//! The wire names no responses and no ends of them: the caller finds them by the audio. What it does name is the last audio that an
//! interruption covers, and like the service's own client we drop such audio when it comes later.
//!
//! | on the wire | here |
//! |---|---|
//! | `conversation_initiation_metadata` | `Accepted` |
//! | `vad_score`, across the threshold | `Speech` |
//! | `user_transcript` | a turn: `Committed`, `Transcript` |
//! | `agent_response` | `Answering` |
//! | `interruption` | `ResponseEnd`, interrupted, of whatever is played |

#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt::Write, sync::Arc};

use proto::{
    audio::AudioFormat,
    base64,
    frame::{AgentAudio, ClientEvent, ErrorCode, ResponseStatus, ServerEvent, SessionAccepted, SessionError, SessionStart, SpeechMarker},
    ids::{ResponseId, TurnId},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Dialect, Exchange, Wire, parting::Parting};
use crate::plan::Service;

/// From this score on the user speaks, says the service.
const SPEECH: f64 = 0.7;
/// And up to this one not any more.
const SILENCE: f64 = 0.3;

/// One session.
#[derive(Debug)]
pub(super) struct Elevenlabs {
    service: Arc<Service>,
    parting: Parting,
    accepted: bool,
    /// The agent's audio: its format, messages so far, media time.
    output: AudioFormat,
    sequence: u64,
    media_us: u64,
    /// The last audio that came, and the last that an interruption covers.
    event: u64,
    interrupted: u64,
    /// Media time of the user's audio so far.
    said_us: u64,
    /// The user's turns so far.
    turns: u64,
    /// The service hears the user.
    hears: bool,
}

/// A message, as far as audio needs it.
#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    audio_event: Option<Audio<'a>>,
}

#[derive(Deserialize)]
struct Audio<'a> {
    #[serde(borrow)]
    audio_base_64: Cow<'a, str>,
    #[serde(default)]
    event_id: u64,
}

impl Elevenlabs {
    /// As the service wants it.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        Self {
            parting: Parting::default(),
            accepted: false,
            output: service.output,
            sequence: 0,
            media_us: 0,
            event: 0,
            interrupted: 0,
            said_us: 0,
            turns: 0,
            hears: false,
            service: Arc::clone(service),
        }
    }

    fn start(&self, start: &SessionStart, to: &mut Exchange) {
        let agent = &self.service.agent;
        let mut first = json!({"type": "conversation_initiation_client_data", "user_id": start.client_ref});
        // An agent takes only the overrides that it was set up to take.
        if let Some(instructions) = &agent.instructions {
            first["conversation_config_override"]["agent"]["prompt"]["prompt"] = json!(instructions);
        }
        if let Some(voice) = &agent.voice {
            first["conversation_config_override"]["tts"]["voice_id"] = json!(voice);
        }
        if !start.tools.is_empty() {
            first["dynamic_variables"]["client_tools"] = json!(start.tools.join(","));
        }
        say(&first, to);
    }

    fn audio(&mut self, audio: &Audio<'_>, to: &mut Exchange) {
        let Some(bytes) = base64::decode(&audio.audio_base_64) else {
            return to.malformed(malformed("`audio_base_64` is not base64"));
        };
        self.event = self.event.max(audio.event_id);
        if audio.event_id > 0 && audio.event_id <= self.interrupted {
            return;
        }
        let length_us = self.output.duration_us(bytes.len());
        let (sequence, timestamp_us) = (self.sequence, self.media_us);
        self.sequence += 1;
        self.media_us = self.media_us.saturating_add(length_us);
        to.event(ServerEvent::Audio(AgentAudio { sequence, timestamp_us, payload: bytes.into(), response: ResponseId(0) }));
    }

    fn message(&mut self, message: &Value, to: &mut Exchange) {
        match message["type"].as_str().unwrap_or_default() {
            "conversation_initiation_metadata" => self.metadata(&message["conversation_initiation_metadata_event"], to),
            "user_transcript" => {
                self.turns += 1;
                to.event(ServerEvent::Committed { turn: TurnId(self.turns) });
                transcript(self.turns, &message["user_transcription_event"]["user_transcript"], true, to);
            }
            "tentative_user_transcript" => {
                transcript(self.turns + 1, &message["tentative_user_transcription_event"]["user_transcript"], false, to);
            }
            "agent_response" => to.event(ServerEvent::Answering { turn: TurnId(self.turns) }),
            "agent_response_correction" => {
                let text = &message["agent_response_correction_event"]["corrected_agent_response"];
                let text = text.as_str().unwrap_or_default().to_owned();
                to.event(ServerEvent::Context { role: "agent".to_owned(), text, response: None, heard_ms: 0 });
            }
            "interruption" => {
                self.interrupted = message["interruption_event"]["event_id"].as_u64().unwrap_or(self.event);
                let (response, status) = (ResponseId(0), ResponseStatus::Interrupted);
                to.event(ServerEvent::ResponseEnd { response, status, frames: 0 });
            }
            "vad_score" => self.score(message["vad_score_event"]["vad_score"].as_f64().unwrap_or_default(), to),
            "ping" => say(&json!({"type": "pong", "event_id": message["ping_event"]["event_id"]}), to),
            "client_tool_call" => {
                let call = &message["client_tool_call"];
                let (Some(call_id), Some(name)) = (call["tool_call_id"].as_str(), call["tool_name"].as_str()) else {
                    return to.malformed(malformed("`client_tool_call` without `tool_call_id` or `tool_name`"));
                };
                let arguments = if call["parameters"].is_null() { "{}".to_owned() } else { call["parameters"].to_string() };
                to.event(ServerEvent::ToolCall { call_id: call_id.to_owned(), name: name.to_owned(), arguments });
            }
            "error" => {
                let event = &message["error_event"];
                let kind = &event["error_type"];
                let code = ErrorCode::deserialize(kind).unwrap_or(ErrorCode::Internal);
                let text = event["message"].as_str().or_else(|| kind.as_str()).unwrap_or("an error without words");
                // The service itself only closes; agent-server says beforehand that it will.
                let fatal = event["fatal"] == true;
                self.parting.error(SessionError { code, message: text.to_owned(), fatal }, to);
            }
            _ => {}
        }
    }

    fn metadata(&mut self, event: &Value, to: &mut Exchange) {
        let format = |field: &str, asked: AudioFormat| match event[field].as_str() {
            None => Ok(asked),
            Some(name) => format_named(name).ok_or_else(|| {
                let message = format!("the agent's `{field}` is {name}, which is not spoken here: set it to pcm_16000 at the service");
                SessionError::fatal(ErrorCode::UnsupportedFormat, message)
            }),
        };
        let input = format("user_input_audio_format", self.service.input);
        let output = format("agent_output_audio_format", self.service.output);
        let (input, output) = match (input, output) {
            (Ok(input), Ok(output)) => (input, output),
            (Err(error), _) | (_, Err(error)) => return to.malformed(error),
        };
        self.output = output;
        self.accepted = true;
        to.event(ServerEvent::Accepted(SessionAccepted {
            session_id: event["conversation_id"].as_str().unwrap_or_default().to_owned(),
            backend_id: String::new(),
            boot_id: String::new(),
            input,
            output,
            max_duration_ms: 0,
            idle_timeout_ms: 0,
        }));
    }

    fn score(&mut self, score: f64, to: &mut Exchange) {
        let hears = if self.hears { score > SILENCE } else { score >= SPEECH };
        if hears != self.hears {
            self.hears = hears;
            to.event(ServerEvent::Speech(SpeechMarker { started: hears, timestamp_us: self.said_us }));
        }
    }
}

impl Dialect for Elevenlabs {
    fn path(&self) -> Cow<'static, str> {
        let mut path = "/v1/convai/conversation".to_owned();
        let agent = &self.service.agent;
        let mut parameters = Vec::new();
        if let Some(id) = &agent.id {
            parameters.push(("agent_id", escaped(id)));
        }
        // The service knows none of these, and lets them be: there the agent's own settings decide.
        for (name, format) in [("input_format", self.service.input), ("output_format", self.service.output)] {
            if format != AudioFormat::Pcm16k {
                parameters.push((name, name_of(format)));
            }
        }
        if agent.greets {
            parameters.push(("greeting", "1".to_owned()));
        }
        for (at, (name, value)) in parameters.iter().enumerate() {
            path.push(if at == 0 { '?' } else { '&' });
            let _ = write!(path, "{name}={value}");
        }
        path.into()
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        match event {
            ClientEvent::Audio(audio) => {
                const HEAD: &str = r#"{"user_audio_chunk":""#;
                const TAIL: &str = "\"}";
                self.said_us = self.said_us.saturating_add(self.service.input.duration_us(audio.payload.len()));
                let mut text = String::with_capacity(HEAD.len() + audio.payload.len().div_ceil(3) * 4 + TAIL.len());
                text.push_str(HEAD);
                base64::encode_into(&audio.payload, &mut text);
                text.push_str(TAIL);
                to.send(Wire::Text(text));
            }
            ClientEvent::Start(start) => self.start(&start, to),
            ClientEvent::ToolResult { call_id, output, failed } => {
                say(&json!({"type": "client_tool_result", "tool_call_id": call_id, "result": output, "is_error": failed}), to);
            }
            ClientEvent::Respond(wish) => {
                if let Some(text) = wish.text {
                    say(&json!({"type": "user_message", "text": text}), to);
                }
            }
            ClientEvent::Context { text, .. } => say(&json!({"type": "contextual_update", "text": text}), to),
            ClientEvent::End { .. } => self.parting.leave(to),
            // No word of this wire.
            ClientEvent::Configure(_)
            | ClientEvent::Speech(_)
            | ClientEvent::Hint(_)
            | ClientEvent::Commit
            | ClientEvent::Discard
            | ClientEvent::BargeIn { .. }
            | ClientEvent::Cancel { .. }
            | ClientEvent::Truncate { .. }
            | ClientEvent::Played { .. }
            | ClientEvent::GiveUp { .. }
            | ClientEvent::Digit(_) => {}
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        let text = match message {
            Wire::Text(text) => text,
            Wire::Binary(_) => return to.malformed(malformed("a binary frame where text is due")),
            Wire::Close(_) => return,
        };
        match serde_json::from_str::<Incoming<'_>>(&text) {
            Ok(Incoming { kind, audio_event: Some(audio) }) if kind == "audio" => self.audio(&audio, to),
            Ok(Incoming { kind, .. }) if kind == "audio" => to.malformed(malformed("`audio` without `audio_event`")),
            _ => match serde_json::from_str(&text) {
                Ok(message) => self.message(&message, to),
                Err(error) => to.malformed(malformed(&format!("a text frame is not JSON: {error}"))),
            },
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange) {
        self.parting.closed(code, to);
    }
}

fn transcript(turn: u64, text: &Value, last: bool, to: &mut Exchange) {
    to.event(ServerEvent::Transcript { turn: TurnId(turn), text: text.as_str().unwrap_or_default().to_owned(), last });
}

fn say(message: &Value, to: &mut Exchange) {
    to.send(Wire::Text(message.to_string()));
}

fn malformed(what: &str) -> SessionError {
    SessionError::fatal(ErrorCode::MalformedMessage, what)
}

/// As the parameter of a query.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

fn format_named(name: &str) -> Option<AudioFormat> {
    match name {
        "ulaw_8000" => Some(AudioFormat::Mulaw8k),
        _ => AudioFormat::pcm(name.strip_prefix("pcm_")?.parse().ok()?),
    }
}

fn name_of(format: AudioFormat) -> String {
    match format {
        AudioFormat::Mulaw8k => "ulaw_8000".to_owned(),
        _ => format!("pcm_{}", format.sample_rate()),
    }
}
