//! What the client says: every event of it, checked, done or passed on.

use proto::{
    base64,
    frame::{ClientEvent, MAX_TEXT_BYTES, ResponseWish, SessionSettings, ToolChoice, TurnHint},
};
use serde_json::{Value, json};

use super::{
    super::{Exchange, Frame},
    ASKED_MAX, Asked, Realtime,
    answer::Wish,
    fault::{Fault, Object, array, given, need_object, need_text, number, object, text},
    fields::{max_tokens, modalities, tool_choice, tool_names, voice_name},
    given_items,
    input::{APPEND_MAX, Append},
    items::{Body, Place, written},
    settings::{Kind, SESSION_MAX, Settings},
};
use crate::pipeline::{think::WORD_MS, tool::CallNumber};

/// Longest event that is no audio, bytes: it becomes a tree in memory.
const OTHER_MAX: usize = 4 * 1024 * 1024;
/// Least audio of a commit, ms.
const COMMIT_MIN_MS: f64 = 100.0;
/// Largest metadata of a response, bytes.
const METADATA_MAX: usize = 16 * 1024;
/// Longest id of an event that an error repeats, bytes.
const EVENT_ID_MAX: usize = 512;

const TYPES: &str = "'session.update', 'transcription_session.update', 'input_audio_buffer.append', 'input_audio_buffer.commit', \
     'input_audio_buffer.clear', 'conversation.item.create', 'conversation.item.retrieve', 'conversation.item.truncate', \
     'conversation.item.delete', 'response.create', 'response.cancel' and 'output_audio_buffer.clear'";

/// What a `response.create` wants.
struct Wanted {
    wish: Wish,
    /// For this response alone.
    tools: Option<Vec<String>>,
    /// What is answered.
    text: Option<String>,
}

/// A commit of too little.
pub(super) fn nothing_buffered(ms: f64) -> Fault {
    let message = format!(
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer only has {ms:.2}ms of audio."
    );
    Fault::request("input_audio_buffer_commit_empty", message)
}

impl Realtime {
    pub(super) fn read(&mut self, frame: &Frame, to: &mut Exchange<'_, Frame>) {
        let text = match frame {
            Frame::Text(text) => Ok(text.as_str()),
            Frame::Binary(bytes) => std::str::from_utf8(bytes),
        };
        let Ok(text) = text else {
            return self.error(&Fault::request("invalid_json", "The event is not JSON: it is not even UTF-8."), None, to);
        };
        self.restore(to);
        if let Some(append) = Append::read(text) {
            if let Err(fault) = self.append(&append.audio, to) {
                let cause = clipped(&append.event_id, EVENT_ID_MAX);
                self.error(&fault, (!cause.is_empty()).then_some(cause), to);
            }
            return;
        }
        // Also what concerns the session in nothing, or is wrong, is a sign of life.
        to.event(ClientEvent::Configure(Box::default()));
        if text.len() > OTHER_MAX {
            let message = format!("The event has {} bytes; only '{}' may have more than {OTHER_MAX}.", text.len(), Append::TYPE);
            return self.error(&Fault::request("event_too_large", message), None, to);
        }
        let event = match serde_json::from_str(text) {
            Ok(Value::Object(event)) => event,
            Ok(_) => return self.error(&Fault::request("invalid_json", "The event is not a JSON object."), None, to),
            Err(error) => return self.error(&Fault::request("invalid_json", format!("The event is not JSON: {error}.")), None, to),
        };
        if let Err(fault) = self.act(&event, to) {
            let cause = event.get("event_id").and_then(Value::as_str);
            self.error(&fault, cause.map(|cause| clipped(cause, EVENT_ID_MAX)), to);
        }
    }

