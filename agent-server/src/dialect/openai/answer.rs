//! Responses: from the session's answers to the events of the API, part by part.

use proto::{
    base64,
    frame::{AgentAudio, FRAME_MS, ResponseStatus, ToolChoice},
    ids::{ResponseId, TurnId},
};
use serde_json::{Value, json};

use super::{
    super::{Exchange, Frame},
    Asked, Realtime,
    fault::Fault,
    fields::{flat_name, format_json},
    items::{Body, COMPLETED, IN_PROGRESS, INCOMPLETE, Item},
    turns::{audio_tokens, text_tokens},
    wire::{Wire, beta_name},
};
use crate::pipeline::think::WORD_MS;

/// Frames of audio that a word of the answer lasts.
const WORD_FRAMES: u32 = WORD_MS / FRAME_MS as u32;
/// What a piece of a tool call's arguments has, characters.
const ARGUMENTS_PIECE: usize = 24;
/// What a client is told of limits that nobody enforces here: requests and tokens a minute.
const RATE_LIMITS: [(&str, u64); 2] = [("requests", 5_000), ("tokens", 400_000)];

/// How a response shall be, where the client asked for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wish {
    pub(super) metadata: Value,
    pub(super) written: bool,
    /// Beside the conversation: what comes of it is no item there.
    pub(super) aside: bool,
    pub(super) voice: Value,
    pub(super) max_tokens: Value,
    pub(super) tool: ToolChoice,
    /// The client took it back; the session will say so.
    pub(super) cancelled: bool,
}

/// The response that is under way.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) wish: Wish,
    pub(super) speech: Option<Speech>,
}

/// A response whose audio was stopped, or that was given up before it had any: a session that misbehaves on purpose ([`crate::fault`]) goes on
/// with it, and the client shall hear that.
#[derive(Debug)]
pub(super) struct Stopped {
    /// None while it has not begun.
    response: Option<ResponseId>,
    /// The turn that was not answered; none where an answer had begun.
    dropped: Option<TurnId>,
    prefix: String,
}

/// The part of it that is said, or written.
#[derive(Debug)]
pub(super) struct Speech {
    pub(super) response: ResponseId,
    item: String,
    /// An audio delta after its own id and before its audio.
    prefix: String,
    /// All words, and how much of them was given.
    text: String,
    given: usize,
    frames: u32,
}

impl Speech {
    fn audio_ms(&self) -> u32 {
        self.frames.saturating_mul(FRAME_MS as u32)
    }

    /// Takes the next word.
    fn word(&mut self) -> Option<&str> {
        let from = self.given;
        let rest = self.text.get(from..).filter(|rest| !rest.is_empty())?;
        // Each word takes the space before it along.
        self.given = from + rest.match_indices(' ').map(|(at, _)| at).find(|&at| at > 0).unwrap_or(rest.len());
        self.text.get(from..self.given)
    }

    /// What was given.
    fn said(&self) -> &str {
        self.text.get(..self.given).unwrap_or_default()
    }
}

impl Realtime {
    pub(super) fn already_answering(&self) -> Fault {
        let which = self.answer.as_ref().map_or_else(String::new, |answer| format!(": {}", answer.id));
        let message = format!(
            "Conversation already has an active response in progress{which}. Wait until the response is finished before creating a new one."
        );
        Fault::request("conversation_already_has_active_response", message)
    }

    /// As the session is set.
    pub(super) fn plain_wish(&self) -> Wish {
        Wish {
            metadata: Value::Null,
            written: self.settings.written,
            aside: false,
            voice: self.settings.voice.clone(),
            max_tokens: self.settings.max_tokens.clone(),
            tool: ToolChoice::Auto,
            cancelled: false,
        }
    }

    /// Work on an answer begins.
    pub(super) fn answering(&mut self, turn: TurnId, unasked: bool, to: &mut Exchange<'_, Frame>) {
        // Tried again, it is an answer like any other.
        self.stopped.take_if(|stopped| stopped.dropped == Some(turn));
        let asked = self.asked.iter().position(|asked| matches!(asked, Asked::Respond(..))).filter(|_| !unasked);
        let wish = match asked.and_then(|at| self.asked.remove(at)) {
            Some(Asked::Respond(_, wish)) => *wish,
            _ => self.plain_wish(),
        };
        let answer = Box::new(Answer { id: self.wire.id("resp"), wish, speech: None });
        let response = self.response(&answer, IN_PROGRESS, &Value::Null, &[], &Value::Null);
        self.wire.send(to, "response.created", &json!({ "response": response }));
        self.answer = Some(answer);
        self.choose = true;
    }

