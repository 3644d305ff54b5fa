//! OpenAI Realtime, both sides: whatever a peer sends and our own side says, no panic.
#![no_main]

#[path = "support/driver.rs"]
mod driver;
#[path = "support/events.rs"]
mod events;

use agent_server::dialect::{Dialect as _, Exchange, Frame, Upgrade, WEBSOCKET};
use bytes::Bytes;
use events::{Client, Server, Step};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use load_driver::plan::Dialect;

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    Server { beta: bool, steps: Vec<Next<'a, Server<'a>>> },
    Driver { manual: bool, steps: Vec<Next<'a, Client<'a>>> },
}

#[derive(Debug, Arbitrary)]
enum Next<'a, E> {
    /// As it comes.
    Any(Step<'a, E>),
    /// An event of a type that is known, with fields of its shape.
    Known { kind: u8, ids: [u8; 4], text: Text, number: u16, flag: bool },
}

/// What audio and transcripts hold.
#[derive(Debug, Arbitrary)]
enum Text {
    Base64,
    Odd,
    Wrong,
    Empty,
}

const PATH: &str = "/v1/realtime";

const SERVERS: [&str; 16] = [
    "session.created",
    "session.updated",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.input_audio_transcription.delta",
    "conversation.item.input_audio_transcription.completed",
    "conversation.item.truncated",
    "response.created",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_audio.delta",
    "response.audio.delta",
    "response.function_call_arguments.done",
    "response.done",
    "error",
];

const CLIENTS: [&str; 10] = [
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "conversation.item.create",
    "conversation.item.retrieve",
    "conversation.item.delete",
    "conversation.item.truncate",
    "response.create",
    "response.cancel",
];

fn known(kinds: &[&str], kind: u8, ids: [u8; 4], text: &Text, number: u16, flag: bool) -> String {
    let kind = kinds[usize::from(kind) % kinds.len()];
    let [one, two, three, four] = ids.map(|id| ["", "item_1", "item_2", "resp_1", "call-1", "weather"][usize::from(id) % 6]);
    let text = match text {
        Text::Base64 => "AAAAAAAA",
        Text::Odd => "AAAA",
        Text::Wrong => "!",
        Text::Empty => "",
    };
    let detection = if flag { "null" } else { r#"{"type":"server_vad"}"# };
    let status = if flag { "completed" } else { "cancelled" };
    let part = if flag { "input_text" } else { "input_audio" };
    let item = if flag { "function_call" } else { "message" };
    format!(
        r#"{{"type":"{kind}","event_id":"{one}","response_id":"{one}","item_id":"{two}","previous_item_id":"{three}","call_id":"{three}","name":"{four}",
        "delta":"{text}","transcript":"{text}","audio":"{text}","arguments":"{{}}","audio_start_ms":{number},"audio_end_ms":{number},"content_index":0,
        "session":{{"id":"{one}","type":"realtime","audio":{{"input":{{"turn_detection":{detection}}}}},"tools":[{{"type":"function","name":"{four}"}}]}},
        "response":{{"id":"{one}","status":"{status}","status_details":{{"reason":"{four}"}},"metadata":{{"{one}":"{two}"}}}},
        "item":{{"id":"{two}","type":"{item}","role":"user","call_id":"{three}","name":"{four}","arguments":"{{}}","output":"{text}",
        "content":[{{"type":"{part}","text":"{text}","audio":"{text}"}}]}},"error":{{"type":"{one}","code":"{two}","message":"{text}"}}}}"#
    )
}

/// What was known is written out first, because steps borrow it.
fn steps<'a, E>(all: Vec<Next<'a, E>>, kinds: &[&str], texts: &'a mut Vec<String>) -> Vec<Step<'a, E>> {
    let mut written = Vec::new();
    let steps: Vec<Option<Step<'a, E>>> = all
        .into_iter()
        .map(|next| match next {
            Next::Any(step) => Some(step),
            Next::Known { kind, ids, text, number, flag } => {
                written.push(known(kinds, kind, ids, &text, number, flag));
                None
            }
        })
        .collect();
    *texts = written;
    let mut texts = texts.iter();
    steps.into_iter().filter_map(|step| step.or_else(|| texts.next().map(|text| Step::Text(text)))).collect()
}

fuzz_target!(|input: Input<'_>| {
    let mut texts = Vec::new();
    let (beta, all) = match input {
        Input::Driver { manual, steps: all } => return driver::run(Dialect::OpenaiRealtime, manual, steps(all, &SERVERS, &mut texts)),
        Input::Server { beta, steps } => (beta, steps),
    };
    let openai = WEBSOCKET.iter().find(|dialect| (dialect.serves)(PATH)).expect("served");
    let mut headers = HeaderMap::new();
    if beta {
        headers.insert("openai-beta", HeaderValue::from_static("realtime=v1"));
    }
    let upgrade = Upgrade { path: PATH, query: "model=gpt-realtime", headers: &headers };
    let mut dialect = (openai.open)(&upgrade).expect("opened").dialect;
    for step in steps(all, &CLIENTS, &mut texts) {
        let (mut event, mut message) = (|_| {}, |_| {});
        let mut to = Exchange::new(&mut event, &mut message);
        match step {
            Step::Text(text) => dialect.decode(Frame::Text(text.to_owned().into()), &mut to),
            Step::Binary(bytes) => dialect.decode(Frame::Binary(Bytes::copy_from_slice(bytes)), &mut to),
            Step::Closed(code) => dialect.closed(code, &mut to),
            Step::Event(event) => dialect.encode(event.into(), &mut to),
        }
    }
});
