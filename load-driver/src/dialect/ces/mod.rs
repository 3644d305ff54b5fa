//! Google CES (`BidiRunSession`) over gRPC.
//!
//! The head of the answer is the acceptance, the half-close the goodbye. It names the agent's turns, not the user's, nor responses: [`Dialogue`]
//! does. A tool call ends the response that it is in, so that what the agent says after the result is one of its own.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderName, HeaderValue};
use prost::Message;
use proto::{
    audio::AudioFormat,
    frame::{ClientEvent, ErrorCode, Outcome, ResponseStatus, ServerEvent, SessionAccepted, SessionEnded, SessionError, SessionStart},
    google::cloud::ces::v1::{
        self, bidi_session_client_message::MessageType as Out, bidi_session_server_message::MessageType as In,
        session_input::InputType as Input, session_output::OutputType as Output, tool_call,
    },
    structs,
};
use serde_json::{Map, Value, json};

use super::{Dialect, Exchange, Wire, dialogue::Dialogue, ended};
use crate::plan::Service;

/// Where the profile names no app.
const APP: &str = "projects/load/locations/local/apps/agent";

/// One session.
#[derive(Debug)]
pub(super) struct Ces {
    service: Arc<Service>,
    accepted: bool,
    goodbye: bool,
    dialogue: Dialogue,
    /// The agent's turn that was interrupted: what still comes of it is old.
    interrupted: Option<i32>,
    /// The agent's turn that was heard last.
    index: i32,
}

impl Ces {
    /// As the service wants it.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            accepted: false,
            goodbye: false,
            dialogue: Dialogue::new(service.output),
            interrupted: None,
            index: 0,
        }
    }

    fn app(&self) -> &str {
        self.service.agent.id.as_deref().map_or(APP, |id| id.trim_end_matches('/'))
    }

    fn config(&self, start: &SessionStart) -> v1::SessionConfig {
        let input = encoding(start.input);
        let output = encoding(start.output);
        // Of what names may consist of.
        let name: String = start.client_ref.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        v1::SessionConfig {
            session: format!("{}/sessions/{}", self.app(), if name.is_empty() { "session" } else { &name }),
            input_audio_config: Some(v1::InputAudioConfig {
                audio_encoding: input.into(),
                sample_rate_hertz: start.input.sample_rate() as i32,
                ..v1::InputAudioConfig::default()
            }),
            output_audio_config: Some(v1::OutputAudioConfig {
                audio_encoding: output.into(),
                sample_rate_hertz: start.output.sample_rate() as i32,
            }),
            ..v1::SessionConfig::default()
        }
    }

    fn message(&mut self, message: v1::BidiSessionServerMessage, to: &mut Exchange) {
        match message.message_type {
            Some(In::RecognitionResult(result)) => {
                let (turn, _) = self.dialogue.understood();
                to.event(ServerEvent::Transcript { turn, text: result.transcript, last: false });
            }
            Some(In::SessionOutput(output)) => self.output(output, to),
            Some(In::InterruptionSignal(_)) => {
                if self.dialogue.speaking() {
                    self.interrupted = Some(self.index);
                }
                self.dialogue.interrupt(to);
            }
            Some(In::EndSession(end)) => self.ended_by_agent(end, to),
            Some(In::GoAway(_)) => to.event(ServerEvent::GoingAway { left_ms: 0 }),
            // Of a later version of the API.
            None => {}
        }
    }

    fn output(&mut self, output: v1::SessionOutput, to: &mut Exchange) {
        let stale = self.interrupted == Some(output.turn_index) && output.turn_index != 0;
        self.index = output.turn_index;
        match output.output_type {
            Some(Output::Audio(payload)) if !payload.is_empty() => {
                if !stale {
                    self.interrupted = None;
                }
                self.dialogue.audio(payload, stale, to);
            }
            Some(Output::ToolCalls(calls)) => {
                for call in calls.tool_calls {
                    let name = match call.tool_identifier {
                        Some(tool_call::ToolIdentifier::Tool(tool)) => tool.rsplit('/').next().unwrap_or_default().to_owned(),
                        Some(tool_call::ToolIdentifier::ToolsetTool(tool)) => tool.tool_id,
                        None => call.display_name,
                    };
                    let arguments = Value::from(call.args.map(structs::to_json).unwrap_or_default()).to_string();
                    to.event(ServerEvent::ToolCall { call_id: call.id, name, arguments });
                }
                // After the calls: an end that comes first would be the end of the answer.
                self.dialogue.end(ResponseStatus::Completed, to);
            }
            Some(Output::EndSession(end)) => self.ended_by_agent(end, to),
            Some(Output::Audio(_) | Output::Text(_) | Output::Payload(_)) | None => {}
        }
        if output.turn_completed && !stale {
            self.dialogue.close_turn();
            self.dialogue.end(ResponseStatus::Completed, to);
        }
    }

    /// The agent is done; a client answers with its half-close. agent-server says in the metadata what it counted; another that says nothing of
    /// the kind ended the session in order.
    fn ended_by_agent(&mut self, end: v1::EndSession, to: &mut Exchange) {
        if !std::mem::replace(&mut self.goodbye, true) {
            let metadata = end.metadata.map(structs::to_json).unwrap_or_default();
            let name = metadata.get("outcome").and_then(Value::as_str);
            let outcome = Outcome::ALL.into_iter().find(|outcome| Some(outcome.name()) == name).unwrap_or(Outcome::Completed);
            to.send(Wire::Close(0));
            to.event(ServerEvent::Ended(SessionEnded { outcome, duration_ms: 0, frames_in: 0, frames_out: 0 }));
        }
    }

    fn tool_result(call_id: String, output: String, failed: bool) -> Input {
        let response = match serde_json::from_str(&output) {
            Ok(Value::Object(object)) if !failed => object,
            _ => Map::from_iter([(if failed { "error" } else { "output" }.to_owned(), Value::from(output))]),
        };
        let response = v1::ToolResponse { id: call_id, response: Some(structs::from_json(response)), ..v1::ToolResponse::default() };
        Input::ToolResponses(v1::ToolResponses { tool_responses: vec![response] })
    }
}

