//! What a profile describes under `custom`.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use proto::{
    base64,
    frame::{ClientAudio, ClientEvent, ErrorCode, ResponseStatus, ServerEvent, SessionAccepted, SessionError, SessionStart, SpeechMarker},
    ids::{ResponseId, SessionId},
};
use serde_json::Value;

use super::{
    Dialect, Exchange, Wire,
    course::Course,
    parting::Parting,
    unheard::{excerpt, shown},
};
use crate::{
    plan::Service,
    profile::{Fill, Hole, Kind, Rule, Script, Template},
};

/// One session.
#[derive(Debug)]
pub(super) struct Custom {
    service: Arc<Service>,
    script: Arc<Script>,
    parting: Parting,
    course: Course,
    accepted: bool,
    names: Names,
    /// Media time of the user's audio so far.
    said_us: u64,
}

/// Known in every message.
#[derive(Debug, Default)]
struct Names {
    client_ref: String,
    session_id: SessionId,
}

impl Custom {
    /// As the service wants it.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        Self {
            script: service.custom.clone().unwrap_or_default(),
            parting: Parting::default(),
            course: Course::new(service.output),
            accepted: false,
            names: Names::default(),
            said_us: 0,
            service: Arc::clone(service),
        }
    }

    fn start(&mut self, start: SessionStart, to: &mut Exchange) {
        let agent = &self.service.agent;
        let tools = Value::from(start.tools).to_string();
        let text = |value: &'_ Option<String>| value.clone().unwrap_or_default();
        let (voice, model, id, instructions) = (text(&agent.voice), text(&agent.model), text(&agent.id), text(&agent.instructions));
        self.names.client_ref = start.client_ref;
        for template in &self.script.start {
            let message = self.names.fill(template, |hole| match hole {
                Hole::Voice => Fill::Text(&voice),
                Hole::Model => Fill::Text(&model),
                Hole::AgentId => Fill::Text(&id),
                Hole::Instructions => Fill::Text(&instructions),
                Hole::InputRate => Fill::Number(start.input.sample_rate().into()),
                Hole::OutputRate => Fill::Number(start.output.sample_rate().into()),
                Hole::Tools => Fill::Json(&tools),
                _ => Fill::Json("null"),
            });
            to.send(Wire::Text(message));
        }
        if !self.script.has_ready {
            self.accept(to);
        }
    }

    fn accept(&mut self, to: &mut Exchange) {
        if std::mem::replace(&mut self.accepted, true) {
            return;
        }
        to.event(ServerEvent::Accepted(SessionAccepted {
            session_id: self.names.session_id.clone(),
            backend_id: String::new(),
            boot_id: String::new(),
            input: self.service.input,
            output: self.service.output,
            max_duration_ms: 0,
            idle_timeout_ms: 0,
        }));
    }

    fn audio(&mut self, audio: ClientAudio, to: &mut Exchange) {
        self.said_us = self.said_us.saturating_add(self.service.input.duration_us(audio.payload.len()));
        let Some(template) = &self.script.audio else {
            return to.send(Wire::Binary(audio.payload));
        };
        let message = self.names.fill(template, |hole| match hole {
            Hole::Audio => Fill::Bytes(&audio.payload),
            Hole::Sequence => Fill::Number(audio.sequence),
            Hole::TimestampMs => Fill::Number(audio.timestamp_us / 1_000),
            _ => Fill::Json("null"),
        });
        to.send(Wire::Text(message));
    }

    /// Says a message, where there is one.
    fn say<'a>(&'a self, template: Option<&Template>, fill: impl Fn(Hole) -> Fill<'a>, to: &mut Exchange) {
        if let Some(template) = template {
            to.send(Wire::Text(self.names.fill(template, fill)));
        }
    }

    fn interrupt(&self, response: Option<ResponseId>, heard_ms: u32, to: &mut Exchange) {
        let fill = |hole| match hole {
            Hole::Response => Fill::Number(response.map_or(0, |response| response.0)),
            _ => Fill::Number(heard_ms.into()),
        };
        self.say(self.script.interrupt.as_ref(), fill, to);
    }

    fn hear_audio(&mut self, payload: Bytes, to: &mut Exchange) {
        if self.script.names_ends { self.course.audio(payload, to) } else { self.course.unnamed_audio(payload, to) }
    }

    /// An answer is over, whatever is said of where answers are.
    fn stopped(&mut self, to: &mut Exchange) {
        let status = ResponseStatus::Interrupted;
        if !self.script.names_ends {
            return to.event(ServerEvent::ResponseEnd { response: ResponseId(0), status, frames: 0 });
        }
        self.course.end_response(status, to);
        if !self.script.names_starts {
            self.course.forget_interrupted();
        }
    }

    fn message(&mut self, message: &Value, to: &mut Exchange) {
        let script = Arc::clone(&self.script);
        for rule in script.rules.iter().filter(|rule| rule.fits(message)) {
            self.apply(rule, message, to);
        }
    }

    fn apply(&mut self, rule: &Rule, message: &Value, to: &mut Exchange) {
        let at = |pointer: &Option<String>| pointer.as_ref().and_then(|pointer| message.pointer(pointer)).unwrap_or(&Value::Null);
        let receive = &rule.receive;
        match receive.kind {
            Kind::Ready => {
                self.names.session_id = text_of(at(&receive.id));
                self.accept(to);
            }
            Kind::Audio => {
                let place = receive.data.as_deref().unwrap_or_default();
                let wrong = |what: String| malformed(&format!("the audio rule found {what} in {}", excerpt(&message.to_string())));
                match message.pointer(place).map(|value| value.as_str().and_then(base64::decode)) {
                    Some(Some(bytes)) => self.hear_audio(bytes.into(), to),
                    Some(None) => to.malformed(wrong(format!("no base64 at {place}"))),
                    None => to.malformed(wrong(format!("no {place}"))),
                }
            }
            Kind::Transcript => {
                let (text, last) = (text_of(at(&receive.text)), rule.is_last(message));
                let turn = if last { self.course.take_turn() } else { self.course.begin_turn() };
                if last {
                    to.event(ServerEvent::Committed { turn });
                }
                to.event(ServerEvent::Transcript { turn, text, last });
            }
            Kind::AgentText if self.script.names_ends => self.course.begin_response(&text_of(at(&receive.text)), to),
            Kind::ResponseStart if self.script.names_ends => self.course.begin_response("", to),
            Kind::AgentText | Kind::ResponseStart => to.event(ServerEvent::Answering { turn: self.course.turn() }),
            Kind::SpeechStarted => {
                self.course.start_speaking();
                to.event(ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: self.said_us }));
            }
            Kind::SpeechStopped => {
                self.course.stop_speaking();
                to.event(ServerEvent::Speech(SpeechMarker { started: false, timestamp_us: self.said_us }));
            }
            Kind::TurnEnd => self.course.end_response(ResponseStatus::Completed, to),
            Kind::Interrupted => self.stopped(to),
            Kind::ToolCall => {
                let (call_id, name) = (text_of(at(&receive.id)), text_of(at(&receive.name)));
                let arguments = match at(&receive.arguments) {
                    Value::Null => "{}".to_owned(),
                    other => text_of(other),
                };
                to.event(ServerEvent::ToolCall { call_id, name, arguments });
            }
            Kind::Error => {
                let words = match at(&receive.message) {
                    Value::Null => "an error without words".to_owned(),
                    other => text_of(other),
                };
                self.parting.error(SessionError { code: ErrorCode::Internal, message: words, fatal: receive.fatal }, to);
            }
            Kind::Ping => {
                let id = at(&receive.id);
                let json = id.to_string();
                let id = id.as_str().map_or(Fill::Json(&json), Fill::Text);
                self.say(self.script.pong.as_ref(), |_| id, to);
            }
        }
    }
}

