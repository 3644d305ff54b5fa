//! Deepgram Voice Agent: JSON in text frames, audio in binary frames.
//!
//! | on the wire | here |
//! |---|---|
//! | `SettingsApplied` | `Accepted`, named by `session_id` or else by the `request_id` of `Welcome` |
//! | `UserStartedSpeaking` | a turn begins: `Speech`; a response under way was interrupted, unless the caller had given it up |
//! | `ConversationText` of the user | `Committed`, `Transcript` |
//! | `AgentStartedSpeaking`, `ConversationText` of the assistant, or audio without either | `ResponseStart` |
//! | audio after an interruption, before the next response begins | of the response that was interrupted |
//! | `AgentAudioDone` | `ResponseEnd` |

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

use proto::{
    audio::AudioFormat,
    frame::{ClientEvent, ErrorCode, ResponseStatus, ServerEvent, SessionAccepted, SessionError, SessionStart, SpeechMarker},
    ids::SessionId,
};
use serde_json::{Value, json};

use super::{Dialect, Exchange, Wire, course::Course, parting::Parting};
use crate::plan::Service;

/// What an agent is made of unless the profile says otherwise.
const LISTEN_MODEL: &str = "nova-3";
const THINK_MODEL: &str = "gpt-4o-mini";
const SPEAK_MODEL: &str = "aura-2-thalia-en";

/// The service closes a session that sends no audio and no `KeepAlive` for about so long. It says so nowhere.
const IDLE_TIMEOUT_MS: u32 = 10_000;
/// After so much silence, in microseconds of media time, a frame is announced by a `KeepAlive`: the caller sends one at half the timeout.
const QUIET_US: u64 = 4_000_000;

/// One session.
#[derive(Debug)]
pub(super) struct Deepgram {
    service: Arc<Service>,
    parting: Parting,
    request_id: SessionId,
    course: Course,
    /// Media time of the user's audio so far.
    said_us: u64,
    /// Where the last frame of it began.
    last_us: u64,
    /// Function calls that were not answered, with their names.
    calls: Vec<(String, String)>,
}

impl Deepgram {
    /// As the service wants it.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            parting: Parting::default(),
            request_id: SessionId::new(),
            course: Course::new(service.output),
            said_us: 0,
            last_us: 0,
            calls: Vec::new(),
        }
    }

    fn settings(&self, start: &SessionStart) -> Value {
        let agent = &self.service.agent;
        let functions: Vec<Value> = start
            .tools
            .iter()
            .map(|name| json!({"name": name, "description": "a tool of the caller", "parameters": {"type": "object", "properties": {}}}))
            .collect();
        let mut think = json!({
            "provider": {"type": "open_ai", "model": agent.model.as_deref().unwrap_or(THINK_MODEL)},
            "prompt": agent.instructions.as_deref().unwrap_or("You are a helpful voice agent."),
        });
        if !functions.is_empty() {
            think["functions"] = functions.into();
        }
        let mut settings = json!({
            "type": "Settings",
            "audio": {"input": format(start.input), "output": format(start.output)},
            "agent": {
                "listen": {"provider": {"type": "deepgram", "model": LISTEN_MODEL}},
                "think": think,
                "speak": {"provider": {"type": "deepgram", "model": agent.voice.as_deref().unwrap_or(SPEAK_MODEL)}},
            },
        });
        settings["audio"]["output"]["container"] = json!("none");
        if agent.greets {
            settings["agent"]["greeting"] = json!("Hello! How can I help you?");
        }
        settings
    }

    fn accepted(&mut self, message: &Value, to: &mut Exchange) {
        let session_id = message["session_id"].as_str().map_or_else(|| std::mem::take(&mut self.request_id), str::to_owned);
        to.event(ServerEvent::Accepted(SessionAccepted {
            session_id,
            backend_id: String::new(),
            boot_id: String::new(),
            input: self.service.input,
            output: self.service.output,
            max_duration_ms: 0,
            idle_timeout_ms: IDLE_TIMEOUT_MS,
        }));
    }

    fn message(&mut self, message: &Value, to: &mut Exchange) {
        let text = |field: &str| message[field].as_str().unwrap_or_default();
        match text("type") {
            "Welcome" => text("request_id").clone_into(&mut self.request_id),
            "SettingsApplied" => self.accepted(message, to),
            "UserStartedSpeaking" => {
                self.course.begin_turn();
                to.event(ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: self.said_us }));
                // It comes whether anything is interrupted or not.
                self.course.forget_given_up();
                self.course.end_response(ResponseStatus::Interrupted, to);
            }
            "ConversationText" if text("role") == "user" => {
                let turn = self.course.take_turn();
                to.event(ServerEvent::Committed { turn });
                to.event(ServerEvent::Transcript { turn, text: text("content").to_owned(), last: true });
            }
            "ConversationText" => self.course.begin_response(text("content"), to),
            "AgentThinking" => to.event(ServerEvent::Answering { turn: self.course.turn() }),
            "AgentStartedSpeaking" => self.course.begin_response("", to),
            "AgentAudioDone" => self.course.end_response(ResponseStatus::Completed, to),
            "FunctionCallRequest" => self.function_calls(message, to),
            "FunctionCallCancelled" => {
                for id in message["functions"].as_array().into_iter().flatten().filter_map(|function| function["id"].as_str()) {
                    self.calls.retain(|(call_id, _)| call_id != id);
                    to.event(ServerEvent::ToolCancel { call_id: id.to_owned() });
                }
            }
            kind @ ("Error" | "Warning") => {
                let description = if text("description").is_empty() { text("message") } else { text("description") };
                let message = format!("{}: {description}", text("code"));
                self.parting.error(SessionError { code: code_named(text("code")), message, fatal: kind == "Error" }, to);
            }
            _ => {}
        }
    }

    /// In a list, or the only one as it was at first. What the service runs itself is not ours to answer.
    fn function_calls(&mut self, message: &Value, to: &mut Exchange) {
        let one = std::slice::from_ref(message);
        for function in message["functions"].as_array().map_or(one, Vec::as_slice) {
            if function["client_side"] == false {
                continue;
            }
            let field = |name: &str, old: &str| function[name].as_str().or_else(|| function[old].as_str()).map(str::to_owned);
            let (Some(call_id), Some(name)) = (field("id", "function_call_id"), field("name", "function_name")) else {
                return to.malformed(malformed("`FunctionCallRequest` without `id` or `name`"));
            };
            let arguments = match (&function["arguments"], &function["input"]) {
                (Value::String(text), _) => text.clone(),
                (Value::Null, Value::Null) => "{}".to_owned(),
                (Value::Null, other) | (other, _) => other.to_string(),
            };
            // A service that never lets its calls be answered must not fill the memory.
            if self.calls.len() >= MAX_CALLS {
                self.calls.remove(0);
            }
            self.calls.push((call_id.clone(), name.clone()));
            to.event(ServerEvent::ToolCall { call_id, name, arguments });
        }
    }
}

