//! Google CES `BidiRunSession` over gRPC.
//!
//! Its only word of acceptance is the head of the answer, and the half-close of the client is the goodbye. The tools of an agent belong to its app;
//! a client of this mock names them in the session variable `tools`, a list.

use proto::{
    audio::AudioFormat,
    frame::{
        ClientEvent, ErrorCode, MAX_NAME_BYTES, MAX_TEXT_BYTES, Outcome, ResponseStatus, ServerEvent, SessionError, SessionSettings,
        SessionStart,
    },
    google::cloud::ces::v1::{
        self, bidi_session_client_message::MessageType as In, bidi_session_server_message::MessageType as Out,
        session_input::InputType as Input, session_output::OutputType as Output, tool_call::ToolIdentifier,
    },
    structs,
};
use serde_json::{Map, Value};

use super::{Dialect, Exchange, calls::Calls, intake::Intake, words::Words, written::Written};

/// How long before the end of its life a session is told.
const WARNING_MS: u32 = 30_000;

/// One session's translator.
#[derive(Debug)]
pub struct Ces {
    client_ref: String,
    /// The resource that holds the session's tools; none before the configuration.
    app: Option<String>,
    /// The client plays audio.
    audio: bool,
    /// It wants text in pieces.
    streaming: bool,
    intake: Intake,
    written: Written,
    words: Words,
    calls: Calls,
    /// Of the agent, from 1.
    turn: i32,
    /// It has begun and is not complete.
    turn_open: bool,
}

fn bad(message: impl Into<String>) -> SessionError {
    SessionError::fatal(ErrorCode::InvalidArgument, message)
}

impl Ces {
    /// For a client that named its session so in the request's head.
    pub fn new(client_ref: String) -> Self {
        Self {
            client_ref,
            app: None,
            audio: false,
            streaming: false,
            intake: Intake::new(AudioFormat::Pcm16k),
            written: Written::default(),
            words: Words::default(),
            calls: Calls::default(),
            turn: 0,
            turn_open: false,
        }
    }

    fn message(
        &mut self,
        message: v1::BidiSessionClientMessage,
        to: &mut Exchange<'_, v1::BidiSessionServerMessage>,
    ) -> Result<(), SessionError> {
        match (message.message_type, self.app.is_some()) {
            (Some(In::Config(config)), false) => self.configure(config, to),
            (Some(In::Config(_)), true) => {
                Err(SessionError::fatal(ErrorCode::AlreadyStarted, "config came twice: open a new stream for a new session"))
            }
            (Some(In::RealtimeInput(input)), true) => self.input(input, to),
            (Some(In::RealtimeInput(_)), false) => Err(SessionError::fatal(ErrorCode::NotStarted, "the first message must be `config`")),
            (None, _) => Err(SessionError::fatal(ErrorCode::MalformedMessage, "the message holds neither config nor realtime_input")),
        }
    }

    fn configure(&mut self, config: v1::SessionConfig, to: &mut Exchange<'_, v1::BidiSessionServerMessage>) -> Result<(), SessionError> {
        let Some((app, name)) = session_of(&config.session) else {
            return Err(bad("config.session must be projects/PROJECT/locations/LOCATION/apps/APP/sessions/SESSION"));
        };
        let input = config.input_audio_config.map(|c| format_of("input", c.audio_encoding, c.sample_rate_hertz)).transpose()?;
        let output = config.output_audio_config.map(|c| format_of("output", c.audio_encoding, c.sample_rate_hertz)).transpose()?;
        let mut client_ref = std::mem::take(&mut self.client_ref);
        if client_ref.is_empty() {
            client_ref = name.chars().filter(char::is_ascii_graphic).take(MAX_NAME_BYTES).collect();
        }
        self.app = Some(app.to_owned());
        self.audio = output.is_some();
        self.streaming = config.enable_text_streaming;
        self.intake.set_format(input.unwrap_or_default());
        to.event(ClientEvent::Start(SessionStart {
            client_ref,
            input: input.unwrap_or_default(),
            output: output.unwrap_or_default(),
            warning_ms: WARNING_MS,
            ..SessionStart::default()
        }));
        Ok(())
    }