    /// The answer is heard from now on.
    pub(super) fn begun(&mut self, response: ResponseId, turn: TurnId, text: String, to: &mut Exchange<'_, Frame>) {
        if let Some(stopped) = self.stopped.as_mut().filter(|stopped| stopped.response.is_none() && stopped.dropped == Some(turn)) {
            // It was given up, and is heard all the same: under the name that it had.
            stopped.response = Some(response);
            return;
        }
        if self.answer.is_none() {
            self.answering(turn, true, to);
        }
        let Some(mut answer) = self.answer.take() else { return };
        let body = if answer.wish.written {
            Body::Written { text: String::new() }
        } else {
            Body::Spoken { response, audio_ms: 0, transcript: String::new() }
        };
        let item = Item { id: self.wire.id("item"), status: IN_PROGRESS, body };
        let id = item.id.clone();
        self.tell_begun(&answer, item, to);
        let part = if answer.wish.written { json!({ "type": "text", "text": "" }) } else { json!({ "type": "audio", "transcript": "" }) };
        let mut fields = place(&answer.id, &id);
        fields["part"] = part;
        self.wire.send(to, "response.content_part.added", &fields);
        let prefix = prefix(&answer.id, &id);
        answer.speech = Some(Speech { response, item: id, prefix, text, given: 0, frames: 0 });
        self.answer = Some(answer);
    }

    /// The output item is there, and in the conversation unless the response is beside it.
    fn tell_begun(&mut self, answer: &Answer, item: Item, to: &mut Exchange<'_, Frame>) {
        let json = item.to_json(self.wire.beta);
        let fields = json!({ "response_id": answer.id, "output_index": 0, "item": json });
        self.wire.send(to, "response.output_item.added", &fields);
        if !answer.wish.aside {
            let before = self.items.push(item);
            self.wire.send(to, "conversation.item.added", &json!({ "previous_item_id": before, "item": json }));
        }
    }

    /// 20 ms of it, and the words that begin there.
    pub(super) fn audio(&mut self, audio: &AgentAudio, to: &mut Exchange<'_, Frame>) {
        if let Some(stopped) = self.stopped.as_ref().filter(|stopped| stopped.response == Some(audio.response)) {
            return delta(&mut self.wire, &stopped.prefix, audio, to);
        }
        let Some(answer) = &mut self.answer else { return };
        let Some(speech) = &mut answer.speech else { return };
        let written = answer.wish.written;
        if speech.frames.is_multiple_of(WORD_FRAMES)
            && let Some(word) = speech.word().map(|word| json!(word))
        {
            let mut fields = place(&answer.id, &speech.item);
            fields["delta"] = word;
            let name = if written { "response.output_text.delta" } else { "response.output_audio_transcript.delta" };
            self.wire.send(to, name, &fields);
        }
        speech.frames = speech.frames.saturating_add(1);
        if !written {
            delta(&mut self.wire, &speech.prefix, audio, to);
        }
    }

    /// The answer is given up before anything of it was heard.
    pub(super) fn dropped(&mut self, turn: TurnId, status: ResponseStatus, to: &mut Exchange<'_, Frame>) {
        if let Some(answer) = self.answer.as_ref().filter(|answer| answer.speech.is_none() && !answer.wish.written) {
            let prefix = prefix(&answer.id, &self.wire.id("item"));
            self.stopped = Some(Stopped { response: None, dropped: Some(turn), prefix });
        }
        self.ended(status, to);
    }

    /// The answer is over.
    pub(super) fn ended(&mut self, status: ResponseStatus, to: &mut Exchange<'_, Frame>) {
        let Some(mut answer) = self.answer.take() else { return };
        if let Some(speech) = answer.speech.as_ref().filter(|_| status != ResponseStatus::Completed && !answer.wish.written) {
            self.stopped = Some(Stopped { response: Some(speech.response), dropped: None, prefix: speech.prefix.clone() });
        }
        let output = answer.speech.take().map(|speech| self.said(&answer, speech, status, to));
        let (name, details) = match status {
            ResponseStatus::Completed => (COMPLETED, Value::Null),
            ResponseStatus::Interrupted => ("cancelled", json!({ "type": "cancelled", "reason": "turn_detected" })),
            ResponseStatus::Cancelled if answer.wish.cancelled => {
                ("cancelled", json!({ "type": "cancelled", "reason": "client_cancelled" }))
            }
            ResponseStatus::Cancelled | ResponseStatus::Failed => {
                let error = json!({ "type": "server_error", "code": "session_ended", "message": "the session ended" });
                ("failed", json!({ "type": "failed", "error": error }))
            }
        };
        let (output, tokens) = output.unzip();
        self.done(&answer, name, &details, output.as_slice(), tokens.unwrap_or_default(), to);
    }

