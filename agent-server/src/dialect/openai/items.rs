//! The conversation as its client sees it: items in order, bounded.

use std::collections::VecDeque;

use proto::ids::ResponseId;
use serde_json::{Value, json};

/// Items that a conversation keeps; the oldest is forgotten.
const ITEMS_MAX: usize = 4_096;
/// Bytes of text that a conversation keeps, likewise.
const BYTES_MAX: usize = 1024 * 1024;

/// One item.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) status: &'static str,
    pub(super) body: Body,
}

/// What it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    /// A turn of the user.
    Heard { transcript: Option<String> },
    /// An answer that is spoken.
    Spoken { response: ResponseId, audio_ms: u32, transcript: String },
    /// An answer in writing.
    Written { text: String },
    /// A tool is called.
    Call { name: String, call_id: String, arguments: String },
    /// A tool's result.
    Output { call_id: String, output: String },
    /// A message as the client gave it.
    Given { role: String, content: Value },
}

impl Item {
    pub(super) fn to_json(&self, beta: bool) -> Value {
        let (audio, text) = if beta { ("audio", "text") } else { ("output_audio", "output_text") };
        let message = |role: &str, content: Value| {
            let (id, status) = (&self.id, self.status);
            json!({ "id": id, "object": "realtime.item", "type": "message", "status": status, "role": role, "content": content })
        };
        // What is under way has no content yet.
        let begun = self.status != IN_PROGRESS;
        let parts = |part: Value| if begun { json!([part]) } else { json!([]) };
        match &self.body {
            Body::Heard { transcript } => message("user", json!([{ "type": "input_audio", "transcript": transcript }])),
            Body::Spoken { transcript, .. } => message("assistant", parts(json!({ "type": audio, "transcript": transcript }))),
            Body::Written { text: said } => message("assistant", parts(json!({ "type": text, "text": said }))),
            Body::Given { role, content } => message(role, content.clone()),
            Body::Call { name, call_id, arguments } => json!({
                "id": self.id, "object": "realtime.item", "type": "function_call", "status": self.status,
                "name": name, "call_id": call_id, "arguments": if begun { arguments } else { "" },
            }),
            Body::Output { call_id, output } => json!({
                "id": self.id, "object": "realtime.item", "type": "function_call_output", "status": self.status,
                "call_id": call_id, "output": output,
            }),
        }
    }

    /// About what it costs to keep.
    fn bytes(&self) -> usize {
        self.id.len()
            + match &self.body {
                Body::Heard { transcript } => transcript.as_ref().map_or(0, String::len),
                Body::Spoken { transcript: text, .. } | Body::Written { text } => text.len(),
                Body::Call { name, call_id, arguments } => name.len() + call_id.len() + arguments.len(),
                Body::Output { call_id, output } => call_id.len() + output.len(),
                Body::Given { role, content } => role.len() + weight(content),
            }
    }
}

/// What a value holds in memory, roughly.
pub(super) fn weight(value: &Value) -> usize {
    const NODE: usize = 32;
    NODE + match value {
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(weight).sum(),
        Value::Object(all) => all.iter().map(|(key, value)| NODE + key.len() + weight(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

pub(super) const IN_PROGRESS: &str = "in_progress";
pub(super) const COMPLETED: &str = "completed";
pub(super) const INCOMPLETE: &str = "incomplete";

/// Where a new item goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Last,
    First,
    After(&'a str),
}

/// The items.
#[derive(Debug, Default)]
pub(super) struct Items {
    all: VecDeque<Item>,
    bytes: usize,
}

impl Items {
    /// Adds an item; gives the name of the one before it. A place that there is not is the last.
    pub(super) fn add(&mut self, item: Item, place: Place<'_>) -> Option<String> {
        let at = match place {
            Place::Last => self.all.len(),
            Place::First => 0,
            Place::After(id) => self.position(id).map_or(self.all.len(), |at| at + 1),
        };
        let before = at.checked_sub(1).and_then(|before| self.all.get(before)).map(|item| item.id.clone());
        self.bytes += item.bytes();
        self.all.insert(at, item);
        while self.all.len() > ITEMS_MAX || (self.bytes > BYTES_MAX && self.all.len() > 1) {
            self.bytes -= self.all.pop_front().map_or(0, |item| item.bytes());
        }
        before
    }

    pub(super) fn push(&mut self, item: Item) -> Option<String> {
        self.add(item, Place::Last)
    }

    pub(super) fn get(&self, id: &str) -> Option<&Item> {
        self.position(id).and_then(|at| self.all.get(at))
    }

    /// Lets an item be changed, unless it was forgotten or deleted.
    pub(super) fn change(&mut self, id: &str, f: impl FnOnce(&mut Item)) {
        if let Some(item) = self.position(id).and_then(|at| self.all.get_mut(at)) {
            self.bytes -= item.bytes();
            f(item);
            self.bytes += item.bytes();
        }
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<Item> {
        let item = self.position(id).and_then(|at| self.all.remove(at))?;
        self.bytes -= item.bytes();
        Some(item)
    }

    /// Whether a tool was called under this name.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.all.iter().any(|item| matches!(&item.body, Body::Call { call_id, .. } if call_id == id))
    }

    /// What the user wrote last, if nothing came after it.
    pub(super) fn question(&self) -> Option<String> {
        match &self.all.back()?.body {
            Body::Given { role, content } if role == "user" => written(content),
            _ => None,
        }
    }

    /// The item before this one.
    pub(super) fn before(&self, id: &str) -> Option<String> {
        let before = self.position(id)?.checked_sub(1)?;
        self.all.get(before).map(|item| item.id.clone())
    }

    /// Bytes of text in it.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn position(&self, id: &str) -> Option<usize> {
        // Clients ask for what is recent.
        self.all.iter().rposition(|item| item.id == id)
    }
}

/// The text of a message's parts.
pub(super) fn written(content: &Value) -> Option<String> {
    let parts = content.as_array()?.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
    let text = parts.collect::<Vec<_>>().join(" ");
    (!text.trim().is_empty()).then_some(text)
}