/// Function calls that are remembered for their names.
const MAX_CALLS: usize = 64;

impl Dialect for Deepgram {
    fn path(&self) -> Cow<'static, str> {
        "/v1/agent/converse".into()
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        match event {
            ClientEvent::Audio(audio) => {
                if audio.timestamp_us.saturating_sub(self.last_us) >= QUIET_US {
                    say(&json!({"type": "KeepAlive"}), to);
                }
                self.last_us = audio.timestamp_us;
                self.said_us = self.said_us.saturating_add(self.service.input.duration_us(audio.payload.len()));
                to.send(Wire::Binary(audio.payload));
            }
            ClientEvent::Start(start) => say(&self.settings(&start), to),
            ClientEvent::ToolResult { call_id, output, .. } => {
                let at = self.calls.iter().position(|(id, _)| *id == call_id);
                let name = at.map(|at| self.calls.remove(at).1).unwrap_or_default();
                say(&json!({"type": "FunctionCallResponse", "id": call_id, "name": name, "content": output}), to);
            }
            ClientEvent::Commit => say(&json!({"type": "ForceEndTurn"}), to),
            ClientEvent::Respond(wish) => {
                if let Some(text) = wish.text {
                    say(&json!({"type": "InjectUserMessage", "content": text}), to);
                }
            }
            ClientEvent::Context { text, .. } => say(&json!({"type": "UpdatePrompt", "prompt": text}), to),
            ClientEvent::GiveUp { response } => self.course.give_up(response),
            ClientEvent::End { .. } => self.parting.leave(to),
            // No word of this wire.
            ClientEvent::Configure(_)
            | ClientEvent::Speech(_)
            | ClientEvent::Hint(_)
            | ClientEvent::Discard
            | ClientEvent::BargeIn { .. }
            | ClientEvent::Cancel { .. }
            | ClientEvent::Truncate { .. }
            | ClientEvent::Played { .. }
            | ClientEvent::Digit(_) => {}
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        match message {
            Wire::Binary(audio) => self.course.audio(audio, to),
            Wire::Text(text) => match serde_json::from_str(&text) {
                Ok(message) => self.message(&message, to),
                Err(error) => to.malformed(malformed(&format!("a text frame is not JSON: {error}"))),
            },
            Wire::Close(_) => {}
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange) {
        self.parting.closed(code, to);
    }
}

fn say(message: &Value, to: &mut Exchange) {
    to.send(Wire::Text(message.to_string()));
}

fn malformed(what: &str) -> SessionError {
    SessionError::fatal(ErrorCode::MalformedMessage, what)
}

fn format(format: AudioFormat) -> Value {
    let encoding = match format {
        AudioFormat::Mulaw8k => "mulaw",
        AudioFormat::Alaw8k => "alaw",
        AudioFormat::Pcm8k | AudioFormat::Pcm16k | AudioFormat::Pcm24k | AudioFormat::Pcm48k => "linear16",
    };
    json!({"encoding": encoding, "sample_rate": format.sample_rate()})
}

/// The service's codes as ours; those of its own insides are its own fault.
fn code_named(code: &str) -> ErrorCode {
    match code {
        "UNPARSABLE_CLIENT_MESSAGE" => ErrorCode::MalformedMessage,
        "NON_SETTINGS_MESSAGE_BEFORE_SETTINGS" => ErrorCode::NotStarted,
        "SETTINGS_ALREADY_APPLIED" => ErrorCode::AlreadyStarted,
        "INVALID_SETTINGS" | "INVALID_CLIENT_MESSAGE" => ErrorCode::InvalidArgument,
        "USER_AUDIO_FORMAT" => ErrorCode::BadAudio,
        "CLIENT_MESSAGE_TIMEOUT" => ErrorCode::Idle,
        "MESSAGE_TOO_LARGE" => ErrorCode::MessageTooLarge,
        "UNKNOWN_FUNCTION_CALL" => ErrorCode::UnknownToolCall,
        "TOO_MANY_CONVERSATIONS" => ErrorCode::Overloaded,
        "GOING_AWAY" => ErrorCode::Draining,
        "MAX_DURATION_EXCEEDED" => ErrorCode::Deadline,
        _ => ErrorCode::Internal,
    }
}
