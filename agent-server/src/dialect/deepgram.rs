//! Deepgram Voice Agent: JSON in text frames, audio in binary frames.
//!
//! | the session | the wire |
//! |---|---|
//! | the stream opens | `Welcome`, whose `request_id` is not the session's: there is none yet |
//! | accepted | `SettingsApplied`, with the session's id as `session_id` |
//! | speech begins | `UserStartedSpeaking`: the client throws away what it plays |
//! | the last transcript | `ConversationText` of the user |
//! | thinking begins | `AgentThinking` |
//! | response begins | `AgentStartedSpeaking`, `ConversationText` of the assistant |
//! | response ends | `AgentAudioDone`, unless the user's speech ended it |

mod settings;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::HeaderValue;
use proto::{
    audio::AudioFormat,
    frame::{ClientEvent, ErrorCode, ResponseStatus, ResponseWish, ServerEvent, SessionError, SessionSettings, SpeechMarker, ToolChoice},
};
use serde_json::{Value, json};

use self::settings::Settings;
use super::{
    Dialect, Exchange, Frame, Opened, Refused, Socket, Upgrade, WebSocketDialect,
    intake::Intake,
    json::{quoted, text_of},
};

/// The path that all clients take, and the short one of self-hosted agents.
const PATHS: [&str; 2] = ["/v1/agent/converse", "/agent"];
/// The subprotocols in which browsers bring their key, or an access token.
const SUBPROTOCOLS: [&str; 2] = ["token", "bearer"];
/// Largest message of a client, bytes: seconds of audio in any format.
const MAX_MESSAGE: usize = 1024 * 1024;

pub(super) const WEBSOCKET: WebSocketDialect = WebSocketDialect {
    name: "Deepgram Voice Agent: JSON in text frames, audio in binary frames",
    paths: "/v1/agent/converse or /agent",
    serves: |path| PATHS.contains(&path),
    starts_at_once: true,
    max_message: MAX_MESSAGE,
    open,
};

#[expect(clippy::unnecessary_wraps, reason = "as in the table of dialects")]
fn open(upgrade: &Upgrade<'_>) -> Result<Opened, Refused> {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    // As long as any other: a message's length must not tell how many came before.
    let request_id = format!("request-{:012}", OPENED.fetch_add(1, Relaxed) + 1);
    let subprotocol =
        SUBPROTOCOLS.into_iter().find(|known| upgrade.subprotocols().any(|name| name == *known)).map(HeaderValue::from_static);
    let dialect: Socket = Box::new(Conversation::new(upgrade.client_ref(), request_id));
    Ok(Opened { subprotocol, ..dialect.into() })
}

/// One conversation.
#[derive(Debug)]
struct Conversation {
    client_ref: String,
    request_id: String,
    started: bool,
    intake: Intake,
    /// Media time at which the user's speech ended, until the answer to it began.
    speech_end_us: Option<u64>,
    user_speaks: bool,
    /// A response is thought of, waits for a function, or is spoken.
    agent_works: bool,
    /// The function that was asked for, by its call.
    call: Option<(String, String)>,
}

impl Conversation {
    fn new(client_ref: String, request_id: String) -> Self {
        Self {
            client_ref,
            request_id,
            started: false,
            intake: Intake::new(AudioFormat::default()),
            speech_end_us: None,
            user_speaks: false,
            agent_works: false,
            call: None,
        }
    }

    fn begin(&mut self, message: &Value, to: &mut Exchange<'_, Frame>) {
        if self.started {
            let message = "the settings were applied: they come first and once; change them with UpdateThink, UpdateSpeak and UpdatePrompt";
            return to.error(SessionError::fatal(ErrorCode::AlreadyStarted, message));
        }
        match Settings::read(message, &self.client_ref) {
            Ok(Settings { start, greets }) => {
                self.started = true;
                self.intake.set_format(start.input);
                to.event(ClientEvent::Start(start));
                if greets {
                    to.event(ClientEvent::Respond(ResponseWish { tool: ToolChoice::Never, text: None }));
                }
            }
            Err(error) => to.error(error),
        }
    }