    fn input(&mut self, input: v1::SessionInput, to: &mut Exchange<'_, v1::BidiSessionServerMessage>) -> Result<(), SessionError> {
        let answer = !input.will_continue;
        match input.input_type {
            Some(Input::Audio(audio)) => self.intake.take(&audio, to).map_err(|error| SessionError { fatal: true, ..error })?,
            Some(Input::Text(text)) => self.write(&text, answer, to),
            Some(Input::Dtmf(digits)) => {
                if let Some(wrong) = digits.chars().find(|digit| !"0123456789*#ABCD".contains(*digit)) {
                    return Err(bad(format!("realtime_input.dtmf holds {wrong:?}: the keys are 0 to 9, *, #, and A to D")));
                }
                digits.chars().for_each(|digit| to.event(ClientEvent::Digit(digit)));
                self.write(&digits, answer, to);
            }
            // What it is called is all that a mock could say about it.
            Some(Input::Event(event)) => self.write(&event.event, answer, to),
            Some(Input::ToolResponses(responses)) => {
                for response in responses.tool_responses {
                    self.tool_response(response, to)?;
                }
            }
            Some(Input::Variables(variables)) => {
                if let Some(Value::Array(tools)) = structs::to_json(variables).remove("tools") {
                    let tools = tools.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                    to.event(ClientEvent::Configure(Box::new(SessionSettings { tools: Some(tools), ..SessionSettings::default() })));
                }
            }
            // Not looked at.
            Some(Input::Image(_) | Input::Blob(_)) => {}
            None => return Err(SessionError::fatal(ErrorCode::MalformedMessage, "realtime_input holds no input")),
        }
        Ok(())
    }

    fn write(&mut self, text: &str, answer: bool, to: &mut Exchange<'_, v1::BidiSessionServerMessage>) {
        self.written.add(text);
        if answer {
            self.written.answer(to);
        }
    }

    fn tool_response(&self, response: v1::ToolResponse, to: &mut Exchange<'_, v1::BidiSessionServerMessage>) -> Result<(), SessionError> {
        if !self.calls.knows(&response.id) {
            let shown: String = response.id.chars().take(40).collect();
            return Err(SessionError::fatal(ErrorCode::UnknownToolCall, format!("no tool call has the id `{shown}`")));
        }
        let output = Value::from(response.response.map(structs::to_json).unwrap_or_default());
        let failed = output.get("error").is_some();
        // The mock only looks whether there is one.
        let output = Some(output.to_string()).filter(|output| output.len() <= MAX_TEXT_BYTES).unwrap_or_default();
        to.event(ClientEvent::ToolResult { call_id: response.id, output, failed });
        Ok(())
    }

    /// The turn that an output belongs to.
    fn output(&mut self, output: Option<Output>, last: bool) -> v1::BidiSessionServerMessage {
        if !self.turn_open {
            self.turn = self.turn.saturating_add(1);
        }
        self.turn_open = !last;
        said(Out::SessionOutput(v1::SessionOutput { output_type: output, turn_completed: last, turn_index: self.turn }))
    }
}

fn said(message: Out) -> v1::BidiSessionServerMessage {
    v1::BidiSessionServerMessage { message_type: Some(message) }
}

/// What is in the metadata is left to the agent: this one says how the session was counted.
fn end_session(outcome: Outcome) -> v1::EndSession {
    let metadata = Map::from_iter([("outcome".to_owned(), Value::from(outcome.name()))]);
    v1::EndSession { metadata: Some(structs::from_json(metadata)) }
}

/// The app and the session's own name in a resource name.
fn session_of(resource: &str) -> Option<(&str, &str)> {
    let (app, name) = resource.rsplit_once("/sessions/")?;
    let parts: Vec<&str> = app.split('/').collect();
    let right = matches!(parts[..], ["projects", p, "locations", l, "apps", a] if ![p, l, a].contains(&""));
    (right && !name.is_empty() && !name.contains('/')).then_some((app, name))
}

