//! ElevenLabs Agents: JSON in text frames, audio as base64 in them.
//!
//! The session starts with the client's first message: `conversation_initiation_client_data`, or whatever else a client begins with.
//!
//! | the session | the wire |
//! |---|---|
//! | accepted | `conversation_initiation_metadata`, first `ping` |
//! | speech begins, ends | `vad_score` |
//! | transcript | `tentative_user_transcript`, then `user_transcript` |
//! | response begins | `agent_response` with all that will be said |
//! | audio | `audio`, numbered from 1 |
//! | response is stopped | `interruption` with the last number, `agent_response_correction` |
//! | response is done | nothing: the wire has no word for it |

use std::borrow::Cow;

use http::StatusCode;
use proto::{
    audio::AudioFormat,
    base64,
    frame::{ClientEvent, ErrorCode, ResponseStatus, ResponseWish, ServerEvent, SessionAccepted, SessionError, SessionStart, ToolChoice},
    ids::ResponseId,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Dialect, Exchange, Frame, Opened, Refused, Socket, Upgrade, WebSocketDialect,
    intake::Intake,
    json::{quoted, text_of, voice_name},
};

/// The path of conversations.
const PATH: &str = "/v1/convai/conversation";
/// The subprotocol that browsers offer.
const SUBPROTOCOL: &str = "convai";
/// Largest message of a client, bytes: seconds of audio in any format.
const MAX_MESSAGE: usize = 1024 * 1024;
/// A ping for so much of the client's audio.
const PING_EVERY_US: u64 = 2_000_000;

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "ElevenLabs Agents: JSON in text frames",
    paths: PATH,
    serves: |path| path == PATH,
    starts_at_once: true,
    max_message: MAX_MESSAGE,
    open,
};

fn open(upgrade: &Upgrade<'_>) -> Result<Opened, Refused> {
    let format = |name: &str| match upgrade.parameter(name) {
        None => Ok(AudioFormat::Pcm16k),
        Some(value) => format_named(&value)
            .ok_or_else(|| Refused { status: StatusCode::BAD_REQUEST, body: format!("`{name}` is {}: {FORMATS}", quoted(&value)) }),
    };
    let start = SessionStart {
        client_ref: upgrade.client_ref(),
        input: format("input_format")?,
        output: format("output_format")?,
        ..SessionStart::default()
    };
    let greets = upgrade.parameter("greeting").is_some_and(|value| value == "1" || value == "true");
    let subprotocol = upgrade.subprotocols().any(|name| name == SUBPROTOCOL).then(|| http::HeaderValue::from_static(SUBPROTOCOL));
    let dialect: Socket = Box::new(Conversation::new(start, greets));
    Ok(Opened { subprotocol, ..dialect.into() })
}

/// What a format may be, for messages.
const FORMATS: &str = "this server takes pcm_8000, pcm_16000, pcm_24000, pcm_48000 and ulaw_8000";

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

/// One conversation.
#[derive(Debug)]
struct Conversation {
    /// Until it was said.
    start: Option<Box<SessionStart>>,
    /// The agent speaks first.
    greets: bool,
    /// The client asked for text alone.
    text_only: bool,
    intake: Intake,
    /// Number of the last `audio`.
    event: u64,
    pings: Pings,
    /// The response under way, or the last one, and its words.
    said: Option<(ResponseId, String)>,
}

/// Round trips by the client's audio, the one clock at hand: up to the end of the piece in which the answer came.
#[derive(Debug, Default)]
struct Pings {
    /// Number of the last one.
    number: u64,
    /// When it was sent.
    sent_us: u64,
    /// Whether it was answered, until that was measured.
    answered: Option<bool>,
    /// The last round trip that was measured.
    round_trip_ms: Option<u64>,
}

/// A message of the client, as far as audio needs it.
#[derive(Debug, Deserialize)]
struct Incoming<'a> {
    #[serde(borrow, default)]
    user_audio_chunk: Option<Cow<'a, str>>,
}

impl Conversation {
    fn new(start: SessionStart, greets: bool) -> Self {
        Self {
            intake: Intake::new(start.input),
            start: Some(Box::new(start)),
            greets,
            text_only: false,
            event: 0,
            pings: Pings::default(),
            said: None,
        }
    }

