//! The description as the dialect uses it: templates split, rules ready to be matched.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Custom, Hole, Kind, Receive, Template};

/// Known in every message.
const ALWAYS: [Hole; 2] = [Hole::SessionId, Hole::ClientRef];

/// A template's key in `send`, and what it may hold beside what is always known.
pub(super) const HOLES: [(&str, &[Hole]); 10] = [
    ("start", &[Hole::Voice, Hole::Model, Hole::AgentId, Hole::Instructions, Hole::InputRate, Hole::OutputRate, Hole::Tools]),
    ("audio", &[Hole::Audio, Hole::Sequence, Hole::TimestampMs]),
    ("commit", &[]),
    ("respond", &[]),
    ("interrupt", &[Hole::Response, Hole::HeardMs]),
    ("tool_result", &[Hole::CallId, Hole::Output, Hole::Failed]),
    ("speech_start", &[Hole::TimestampMs]),
    ("speech_stop", &[Hole::TimestampMs]),
    ("end", &[]),
    ("pong", &[Hole::Id]),
];

/// How `audio` says that it goes as it is.
pub(super) const BINARY: &str = "binary";

/// The template of a key.
pub(super) fn parse(key: &str, text: &str) -> Result<Template, (String, String)> {
    let own = HOLES.iter().find(|(name, _)| *name == key).map_or(&[][..], |(_, holes)| holes);
    Template::parse(text, &[own, &ALWAYS].concat())
}

/// The description of a dialect, compiled.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what a description has or has not, each by itself")]
pub struct Script {
    /// Path and query of the upgrade.
    pub path: String,
    /// Opens the session.
    pub start: Vec<Template>,
    /// A frame of audio; none goes as a binary frame.
    pub audio: Option<Template>,
    /// As in the profile's `send`, as all that follow.
    pub commit: Option<Template>,
    /// Asks for the answer.
    pub respond: Option<Template>,
    /// Stops the answer.
    pub interrupt: Option<Template>,
    /// A tool's result.
    pub tool_result: Option<Template>,
    /// Speech begins.
    pub speech_start: Option<Template>,
    /// Speech ends.
    pub speech_stop: Option<Template>,
    /// The last words.
    pub end: Option<Template>,
    /// The answer to a ping.
    pub pong: Option<Template>,
    /// Rules for JSON messages, in order.
    pub rules: Vec<Rule>,
    /// Binary frames are the agent's audio.
    pub binary: bool,
    /// The backend says when the session is ready.
    pub has_ready: bool,
    /// It says when an answer is complete.
    pub names_ends: bool,
    /// It says when an answer begins, before its audio.
    pub names_starts: bool,
}

/// A rule, ready to be matched.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Where to find what.
    pub receive: Receive,
    when: Matcher,
    last: Option<Matcher>,
}

/// All of these must hold.
#[derive(Debug, Clone, PartialEq)]
struct Matcher(Vec<(String, Wanted)>);

#[derive(Debug, Clone, PartialEq)]
enum Wanted {
    Value(Value),
    Exists(bool),
}

impl Matcher {
    fn of(map: &BTreeMap<String, Value>) -> Self {
        let wanted = |value: &Value| match value {
            Value::Object(object) => Wanted::Exists(object.get("exists") != Some(&Value::Bool(false))),
            value => Wanted::Value(value.clone()),
        };
        Self(map.iter().map(|(pointer, value)| (pointer.clone(), wanted(value))).collect())
    }

    fn fits(&self, message: &Value) -> bool {
        self.0.iter().all(|(pointer, wanted)| {
            let found = message.pointer(pointer);
            match wanted {
                Wanted::Exists(exists) => found.is_some() == *exists,
                Wanted::Value(Value::Number(number)) => found.and_then(Value::as_f64).is_some_and(|found| number.as_f64() == Some(found)),
                Wanted::Value(value) => found == Some(value),
            }
        })
    }
}

impl Rule {
    /// The message is such a one.
    pub fn fits(&self, message: &Value) -> bool {
        self.when.fits(message)
    }

    /// The transcript is the last of its turn.
    pub fn is_last(&self, message: &Value) -> bool {
        self.last.as_ref().is_none_or(|last| last.fits(message))
    }
}

impl Script {
    /// Of a description that was checked; what the check refuses is left out.
    pub fn of(custom: &Custom) -> Self {
        let send = &custom.send;
        let one = |key: &str, text: &Option<String>| text.as_ref().and_then(|text| parse(key, text).ok());
        let has = |kind| custom.receive.iter().any(|rule| rule.kind == kind);
        Self {
            path: custom.path.clone().unwrap_or_else(|| "/".to_owned()),
            start: send.start.iter().filter_map(|text| parse("start", text).ok()).collect(),
            audio: one("audio", &send.audio.clone().filter(|text| text != BINARY)),
            commit: one("commit", &send.commit),
            respond: one("respond", &send.respond),
            interrupt: one("interrupt", &send.interrupt),
            tool_result: one("tool_result", &send.tool_result),
            speech_start: one("speech_start", &send.speech_start),
            speech_stop: one("speech_stop", &send.speech_stop),
            end: one("end", &send.end),
            pong: one("pong", &send.pong),
            rules: custom
                .receive
                .iter()
                .filter(|rule| !rule.binary)
                .map(|rule| Rule { when: Matcher::of(&rule.when), last: rule.last.as_ref().map(Matcher::of), receive: rule.clone() })
                .collect(),
            binary: custom.receive.iter().any(|rule| rule.binary),
            has_ready: has(Kind::Ready),
            names_ends: has(Kind::TurnEnd),
            names_starts: has(Kind::ResponseStart) || has(Kind::AgentText),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_matcher_fits_values_and_their_presence() {
        let matcher = |map: Value| Matcher::of(&serde_json::from_value(map).unwrap());
        let message = json!({"type": "a", "n": 1.0, "deep": {"list": [true, null]}});
        for (map, fits) in [
            (json!({"/type": "a"}), true),
            (json!({"/type": "b"}), false),
            (json!({"/type": "a", "/n": 2}), false),
            (json!({"/n": 1}), true),
            (json!({"/deep/list/0": true}), true),
            (json!({"/deep/list/1": null}), true),
            (json!({"/none": null}), false),
            (json!({"/deep": {"exists": true}, "/none": {"exists": false}}), true),
            (json!({"/none": {"exists": true}}), false),
        ] {
            assert_eq!(matcher(map.clone()).fits(&message), fits, "{map}");
        }
    }
}
