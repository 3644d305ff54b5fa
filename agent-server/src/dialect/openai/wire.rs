//! Names and numbers of what we send, and its form.

use std::{
    collections::hash_map::RandomState,
    fmt::Write,
    hash::{BuildHasher, Hasher},
};

use serde_json::Value;

use super::super::{Exchange, Frame};

/// Events to the client, each under a name of its own.
#[derive(Debug)]
pub(super) struct Wire {
    /// Names of the first version of the API.
    pub(super) beta: bool,
    /// Of this connection: no two have the same.
    tag: String,
    events: u64,
    ids: u64,
}

impl Wire {
    pub(super) fn new(beta: bool) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        Self { beta, tag: format!("{:016x}", random()), events: 0, ids: 0 }
    }

    /// A new name that begins with `kind`.
    pub(super) fn id(&mut self, kind: &str) -> String {
        self.ids += 1;
        format!("{kind}_{}{:04x}", self.tag, self.ids)
    }

    /// The name of the connection's one conversation.
    pub(super) fn conversation(&self) -> String {
        format!("conv_{}", self.tag)
    }

    /// Writes an event; `name` is the current one. `fields` is an object.
    pub(super) fn send(&mut self, to: &mut Exchange<'_, Frame>, name: &'static str, fields: &Value) {
        let Some(name) = (if self.beta { beta_name(name) } else { Some(name) }) else { return };
        let fields = fields.to_string();
        let mut text = String::with_capacity(fields.len() + 96);
        self.begin(name, &mut text);
        text.push('"');
        match fields.strip_prefix('{') {
            Some("}") | None => text.push('}'),
            Some(rest) => {
                text.push(',');
                text.push_str(rest);
            }
        }
        to.message(Frame::Text(text.into()));
    }

    /// Begins an event up to within its `event_id`.
    pub(super) fn begin(&mut self, name: &str, text: &mut String) {
        self.events += 1;
        text.push_str("{\"type\":\"");
        text.push_str(name);
        text.push_str("\",\"event_id\":\"event_");
        text.push_str(&self.tag);
        // Writing to a string does not fail.
        let _ = write!(text, "{:04x}", self.events);
    }
}

/// What the first version called an event; none where it had no such.
pub(super) fn beta_name(name: &'static str) -> Option<&'static str> {
    Some(match name {
        "conversation.item.added" => "conversation.item.created",
        "conversation.item.done" => return None,
        "response.output_audio.delta" => "response.audio.delta",
        "response.output_audio.done" => "response.audio.done",
        "response.output_audio_transcript.delta" => "response.audio_transcript.delta",
        "response.output_audio_transcript.done" => "response.audio_transcript.done",
        "response.output_text.delta" => "response.text.delta",
        "response.output_text.done" => "response.text.done",
        other => other,
    })
}