    fn act(&mut self, event: &Object, to: &mut Exchange<'_, Frame>) -> Result<(), Fault> {
        match need_text(event, "type", "")? {
            Append::TYPE => self.append(need_text(event, "audio", "")?, to),
            "input_audio_buffer.commit" => self.commit(event, to),
            "input_audio_buffer.clear" => {
                self.clear(to);
                Ok(())
            }
            "session.update" => self.update(need_object(event, "session", "")?, "session.updated", to),
            "transcription_session.update" => self.update(need_object(event, "session", "")?, "transcription_session.updated", to),
            "conversation.item.create" => self.create(event, to),
            "conversation.item.retrieve" => {
                let id = need_text(event, "item_id", "")?;
                let item = self.items.get(id).ok_or_else(|| not_found("item_retrieve_invalid_item_id", id))?;
                let fields = json!({ "item": item.to_json(self.wire.beta) });
                self.wire.send(to, "conversation.item.retrieved", &fields);
                Ok(())
            }
            "conversation.item.delete" => {
                let id = need_text(event, "item_id", "")?;
                self.items.remove(id).ok_or_else(|| not_found("item_delete_invalid_item_id", id))?;
                self.wire.send(to, "conversation.item.deleted", &json!({ "item_id": id }));
                Ok(())
            }
            "conversation.item.truncate" => self.truncate(event, to),
            "response.create" => self.respond(event, to),
            "response.cancel" => self.cancel(event, to),
            // There is such a buffer with WebRTC only: nothing is in it here.
            "output_audio_buffer.clear" => Ok(()),
            other => Err(Fault::wrong_value("type", other, TYPES)),
        }
    }

    fn append(&mut self, audio: &str, to: &mut Exchange<'_, Frame>) -> Result<(), Fault> {
        let format = self.settings.input;
        // Four letters are three bytes; told before they cost memory.
        let bytes = audio.trim_end_matches('=').len() * 3 / 4;
        if bytes > APPEND_MAX {
            return Err(Fault::too_long("audio", bytes, APPEND_MAX));
        }
        let audio = base64::decode(audio).ok_or_else(|| {
            let message = "Invalid 'audio'. Expected base64-encoded audio bytes, but got an invalid value.";
            Fault::request("invalid_value", message).at("audio")
        })?;
        if std::mem::take(&mut self.choose) {
            self.hint(to);
        }
        self.input.append(audio, format, to);
        Ok(())
    }

    /// Where the session is set to a tool, or to none, that holds for the coming turn too. While it has other tools, those of one response,
    /// it would refuse the name, and its refusals answer what it was asked for.
    fn hint(&mut self, to: &mut Exchange<'_, Frame>) {
        let names = &self.settings.tool_names;
        let tool = match tool_choice(&self.settings.tool_choice, "") {
            Ok(ToolChoice::Never) => None,
            Ok(ToolChoice::Any) if !names.is_empty() => names.first().cloned(),
            Ok(ToolChoice::Named(name)) if names.contains(&name) => Some(name),
            _ => return,
        };
        if tool.is_some() && self.tools_lent {
            self.choose = true;
            return;
        }
        to.event(ClientEvent::Hint(TurnHint { tool, ..TurnHint::default() }));
    }

    fn update(&mut self, patch: &Object, name: &'static str, to: &mut Exchange<'_, Frame>) -> Result<(), Fault> {
        let new = Box::new(Settings::with(&self.settings, patch)?);
        let bytes = self.session(&new).to_string().len();
        if bytes > SESSION_MAX {
            return Err(Fault::too_long("session", bytes, SESSION_MAX));
        }
        if let Some(changes) = new.changes(&self.settings) {
            self.tools_lent &= changes.tools.is_none();
            to.event(ClientEvent::Configure(Box::new(changes)));
        }
        if new.input != self.settings.input {
            self.input.reformat(self.settings.input);
        }
        self.settings = new;
        self.choose = true;
        self.tell_session(name, to);
        Ok(())
    }

    fn commit(&mut self, event: &Object, to: &mut Exchange<'_, Frame>) -> Result<(), Fault> {
        let ms = self.input.buffered_ms();
        if ms < COMMIT_MIN_MS {
            return Err(nothing_buffered(ms));
        }
        self.ask(Asked::Commit(cause(event)))?;
        to.event(ClientEvent::Commit);
        Ok(())
    }

    fn ask(&mut self, asked: Asked) -> Result<(), Fault> {
        if self.asked.len() >= ASKED_MAX {
            let message = format!("{ASKED_MAX} requests wait for their answers: read those first.");
            return Err(Fault::request("rate_limit_exceeded", message));
        }
        self.asked.push_back(asked);
        Ok(())
    }

    fn clear(&mut self, to: &mut Exchange<'_, Frame>) {
        self.input.take();
        self.turns.forget();
        to.event(ClientEvent::Discard);
        self.wire.send(to, "input_audio_buffer.cleared", &json!({}));
    }

