//! What a server of Gemini Live sends.

use proto::{
    audio::AudioFormat,
    base64,
    frame::{FRAME_MS, SpeechMarker},
};
use serde_json::{Value, json};

use super::Frame;

/// Audio that counts as one token, microseconds.
const TOKEN_US: u64 = 40_000;

fn message(value: &Value) -> Frame {
    Frame::Text(value.to_string().into())
}

pub(super) fn setup_complete(session_id: &str) -> Frame {
    message(&json!({ "setupComplete": { "sessionId": session_id } }))
}

pub(super) fn resumption(handle: &str, consumed: Option<u64>) -> Frame {
    let mut update = json!({ "newHandle": handle, "resumable": true });
    if let (Some(consumed), Some(update)) = (consumed, update.as_object_mut()) {
        // 64-bit numbers are strings in the JSON form of protobuf.
        update.insert("lastConsumedClientMessageIndex".to_owned(), consumed.to_string().into());
    }
    message(&json!({ "sessionResumptionUpdate": update }))
}

pub(super) fn voice_activity(marker: SpeechMarker) -> Frame {
    let kind = if marker.started { "ACTIVITY_START" } else { "ACTIVITY_END" };
    message(&json!({ "voiceActivity": { "voiceActivityType": kind, "audioOffset": seconds(marker.timestamp_us / 1_000) } }))
}

/// `key` names whose words these are.
pub(super) fn transcription(key: &str, text: &str, last: bool) -> Frame {
    let mut transcription = serde_json::Map::new();
    if !text.is_empty() {
        transcription.insert("text".to_owned(), text.into());
    }
    if last {
        transcription.insert("finished".to_owned(), true.into());
    }
    let mut content = serde_json::Map::new();
    content.insert(key.to_owned(), transcription.into());
    message(&json!({ "serverContent": content }))
}

/// Most of what is sent: written by hand, into one buffer.
pub(super) fn audio(format: AudioFormat, payload: &[u8]) -> Frame {
    let mut text = String::with_capacity(payload.len() / 3 * 4 + 160);
    text.push_str(r#"{"serverContent":{"modelTurn":{"role":"model","parts":[{"inlineData":{"mimeType":"audio/pcm;rate="#);
    text.push_str(match format.sample_rate() {
        8_000 => "8000",
        16_000 => "16000",
        48_000 => "48000",
        _ => "24000",
    });
    text.push_str(r#"","data":""#);
    base64::encode_into(payload, &mut text);
    text.push_str(r#""}}]}}}"#);
    Frame::Text(text.into())
}

pub(super) fn text(word: &str) -> Frame {
    message(&json!({ "serverContent": { "modelTurn": { "role": "model", "parts": [{ "text": word }] } } }))
}

/// One of the switches of `serverContent`.
pub(super) fn content(switch: &str) -> Frame {
    let mut content = serde_json::Map::new();
    content.insert(switch.to_owned(), true.into());
    message(&json!({ "serverContent": content }))
}

/// With what the turn used: audio of the user, and frames of the agent.
pub(super) fn turn_complete(heard_us: u64, frames: u32, text: bool) -> Frame {
    let prompt = heard_us / TOKEN_US;
    let response = u64::from(frames) * FRAME_MS * 1_000 / TOKEN_US;
    let details = |count: u64, modality: &str| json!([{ "modality": modality, "tokenCount": count }]);
    message(&json!({
        "serverContent": { "turnComplete": true },
        "usageMetadata": {
            "promptTokenCount": prompt,
            "responseTokenCount": response,
            "totalTokenCount": prompt + response,
            "promptTokensDetails": details(prompt, "AUDIO"),
            "responseTokensDetails": details(response, if text { "TEXT" } else { "AUDIO" }),
        },
    }))
}

pub(super) fn tool_call(id: &str, name: &str, arguments: &str) -> Frame {
    let args: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
    message(&json!({ "toolCall": { "functionCalls": [{ "id": id, "name": name, "args": args }] } }))
}

pub(super) fn tool_cancel(id: &str) -> Frame {
    message(&json!({ "toolCallCancellation": { "ids": [id] } }))
}

pub(super) fn go_away(left_ms: u32) -> Frame {
    message(&json!({ "goAway": { "timeLeft": seconds(left_ms.into()) } }))
}

/// A duration in the JSON form of protobuf.
fn seconds(ms: u64) -> String {
    match ms % 1_000 {
        0 => format!("{}s", ms / 1_000),
        rest => format!("{}.{rest:03}s", ms / 1_000),
    }
}
