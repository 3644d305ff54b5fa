//! What the server says.

use std::{collections::VecDeque, fmt::Write};

use proto::{
    audio::AudioFormat,
    base64,
    frame::{
        AgentAudio, ErrorCode, MAX_NAME_BYTES, MAX_TEXT_BYTES, ResponseStatus, ServerEvent, SessionAccepted, SessionError, SpeechMarker,
    },
    ids::{ResponseId, TurnId},
};

use super::{
    Answer, Exchange, Item, OpenaiRealtime, REMEMBERED, malformed,
    wire::{Fault, Kind, Message, Response, Session},
};

/// Most function calls that are remembered.
const CALLS: usize = 32;

/// Types that are understood: only they must have the shape that is expected.
fn known(kind: &str) -> bool {
    matches!(
        kind,
        "session.created"
            | "session.updated"
            | "input_audio_buffer.speech_started"
            | "input_audio_buffer.speech_stopped"
            | "input_audio_buffer.committed"
            | "conversation.item.input_audio_transcription.delta"
            | "conversation.item.input_audio_transcription.completed"
            | "conversation.item.input_audio_transcription.failed"
            | "conversation.item.truncated"
            | "response.created"
            | "response.output_item.added"
            | "response.output_item.done"
            | "response.output_audio.delta"
            | "response.audio.delta"
            | "response.function_call_arguments.done"
            | "response.done"
            | "error"
    )
}

