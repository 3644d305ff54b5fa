//! JSON with placeholders, split once so that filling it in is only appending.

use std::fmt::Write;

use proto::base64;
use serde::de::IgnoredAny;

/// A placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hole {
    /// The frame in base64.
    Audio,
    /// Frames before this one.
    Sequence,
    /// Media time of the user's audio, ms.
    TimestampMs,
    /// The response that is meant, by number; 0 for the one under way.
    Response,
    /// Milliseconds of it that were played.
    HeardMs,
    /// Names the tool call.
    CallId,
    /// What the tool gave.
    Output,
    /// The tool failed.
    Failed,
    /// Of the ping.
    Id,
    /// The backend's name for the session; empty before it is known.
    SessionId,
    /// The driver's name for the session.
    ClientRef,
    /// `agent.voice`.
    Voice,
    /// `agent.model`.
    Model,
    /// `agent.id`.
    AgentId,
    /// `agent.instructions`.
    Instructions,
    /// Sample rate of the caller's audio, Hz.
    InputRate,
    /// Sample rate of the agent's audio, Hz.
    OutputRate,
    /// Names of the tools, a JSON list.
    Tools,
}

impl Hole {
    /// As in templates.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Audio => "audio",
            Self::Sequence => "sequence",
            Self::TimestampMs => "timestamp_ms",
            Self::Response => "response",
            Self::HeardMs => "heard_ms",
            Self::CallId => "call_id",
            Self::Output => "output",
            Self::Failed => "failed",
            Self::Id => "id",
            Self::SessionId => "session_id",
            Self::ClientRef => "client_ref",
            Self::Voice => "voice",
            Self::Model => "model",
            Self::AgentId => "agent_id",
            Self::Instructions => "instructions",
            Self::InputRate => "input_rate",
            Self::OutputRate => "output_rate",
            Self::Tools => "tools",
        }
    }
}

/// What goes into a placeholder.
#[derive(Debug, Clone, Copy)]
pub enum Fill<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes, in base64.
    Bytes(&'a [u8]),
    /// A number.
    Number(u64),
    /// JSON as it is.
    Json(&'a str),
}

/// A message to be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    head: String,
    /// A placeholder, whether it stands within a JSON string, and the text after it.
    rest: Vec<(Hole, bool, String)>,
}

impl Template {
    /// Splits `text`, whose placeholders may be `holes`. The error says what is wrong and what to do.
    pub fn parse(text: &str, holes: &[Hole]) -> Result<Self, (String, String)> {
        let mut template = Self { head: String::new(), rest: Vec::new() };
        // Within a string; after a backslash.
        let (mut quoted, mut escaped) = (false, false);
        // The same with the placeholders filled in.
        let mut sample = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("${") {
                let listed = || holes.iter().map(|hole| format!("${{{}}}", hole.name())).collect::<Vec<_>>().join(", ");
                let known =
                    || if holes.is_empty() { "this message has no placeholders".to_owned() } else { format!("here are {}", listed()) };
                let Some((name, after)) = after.split_once('}') else {
                    return Err(("a placeholder has no end: `${` without `}`".to_owned(), known()));
                };
                let Some(hole) = holes.iter().find(|hole| hole.name() == name) else {
                    return Err((format!("there is no placeholder `${{{name}}}` in this message"), known()));
                };
                template.rest.push((*hole, quoted, String::new()));
                sample.push('0');
                (rest, escaped) = (after, false);
                continue;
            }
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                _ => {}
            }
            template.rest.last_mut().map_or(&mut template.head, |(_, _, text)| text).push(c);
            sample.push(c);
            rest = &rest[c.len_utf8()..];
        }
        if let Err(error) = serde_json::from_str::<IgnoredAny>(&sample) {
            return Err((
                format!("the template is not JSON: {error}"),
                "write one JSON value in single quotes: '{\"type\": \"audio\", \"data\": \"${audio}\"}'".to_owned(),
            ));
        }
        Ok(template)
    }

    /// It has this placeholder.
    pub fn has(&self, hole: Hole) -> bool {
        self.rest.iter().any(|(one, ..)| *one == hole)
    }

    /// The message, with what `fill` gives for each placeholder.
    pub fn fill<'a>(&self, fill: impl Fn(Hole) -> Fill<'a>) -> String {
        let text: usize = self.rest.iter().map(|(.., text)| text.len() + 24).sum();
        let bytes: usize = self.rest.iter().map(|(hole, ..)| if let Fill::Bytes(bytes) = fill(*hole) { bytes.len() } else { 0 }).sum();
        let mut out = String::with_capacity(self.head.len() + text + bytes.div_ceil(3) * 4);
        out.push_str(&self.head);
        for (hole, quoted, text) in &self.rest {
            put(fill(*hole), *quoted, &mut out);
            out.push_str(text);
        }
        out
    }
}