    /// Closes what was said: its words, its audio, its part, its item. Gives the item, and its tokens of text and audio.
    fn said(&mut self, answer: &Answer, mut speech: Speech, status: ResponseStatus, to: &mut Exchange<'_, Frame>) -> (Value, (u64, u64)) {
        let written = answer.wish.written;
        let whole = status == ResponseStatus::Completed;
        let names = if written {
            ["response.output_text.delta", "response.output_text.done"]
        } else {
            ["response.output_audio_transcript.delta", "response.output_audio_transcript.done"]
        };
        let place = place(&answer.id, &speech.item);
        let with = |fields: &[(&str, Value)]| {
            let mut all = place.clone();
            for (key, value) in fields {
                all[*key] = value.clone();
            }
            all
        };
        if whole && let Some(rest) = speech.text.get(speech.given..).filter(|rest| !rest.is_empty()) {
            self.wire.send(to, names[0], &with(&[("delta", json!(rest))]));
            speech.given = speech.text.len();
        }
        let said = speech.said().to_owned();
        if !written {
            self.wire.send(to, "response.output_audio.done", &place);
        }
        let key = if written { "text" } else { "transcript" };
        self.wire.send(to, names[1], &with(&[(key, json!(said))]));
        let part = if written { json!({ "type": "text", "text": said }) } else { json!({ "type": "audio", "transcript": said }) };
        self.wire.send(to, "response.content_part.done", &with(&[("part", part)]));
        let audio_ms = speech.audio_ms();
        let tokens = (text_tokens(said.len()), if written { 0 } else { u64::from(audio_ms.div_ceil(50)) });
        let body =
            if written { Body::Written { text: said } } else { Body::Spoken { response: speech.response, audio_ms, transcript: said } };
        let item = Item { id: speech.item, status: if whole { COMPLETED } else { INCOMPLETE }, body };
        (self.tell_done(answer, item, to), tokens)
    }

    /// An output item is whole, or as whole as it will be. Gives it.
    fn tell_done(&mut self, answer: &Answer, item: Item, to: &mut Exchange<'_, Frame>) -> Value {
        let json = item.to_json(self.wire.beta);
        if !answer.wish.aside {
            let id = item.id.clone();
            let before = self.items.before(&id);
            self.items.change(&id, |old| *old = item);
            self.wire.send(to, "conversation.item.done", &json!({ "previous_item_id": before, "item": json }));
        }
        self.wire.send(to, "response.output_item.done", &json!({ "response_id": answer.id, "output_index": 0, "item": json }));
        json
    }

    /// The answer begins with a tool: the response is the call.
    pub(super) fn tool_called(&mut self, call_id: &str, name: &str, arguments: &str, to: &mut Exchange<'_, Frame>) {
        if self.answer.is_none() {
            self.answering(TurnId(0), true, to);
        }
        let Some(answer) = self.answer.take() else { return };
        self.calls += 1;
        let id = self.wire.id("item");
        let body = Body::Call { name: name.to_owned(), call_id: call_id.to_owned(), arguments: arguments.to_owned() };
        self.tell_begun(&answer, Item { id: id.clone(), status: IN_PROGRESS, body: body.clone() }, to);
        let fields = |key: &str, value: &str| {
            let mut all = json!({ "response_id": answer.id, "item_id": id, "output_index": 0, "call_id": call_id });
            all[key] = json!(value);
            all
        };
        let mut rest = arguments;
        while !rest.is_empty() {
            let cut = rest.char_indices().nth(ARGUMENTS_PIECE).map_or(rest.len(), |(at, _)| at);
            let (piece, more) = rest.split_at(cut);
            self.wire.send(to, "response.function_call_arguments.delta", &fields("delta", piece));
            rest = more;
        }
        let mut whole = fields("arguments", arguments);
        whole["name"] = json!(name);
        self.wire.send(to, "response.function_call_arguments.done", &whole);
        let output = self.tell_done(&answer, Item { id, status: COMPLETED, body }, to);
        self.done(&answer, COMPLETED, &Value::Null, &[output], (text_tokens(arguments.len()), 0), to);
    }

