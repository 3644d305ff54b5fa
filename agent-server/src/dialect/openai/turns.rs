//! The user's turns, as the client is told of them.

use std::collections::VecDeque;

use proto::{frame::SpeechMarker, ids::TurnId};
use serde_json::{Value, json};

use super::{
    super::{Exchange, Frame},
    Asked, Realtime,
    items::{Body, COMPLETED, Item},
};

/// Turns whose transcript is awaited.
const AWAITED_MAX: usize = 16;

/// What is open of them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The item that the speech under way will be, and where it began, microseconds.
    speaking: Option<(String, u64)>,
    /// Without a transcript yet: number, item, length in microseconds.
    awaited: VecDeque<(TurnId, String, u64)>,
    /// Length of the turn that has just ended.
    length_us: u64,
    /// Heard since the last answer, for its bill.
    pub(super) unpaid_us: u64,
}

impl Turns {
    /// The speech under way will be no turn.
    pub(super) fn forget(&mut self) {
        self.speaking = None;
    }
}

impl Realtime {
    /// The detector heard something.
    pub(super) fn speech(&mut self, marker: SpeechMarker, to: &mut Exchange<'_, Frame>) {
        let detection = self.settings.detection.as_ref();
        let (padding, silence) = detection.map_or((0, 0), |detection| (detection.padding_ms, detection.silence_ms));
        let ms = marker.timestamp_us / 1_000;
        if marker.started {
            let id = self.wire.id("item");
            let fields = json!({ "audio_start_ms": ms.saturating_sub(padding.into()), "item_id": id });
            self.turns.speaking = Some((id, marker.timestamp_us));
            self.wire.send(to, "input_audio_buffer.speech_started", &fields);
        } else {
            let (id, began_us) = self.turns.speaking.take().unwrap_or_else(|| (self.wire.id("item"), marker.timestamp_us));
            self.turns.length_us = marker.timestamp_us.saturating_sub(began_us);
            let fields = json!({ "audio_end_ms": ms + u64::from(silence), "item_id": id });
            self.turns.speaking = Some((id, began_us));
            self.wire.send(to, "input_audio_buffer.speech_stopped", &fields);
        }
    }

    /// A turn was taken, by the detector or because the client said so.
    pub(super) fn committed(&mut self, turn: TurnId, detected: bool, to: &mut Exchange<'_, Frame>) {
        // Speech under way that the client commits is this turn too.
        let id = self.turns.speaking.take().map_or_else(|| self.wire.id("item"), |(id, _)| id);
        let buffered_us = self.input.take();
        let length_us = if detected { self.turns.length_us } else { buffered_us };
        if !detected && let Some(at) = self.asked.iter().position(|asked| matches!(asked, Asked::Commit(_))) {
            self.asked.remove(at);
        }
        let item = Item { id: id.clone(), status: COMPLETED, body: Body::Heard { transcript: None } };
        let json = item.to_json(self.wire.beta);
        let before = self.items.push(item);
        self.wire.send(to, "input_audio_buffer.committed", &json!({ "item_id": id, "previous_item_id": before }));
        self.tell_item(&json, before.as_deref(), to);
        if self.turns.awaited.len() == AWAITED_MAX {
            self.turns.awaited.pop_front();
        }
        self.turns.unpaid_us = self.turns.unpaid_us.saturating_add(length_us);
        self.turns.awaited.push_back((turn, id, length_us));
        self.choose = true;
    }

    /// An item is in the conversation, whole.
    pub(super) fn tell_item(&mut self, item: &Value, before: Option<&str>, to: &mut Exchange<'_, Frame>) {
        let fields = json!({ "previous_item_id": before, "item": item });
        self.wire.send(to, "conversation.item.added", &fields);
        self.wire.send(to, "conversation.item.done", &fields);
    }

    /// What the user said, if the client wants to know.
    pub(super) fn transcribed(&mut self, turn: TurnId, text: String, to: &mut Exchange<'_, Frame>) {
        let Some(at) = self.turns.awaited.iter().position(|(awaited, ..)| *awaited == turn) else { return };
        let Some((_, id, length_us)) = self.turns.awaited.remove(at) else { return };
        if self.settings.transcription.is_null() {
            return;
        }
        let by_time = self.settings.transcription.get("model").and_then(Value::as_str).is_some_and(|model| model.starts_with("whisper"));
        if !by_time {
            // Models that transcribe by tokens give the words as they come; a few at a time.
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let cut = rest.match_indices(' ').map(|(at, _)| at).filter(|&at| at > 0).nth(3).unwrap_or(rest.len());
                let (delta, more) = rest.split_at(cut);
                let fields = json!({ "item_id": id, "content_index": 0, "delta": delta });
                self.wire.send(to, "conversation.item.input_audio_transcription.delta", &fields);
                rest = more;
            }
        }
        let usage = if by_time {
            json!({ "type": "duration", "seconds": length_us as f64 / 1e6 })
        } else {
            let (heard, said) = (audio_tokens(length_us), text_tokens(text.len()));
            json!({
                "type": "tokens", "total_tokens": heard + said, "input_tokens": heard, "output_tokens": said,
                "input_token_details": { "text_tokens": 0, "audio_tokens": heard },
            })
        };
        let fields = json!({ "item_id": id, "content_index": 0, "transcript": text, "usage": usage });
        self.wire.send(to, "conversation.item.input_audio_transcription.completed", &fields);
        self.items.change(&id, |item| {
            if let Body::Heard { transcript } = &mut item.body {
                *transcript = Some(text);
            }
        });
    }
}

/// A token for 100 ms that were heard.
pub(super) const fn audio_tokens(heard_us: u64) -> u64 {
    heard_us.div_ceil(100_000)
}

/// A token for four letters.
pub(super) const fn text_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}