/// Writes a value within a JSON string, or as a JSON value.
fn put(value: Fill<'_>, quoted: bool, out: &mut String) {
    match value {
        Fill::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Fill::Bytes(bytes) if quoted => base64::encode_into(bytes, out),
        Fill::Bytes(bytes) => {
            out.push('"');
            base64::encode_into(bytes, out);
            out.push('"');
        }
        Fill::Json(json) if !quoted => out.push_str(json),
        Fill::Text(text) | Fill::Json(text) => {
            let json = serde_json::Value::from(text).to_string();
            out.push_str(if quoted { json.get(1..json.len() - 1).unwrap_or_default() } else { &json });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOLES: &[Hole] = &[Hole::Audio, Hole::Sequence, Hole::Output, Hole::Tools];

    fn filled(text: &str) -> Value {
        let message = Template::parse(text, HOLES).unwrap().fill(|hole| match hole {
            Hole::Audio => Fill::Bytes(&[0xfb, 0xef, 0xff]),
            Hole::Sequence => Fill::Number(7),
            Hole::Output => Fill::Text("a \"b\"\n\u{e9}\\"),
            _ => Fill::Json(r#"["x"]"#),
        });
        serde_json::from_str(&message).unwrap_or_else(|error| panic!("{error}: {message}"))
    }

    #[test]
    fn values_are_escaped_where_they_stand() {
        assert_eq!(filled(r#"{"a": "${audio}", "n": ${sequence}, "s": "no ${sequence}"}"#), json!({"a": "++//", "n": 7, "s": "no 7"}));
        assert_eq!(filled(r#"{"o": "<${output}>", "p": ${output}}"#), json!({"o": "<a \"b\"\n\u{e9}\\>", "p": "a \"b\"\n\u{e9}\\"}));
        assert_eq!(filled(r#"{"t": ${tools}, "u": "${tools}", "v": ${audio}}"#), json!({"t": ["x"], "u": "[\"x\"]", "v": "++//"}));
        // A quote that is escaped ends no string, and a backslash before a placeholder belongs to what comes before.
        assert_eq!(filled(r#"{"q": "\"${output}", "b": "\\${sequence}"}"#), json!({"q": "\"a \"b\"\n\u{e9}\\", "b": "\\7"}));
        assert_eq!(filled("1"), json!(1));
    }

    #[test]
    fn what_is_wrong_says_what_to_do() {
        for (text, message, help) in [
            ("{", "the template is not JSON", "single quotes"),
            (r#"{"a": ${audio"#, "`${` without `}`", "${audio}, ${sequence}"),
            (r#"{"a": "${adio}"}"#, "no placeholder `${adio}`", "${audio}, ${sequence}"),
            (r#"{"a": 1${audio}x}"#, "not JSON", "single quotes"),
        ] {
            let error = Template::parse(text, HOLES).unwrap_err();
            assert!(error.0.contains(message) && error.1.contains(help), "{text}: {error:?}");
        }
        assert!(Template::parse("${audio}", &[]).unwrap_err().1.contains("no placeholders"));
    }
}
