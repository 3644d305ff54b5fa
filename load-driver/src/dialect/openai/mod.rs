//! `OpenAI` Realtime over WebSocket. Names of the GA and of the beta are understood side by side, because real servers mix them.
//!
//! | on the wire | here |
//! |---|---|
//! | `session.created` and `session.updated` | `Accepted` |
//! | an item of the user (speech, commit, transcript) | a turn, numbered as its item is first heard of |
//! | `response.created` | `Answering` of the turn that was committed last |
//! | its first audio | `ResponseStart`: only what is heard is numbered |
//! | `response.done` | `ResponseEnd`; without audio and calls `AnswerDropped` |
//!
//! A tool's result asks for the next response as well, but not before the response that called it is done and every call of it is answered.

mod ask;
mod hear;
mod wire;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use http::{HeaderName, HeaderValue};
use proto::{
    audio::AudioFormat,
    base64,
    frame::{ClientEvent, ErrorCode, ResponseStatus, SessionError},
    ids::{ResponseId, SessionId, TurnId},
};
use serde_json::{Value, json};

use super::{Dialect, Exchange, Wire, parting::Parting};
use crate::plan::{Claim, Service};

/// Responses and items that are remembered: what comes of older ones is long over.
const REMEMBERED: usize = 32;

/// One session.
#[derive(Debug)]
pub(super) struct OpenaiRealtime {
    service: Arc<Service>,
    opening: Opening,
    parting: Parting,
    items: VecDeque<Item>,
    answers: VecDeque<Answer>,
    /// Turns and responses so far.
    turns: u64,
    responses: u64,
    /// The turn that was committed last.
    committed: TurnId,
    /// Of the server's audio: messages, and media time.
    sequence: u64,
    media_us: u64,
    calls: Calls,
}

/// What has come of the session's opening.
#[derive(Debug, Default)]
struct Opening {
    asked: (AudioFormat, AudioFormat),
    created: bool,
    updated: bool,
    accepted: bool,
    id: SessionId,
    formats: (Option<AudioFormat>, Option<AudioFormat>),
}

/// What the user said in one turn.
#[derive(Debug)]
struct Item {
    id: String,
    turn: TurnId,
    /// Understood so far.
    text: String,
}

/// A response of the server.
#[derive(Debug)]
struct Answer {
    id: String,
    /// 0 before its first audio.
    number: ResponseId,
    turn: TurnId,
    /// The item that holds its audio.
    item: String,
    frames: u32,
    audio_us: u64,
    active: bool,
    called: bool,
    /// It was interrupted or cancelled before it began.
    given_up: Option<ResponseStatus>,
}

/// Function calls of the turn.
#[derive(Debug, Default)]
struct Calls {
    /// Begun: item, call, function. The event that ends a call need not name its function.
    begun: VecDeque<[String; 3]>,
    /// Told, by their call ids.
    told: VecDeque<String>,
    /// Told and not answered.
    open: Vec<String>,
    /// All are answered, and the server is to go on once the response that called is done.
    resume: bool,
}