    fn create(&mut self, event: &Object, to: &mut Exchange<'_, Frame>) -> Result<(), Fault> {
        let given = need_object(event, "item", "")?;
        let place = match text(event, "previous_item_id", "")? {
            None => Place::Last,
            Some("root") => Place::First,
            Some(id) => Place::After(id),
        };
        if let Place::After(id) = place
            && self.items.get(id).is_none()
        {
            return Err(not_found("item_create_invalid_previous_item_id", id).at("previous_item_id"));
        }
        let item = given_items::read(given, || self.wire.id("item"))?;
        if self.items.get(&item.id).is_some() {
            return Err(Fault::request("invalid_value", format!("An item with id '{}' is there already.", item.id)).at("item.id"));
        }
        if let Body::Output { call_id, output } = &item.body {
            let called = CallNumber::parse(call_id).is_some_and(|call| call.0 >= 1 && u64::from(call.0) <= self.calls);
            if !called && !self.items.has_call(call_id) {
                let message = format!("Tool call ID '{call_id}' not found in conversation.");
                return Err(Fault::request("invalid_tool_call_id", message).at("item.call_id"));
            }
            if called {
                let output = clipped(output, MAX_TEXT_BYTES).to_owned();
                to.event(ClientEvent::ToolResult { call_id: call_id.clone(), output, failed: false });
            }
        }
        let json = item.to_json(self.wire.beta);
        let before = self.items.add(item, place);
        self.tell_item(&json, before.as_deref(), to);
        Ok(())
    }

    fn truncate(&mut self, event: &Object, to: &mut Exchange<'_, Frame>) -> Result<(), Fault> {
        let id = need_text(event, "item_id", "")?;
        let need = |key: &str| number(event, key, "")?.ok_or_else(|| Fault::missing(key));
        let (index, end_ms) = (need("content_index")?, need("audio_end_ms")?);
        let item = self.items.get(id).ok_or_else(|| not_found("item_truncate_invalid_item_id", id))?;
        let spoken = match &item.body {
            Body::Spoken { response, audio_ms, .. } => Some((*response, self.spoken_ms(id).unwrap_or(*audio_ms))),
            _ => None,
        };
        let Some((response, audio_ms)) = spoken.filter(|(_, audio_ms)| *audio_ms > 0) else {
            return Err(Fault::request("unsupported_content_type", "Only model output audio messages can be truncated.").at("item_id"));
        };
        if index != 0 {
            return Err(Fault::wrong_value("content_index", &index.to_string(), "0: the item has one part"));
        }
        if end_ms > audio_ms {
            let message = format!("Audio content of {audio_ms}ms is already shorter than {end_ms}ms");
            return Err(Fault::request("invalid_value", message).at("audio_end_ms"));
        }
        self.items.change(id, |item| {
            if let Body::Spoken { audio_ms, transcript, .. } = &mut item.body {
                *audio_ms = end_ms;
                let heard = transcript.split_whitespace().take((end_ms / WORD_MS) as usize);
                *transcript = heard.collect::<Vec<_>>().join(" ");
            }
        });
        to.event(ClientEvent::Truncate { response, heard_ms: end_ms });
        let fields = json!({ "item_id": id, "content_index": 0, "audio_end_ms": end_ms });
        self.wire.send(to, "conversation.item.truncated", &fields);
        Ok(())
    }

    fn respond(&mut self, event: &Object, to: &mut Exchange<'_, Frame>) -> Result<(), Fault> {
        if self.settings.kind == Kind::Transcription {
            return Err(Fault::request("invalid_value", "A transcription session gives no responses.").at("type"));
        }
        let empty = Object::new();
        let given = object(event, "response", "")?.unwrap_or(&empty);
        let Wanted { wish, tools, text } = self.wish(given)?;
        let asked = ResponseWish { tool: wish.tool.clone(), text };
        self.ask(Asked::Respond(cause(event), Box::new(wish)))?;
        if let Some(tools) = tools.filter(|_| self.answer.is_none()) {
            self.tools_lent = true;
            to.event(ClientEvent::Configure(Box::new(SessionSettings { tools: Some(tools), ..SessionSettings::default() })));
        }
        to.event(ClientEvent::Respond(asked));
        Ok(())
    }