const fn encoding(format: AudioFormat) -> v1::AudioEncoding {
    match format {
        AudioFormat::Mulaw8k => v1::AudioEncoding::Mulaw,
        AudioFormat::Alaw8k => v1::AudioEncoding::Alaw,
        AudioFormat::Pcm8k | AudioFormat::Pcm16k | AudioFormat::Pcm24k | AudioFormat::Pcm48k => v1::AudioEncoding::Linear16,
    }
}

fn send(message: Out, to: &mut Exchange) {
    let message = v1::BidiSessionClientMessage { message_type: Some(message) };
    to.send(Wire::Binary(message.encode_to_vec().into()));
}

fn say(input: Input, to: &mut Exchange) {
    send(Out::RealtimeInput(v1::SessionInput { input_type: Some(input), will_continue: false }), to);
}

impl Dialect for Ces {
    fn path(&self) -> Cow<'static, str> {
        "/google.cloud.ces.v1.SessionService/BidiRunSession".into()
    }

    fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        // By what the service routes a stream to the place of its app.
        let location = self.app().split("/apps/").next().unwrap_or_default();
        let value = HeaderValue::from_str(&format!("location={location}")).ok();
        value.map(|value| (HeaderName::from_static("x-goog-request-params"), value)).into_iter().collect()
    }

    fn answered(&mut self, to: &mut Exchange) {
        self.accepted = true;
        to.event(ServerEvent::Accepted(SessionAccepted {
            session_id: String::new(),
            backend_id: String::new(),
            boot_id: String::new(),
            input: self.service.input,
            output: self.service.output,
            max_duration_ms: 0,
            idle_timeout_ms: 0,
        }));
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        match event {
            ClientEvent::Start(start) => {
                send(Out::Config(self.config(&start)), to);
                if !start.tools.is_empty() {
                    // The real service knows the tools of its apps, and lets variables go that it does not know.
                    let variables = Map::from_iter([("tools".to_owned(), json!(start.tools))]);
                    say(Input::Variables(structs::from_json(variables)), to);
                }
            }
            ClientEvent::Audio(audio) => say(Input::Audio(audio.payload), to),
            ClientEvent::Respond(wish) => {
                if let Some(text) = wish.text {
                    say(Input::Text(text), to);
                }
            }
            ClientEvent::Digit(digit) => say(Input::Dtmf(digit.to_string()), to),
            ClientEvent::ToolResult { call_id, output, failed } => say(Self::tool_result(call_id, output, failed), to),
            ClientEvent::GiveUp { response } => self.dialogue.give_up(response),
            ClientEvent::End { .. } => {
                self.goodbye = true;
                to.send(Wire::Close(0));
            }
            ClientEvent::Configure(_)
            | ClientEvent::Speech(_)
            | ClientEvent::Hint(_)
            | ClientEvent::Commit
            | ClientEvent::Discard
            | ClientEvent::BargeIn { .. }
            | ClientEvent::Cancel { .. }
            | ClientEvent::Truncate { .. }
            | ClientEvent::Played { .. }
            | ClientEvent::Context { .. } => {}
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        let Wire::Binary(bytes) = message else { return };
        match v1::BidiSessionServerMessage::decode(bytes) {
            Ok(message) => self.message(message, to),
            Err(error) => {
                to.malformed(SessionError::fatal(ErrorCode::MalformedMessage, format!("no BidiSessionServerMessage: {error}")));
            }
        }
    }

    fn closed(&mut self, _code: u16, to: &mut Exchange) {
        if self.goodbye && self.accepted {
            to.event(ended());
        }
    }
}

#[cfg(test)]
mod tests;
