//! What a client may say: limits of every field.

use proto::frame::{ErrorCode, MAX_NAME_BYTES, MAX_TEXT_BYTES, MAX_TOOLS, SessionError, SessionStart, TurnHint};

use crate::pipeline::think::MAX_RESPONSE;

/// Longest tool name, characters.
const MAX_TOOL_NAME: usize = 64;
/// Longest answer that a hint may ask for, ms.
pub const MAX_RESPONSE_HINT_MS: u32 = MAX_RESPONSE.as_millis() as u32;

/// Checks a start before admission: names, tools, limits. Every error is fatal: the start is refused.
pub fn validate_start(start: &SessionStart) -> Result<(), SessionError> {
    let refuse = |message: String| Err(SessionError::fatal(ErrorCode::InvalidArgument, message));
    for (field, value) in [("client_ref", &start.client_ref), ("voice", &start.voice)] {
        if value.len() > MAX_NAME_BYTES {
            return refuse(format!("start.{field} has {} bytes; the limit is {MAX_NAME_BYTES}", value.len()));
        }
        if !value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            return refuse(format!("start.{field} must be printable ASCII"));
        }
    }
    validate_tools(&start.tools).map_err(|message| SessionError::fatal(ErrorCode::InvalidArgument, format!("start.{message}")))
}

/// Checks declared tools; says what is wrong, beginning with `tools`.
pub(super) fn validate_tools(tools: &[String]) -> Result<(), String> {
    if tools.len() > MAX_TOOLS {
        return Err(format!("tools has {} entries; the limit is {MAX_TOOLS}", tools.len()));
    }
    for (index, name) in tools.iter().enumerate() {
        if name.is_empty() || name.len() > MAX_TOOL_NAME || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            return Err(format!("tools[{index}].name must be 1 to {MAX_TOOL_NAME} characters of a-z, A-Z, 0-9, _ and -"));
        }
        if tools[..index].contains(name) {
            return Err(format!("tools[{index}].name repeats `{name}`"));
        }
    }
    Ok(())
}

/// The answer to a message that comes after the session's end, for as long as the stream can still carry one.
pub fn after_end() -> SessionError {
    SessionError::warning(ErrorCode::AfterEnd, "the session has ended: nothing may follow; open a new stream for a new session")
}

/// Checks a hint; empty fields count as absent and are removed.
pub(super) fn validate_hint(hint: &mut TurnHint, tools: &[String]) -> Result<(), SessionError> {
    hint.tool.take_if(|t| t.is_empty());
    hint.response_ms.take_if(|ms| *ms == 0);
    hint.text.take_if(|t| t.trim().is_empty());
    if let Some(tool) = &hint.tool
        && !tools.contains(tool)
    {
        return Err(invalid(format!("hint.tool `{}` was not declared in start.tools", shorten(tool))));
    }
    if let Some(ms) = hint.response_ms.filter(|&ms| ms > MAX_RESPONSE_HINT_MS) {
        return Err(invalid(format!("hint.response_ms is {ms}; the limit is {MAX_RESPONSE_HINT_MS}")));
    }
    hint.text.as_deref().map_or(Ok(()), |text| within("hint.text", text, MAX_TEXT_BYTES))
}

/// Checks text that the client adds to the context.
pub(super) fn validate_context(role: &str, text: &str) -> Result<(), SessionError> {
    if !matches!(role, "user" | "agent" | "system") {
        return Err(invalid(format!("context.role is `{}`; it must be user, agent or system", shorten(role))));
    }
    within("context.text", text, MAX_TEXT_BYTES)
}

/// Checks the answer to a tool call.
pub(super) fn validate_result(call_id: &str, output: &str) -> Result<(), SessionError> {
    within("tool_result.call_id", call_id, MAX_NAME_BYTES)?;
    within("tool_result.output", output, MAX_TEXT_BYTES)
}

pub(super) fn invalid(message: String) -> SessionError {
    SessionError::warning(ErrorCode::InvalidArgument, message)
}

/// What a message may quote of a peer's text.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

fn within(field: &str, text: &str, limit: usize) -> Result<(), SessionError> {
    if text.len() > limit {
        return Err(invalid(format!("{field} has {} bytes; the limit is {limit}", text.len())));
    }
    Ok(())
}