    /// What `response` of a `response.create` says: how it shall be, its own tools, what it answers.
    fn wish(&self, from: &Object) -> Result<Wanted, Fault> {
        const PATH: &str = "response";
        let mut wish = self.plain_wish();
        if let Some(metadata) = object(from, "metadata", PATH)? {
            let value = Value::Object(metadata.clone());
            let bytes = super::items::weight(&value);
            if bytes > METADATA_MAX {
                return Err(Fault::too_long("response.metadata", bytes, METADATA_MAX));
            }
            wish.metadata = value;
        }
        for key in ["modalities", "output_modalities"] {
            wish.written = modalities(from, key, PATH)?.unwrap_or(wish.written);
        }
        wish.aside = match text(from, "conversation", PATH)? {
            None | Some("auto") => false,
            Some("none") => true,
            Some(other) => return Err(Fault::wrong_value("response.conversation", other, "'auto' and 'none'")),
        };
        let audio = object(from, "audio", PATH)?.map(|audio| object(audio, "output", "response.audio")).transpose()?.flatten();
        for (place, path) in [(Some(from), "response.voice"), (audio, "response.audio.output.voice")] {
            if let Some(voice) = place.and_then(|place| given(place, "voice")) {
                voice_name(voice, path)?;
                wish.voice = voice.clone();
            }
        }
        for key in ["max_response_output_tokens", "max_output_tokens"] {
            if let Some(value) = given(from, key) {
                wish.max_tokens = max_tokens(value, &super::fault::within(PATH, key))?;
            }
        }
        text(from, "instructions", PATH)?;
        let choice = given(from, "tool_choice").unwrap_or(&self.settings.tool_choice);
        wish.tool = tool_choice(choice, "response.tool_choice")?;
        let tools = array(from, "tools", PATH)?.map(|tools| tool_names(tools, "response.tools")).transpose()?;
        let asked = match array(from, "input", PATH)? {
            None => self.items.question(),
            Some(input) => input
                .iter()
                .rev()
                .find(|item| item.get("role").is_some_and(|role| role == "user"))
                .and_then(|item| written(item.get("content")?)),
        };
        let text = asked.map(|text| clipped(&text, MAX_TEXT_BYTES).to_owned());
        Ok(Wanted { wish, tools, text })
    }

    /// The session's own tools, once the response that had others is over.
    fn restore(&mut self, to: &mut Exchange<'_, Frame>) {
        if self.tools_lent && self.answer.is_none() && self.asked.is_empty() {
            self.tools_lent = false;
            let tools = Some(self.settings.tool_names.clone());
            to.event(ClientEvent::Configure(Box::new(SessionSettings { tools, ..SessionSettings::default() })));
        }
    }

    fn cancel(&mut self, event: &Object, to: &mut Exchange<'_, Frame>) -> Result<(), Fault> {
        let named = text(event, "response_id", "")?;
        if let Some(answer) = self.answer.as_mut().filter(|a| !a.wish.cancelled && named.is_none_or(|id| a.id == id)) {
            answer.wish.cancelled = true;
            let response = answer.speech.as_ref().map(|speech| speech.response);
            to.event(ClientEvent::Cancel { response });
            return Ok(());
        }
        // Asked for, and not yet begun as far as the client knows.
        let waiting = self.asked.iter_mut().rev().find_map(|asked| match asked {
            Asked::Respond(_, wish) if !wish.cancelled => Some(wish),
            _ => None,
        });
        if let Some(wish) = waiting.filter(|_| named.is_none()) {
            wish.cancelled = true;
            to.event(ClientEvent::Cancel { response: None });
            return Ok(());
        }
        Err(Fault::request("response_cancel_not_active", "Cancellation failed: no active response found"))
    }
}

fn not_found(code: &'static str, id: &str) -> Fault {
    let quote: String = id.chars().take(64).collect();
    Fault::request(code, format!("Item with item_id '{quote}' not found.")).at("item_id")
}

/// The client's own name of an event.
fn cause(event: &Object) -> Option<String> {
    let id = event.get("event_id").and_then(Value::as_str)?;
    Some(clipped(id, EVENT_ID_MAX).to_owned())
}

/// The beginning of a text.
fn clipped(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}