impl OpenaiRealtime {
    /// One event, as JSON.
    pub(super) fn hear(&mut self, text: &str, to: &mut Exchange) {
        let message = match serde_json::from_str::<Message<'_>>(text) {
            Ok(message) => message,
            Err(error) => {
                match serde_json::from_str::<Kind<'_>>(text) {
                    Ok(Kind { kind }) if known(&kind) => malformed(format!("{}: {error}", &*kind), to),
                    // Of a type that is not understood, whatever it holds.
                    Ok(_) => {}
                    Err(error) => malformed(format!("no event: {error}"), to),
                }
                return;
            }
        };
        let ids = [&message.response_id, &message.item_id, &message.call_id, &message.name];
        if known(&message.kind) && ids.into_iter().any(|id| id.len() > MAX_NAME_BYTES) {
            return malformed(format!("{}: an id or a name of more than {MAX_NAME_BYTES} bytes", &*message.kind), to);
        }
        match &*message.kind {
            "response.output_audio.delta" | "response.audio.delta" => self.audio(&message, to),
            "input_audio_buffer.speech_started" => {
                self.turn_of(&message.item_id);
                to.event(ServerEvent::Speech(SpeechMarker { started: true, timestamp_us: micros(message.audio_start_ms) }));
            }
            "input_audio_buffer.speech_stopped" => {
                to.event(ServerEvent::Speech(SpeechMarker { started: false, timestamp_us: micros(message.audio_end_ms) }));
            }
            "input_audio_buffer.committed" => {
                self.committed = self.turn_of(&message.item_id);
                // What a tool was asked for before is answered with the new turn, or not at all.
                self.calls.open.clear();
                self.calls.resume = false;
                to.event(ServerEvent::Committed { turn: self.committed });
            }
            "conversation.item.input_audio_transcription.delta" => self.transcript(&message.item_id, &message.delta, false, to),
            "conversation.item.input_audio_transcription.completed" => self.transcript(&message.item_id, &message.transcript, true, to),
            "conversation.item.truncated" => self.truncated(&message, to),
            "response.created" => {
                if let Some(response) = response_in(&message, to) {
                    let turn = self.answer_of(&response.id).turn;
                    to.event(ServerEvent::Answering { turn });
                }
            }
            "response.output_item.added" => self.call_begun(&message),
            "response.function_call_arguments.done" => {
                self.called(&message.response_id, &message.item_id, &message.call_id, &message.name, &message.arguments, to);
            }
            "response.output_item.done" => self.item_done(&message, to),
            "response.done" => {
                if let Some(response) = response_in(&message, to) {
                    self.done(response, to);
                }
            }
            "session.created" | "session.updated" => match &message.session {
                Some(session) => self.opened(session, &message.kind, to),
                None => malformed(format!("{} without session", &*message.kind), to),
            },
            "error" | "conversation.item.input_audio_transcription.failed" => {
                self.fault(message.error.as_ref().unwrap_or(&Fault::default()), to);
            }
            "" => malformed("an event without type", to),
            _ => {}
        }
    }

    fn opened(&mut self, session: &Session<'_>, kind: &str, to: &mut Exchange) {
        let opening = &mut self.opening;
        if opening.accepted {
            return;
        }
        if session.id.len() > MAX_NAME_BYTES {
            return malformed(format!("{kind}: a session id of more than {MAX_NAME_BYTES} bytes"), to);
        }
        if !session.id.is_empty() {
            session.id.clone_into(&mut opening.id);
        }
        if kind == "session.created" {
            opening.created = true;
        } else {
            opening.updated = true;
            match session.formats() {
                Ok(formats) => opening.formats = formats,
                Err(format) => {
                    let what = format!("the server answers `{format}` where {} and {} were asked for", opening.asked.0, opening.asked.1);
                    to.event(ServerEvent::Error(SessionError::fatal(ErrorCode::UnsupportedFormat, what)));
                    return;
                }
            }
        }
        if !opening.created || !opening.updated {
            return;
        }
        opening.accepted = true;
        to.event(ServerEvent::Accepted(SessionAccepted {
            session_id: opening.id.clone(),
            backend_id: String::new(),
            boot_id: String::new(),
            input: opening.formats.0.unwrap_or(opening.asked.0),
            output: opening.formats.1.unwrap_or(opening.asked.1),
            // The wire has a time of the server's clock, which says little here.
            max_duration_ms: 0,
            idle_timeout_ms: 0,
        }));
    }

    /// The turn that an item of the user is, new or known.
    fn turn_of(&mut self, item: &str) -> TurnId {
        if let Some(known) = self.items.iter().rev().find(|known| known.id == item) {
            return known.turn;
        }
        self.turns += 1;
        let turn = TurnId(self.turns);
        remember(&mut self.items, Item { id: item.to_owned(), turn, text: String::new() }, REMEMBERED);
        turn
    }

    fn transcript(&mut self, item: &str, text: &str, last: bool, to: &mut Exchange) {
        let turn = self.turn_of(item);
        let Some(item) = self.items.iter_mut().rev().find(|known| known.turn == turn) else { return };
        if last {
            item.text.clear();
        }
        if item.text.len() + text.len() <= MAX_TEXT_BYTES {
            item.text.push_str(text);
        }
        let text = item.text.clone();
        to.event(ServerEvent::Transcript { turn, text, last });
    }

    /// The response of this id, new or known. Where a server names none, the one under way.
    fn answer_of(&mut self, id: &str) -> &mut Answer {
        let found = self.answers.iter().rposition(|answer| if id.is_empty() { answer.active } else { answer.id == id });
        let at = found.unwrap_or_else(|| {
            let answer = Answer {
                id: id.to_owned(),
                number: ResponseId(0),
                turn: self.committed,
                item: String::new(),
                frames: 0,
                audio_us: 0,
                active: true,
                called: false,
                given_up: None,
            };
            remember(&mut self.answers, answer, REMEMBERED);
            self.answers.len() - 1
        });
        &mut self.answers[at]
    }

    fn audio(&mut self, message: &Message<'_>, to: &mut Exchange) {
        let Some(payload) = base64::decode(&message.delta) else {
            return malformed(format!("{}: `delta` is no base64", &*message.kind), to);
        };
        if payload.is_empty() {
            return;
        }
        let format: AudioFormat = self.opening.asked.1;
        let (sequence, timestamp_us) = (self.sequence, self.media_us);
        let lasts_us = format.duration_us(payload.len());
        self.sequence += 1;
        self.media_us += lasts_us;
        let next = ResponseId(self.responses + 1);
        let answer = self.answer_of(&message.response_id);
        answer.frames = answer.frames.saturating_add(1);
        // What comes after its end is no part of it any more, for the server too.
        answer.audio_us += if answer.active { lasts_us } else { 0 };
        let response = if answer.number.0 == 0 {
            answer.number = next;
            message.item_id.clone_into(&mut answer.item);
            to.event(ServerEvent::ResponseStart { response: next, turn: answer.turn, text: String::new() });
            // It was given up before it began: all of it comes after its end.
            if let Some(status) = answer.given_up {
                to.event(ServerEvent::ResponseEnd { response: next, status, frames: 0 });
            }
            self.responses = next.0;
            next
        } else {
            answer.number
        };
        to.event(ServerEvent::Audio(AgentAudio { sequence, timestamp_us, payload: payload.into(), response }));
    }

    fn call_begun(&mut self, message: &Message<'_>) {
        let Some(item) = message.item.as_ref().filter(|item| &*item.kind == "function_call") else { return };
        let texts = [&item.id, &item.call_id, &item.name];
        // A longer one is refused with the call itself.
        if texts.iter().all(|text| text.len() <= MAX_NAME_BYTES) {
            remember(&mut self.calls.begun, texts.map(|text| text.to_string()), CALLS);
        }
    }

    fn item_done(&mut self, message: &Message<'_>, to: &mut Exchange) {
        let Some(item) = message.item.as_ref().filter(|item| &*item.kind == "function_call") else { return };
        // One that was cut short is called by nobody.
        if &*item.status != "incomplete" {
            self.called(&message.response_id, &item.id, &item.call_id, &item.name, &item.arguments, to);
        }
    }

    /// A function is called. Servers say so twice; what one of the two leaves out is known from before or comes with the other.
    fn called(&mut self, response: &str, item: &str, call_id: &str, name: &str, arguments: &str, to: &mut Exchange) {
        let begun = self.calls.begun.iter().rev().find(|[known, id, _]| if item.is_empty() { id == call_id } else { known == item });
        let or = |said: &str, at: usize| match begun {
            Some(begun) if said.is_empty() => begun[at].clone(),
            _ => said.to_owned(),
        };
        let (call_id, name) = (or(call_id, 1), or(name, 2));
        if call_id.is_empty() || name.is_empty() || self.calls.told.contains(&call_id) {
            return;
        }
        if call_id.len() > MAX_NAME_BYTES || name.len() > MAX_NAME_BYTES {
            return malformed(format!("a function call with an id or a name of more than {MAX_NAME_BYTES} bytes"), to);
        }
        if let Some(answer) = self.answers.iter_mut().rev().find(|answer| answer.active && (response.is_empty() || answer.id == response)) {
            answer.called = true;
        }
        remember(&mut self.calls.told, call_id.clone(), CALLS);
        if self.calls.open.len() < CALLS {
            self.calls.open.push(call_id.clone());
        }
        to.event(ServerEvent::ToolCall { call_id, name, arguments: arguments.to_owned() });
    }

    fn done(&mut self, response: &Response<'_>, to: &mut Exchange) {
        let reason = response.status_details.as_ref().map_or("", |details| &*details.reason);
        let status = match (&*response.status, reason) {
            ("" | "completed", _) => ResponseStatus::Completed,
            ("cancelled", "client_cancelled") => ResponseStatus::Cancelled,
            ("cancelled", _) => ResponseStatus::Interrupted,
            _ => ResponseStatus::Failed,
        };
        let answer = self.answer_of(&response.id);
        if !std::mem::replace(&mut answer.active, false) {
            return;
        }
        if answer.number.0 > 0 {
            to.event(ServerEvent::ResponseEnd { response: answer.number, status, frames: answer.frames });
        } else if !answer.called {
            answer.given_up = matches!(status, ResponseStatus::Interrupted | ResponseStatus::Cancelled).then_some(status);
            to.event(ServerEvent::AnswerDropped { turn: answer.turn, status });
        }
        self.resume(to);
    }

    fn truncated(&self, message: &Message<'_>, to: &mut Exchange) {
        let cut = self.answers.iter().rev().find(|answer| answer.number.0 > 0 && answer.item == *message.item_id);
        if let Some(answer) = cut {
            to.event(ServerEvent::Context {
                role: "agent".to_owned(),
                text: String::new(),
                response: Some(answer.number),
                heard_ms: (micros(message.audio_end_ms) / 1_000).min(u64::from(u32::MAX)) as u32,
            });
        }
    }

    fn fault(&mut self, fault: &Fault<'_>, to: &mut Exchange) {
        // It was over when the cancel arrived: the two crossed.
        if &*fault.code == "response_cancel_not_active" && !self.answers.iter().any(|answer| answer.active) {
            return;
        }
        let (code, fatal) = match (&*fault.code, &*fault.kind) {
            ("session_expired", _) => (ErrorCode::Deadline, true),
            ("insufficient_quota", _) | (_, "insufficient_quota") => (ErrorCode::Overloaded, true),
            ("invalid_api_key" | "model_not_found", _) | (_, "authentication_error") => (ErrorCode::InvalidArgument, true),
            ("rate_limit_exceeded", _) | (_, "rate_limit_error" | "tokens" | "requests") => (ErrorCode::Overloaded, false),
            ("input_audio_buffer_commit_empty", _) => (ErrorCode::BadAudio, false),
            (_, "invalid_request_error") => (ErrorCode::InvalidArgument, false),
            _ => (ErrorCode::Internal, false),
        };
        let mut message = fault.message.chars().take(MAX_TEXT_BYTES / 4).collect::<String>();
        for (name, said) in [("type", &fault.kind), ("code", &fault.code), ("param", &fault.param)] {
            if !said.is_empty() && said.len() <= MAX_NAME_BYTES {
                // Writing to a text cannot fail.
                let _ = write!(message, " ({name} {})", &**said);
            }
        }
        // Before acceptance there is only one thing that it can be about: what the session was asked to be.
        let fatal = fatal || !self.opening.accepted;
        self.parting.error(SessionError { code, message, fatal }, to);
    }
}

/// The response that an event is about, or complains.
fn response_in<'m>(message: &'m Message<'_>, to: &mut Exchange) -> Option<&'m Response<'m>> {
    match &message.response {
        Some(response) if response.id.len() <= MAX_NAME_BYTES => Some(response),
        Some(_) => {
            malformed(format!("{}: a response id of more than {MAX_NAME_BYTES} bytes", &*message.kind), to);
            None
        }
        None => {
            malformed(format!("{} without response", &*message.kind), to);
            None
        }
    }
}

/// Keeps the last so many.
fn remember<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    if all.len() >= most {
        all.pop_front();
    }
    all.push_back(one);
}

fn micros(ms: Option<f64>) -> u64 {
    // A cast of floats saturates, and takes what is no number for 0.
    (ms.unwrap_or(0.0) * 1_000.0) as u64
}