    fn message(&mut self, message: &Value, to: &mut Exchange<'_, Frame>) {
        let Some(kind) = message["type"].as_str() else {
            return to.error(unparsable("the message has no `type`"));
        };
        if kind == "Settings" {
            return self.begin(message, to);
        }
        if !self.started {
            let message = format!("{} came before the settings: send `Settings` first", quoted(kind));
            return to.error(SessionError::fatal(ErrorCode::NotStarted, message));
        }
        match kind {
            "KeepAlive" => to.event(ClientEvent::Context { role: "user".to_owned(), text: String::new() }),
            "FunctionCallResponse" => self.function_result(message, to),
            "UpdatePrompt" => match message["prompt"].as_str() {
                Some(prompt) => {
                    to.event(ClientEvent::Context { role: "system".to_owned(), text: prompt.to_owned() });
                    say(to, &json!({"type": "PromptUpdated"}));
                }
                None => to.error(unparsable("`UpdatePrompt` needs `prompt`")),
            },
            "UpdateSpeak" => {
                let voice = Some(settings::voice(&message["speak"]));
                to.event(ClientEvent::Configure(Box::new(SessionSettings { voice, ..SessionSettings::default() })));
                say(to, &json!({"type": "SpeakUpdated"}));
            }
            "UpdateThink" => {
                let tools = Some(settings::functions(&message["think"]));
                to.event(ClientEvent::Configure(Box::new(SessionSettings { tools, ..SessionSettings::default() })));
                say(to, &json!({"type": "ThinkUpdated"}));
            }
            "UpdateListen" => say(to, &json!({"type": "ListenUpdated"})),
            "InjectUserMessage" => match message["content"].as_str().filter(|text| !text.trim().is_empty()) {
                Some(text) => {
                    say(to, &json!({"type": "ConversationText", "role": "user", "content": text}));
                    stop(to);
                    respond(to, ToolChoice::Auto, text);
                }
                None => to.error(unparsable("`InjectUserMessage` needs `content` that is not empty")),
            },
            "InjectAgentMessage" => self.inject(message, to),
            "ForceEndTurn" => {
                if self.user_speaks {
                    to.event(ClientEvent::Commit);
                    to.event(ClientEvent::Respond(ResponseWish::default()));
                }
            }
            _ => to.error(unparsable(&format!(
                "there is no message {}; known are Settings, KeepAlive, FunctionCallResponse, UpdatePrompt, UpdateSpeak, UpdateThink, \
                 UpdateListen, InjectUserMessage, InjectAgentMessage, ForceEndTurn",
                quoted(kind)
            ))),
        }
    }

    /// Also by the names that it had first.
    fn function_result(&mut self, message: &Value, to: &mut Exchange<'_, Frame>) {
        let Some(id) = message["id"].as_str().or_else(|| message["function_call_id"].as_str()) else {
            return to.error(unparsable("`FunctionCallResponse` needs `id`, as in the request"));
        };
        let output = if message["content"].is_null() { &message["output"] } else { &message["content"] };
        self.call.take_if(|(call_id, _)| call_id == id);
        to.event(ClientEvent::ToolResult { call_id: id.to_owned(), output: text_of(output), failed: false });
    }

    /// The agent shall say something unasked.
    fn inject(&mut self, message: &Value, to: &mut Exchange<'_, Frame>) {
        let text = message["message"].as_str().unwrap_or_default();
        if text.trim().is_empty() && message["is_dynamic"] != true {
            return to.error(unparsable("`InjectAgentMessage` needs `message` that is not empty"));
        }
        let behavior = message["behavior"].as_str().unwrap_or("default");
        if behavior == "interrupt" {
            stop(to);
        } else if self.user_speaks || self.agent_works {
            let who = if self.user_speaks { "user" } else { "agent" };
            let why = format!("the {who} is in the middle of a turn: wait for its end, or ask for the behavior `interrupt`");
            return say(to, &json!({"type": "InjectionRefused", "message": why}));
        }
        self.agent_works = true;
        respond(to, ToolChoice::Never, text);
    }

    fn audio(&mut self, audio: &bytes::Bytes, to: &mut Exchange<'_, Frame>) {
        if !self.started {
            let message = "audio came before the settings: send `Settings` first";
            return to.error(SessionError::fatal(ErrorCode::NotStarted, message));
        }
        if let Err(error) = self.intake.take(audio, to) {
            to.error(error);
        }
    }

    fn speech(&mut self, marker: SpeechMarker, to: &mut Exchange<'_, Frame>) {
        self.user_speaks = marker.started;
        self.speech_end_us = (!marker.started).then_some(marker.timestamp_us);
        if marker.started {
            say(to, &json!({"type": "UserStartedSpeaking"}));
        }
    }

    /// Latencies by the client's audio, the one clock at hand: 0 where no speech was answered.
    fn response_starts(&mut self, text: &str, to: &mut Exchange<'_, Frame>) {
        self.agent_works = true;
        let waited_us = self.speech_end_us.take().map_or(0, |end| self.intake.media_us().saturating_sub(end));
        let seconds = waited_us as f64 / 1e6;
        say(to, &json!({"type": "AgentStartedSpeaking", "total_latency": seconds, "tts_latency": 0.0, "ttt_latency": seconds}));
        say(to, &json!({"type": "ConversationText", "role": "assistant", "content": text}));
    }

    fn error(&self, error: &SessionError, to: &mut Exchange<'_, Frame>) {
        let kind = if error.fatal { "Error" } else { "Warning" };
        say(to, &json!({"type": kind, "description": error.message, "code": self.code(error.code)}));
    }

