//! What is wrong with a description, at its line.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::validate::Checker;
use super::{
    Custom, Hole, Kind, Receive,
    script::{BINARY, parse},
};

impl Custom {
    pub(in crate::profile) fn check(&self, c: &mut Checker<'_>) {
        if let Some(path) = &self.path
            && (!path.starts_with('/') || path.chars().any(|ch| ch.is_whitespace() || ch.is_control() || ch == '#'))
        {
            c.error("path", format!("`{path}` is no path"), "write it with its slash, and a query if there is one: /v1/talk?agent=a");
        }
        c.within("send", |c| self.check_send(c));
        c.within("receive", |c| {
            for (at, rule) in self.receive.iter().enumerate() {
                c.within(at, |c| rule.check(c));
            }
            if !self.has(Kind::Audio) {
                c.here(
                    "no rule says where the agent's audio is",
                    "add {kind: audio, when: {/type: audio}, data: /data}, or {kind: audio, binary: true}",
                );
            }
        });
        for (kind, template, key) in [(Kind::ToolCall, &self.send.tool_result, "tool_result"), (Kind::Ping, &self.send.pong, "pong")] {
            if self.has(kind) && template.is_none() {
                c.error(
                    "send",
                    format!("a rule asks for `{key}`, which is not there"),
                    format!("add `{key}: '{{...}}'`, or drop the rule"),
                );
            }
        }
    }

    fn has(&self, kind: Kind) -> bool {
        self.receive.iter().any(|rule| rule.kind == kind)
    }

    fn check_send(&self, c: &mut Checker<'_>) {
        let send = &self.send;
        c.within("start", |c| {
            for (at, text) in send.start.iter().enumerate() {
                if let Err((message, help)) = parse("start", text) {
                    c.within(at, |c| c.here(message, help));
                }
            }
        });
        match send.audio.as_deref() {
            None => c.here(
                "`send.audio` is missing: nothing would be heard of the user",
                "add `audio: '{\"audio\": \"${audio}\"}'`, or `audio: binary`",
            ),
            Some(BINARY) => {}
            Some(text) => match parse("audio", text) {
                Ok(template) if template.has(Hole::Audio) => {}
                Ok(_) => {
                    c.error("audio", "the template does not hold `${audio}`", "put `${audio}` where the base64 goes, or write `binary`");
                }
                Err((message, help)) => c.error("audio", message, help),
            },
        }
        for (key, text) in [
            ("commit", &send.commit),
            ("respond", &send.respond),
            ("interrupt", &send.interrupt),
            ("tool_result", &send.tool_result),
            ("speech_start", &send.speech_start),
            ("speech_stop", &send.speech_stop),
            ("end", &send.end),
            ("pong", &send.pong),
        ] {
            if let Some(Err((message, help))) = text.as_ref().map(|text| parse(key, text)) {
                c.error(key, message, help);
            }
        }
    }
}

impl Receive {
    fn check(&self, c: &mut Checker<'_>) {
        if self.binary && !(self.when.is_empty() && self.data.is_none()) {
            c.error("binary", "a binary frame has no places to look at", "drop `when` and `data`, or `binary`");
        }
        if !self.binary && self.when.is_empty() {
            c.here("the rule fits every message", "say which: when: {/type: ...}");
        }
        check_matcher(c, "when", &self.when);
        if let Some(last) = &self.last {
            check_matcher(c, "final", last);
        }
        let (required, optional): (&[&str], &[&str]) = match self.kind {
            Kind::Audio if self.binary => (&[], &["binary"]),
            Kind::Audio => (&["data"], &["binary"]),
            Kind::Transcript => (&["text"], &["final"]),
            Kind::AgentText => (&["text"], &[]),
            Kind::ToolCall => (&["id", "name"], &["arguments"]),
            Kind::Error => (&[], &["message", "fatal"]),
            Kind::Ready | Kind::Ping => (&[], &["id"]),
            Kind::SpeechStarted | Kind::SpeechStopped | Kind::ResponseStart | Kind::TurnEnd | Kind::Interrupted => (&[], &[]),
        };
        let pointers = [
            ("data", &self.data),
            ("text", &self.text),
            ("id", &self.id),
            ("name", &self.name),
            ("arguments", &self.arguments),
            ("message", &self.message),
        ];
        for (key, pointer) in pointers {
            if let Some(pointer) = pointer {
                check_pointer(c, key, pointer);
            } else if required.contains(&key) {
                c.here(format!("the rule needs `{key}`, the place of it in the message"), format!("add `{key}: /...`"));
            }
        }
        let given = pointers.iter().filter(|(_, pointer)| pointer.is_some()).map(|(key, _)| *key);
        let flags = [("final", self.last.is_some()), ("binary", self.binary), ("fatal", self.fatal)];
        for key in given.chain(flags.iter().filter(|(_, given)| *given).map(|(key, _)| *key)) {
            if !required.contains(&key) && !optional.contains(&key) {
                let keys = [&["kind", "when"], required, optional].concat().join(", ");
                c.error(key, format!("`{key}` means nothing to a rule of this kind"), format!("its keys are {keys}"));
            }
        }
    }
}

fn check_matcher(c: &mut Checker<'_>, key: &str, map: &BTreeMap<String, Value>) {
    c.within(key, |c| {
        for (pointer, value) in map {
            check_pointer(c, pointer, pointer);
            if let Some(word) = value.as_bool().and_then(|_| c.unquoted(pointer)) {
                let help = format!("write '{word}' in quotes for the word, or true or false");
                c.error(pointer, format!("YAML reads the word `{word}` as {value}"), help);
            }
            let odd = match value {
                Value::Object(object) => !(object.len() == 1 && object.get("exists").is_some_and(Value::is_boolean)),
                value => value.is_array(),
            };
            if odd {
                c.error(pointer, "a place is compared with a value", "write text, a number, true, false, null, or {exists: true}");
            }
        }
    });
}

/// RFC 6901.
fn check_pointer(c: &mut Checker<'_>, key: &str, pointer: &str) {
    let escapes = pointer.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    if !pointer.starts_with('/') || !escapes {
        c.error(key, format!("`{pointer}` is no JSON pointer"), "write the keys from the top, each after a slash: /response/id");
    }
}
