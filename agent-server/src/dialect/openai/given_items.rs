//! Items that the client writes into the conversation itself.

use proto::base64;
use serde_json::{Value, json};

use super::{
    fault::{Fault, Object, array, given, need_text, text, within},
    items::{Body, COMPLETED, INCOMPLETE, Item, weight},
};

/// Largest item as it is kept, about as many bytes.
const ITEM_MAX: usize = 64 * 1024;
/// Longest name that a client gives an item or a call, bytes.
const ID_MAX: usize = 128;
/// Longest address of a picture that is kept: others are the picture itself.
const URL_MAX: usize = 1024;

/// Reads `item`; `name` makes one where the client gave none.
pub(super) fn read(from: &Object, name: impl FnOnce() -> String) -> Result<Item, Fault> {
    const PATH: &str = "item";
    let kind = need_text(from, "type", PATH)?;
    let body = match kind {
        "message" => message(from)?,
        "function_call" => Body::Call {
            name: limited(from, "name", ID_MAX)?,
            call_id: limited(from, "call_id", ID_MAX)?,
            arguments: limited(from, "arguments", ITEM_MAX)?,
        },
        "function_call_output" => Body::Output { call_id: limited(from, "call_id", ID_MAX)?, output: limited(from, "output", ITEM_MAX)? },
        other => return Err(Fault::wrong_value("item.type", other, "'message', 'function_call' and 'function_call_output'")),
    };
    let status = match text(from, "status", PATH)? {
        Some(INCOMPLETE) => INCOMPLETE,
        _ => COMPLETED,
    };
    let id = match text(from, "id", PATH)? {
        None => name(),
        Some(id) if id.len() <= ID_MAX && !id.is_empty() => id.to_owned(),
        Some(id) => return Err(Fault::too_long("item.id", id.len(), ID_MAX)),
    };
    Ok(Item { id, status, body })
}

fn limited(from: &Object, key: &str, limit: usize) -> Result<String, Fault> {
    let text = need_text(from, key, "item")?;
    if text.len() > limit { Err(Fault::too_long(within("item", key), text.len(), limit)) } else { Ok(text.to_owned()) }
}

fn message(from: &Object) -> Result<Body, Fault> {
    let role = need_text(from, "role", "item")?;
    let supported: &[&str] = match role {
        "user" => &["input_text", "input_audio", "input_image"],
        "system" | "developer" => &["input_text"],
        "assistant" => &["output_text", "text", "output_audio", "audio"],
        other => return Err(Fault::wrong_value("item.role", other, "'user', 'assistant' and 'system'")),
    };
    let content = array(from, "content", "item")?.ok_or_else(|| Fault::missing("item.content"))?;
    let parts = content.iter().enumerate().map(|(index, part)| read_part(part, supported, &format!("item.content[{index}]")));
    let content = Value::Array(parts.collect::<Result<_, _>>()?);
    let bytes = weight(&content);
    if bytes > ITEM_MAX {
        return Err(Fault::too_long("item.content", bytes, ITEM_MAX));
    }
    Ok(Body::Given { role: role.to_owned(), content })
}

/// A part as it is kept: without what was heard or seen in it.
fn read_part(part: &Value, supported: &[&str], path: &str) -> Result<Value, Fault> {
    let part = part.as_object().ok_or_else(|| Fault::wrong_type(path, "an object", part))?;
    let kind = need_text(part, "type", path)?;
    if !supported.contains(&kind) {
        let all: Vec<String> = supported.iter().map(|kind| format!("'{kind}'")).collect();
        return Err(Fault::wrong_value(within(path, "type"), kind, &all.join(", ")));
    }
    Ok(match kind {
        "input_text" | "output_text" | "text" => json!({ "type": kind, "text": need_text(part, "text", path)? }),
        "input_image" => {
            let url = need_text(part, "image_url", path)?;
            json!({ "type": kind, "image_url": (url.len() <= URL_MAX).then_some(url) })
        }
        _ => {
            if let Some(audio) = text(part, "audio", path)?
                && base64::decode(audio).is_none()
            {
                let message = format!("Invalid '{path}.audio'. Expected base64-encoded audio bytes, but got an invalid value.");
                return Err(Fault::request("invalid_value", message).at(within(path, "audio")));
            }
            if kind == "input_audio" && given(part, "audio").is_none() {
                return Err(Fault::missing(within(path, "audio")));
            }
            json!({ "type": kind, "transcript": text(part, "transcript", path)? })
        }
    })
}
