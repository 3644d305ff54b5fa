//! Fields that sessions and responses have in common.

use proto::{
    audio::AudioFormat,
    frame::{MAX_NAME_BYTES, MAX_TOOLS, ToolChoice},
};
use serde_json::{Value, json};

use super::{
    fault::{Fault, Object, array, given, need_text, number, text, within},
    items::weight,
};

/// Largest description of all tools, and of each setting that is only kept, about as many bytes.
const TOOLS_MAX: usize = 256 * 1024;
const KEPT_MAX: usize = 16 * 1024;

/// True for writing only.
pub(super) fn modalities(from: &Object, key: &str, path: &str) -> Result<Option<bool>, Fault> {
    let Some(all) = array(from, key, path)? else { return Ok(None) };
    let words: Option<Vec<&str>> = all.iter().map(Value::as_str).collect();
    match words.as_deref() {
        Some(["text"]) => Ok(Some(true)),
        Some(["audio"] | ["audio", "text"] | ["text", "audio"]) => Ok(Some(false)),
        _ => Err(Fault::wrong_value(within(path, key), &Value::Array(all.clone()).to_string(), "['text'] and ['audio']")),
    }
}

/// Names of the tools that are functions, as the session takes them.
pub(super) fn tool_names(tools: &[Value], path: &str) -> Result<Vec<String>, Fault> {
    let mut names: Vec<String> = Vec::new();
    if tools.iter().map(weight).sum::<usize>() > TOOLS_MAX {
        return Err(Fault::too_long(path, tools.iter().map(weight).sum(), TOOLS_MAX));
    }
    for (index, tool) in tools.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let tool = tool.as_object().ok_or_else(|| Fault::wrong_type(&path, "an object", tool))?;
        match text(tool, "type", &path)?.unwrap_or("function") {
            "function" => {}
            "mcp" => continue,
            other => return Err(Fault::wrong_value(within(&path, "type"), other, "'function' and 'mcp'")),
        }
        let name = need_text(tool, "name", &path)?;
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            return Err(Fault::wrong_value(within(&path, "name"), name, "1 to 64 characters of a-z, A-Z, 0-9, _ and -"));
        }
        if names.iter().any(|known| known == name) {
            return Err(
                Fault::request("invalid_value", format!("Tool names must be unique: '{name}' is repeated.")).at(within(&path, "name"))
            );
        }
        names.push(name.to_owned());
    }
    if names.len() > MAX_TOOLS {
        let message = format!("Invalid '{path}': {} functions were given, and at most {MAX_TOOLS} are taken.", names.len());
        return Err(Fault::request("array_above_max_length", message).at(path));
    }
    Ok(names)
}

/// What the session makes of it.
pub(super) fn tool_choice(choice: &Value, path: &str) -> Result<ToolChoice, Fault> {
    const SUPPORTED: &str = "'none', 'auto', 'required' and an object that names a function";
    match choice {
        Value::String(word) => match word.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::Never),
            "required" => Ok(ToolChoice::Any),
            other => Err(Fault::wrong_value(path, other, SUPPORTED)),
        },
        Value::Object(object) if object.get("type").and_then(Value::as_str) == Some("mcp") => Ok(ToolChoice::Auto),
        Value::Object(object) => {
            let name = need_text(object, "name", path)?;
            bounded(&within(path, "name"), name, MAX_NAME_BYTES)?;
            Ok(ToolChoice::Named(name.to_owned()))
        }
        other => Err(Fault::wrong_type(path, SUPPORTED, other)),
    }
}

pub(super) fn max_tokens(value: &Value, path: &str) -> Result<Value, Fault> {
    let fits = value == "inf" || value.as_u64().is_some_and(|n| (1..=1_000_000).contains(&n));
    if fits { Ok(value.clone()) } else { Err(Fault::wrong_value(path, &value.to_string(), "whole numbers from 1 on and 'inf'")) }
}

/// A name, or an object with an id.
pub(super) fn voice_name<'a>(voice: &'a Value, path: &str) -> Result<&'a str, Fault> {
    let name = match voice {
        Value::String(name) => name,
        Value::Object(object) => need_text(object, "id", path)?,
        other => return Err(Fault::wrong_type(path, "a string", other)),
    };
    if name.is_empty() || weight(voice) > 4 * MAX_NAME_BYTES || !name.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Err(Fault::wrong_value(path, name, "names of up to 128 printable characters"));
    }
    Ok(name)
}

pub(super) fn voice_text(voice: &Value) -> &str {
    voice.as_str().or_else(|| voice.get("id").and_then(Value::as_str)).unwrap_or_default()
}

pub(super) fn format(from: &Object, key: &str, path: &str, place: &mut AudioFormat) -> Result<(), Fault> {
    const SUPPORTED: &str = "'audio/pcm' (24000 Hz), 'audio/pcmu' and 'audio/pcma'; or 'pcm16', 'g711_ulaw' and 'g711_alaw'";
    let name = match given(from, key) {
        None => return Ok(()),
        Some(Value::String(name)) => name.as_str(),
        Some(Value::Object(format)) => {
            let path = within(path, key);
            let name = need_text(format, "type", &path)?;
            let rate = number(format, "rate", &path)?;
            if let Some(rate) = rate.filter(|&rate| rate != if name == "audio/pcm" { 24_000 } else { 8_000 }) {
                return Err(Fault::wrong_value(within(&path, "rate"), &rate.to_string(), "24000 for 'audio/pcm', 8000 for the others"));
            }
            name
        }
        Some(other) => return Err(Fault::wrong_type(within(path, key), "an object", other)),
    };
    *place = match name {
        "audio/pcm" | "pcm16" => AudioFormat::Pcm24k,
        "audio/pcmu" | "g711_ulaw" => AudioFormat::Mulaw8k,
        "audio/pcma" | "g711_alaw" => AudioFormat::Alaw8k,
        other => return Err(Fault::wrong_value(within(path, key), other, SUPPORTED)),
    };
    Ok(())
}

/// The nested form.
pub(super) fn format_json(format: AudioFormat) -> Value {
    match format {
        AudioFormat::Mulaw8k => json!({ "type": "audio/pcmu" }),
        AudioFormat::Alaw8k => json!({ "type": "audio/pcma" }),
        _ => json!({ "type": "audio/pcm", "rate": format.sample_rate() }),
    }
}

/// The flat form.
pub(super) const fn flat_name(format: AudioFormat) -> &'static str {
    match format {
        AudioFormat::Mulaw8k => "g711_ulaw",
        AudioFormat::Alaw8k => "g711_alaw",
        _ => "pcm16",
    }
}

pub(super) fn decimal(from: &Object, key: &str, path: &str, place: &mut Value) -> Result<(), Fault> {
    match given(from, key) {
        None => Ok(()),
        Some(value @ Value::Number(_)) => {
            *place = value.clone();
            Ok(())
        }
        Some(other) => Err(Fault::wrong_type(within(path, key), "a number", other)),
    }
}

pub(super) fn bounded(path: &str, text: &str, limit: usize) -> Result<(), Fault> {
    if text.len() > limit { Err(Fault::too_long(path, text.len(), limit)) } else { Ok(()) }
}

pub(super) fn small(path: &str, value: &Value) -> Result<(), Fault> {
    let size = weight(value);
    if size > KEPT_MAX { Err(Fault::too_long(path, size, KEPT_MAX)) } else { Ok(()) }
}