    /// In the service's own words, where it has one.
    const fn code(&self, code: ErrorCode) -> &'static str {
        match code {
            ErrorCode::MalformedMessage => "UNPARSABLE_CLIENT_MESSAGE",
            ErrorCode::NotStarted => "NON_SETTINGS_MESSAGE_BEFORE_SETTINGS",
            ErrorCode::AlreadyStarted => "SETTINGS_ALREADY_APPLIED",
            ErrorCode::InvalidArgument if !self.started => "INVALID_SETTINGS",
            ErrorCode::UnsupportedFormat => "INVALID_SETTINGS",
            ErrorCode::BadAudio => "USER_AUDIO_FORMAT",
            ErrorCode::Idle => "CLIENT_MESSAGE_TIMEOUT",
            ErrorCode::Internal | ErrorCode::SequenceGap => "INTERNAL_SERVER_ERROR",
            ErrorCode::MessageTooLarge => "MESSAGE_TOO_LARGE",
            ErrorCode::UnknownToolCall => "UNKNOWN_FUNCTION_CALL",
            ErrorCode::AfterEnd => "CONVERSATION_ENDED",
            ErrorCode::InvalidArgument => "INVALID_CLIENT_MESSAGE",
            ErrorCode::Overloaded => "TOO_MANY_CONVERSATIONS",
            ErrorCode::Draining => "GOING_AWAY",
            ErrorCode::Deadline => "MAX_DURATION_EXCEEDED",
        }
    }
}

fn unparsable(what: &str) -> SessionError {
    SessionError::fatal(ErrorCode::MalformedMessage, what)
}

fn say(to: &mut Exchange<'_, Frame>, message: &Value) {
    to.message(Frame::Text(message.to_string().into()));
}

/// Whatever is being said is interrupted.
fn stop(to: &mut Exchange<'_, Frame>) {
    to.event(ClientEvent::BargeIn { response: None, heard_ms: u32::MAX });
}

fn respond(to: &mut Exchange<'_, Frame>, tool: ToolChoice, text: &str) {
    to.event(ClientEvent::Respond(ResponseWish { tool, text: Some(text.to_owned()) }));
}

impl Dialect for Conversation {
    type In = Frame;
    type Out = Frame;

    fn open(&mut self, to: &mut Exchange<'_, Frame>) {
        say(to, &json!({"type": "Welcome", "request_id": self.request_id}));
    }

    fn decode(&mut self, message: Frame, to: &mut Exchange<'_, Frame>) {
        match message {
            Frame::Binary(audio) => self.audio(&audio, to),
            Frame::Text(text) => match serde_json::from_str(&text) {
                Ok(message) => self.message(&message, to),
                Err(error) => to.error(unparsable(&format!("a text frame is not JSON: {error}"))),
            },
        }
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Frame>) {
        match event {
            ServerEvent::Accepted(accepted) => say(to, &json!({"type": "SettingsApplied", "session_id": accepted.session_id})),
            ServerEvent::Speech(marker) => self.speech(marker, to),
            ServerEvent::Transcript { text, last: true, .. } => {
                say(to, &json!({"type": "ConversationText", "role": "user", "content": text}));
            }
            ServerEvent::Answering { .. } => {
                self.agent_works = true;
                say(to, &json!({"type": "AgentThinking", "content": "what to say"}));
            }
            ServerEvent::ResponseStart { text, .. } => self.response_starts(&text, to),
            ServerEvent::Audio(audio) => to.message(Frame::Binary(audio.payload)),
            ServerEvent::ResponseEnd { status, .. } => {
                self.agent_works = false;
                // The user's speech has told the client to throw the rest away.
                if !(self.user_speaks && status == ResponseStatus::Interrupted) {
                    say(to, &json!({"type": "AgentAudioDone"}));
                }
            }
            ServerEvent::AnswerDropped { .. } => self.agent_works = false,
            ServerEvent::ToolCall { call_id, name, arguments } => {
                let function = json!({"id": call_id, "name": name, "arguments": arguments, "client_side": true});
                say(to, &json!({"type": "FunctionCallRequest", "functions": [function]}));
                self.call = Some((call_id, name));
            }
            ServerEvent::ToolCancel { call_id } => {
                self.agent_works = false;
                let name = self.call.take_if(|(open, _)| *open == call_id).map(|(_, name)| name);
                say(to, &json!({"type": "FunctionCallCancelled", "functions": [{"id": call_id, "name": name.unwrap_or_default()}]}));
            }
            ServerEvent::Error(error) => self.error(&error, to),
            // What the wire has no word for.
            ServerEvent::Transcript { last: false, .. }
            | ServerEvent::Committed { .. }
            | ServerEvent::Context { .. }
            | ServerEvent::Ack { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::Resumable { .. }
            | ServerEvent::GoingAway { .. }
            | ServerEvent::Ended(_) => {}
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange<'_, Frame>) {
        if self.started && matches!(code, 1000 | 1005) {
            to.event(ClientEvent::End { reason: "closed".to_owned() });
        }
    }
}

#[cfg(test)]
mod tests;