impl OpenaiRealtime {
    /// As the service wants it.
    pub(super) fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            opening: Opening::default(),
            parting: Parting::default(),
            items: VecDeque::new(),
            answers: VecDeque::new(),
            turns: 0,
            responses: 0,
            committed: TurnId(0),
            sequence: 0,
            media_us: 0,
            calls: Calls::default(),
        }
    }

    /// The response of this number, or the one under way.
    fn answer(&self, response: Option<ResponseId>) -> Option<&Answer> {
        let mut all = self.answers.iter().rev();
        match response {
            Some(number) if number.0 > 0 => all.find(|answer| answer.number == number),
            _ => all.find(|answer| answer.active),
        }
    }

    /// Stops the response, if there is still something to stop: to cancel what is over is an error.
    fn cancel(&self, response: Option<ResponseId>, to: &mut Exchange) {
        if let Some(answer) = self.answer(response).filter(|answer| answer.active) {
            let mut cancel = json!({"type": "response.cancel"});
            if !answer.id.is_empty() {
                cancel["response_id"] = answer.id.as_str().into();
            }
            say(&cancel, to);
        }
    }

    /// So much of the response was heard. More than there is would be an error, and so would be any of one without audio.
    fn truncate(&self, response: Option<ResponseId>, heard_ms: u32, to: &mut Exchange) {
        let Some(answer) = self.answer(response).filter(|answer| answer.audio_us > 0 && !answer.item.is_empty()) else { return };
        // The truth is rounded at times; a claim of more than there was is meant, and goes out as it is.
        let beyond = heard_ms == Claim::Beyond.heard_ms();
        let heard_ms = if beyond { heard_ms.into() } else { u64::from(heard_ms).min(answer.audio_us / 1_000) };
        say(&json!({"type": "conversation.item.truncate", "item_id": answer.item, "content_index": 0, "audio_end_ms": heard_ms}), to);
    }

    /// A tool's result; the last one asks for the answer.
    fn tool_result(&mut self, call_id: &str, output: &str, to: &mut Exchange) {
        say(
            &json!({"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": call_id, "output": output}}),
            to,
        );
        self.calls.open.retain(|open| open != call_id);
        self.calls.resume = self.calls.open.is_empty();
        self.resume(to);
    }

    /// Asks for the answer after a tool, once nothing else is being answered.
    fn resume(&mut self, to: &mut Exchange) {
        if self.calls.resume && !self.answers.iter().any(|answer| answer.active) {
            self.calls.resume = false;
            say(&json!({"type": "response.create"}), to);
        }
    }
}

impl Dialect for OpenaiRealtime {
    fn path(&self) -> Cow<'static, str> {
        ask::path(&self.service.agent).into()
    }

    fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        if self.service.agent.beta {
            vec![(HeaderName::from_static("openai-beta"), HeaderValue::from_static("realtime=v1"))]
        } else {
            Vec::new()
        }
    }

    fn encode(&mut self, event: ClientEvent, to: &mut Exchange) {
        match event {
            ClientEvent::Audio(audio) => {
                const HEAD: &str = r#"{"type":"input_audio_buffer.append","audio":""#;
                const TAIL: &str = "\"}";
                let mut text = String::with_capacity(HEAD.len() + audio.payload.len().div_ceil(3) * 4 + TAIL.len());
                text.push_str(HEAD);
                base64::encode_into(&audio.payload, &mut text);
                text.push_str(TAIL);
                to.send(Wire::Text(text));
            }
            ClientEvent::Start(start) => {
                self.opening.asked = (start.input, start.output);
                to.send(Wire::Text(ask::update(&start, &self.service.agent)));
            }
            ClientEvent::Commit => say(&json!({"type": "input_audio_buffer.commit"}), to),
            ClientEvent::Discard => say(&json!({"type": "input_audio_buffer.clear"}), to),
            ClientEvent::Respond(_) => say(&json!({"type": "response.create"}), to),
            ClientEvent::BargeIn { response, heard_ms } => {
                self.cancel(response, to);
                self.truncate(response, heard_ms, to);
            }
            ClientEvent::Cancel { response } => self.cancel(response, to),
            ClientEvent::Truncate { response, heard_ms } => self.truncate(Some(response), heard_ms, to),
            ClientEvent::ToolResult { call_id, output, .. } => self.tool_result(&call_id, &output, to),
            ClientEvent::Context { role, text } => {
                let (role, kind) = if role == "agent" { ("assistant", "output_text") } else { (role.as_str(), "input_text") };
                let item = json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
                say(&json!({"type": "conversation.item.create", "item": item}), to);
            }
            ClientEvent::End { .. } => self.parting.leave(to),
            // No word of this wire. Settings are asked for once, at the start.
            ClientEvent::Configure(_)
            | ClientEvent::Speech(_)
            | ClientEvent::Hint(_)
            | ClientEvent::Played { .. }
            | ClientEvent::GiveUp { .. }
            | ClientEvent::Digit(_) => {}
        }
    }

    fn decode(&mut self, message: Wire, to: &mut Exchange) {
        match message {
            Wire::Text(text) => self.hear(&text, to),
            // Some servers send their JSON in binary frames.
            Wire::Binary(bytes) => match std::str::from_utf8(&bytes) {
                Ok(text) => self.hear(text, to),
                Err(_) => malformed("a binary frame that holds no text; events are JSON", to),
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

fn malformed(what: impl Into<String>, to: &mut Exchange) {
    to.malformed(SessionError::fatal(ErrorCode::MalformedMessage, what));
}