    /// The last word on a response, and on what is left to spend.
    fn done(
        &mut self,
        answer: &Answer,
        status: &str,
        details: &Value,
        output: &[Value],
        (text, audio): (u64, u64),
        to: &mut Exchange<'_, Frame>,
    ) {
        let read = text_tokens(self.settings.instructions.len() + self.items.bytes());
        let heard = audio_tokens(std::mem::take(&mut self.turns.unpaid_us));
        let total = read + heard + text + audio;
        let usage = json!({
            "total_tokens": total, "input_tokens": read + heard, "output_tokens": text + audio,
            "input_token_details": {
                "text_tokens": read, "audio_tokens": heard, "image_tokens": 0, "cached_tokens": 0,
                "cached_tokens_details": { "text_tokens": 0, "audio_tokens": 0, "image_tokens": 0 },
            },
            "output_token_details": { "text_tokens": text, "audio_tokens": audio },
        });
        let response = self.response(answer, status, details, output, &usage);
        self.wire.send(to, "response.done", &json!({ "response": response }));
        let spent = [1, total];
        let limits = RATE_LIMITS.iter().zip(spent).map(|(&(name, limit), spent)| {
            let remaining = limit.saturating_sub(spent);
            json!({ "name": name, "limit": limit, "remaining": remaining, "reset_seconds": 60.0 * spent as f64 / limit as f64 })
        });
        let limits: Vec<_> = limits.collect();
        self.wire.send(to, "rate_limits.updated", &json!({ "rate_limits": limits }));
    }

    /// `response` of the events that begin and end one.
    fn response(&self, answer: &Answer, status: &str, details: &Value, output: &[Value], usage: &Value) -> Value {
        let Wish { metadata, written, aside, voice, max_tokens, .. } = &answer.wish;
        let mut all = json!({
            "object": "realtime.response", "id": answer.id, "status": status, "status_details": details, "output": output,
            "conversation_id": (!aside).then(|| self.wire.conversation()),
        });
        let more = if self.wire.beta {
            let modalities = if *written { json!(["text"]) } else { json!(["audio", "text"]) };
            json!({ "modalities": modalities, "voice": voice, "output_audio_format": flat_name(self.settings.output), "temperature": 0.8 })
        } else {
            let modalities = if *written { "text" } else { "audio" };
            let audio = json!({ "output": { "format": format_json(self.settings.output), "voice": voice } });
            json!({ "output_modalities": [modalities], "audio": audio })
        };
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
            all.insert("max_output_tokens".to_owned(), max_tokens.clone());
            all.insert("usage".to_owned(), usage.clone());
            all.insert("metadata".to_owned(), metadata.clone());
        }
        all
    }

    /// What was said of an item so far, when it is the one under way: milliseconds.
    pub(super) fn spoken_ms(&self, item: &str) -> Option<u32> {
        let speech = self.answer.as_ref()?.speech.as_ref()?;
        (speech.item == item).then(|| speech.audio_ms())
    }
}

/// What stands before a piece of audio, after its own id.
fn prefix(response: &str, item: &str) -> String {
    format!("\",\"response_id\":\"{response}\",\"item_id\":\"{item}\",\"output_index\":0,\"content_index\":0,\"delta\":\"")
}

/// Writes a piece of audio.
fn delta(wire: &mut Wire, prefix: &str, audio: &AgentAudio, to: &mut Exchange<'_, Frame>) {
    let current = "response.output_audio.delta";
    let name = if wire.beta { beta_name(current).unwrap_or(current) } else { current };
    let mut text = String::with_capacity(128 + prefix.len() + audio.payload.len().div_ceil(3) * 4);
    wire.begin(name, &mut text);
    text.push_str(prefix);
    base64::encode_into(&audio.payload, &mut text);
    text.push_str("\"}");
    to.message(Frame::Text(text.into()));
}

/// Where a piece of an answer belongs.
fn place(response: &str, item: &str) -> Value {
    json!({ "response_id": response, "item_id": item, "output_index": 0, "content_index": 0 })
}
