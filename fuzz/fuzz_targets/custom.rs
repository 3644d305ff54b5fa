//! A dialect that a profile describes: whatever its templates hold and whatever a backend sends, no panic.
#![no_main]

#[path = "support/driver.rs"]
mod driver;
#[path = "support/events.rs"]
mod events;

use std::sync::Arc;

use events::{Client, Step};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use load_driver::{
    plan::{Dialect, Service},
    profile::{Fill, Hole, Script, Template},
};

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    Template { text: &'a str, fill: &'a str, bytes: &'a [u8] },
    Session { ends: bool, binary: bool, steps: Vec<Step<'a, Client<'a>>> },
}

const KINDS: [&str; 11] = [
    "ready",
    "audio",
    "transcript",
    "agent_text",
    "speech_started",
    "speech_stopped",
    "response_start",
    "interrupted",
    "tool_call",
    "error",
    "ping",
];

const SEND: &str = r#"{"start": ["{\"a\": \"${instructions}\", \"t\": ${tools}}"], "audio": "{\"a\": \"${audio}\", \"n\": ${sequence}}",
    "tool_result": "[\"${output}\", ${call_id}, ${failed}]", "pong": "{\"p\": ${id}}", "interrupt": "[${response}, ${heard_ms}]",
    "commit": "1", "respond": "2", "end": "\"${session_id}\""}"#;

/// Every kind of rule, told apart by a number; the same places hold everything.
fn script(ends: bool, binary: bool) -> Script {
    let mut rules: Vec<String> = KINDS
        .iter()
        .enumerate()
        .map(|(at, kind)| {
            let places =
                r#""id": "/i", "text": "/x", "data": "/x", "name": "/x", "arguments": "/a", "message": "/x", "final": {"/f": true}"#;
            format!(r#"{{"kind": "{kind}", "when": {{"/t": {at}}}, {places}}}"#)
        })
        .collect();
    if ends {
        rules.push(r#"{"kind": "turn_end", "when": {"/t": 11}}"#.to_owned());
    }
    if binary {
        rules.push(r#"{"kind": "audio", "binary": true}"#.to_owned());
    }
    let text = format!(r#"{{"send": {SEND}, "receive": [{}]}}"#, rules.join(","));
    Script::of(&serde_json::from_str(&text).expect("a description"))
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Template { text, fill, bytes } => {
        let Ok(template) = Template::parse(text, &[Hole::Audio, Hole::Sequence, Hole::Output]) else { return };
        let message = template.fill(|hole| match hole {
            Hole::Audio => Fill::Bytes(bytes),
            Hole::Sequence => Fill::Number(1),
            _ => Fill::Text(fill),
        });
        // A template that was taken gives JSON, whatever is filled in, unless a number of many digits is made of two.
        if !text.contains("}$") {
            let _ = serde_json::from_str::<serde_json::Value>(&message);
        }
    }
    Input::Session { ends, binary, steps } => {
        let service = Service { dialect: Dialect::Custom, custom: Some(Arc::new(script(ends, binary))), ..Service::default() };
        driver::feed(service, steps);
    }
});
