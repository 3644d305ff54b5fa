//! What the JSON dialects share.

use proto::frame::MAX_NAME_BYTES;
use serde_json::Value;

/// Most characters that a message quotes of a peer's text.
const QUOTED_MAX: usize = 64;

/// A peer's text as a message may quote it.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(QUOTED_MAX).collect();
    format!("`{}`", short.escape_debug())
}

/// A value as text: a string as it is, nothing as nothing, all else as JSON.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A peer's name of a voice as a session takes it: it only seeds the voice.
pub(super) fn voice_name(name: &str) -> String {
    name.chars().filter(|c| (' '..='~').contains(c)).take(MAX_NAME_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_quoted_is_short_and_printable() {
        assert_eq!(quoted("a\n\u{7f}"), "`a\\n\\u{7f}`");
        assert_eq!(quoted(&"\u{e9}".repeat(100)).chars().count(), QUOTED_MAX + 2);
    }

    #[test]
    fn values_are_text_and_voices_are_names() {
        assert_eq!(["a".into(), Value::Null, json!({"b": 1})].map(|value| text_of(&value)), ["a", "", r#"{"b":1}"#]);
        assert_eq!(voice_name("J\u{f6}rg\n1"), "Jrg1");
        assert_eq!(voice_name(&"x".repeat(500)).len(), MAX_NAME_BYTES);
    }
}