    /// Starts the session unless it was, as `data` wants it.
    fn begin(&mut self, data: &Value, to: &mut Exchange<'_, Frame>) {
        let Some(mut start) = self.start.take() else { return };
        let wanted = &data["conversation_config_override"];
        for (format, field) in [
            (&mut start.input, &wanted["asr"]["user_input_audio_format"]),
            (&mut start.output, &wanted["tts"]["agent_output_audio_format"]),
        ] {
            let Some(name) = field.as_str() else { continue };
            let Some(named) = format_named(name) else {
                let message = format!("the audio format {} is not served: {FORMATS}", quoted(name));
                return to.error(SessionError::fatal(ErrorCode::UnsupportedFormat, message));
            };
            *format = named;
        }
        if let Some(voice) = wanted["tts"]["voice_id"].as_str() {
            start.voice = voice_name(voice);
        }
        if let Some(tools) = data["dynamic_variables"]["client_tools"].as_str() {
            start.tools = tools.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        }
        self.text_only = [&wanted["text_only"], &wanted["conversation"]["text_only"]].into_iter().any(|v| v == &Value::Bool(true));
        let greets = self.greets || wanted["agent"]["first_message"].as_str().is_some_and(|text| !text.trim().is_empty());
        self.intake.set_format(start.input);
        to.event(ClientEvent::Start(*start));
        if greets {
            to.event(ClientEvent::Respond(ResponseWish { tool: ToolChoice::Never, text: None }));
        }
    }

    fn message(&mut self, message: &Value, to: &mut Exchange<'_, Frame>) {
        let Some(kind) = message["type"].as_str() else {
            return wrong("the message has neither `type` nor `user_audio_chunk`", to);
        };
        if kind == "conversation_initiation_client_data" {
            if self.start.is_none() {
                let message = "the conversation has begun: `conversation_initiation_client_data` comes first and once";
                return to.error(SessionError::fatal(ErrorCode::AlreadyStarted, message));
            }
            return self.begin(message, to);
        }
        self.begin(&Value::Null, to);
        match kind {
            "pong" => self.pong(message["event_id"].as_u64()),
            "client_tool_result" => {
                let Some(call_id) = message["tool_call_id"].as_str() else {
                    return wrong("`client_tool_result` needs `tool_call_id`, as in the call", to);
                };
                let failed = message["is_error"].as_bool().unwrap_or(false);
                to.event(ClientEvent::ToolResult { call_id: call_id.to_owned(), output: text_of(&message["result"]), failed });
            }
            "user_message" | "multimodal_message" => match message["text"].as_str().filter(|text| !text.trim().is_empty()) {
                Some(text) => {
                    // Whatever is being said is interrupted by it.
                    to.event(ClientEvent::BargeIn { response: None, heard_ms: u32::MAX });
                    to.event(ClientEvent::Respond(ResponseWish { text: Some(text.to_owned()), ..ResponseWish::default() }));
                }
                None => wrong(&format!("`{kind}` needs `text` that is not empty"), to),
            },
            "contextual_update" => match message["text"].as_str() {
                Some(text) => to.event(ClientEvent::Context { role: "system".to_owned(), text: text.to_owned() }),
                None => wrong("`contextual_update` needs `text`", to),
            },
            // A sign of life.
            "user_activity" => to.event(ClientEvent::Context { role: "user".to_owned(), text: String::new() }),
            "feedback" => {}
            _ => wrong(
                &format!(
                    "there is no message {}; known are user_audio_chunk, pong, client_tool_result, user_message, user_activity, \
                     contextual_update, feedback",
                    quoted(kind)
                ),
                to,
            ),
        }
    }

    fn audio(&mut self, chunk: &str, to: &mut Exchange<'_, Frame>) {
        let Some(audio) = base64::decode(chunk) else {
            return to.error(SessionError::warning(ErrorCode::BadAudio, "`user_audio_chunk` is not base64"));
        };
        if let Err(error) = self.intake.take(&audio.into(), to) {
            to.error(error);
        }
        if self.pings.answered.take_if(|answered| *answered).is_some() {
            self.pings.round_trip_ms = Some(self.intake.media_us().saturating_sub(self.pings.sent_us) / 1_000);
        }
        if self.pings.number > 0 && self.intake.media_us().saturating_sub(self.pings.sent_us) >= PING_EVERY_US {
            self.ping(to);
        }
    }

    fn ping(&mut self, to: &mut Exchange<'_, Frame>) {
        self.pings.number += 1;
        self.pings.sent_us = self.intake.media_us();
        self.pings.answered = Some(false);
        say(to, &json!({"type": "ping", "ping_event": {"event_id": self.pings.number, "ping_ms": self.pings.round_trip_ms}}));
    }

    fn pong(&mut self, event: Option<u64>) {
        if self.pings.answered == Some(false) && event == Some(self.pings.number) {
            self.pings.answered = Some(true);
        }
    }

    fn accepted(&mut self, accepted: &SessionAccepted, to: &mut Exchange<'_, Frame>) {
        let metadata = json!({
            "type": "conversation_initiation_metadata",
            "conversation_initiation_metadata_event": {
                "conversation_id": accepted.session_id,
                "agent_output_audio_format": name_of(accepted.output),
                "user_input_audio_format": name_of(accepted.input),
            },
        });
        say(to, &metadata);
        self.ping(to);
    }
}

