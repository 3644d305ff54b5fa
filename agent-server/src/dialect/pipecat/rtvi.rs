//! RTVI: JSON messages beside the audio, each `{"label": "rtvi-ai", "type": .., "id": .., "data": ..}`.

use proto::frame::{ErrorCode, SessionError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Of the protocol, as `bot-ready` says it.
pub(super) const VERSION: &str = "1.0.0";
const LABEL: &str = "rtvi-ai";

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    id: Value,
    #[serde(default)]
    data: Value,
}

/// What a client asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Asked {
    Ready,
    Text {
        text: String,
        /// Answer it now, whatever is being said.
        at_once: bool,
    },
    Result {
        call_id: String,
        output: String,
    },
    Keys(Vec<char>),
    /// A message of an application's own: the mock has no application, and gives it back.
    Echo(Value),
    Disconnect,
    /// Nothing that can be served, and why.
    Wrong(String),
}

/// What a message asks for, and its id, which the answer repeats.
pub(super) fn asked(data: &str) -> Result<(String, Asked), SessionError> {
    let message: Message = serde_json::from_str(data).map_err(|error| {
        let message = format!("message.data is no RTVI message: {error}; it must be {{\"label\": \"{LABEL}\", \"type\": .., \"id\": ..}}");
        SessionError::warning(ErrorCode::MalformedMessage, message)
    })?;
    let Message { kind, id, data } = message;
    let id = match id {
        Value::String(id) => id,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let text = |key: &str| data.get(key).and_then(Value::as_str).map(str::to_owned);
    let lacks = |key: &str| Asked::Wrong(format!("`{kind}` needs data.{key}"));
    let asked = match kind.as_str() {
        "client-ready" => Asked::Ready,
        "disconnect-bot" => Asked::Disconnect,
        "send-text" => match text("content") {
            Some(text) => {
                let at_once = data.pointer("/options/run_immediately").and_then(Value::as_bool).unwrap_or(true);
                Asked::Text { text, at_once }
            }
            None => lacks("content"),
        },
        "llm-function-call-result" => match (text("tool_call_id"), data.get("result")) {
            (Some(call_id), Some(Value::String(output))) => Asked::Result { call_id, output: output.clone() },
            (Some(call_id), Some(output)) => Asked::Result { call_id, output: output.to_string() },
            (Some(_), None) => lacks("result"),
            (None, _) => lacks("tool_call_id"),
        },
        "dtmf" => keys(&data).map_or_else(|| Asked::Wrong("`dtmf` needs data.buttons: a list of 0-9, *, #".to_owned()), Asked::Keys),
        "client-message" => Asked::Echo(data),
        other => {
            let other: String = other.chars().take(64).collect();
            Asked::Wrong(format!("unsupported type `{other}`"))
        }
    };
    Ok((id, asked))
}

/// The keys of a `dtmf`; before version 2.1 it was one, in `button`.
fn keys(data: &Value) -> Option<Vec<char>> {
    let key = |value: &Value| {
        let mut keys = value.as_str()?.chars();
        keys.next().filter(|key| matches!(key, '0'..='9' | '*' | '#') && keys.next().is_none())
    };
    match (data.get("buttons"), data.get("button")) {
        (Some(Value::Array(buttons)), _) if !buttons.is_empty() => buttons.iter().map(key).collect(),
        (None, Some(button)) => key(button).map(|key| vec![key]),
        _ => None,
    }
}

/// A message of the bot.
pub(super) fn message(kind: &str, id: Option<&str>, data: Option<Value>) -> String {
    let mut message = Map::new();
    message.insert("label".to_owned(), json!(LABEL));
    message.insert("type".to_owned(), json!(kind));
    if let Some(id) = id {
        message.insert("id".to_owned(), json!(id));
    }
    if let Some(data) = data {
        message.insert("data".to_owned(), data);
    }
    Value::Object(message).to_string()
}

/// A time of the session's own: sessions know no other, and clients only want it to parse.
pub(super) fn timestamp(media_us: u64) -> String {
    let (ms, seconds) = (media_us / 1_000 % 1_000, media_us / 1_000_000);
    format!("1970-01-01T{:02}:{:02}:{:02}.{ms:03}+00:00", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}
