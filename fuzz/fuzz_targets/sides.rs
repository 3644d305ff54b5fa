//! Both sides of a dialect over WebSocket, fed with messages of a peer and events of our own in any order. Shared by the targets of such dialects.

use std::sync::Arc;

use agent_server::dialect::{Exchange, Frame, Upgrade, WEBSOCKET};
use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use load_driver::{
    dialect::{Channel, Wire},
    plan::{Dialect, Protocol, Service},
};
use proto::{
    frame::{
        AgentAudio, ClientAudio, ClientEvent, ErrorCode, ResponseStatus, ResponseWish, ServerEvent, SessionAccepted, SessionError,
        SessionStart, SpeechMarker,
    },
    ids::{ResponseId, TurnId},
};

/// Which side is fed, and with what.
#[derive(Debug, Arbitrary)]
pub struct Input<'a> {
    driver: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
    Event { kind: u8, number: u64, text: &'a str, bytes: &'a [u8] },
    Closed(u16),
}

/// Feeds it; nothing may panic.
pub fn feed(input: &Input<'_>, dialect: Dialect, path: &str) {
    if input.driver { driver(&input.steps, dialect) } else { server(&input.steps, path) }
}

fn server(steps: &[Step<'_>], path: &str) {
    let headers = Default::default();
    let Some(found) = WEBSOCKET.iter().find(|dialect| (dialect.serves)(path)) else { panic!("{path} is not served") };
    let Ok(opened) = (found.open)(&Upgrade { path, query: "", headers: &headers }) else { return };
    let mut dialect = opened.dialect;
    let (mut events, mut frames) = (0_usize, 0_usize);
    let mut event = |_| events += 1;
    let mut frame = |_| frames += 1;
    let mut to = Exchange::new(&mut event, &mut frame);
    dialect.open(&mut to);
    for step in steps {
        match *step {
            Step::Text(text) => dialect.decode(Frame::Text(text.into()), &mut to),
            Step::Binary(bytes) => dialect.decode(Frame::Binary(Bytes::copy_from_slice(bytes)), &mut to),
            Step::Event { kind, number, text, bytes } => dialect.encode(server_event(kind, number, text, bytes), &mut to),
            Step::Closed(code) => dialect.closed(code, &mut to),
        }
    }
}

fn driver(steps: &[Step<'_>], dialect: Dialect) {
    let (input, output) = dialect.formats()[0];
    let service = Arc::new(Service { dialect, input, output, ..Service::default() });
    let mut channel = Channel::new(&service, Protocol::Websocket, "run-1".to_owned());
    for step in steps {
        match *step {
            Step::Text(text) => channel.decode(Wire::Text(text.to_owned())),
            Step::Binary(bytes) => channel.decode(Wire::Binary(Bytes::copy_from_slice(bytes))),
            Step::Event { kind, number, text, bytes } => channel.encode(client_event(kind, number, text, bytes)),
            Step::Closed(code) => channel.closed(code),
        }
        while channel.next_wire().is_some() {}
        while channel.next_event().is_some() {}
    }
}

fn status(number: u64) -> ResponseStatus {
    [ResponseStatus::Completed, ResponseStatus::Interrupted, ResponseStatus::Cancelled, ResponseStatus::Failed][number as usize % 4]
}

fn server_event(kind: u8, number: u64, text: &str, bytes: &[u8]) -> ServerEvent {
    let (response, turn, text) = (ResponseId(number), TurnId(number), text.to_owned());
    match kind % 12 {
        0 => ServerEvent::Accepted(SessionAccepted {
            session_id: text.clone(),
            backend_id: text,
            boot_id: String::new(),
            input: Default::default(),
            output: Default::default(),
            max_duration_ms: 0,
            idle_timeout_ms: 0,
        }),
        1 => ServerEvent::Speech(SpeechMarker { started: number % 2 == 0, timestamp_us: number }),
        2 => ServerEvent::Transcript { turn, text, last: number % 2 == 0 },
        3 => ServerEvent::Answering { turn },
        4 => ServerEvent::ResponseStart { response, turn, text },
        5 => ServerEvent::ResponseEnd { response, status: status(number), frames: 0 },
        6 => ServerEvent::ToolCall { call_id: text.clone(), name: text.clone(), arguments: text },
        7 => ServerEvent::ToolCancel { call_id: text },
        8 => ServerEvent::Mark { name: text },
        9 => ServerEvent::Error(SessionError { code: ErrorCode::BadAudio, message: text, fatal: number % 2 == 0 }),
        _ => ServerEvent::Audio(AgentAudio { sequence: number, timestamp_us: number, payload: Bytes::copy_from_slice(bytes), response }),
    }
}

fn client_event(kind: u8, number: u64, text: &str, bytes: &[u8]) -> ClientEvent {
    let (response, text) = (Some(ResponseId(number)), text.to_owned());
    match kind % 12 {
        0 => ClientEvent::Start(SessionStart { client_ref: text.clone(), tools: vec![text], ..SessionStart::default() }),
        1 => ClientEvent::Commit,
        2 => ClientEvent::Respond(ResponseWish { text: Some(text), ..ResponseWish::default() }),
        3 => ClientEvent::BargeIn { response, heard_ms: number as u32 },
        4 => ClientEvent::Cancel { response },
        5 => ClientEvent::Truncate { response: ResponseId(number), heard_ms: number as u32 },
        6 => ClientEvent::Played { name: text },
        7 => ClientEvent::Digit(text.chars().next().unwrap_or('1')),
        8 => ClientEvent::ToolResult { call_id: text.clone(), output: text, failed: number % 2 == 0 },
        9 => ClientEvent::End { reason: text },
        _ => ClientEvent::Audio(ClientAudio { sequence: number, timestamp_us: number, payload: Bytes::copy_from_slice(bytes), ack: false }),
    }
}