fn format_of(side: &str, encoding: i32, rate: i32) -> Result<AudioFormat, SessionError> {
    let format = match v1::AudioEncoding::try_from(encoding) {
        Ok(v1::AudioEncoding::Linear16) => u32::try_from(rate).ok().and_then(AudioFormat::pcm),
        Ok(v1::AudioEncoding::Mulaw) if rate == 8_000 => Some(AudioFormat::Mulaw8k),
        Ok(v1::AudioEncoding::Alaw) if rate == 8_000 => Some(AudioFormat::Alaw8k),
        _ => None,
    };
    format.ok_or_else(|| {
        let name = v1::AudioEncoding::try_from(encoding).map_or("an unknown encoding", |encoding| encoding.as_str_name());
        SessionError::fatal(
            ErrorCode::UnsupportedFormat,
            format!("config.{side}_audio_config is {name} at {rate} Hz: LINEAR16 at 8000, 16000, 24000 or 48000 is served, and MULAW and ALAW at 8000"),
        )
    })
}

impl Dialect for Ces {
    type In = v1::BidiSessionClientMessage;
    type Out = v1::BidiSessionServerMessage;

    fn decode(&mut self, message: Self::In, to: &mut Exchange<'_, Self::Out>) {
        if let Err(error) = self.message(message, to) {
            to.error(error);
        }
    }

    fn encode(&mut self, event: ServerEvent, to: &mut Exchange<'_, Self::Out>) {
        match event {
            ServerEvent::Transcript { text, .. } => to.message(said(Out::RecognitionResult(v1::RecognitionResult { transcript: text }))),
            ServerEvent::ResponseStart { text, .. } => {
                if self.streaming {
                    self.words = Words::new(text);
                } else {
                    to.message(self.output(Some(Output::Text(text)), false));
                }
            }
            ServerEvent::Audio(audio) => {
                if let Some(word) = self.words.frame().map(str::to_owned) {
                    to.message(self.output(Some(Output::Text(word)), false));
                }
                if self.audio {
                    to.message(self.output(Some(Output::Audio(audio.payload)), false));
                }
            }
            ServerEvent::ResponseEnd { status: ResponseStatus::Completed, .. } => {
                self.words = Words::default();
                to.message(self.output(None, true));
            }
            ServerEvent::ResponseEnd { status, .. } => {
                self.words = Words::default();
                self.turn_open = false;
                if status == ResponseStatus::Interrupted {
                    to.message(said(Out::InterruptionSignal(v1::InterruptionSignal { barge_in: true })));
                }
            }
            ServerEvent::ToolCall { call_id, name, arguments } => {
                let args = serde_json::from_str(&arguments).map(structs::from_json).unwrap_or_default();
                let tool = format!("{}/tools/{name}", self.app.as_deref().unwrap_or_default());
                let call = v1::ToolCall {
                    id: call_id.clone(),
                    args: Some(args),
                    display_name: name,
                    tool_identifier: Some(ToolIdentifier::Tool(tool)),
                };
                self.calls.made(call_id);
                to.message(self.output(Some(Output::ToolCalls(v1::ToolCalls { tool_calls: vec![call] })), false));
            }
            ServerEvent::GoingAway { .. } => to.message(said(Out::GoAway(v1::GoAway {}))),
            // Here it is the server that ends the session: a client answers with its half-close, and the status of the stream follows.
            ServerEvent::Ended(ended) if matches!(ended.outcome, Outcome::TimedOut | Outcome::Drained) => {
                if ended.outcome == Outcome::Drained {
                    to.message(said(Out::GoAway(v1::GoAway {})));
                }
                to.message(said(Out::EndSession(end_session(ended.outcome))));
            }
            // What else ends the session is in the status of the stream. That a call is cancelled is told by the answer without its result.
            ServerEvent::Accepted(_)
            | ServerEvent::ToolCancel { .. }
            | ServerEvent::AnswerDropped { .. }
            | ServerEvent::Speech(_)
            | ServerEvent::Committed { .. }
            | ServerEvent::Answering { .. }
            | ServerEvent::Ack { .. }
            | ServerEvent::Context { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::Resumable { .. }
            | ServerEvent::Error(_)
            | ServerEvent::Ended(_) => {}
        }
    }

    fn closed(&mut self, _code: u16, to: &mut Exchange<'_, Self::Out>) {
        if self.app.is_some() {
            to.event(ClientEvent::End { reason: String::new() });
        }
    }
}

#[cfg(test)]
mod tests;
