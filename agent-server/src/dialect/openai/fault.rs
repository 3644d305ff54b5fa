//! What is wrong with a client's event, in the API's own words, and fields of events read with that in mind.

use std::borrow::Cow;

use proto::frame::{ErrorCode, SessionError};
use serde_json::{Map, Value, json};

/// Longest piece of a peer's text that an error repeats, characters.
const QUOTE_MAX: usize = 64;

/// An object of JSON.
pub(super) type Object = Map<String, Value>;

/// The `error` of an `error` event. The session lives on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    kind: &'static str,
    code: &'static str,
    message: Cow<'static, str>,
    param: Option<String>,
}

impl Fault {
    /// The client's.
    pub(super) fn request(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: "invalid_request_error", code, message: message.into(), param: None }
    }

    /// In this field.
    pub(super) fn at(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub(super) fn missing(param: impl Into<String>) -> Self {
        let param = param.into();
        Self::request("missing_required_parameter", format!("Missing required parameter: '{param}'.")).at(param)
    }

    pub(super) fn wrong_type(param: impl Into<String>, expected: &str, got: &Value) -> Self {
        let param = param.into();
        let got = match got {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        Self::request("invalid_type", format!("Invalid type for '{param}': expected {expected}, but got {got} instead.")).at(param)
    }

    pub(super) fn wrong_value(param: impl Into<String>, got: &str, supported: &str) -> Self {
        let param = param.into();
        let quote: String = got.chars().take(QUOTE_MAX).collect();
        Self::request("invalid_value", format!("Invalid value: '{quote}'. Supported values are: {supported}.")).at(param)
    }

    pub(super) fn too_long(param: impl Into<String>, bytes: usize, limit: usize) -> Self {
        let param = param.into();
        let message = format!("Invalid '{param}': too long. Expected at most {limit} bytes, but got {bytes}.");
        Self::request("string_above_max_length", message).at(param)
    }

    /// What the session found.
    pub(super) fn of(error: &SessionError) -> Self {
        let (kind, code) = match error.code {
            ErrorCode::MalformedMessage | ErrorCode::NotStarted | ErrorCode::AlreadyStarted => ("invalid_request_error", "invalid_event"),
            ErrorCode::UnsupportedFormat | ErrorCode::BadAudio | ErrorCode::SequenceGap | ErrorCode::InvalidArgument => {
                ("invalid_request_error", "invalid_value")
            }
            ErrorCode::MessageTooLarge => ("invalid_request_error", "message_too_large"),
            ErrorCode::UnknownToolCall => ("invalid_request_error", "invalid_tool_call_id"),
            ErrorCode::AfterEnd => ("invalid_request_error", "session_ended"),
            ErrorCode::Deadline => ("invalid_request_error", "session_expired"),
            ErrorCode::Idle => ("invalid_request_error", "session_idle_timeout"),
            ErrorCode::Overloaded => ("server_error", "server_overloaded"),
            ErrorCode::Draining => ("server_error", "server_draining"),
            ErrorCode::Internal => ("server_error", "internal_error"),
        };
        Self { kind, code, message: error.message.clone().into(), param: None }
    }

    /// With other words.
    pub(super) fn saying(self, message: String) -> Self {
        Self { message: message.into(), ..self }
    }

    /// `cause`: the id of the client's event, if it gave one.
    pub(super) fn to_json(&self, cause: Option<&str>) -> Value {
        json!({ "error": { "type": self.kind, "code": self.code, "message": self.message, "param": self.param, "event_id": cause } })
    }
}

/// The name of a field within another.
pub(super) fn within(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A field that is there and not null.
pub(super) fn given<'a>(object: &'a Object, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

pub(super) fn text<'a>(object: &'a Object, key: &str, path: &str) -> Result<Option<&'a str>, Fault> {
    match given(object, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Fault::wrong_type(within(path, key), "a string", other)),
    }
}

pub(super) fn need_text<'a>(object: &'a Object, key: &str, path: &str) -> Result<&'a str, Fault> {
    text(object, key, path)?.ok_or_else(|| Fault::missing(within(path, key)))
}

pub(super) fn number(object: &Object, key: &str, path: &str) -> Result<Option<u32>, Fault> {
    match given(object, key) {
        None => Ok(None),
        Some(Value::Number(number)) => {
            let whole = number.as_u64().or_else(|| number.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0).map(|n| n as u64));
            let fits = whole.and_then(|n| u32::try_from(n).ok());
            let complaint = || Fault::wrong_value(within(path, key), &number.to_string(), "whole numbers from 0 to 4294967295");
            fits.map(Some).ok_or_else(complaint)
        }
        Some(other) => Err(Fault::wrong_type(within(path, key), "an integer", other)),
    }
}

pub(super) fn flag(object: &Object, key: &str, path: &str) -> Result<Option<bool>, Fault> {
    match given(object, key) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(Fault::wrong_type(within(path, key), "a boolean", other)),
    }
}

pub(super) fn object<'a>(object: &'a Object, key: &str, path: &str) -> Result<Option<&'a Object>, Fault> {
    match given(object, key) {
        None => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner)),
        Some(other) => Err(Fault::wrong_type(within(path, key), "an object", other)),
    }
}

pub(super) fn need_object<'a>(outer: &'a Object, key: &str, path: &str) -> Result<&'a Object, Fault> {
    object(outer, key, path)?.ok_or_else(|| Fault::missing(within(path, key)))
}

pub(super) fn array<'a>(object: &'a Object, key: &str, path: &str) -> Result<Option<&'a Vec<Value>>, Fault> {
    match given(object, key) {
        None => Ok(None),
        Some(Value::Array(array)) => Ok(Some(array)),
        Some(other) => Err(Fault::wrong_type(within(path, key), "an array", other)),
    }
}