impl Names {
    fn fill<'a>(&'a self, template: &Template, fill: impl Fn(Hole) -> Fill<'a>) -> String {
        template.fill(|hole| match hole {
            Hole::SessionId => Fill::Text(&self.session_id),
            Hole::ClientRef => Fill::Text(&self.client_ref),
            other => fill(other),
        })
    }
}

impl Dialect for Custom {
    fn path(&self) -> Cow<'static, str> {
        self.script.path.clone().into()
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        let at = |timestamp_us: u64| move |_| Fill::Number(timestamp_us / 1_000);
        let none = |_| Fill::Json("null");
        match event {
            ClientEvent::Start(start) => self.start(start, to),
            ClientEvent::Audio(audio) => self.audio(audio, to),
            ClientEvent::Commit => self.say(self.script.commit.as_ref(), none, to),
            ClientEvent::Respond(_) => self.say(self.script.respond.as_ref(), none, to),
            ClientEvent::BargeIn { response, heard_ms } => self.interrupt(response, heard_ms, to),
            ClientEvent::Cancel { response } => self.interrupt(response, 0, to),
            ClientEvent::Speech(marker) => {
                let template = if marker.started { &self.script.speech_start } else { &self.script.speech_stop };
                self.say(template.as_ref(), at(marker.timestamp_us), to);
            }
            ClientEvent::ToolResult { call_id, output, failed } => {
                let fill = |hole| match hole {
                    Hole::CallId => Fill::Text(&call_id),
                    Hole::Output => Fill::Text(&output),
                    _ => Fill::Json(if failed { "true" } else { "false" }),
                };
                self.say(self.script.tool_result.as_ref(), fill, to);
            }
            ClientEvent::GiveUp { response } => self.course.give_up(response),
            ClientEvent::End { .. } => {
                self.say(self.script.end.as_ref(), none, to);
                self.parting.leave(to);
            }
            // No templates for these.
            ClientEvent::Configure(_)
            | ClientEvent::Hint(_)
            | ClientEvent::Discard
            | ClientEvent::Truncate { .. }
            | ClientEvent::Played { .. }
            | ClientEvent::Digit(_)
            | ClientEvent::Context { .. } => {}
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        let parsed = match &message {
            Wire::Binary(bytes) if self.script.binary => return self.hear_audio(bytes.clone(), to),
            // Some servers send their JSON in binary frames.
            Wire::Binary(bytes) => serde_json::from_slice(bytes),
            Wire::Text(text) => serde_json::from_str(text),
            Wire::Close(_) => return,
        };
        match parsed {
            Ok(message) => self.message(&message, to),
            Err(error) => to.malformed(malformed(&format!("a message is not JSON ({error}): {}", shown(&message)))),
        }
    }

    fn closed(&mut self, code: u16, to: &mut Exchange) {
        self.parting.closed(code, to);
    }
}

/// A string as it is, nothing as nothing, all else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn malformed(what: &str) -> SessionError {
    SessionError::fatal(ErrorCode::MalformedMessage, what)
}