/// The session survives it.
fn wrong(what: &str, to: &mut Exchange<'_, Frame>) {
    to.error(SessionError::warning(ErrorCode::MalformedMessage, what));
}

fn say(to: &mut Exchange<'_, Frame>, message: &Value) {
    to.message(Frame::Text(message.to_string().into()));
}

impl Dialect for Conversation {
    type In = Frame;
    type Out = Frame;

    fn decode(&mut self, message: Frame, to: &mut Exchange<'_, Frame>) {
        let Frame::Text(text) = message else {
            let message = "a binary frame: audio goes as base64 in {\"user_audio_chunk\": \"...\"}";
            return to.error(SessionError::fatal(ErrorCode::MalformedMessage, message));
        };
        if !text.trim_start().starts_with('{') {
            return to.error(not_a_message("it does not begin with `{`"));
        }
        match serde_json::from_str::<Incoming<'_>>(&text) {
            Ok(Incoming { user_audio_chunk: Some(chunk) }) => {
                self.begin(&Value::Null, to);
                self.audio(&chunk, to);
            }
            Ok(Incoming { user_audio_chunk: None }) => match serde_json::from_str(&text) {
                Ok(message) => self.message(&message, to),
                Err(error) => to.error(not_a_message(error)),
            },
            Err(error) => to.error(not_a_message(error)),
        }
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Frame>) {
        match event {
            ServerEvent::Accepted(accepted) => self.accepted(&accepted, to),
            ServerEvent::Speech(marker) => {
                say(to, &json!({"type": "vad_score", "vad_score_event": {"vad_score": if marker.started { 0.95 } else { 0.05 }}}));
            }
            ServerEvent::Transcript { text, last: true, .. } => {
                say(to, &json!({"type": "user_transcript", "user_transcription_event": {"user_transcript": text}}));
            }
            ServerEvent::Transcript { text, last: false, .. } => {
                say(to, &json!({"type": "tentative_user_transcript", "tentative_user_transcription_event": {"user_transcript": text}}));
            }
            ServerEvent::ResponseStart { response, text, .. } => {
                say(to, &json!({"type": "agent_response", "agent_response_event": {"agent_response": text}}));
                self.said = Some((response, text));
            }
            ServerEvent::Audio(audio) if !self.text_only => {
                self.event += 1;
                let mut text = String::with_capacity(audio.payload.len().div_ceil(3) * 4 + 96);
                text.push_str(r#"{"type":"audio","audio_event":{"audio_base_64":""#);
                base64::encode_into(&audio.payload, &mut text);
                text.push_str(r#"","event_id":"#);
                text.push_str(&self.event.to_string());
                text.push_str("}}");
                to.message(Frame::Text(text.into()));
            }
            ServerEvent::ResponseEnd { status, .. } if status != ResponseStatus::Completed => {
                say(to, &json!({"type": "interruption", "interruption_event": {"event_id": self.event}}));
            }
            ServerEvent::Context { response, text, .. } => {
                if let Some((_, original)) = self.said.take_if(|(said, _)| response == Some(*said)) {
                    let event = json!({"original_agent_response": original, "corrected_agent_response": text});
                    say(to, &json!({"type": "agent_response_correction", "agent_response_correction_event": event}));
                }
            }
            ServerEvent::ToolCall { call_id, name, arguments } => {
                let parameters: Value = serde_json::from_str(&arguments).unwrap_or_default();
                let call = json!({"tool_name": name, "tool_call_id": call_id, "parameters": parameters});
                say(to, &json!({"type": "client_tool_call", "client_tool_call": call}));
            }
            ServerEvent::Error(error) => {
                let event = json!({"error_type": error.code, "message": error.message, "fatal": error.fatal});
                say(to, &json!({"type": "error", "error_event": event}));
            }
            // What the wire has no word for.
            ServerEvent::Audio(_)
            | ServerEvent::ResponseEnd { .. }
            | ServerEvent::Committed { .. }
            | ServerEvent::Answering { .. }
            | ServerEvent::AnswerDropped { .. }
            | ServerEvent::Ack { .. }
            | ServerEvent::ToolCancel { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::Resumable { .. }
            | ServerEvent::GoingAway { .. }
            | ServerEvent::Ended(_) => {}
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange<'_, Frame>) {
        if self.start.is_none() && matches!(code, 1000 | 1005) {
            to.event(ClientEvent::End { reason: "closed".to_owned() });
        }
    }
}

fn not_a_message(why: impl std::fmt::Display) -> SessionError {
    SessionError::fatal(ErrorCode::MalformedMessage, format!("not a message of ElevenLabs Agents, which are JSON objects: {why}"))
}

#[cfg(test)]
mod tests;
