//! OpenAI Realtime, both sides: whatever a peer sends and our own side says, in any order, no panic; what we send is JSON with a type.
#![no_main]

use std::{fmt::Write, sync::Arc};

use agent_server::dialect::{Exchange, Frame, Upgrade, WEBSOCKET};
use bytes::Bytes;
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use load_driver::{
    dialect::{Channel, Wire},
    plan::{Dialect, Protocol, Service},
};
use proto::{
    audio::AudioFormat,
    frame::{
        AgentAudio, ClientAudio, ClientEvent, ErrorCode, ResponseStatus, ResponseWish, ServerEvent, SessionAccepted, SessionError,
        SessionStart, SpeechMarker,
    },
    ids::{ResponseId, TurnId},
};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    driver: bool,
    beta: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// As it comes.
    Text(&'a str),
    Binary(&'a [u8]),
    /// An event of the API, with fields out of its words.
    Event {
        kind: u8,
        fields: Vec<(u8, Field<'a>)>,
    },
    /// Said by our side.
    Ours {
        kind: u8,
        number: u64,
        text: &'a str,
        bytes: &'a [u8],
    },
    Closed(u16),
}

#[derive(Debug, Arbitrary)]
enum Field<'a> {
    Number(i64),
    Text(&'a str),
    Word(u8),
    Null,
    Flag(bool),
    List(Vec<Field<'a>>),
    Object(Vec<(u8, Field<'a>)>),
}

const KINDS: [&str; 40] = [
    "session.update",
    "transcription_session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "conversation.item.create",
    "conversation.item.retrieve",
    "conversation.item.truncate",
    "conversation.item.delete",
    "response.create",
    "response.cancel",
    "output_audio_buffer.clear",
    "session.created",
    "session.updated",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.created",
    "conversation.item.done",
    "conversation.item.input_audio_transcription.delta",
    "conversation.item.input_audio_transcription.completed",
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio.delta",
    "response.audio.delta",
    "response.output_audio_transcript.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_text.delta",
    "response.done",
    "rate_limits.updated",
    "error",
    "conversation.item.truncated",
    "conversation.item.retrieved",
];

const KEYS: [&str; 48] = [
    "session",
    "audio",
    "item",
    "item_id",
    "response",
    "response_id",
    "previous_item_id",
    "audio_end_ms",
    "audio_start_ms",
    "content_index",
    "delta",
    "transcript",
    "arguments",
    "name",
    "call_id",
    "id",
    "status",
    "status_details",
    "reason",
    "type",
    "role",
    "content",
    "text",
    "output",
    "input",
    "format",
    "rate",
    "voice",
    "tools",
    "tool_choice",
    "turn_detection",
    "threshold",
    "silence_duration_ms",
    "create_response",
    "transcription",
    "instructions",
    "modalities",
    "output_modalities",
    "metadata",
    "conversation",
    "error",
    "code",
    "message",
    "usage",
    "input_audio_format",
    "output_audio_format",
    "event_id",
    "expires_at",
];

const WORDS: [&str; 24] = [
    "i",
    "message",
    "user",
    "assistant",
    "system",
    "function_call",
    "function_call_output",
    "call-1",
    "audio",
    "text",
    "input_text",
    "input_audio",
    "none",
    "auto",
    "required",
    "server_vad",
    "semantic_vad",
    "completed",
    "cancelled",
    "turn_detected",
    "pcm16",
    "audio/pcmu",
    "AAAA",
    "root",
];

fn pick<'a>(all: &[&'a str], n: u8) -> &'a str {
    all[usize::from(n) % all.len()]
}

fn write_fields(fields: &[(u8, Field<'_>)], out: &mut String) {
    for (key, value) in fields {
        let _ = write!(out, ",\"{}\":", pick(&KEYS, *key));
        write_field(value, out);
    }
}

fn write_field(field: &Field<'_>, out: &mut String) {
    match field {
        Field::Number(n) => drop(write!(out, "{n}")),
        Field::Text(text) => drop(write!(out, "{}", text_json(text))),
        Field::Word(n) => drop(write!(out, "\"{}\"", pick(&WORDS, *n))),
        Field::Null => out.push_str("null"),
        Field::Flag(flag) => drop(write!(out, "{flag}")),
        Field::List(all) => {
            out.push('[');
            for (n, value) in all.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write_field(value, out);
            }
            out.push(']');
        }
        Field::Object(fields) => {
            out.push_str("{\"object\":null");
            write_fields(fields, out);
            out.push('}');
        }
    }
}

/// A string of JSON, every character by number.
fn text_json(text: &str) -> String {
    let mut out = String::from("\"");
    for unit in text.encode_utf16() {
        let _ = write!(out, "\\u{unit:04x}");
    }
    out.push('"');
    out
}

fn event_json(kind: u8, fields: &[(u8, Field<'_>)]) -> String {
    let mut out = format!("{{\"type\":\"{}\"", pick(&KINDS, kind));
    write_fields(fields, &mut out);
    out.push('}');
    out
}

fuzz_target!(|input: Input<'_>| if input.driver { driver(&input) } else { server(&input) });

fn server(input: &Input<'_>) {
    const PATH: &str = "/v1/realtime";
    let mut headers = http::HeaderMap::new();
    if input.beta {
        headers.insert("openai-beta", http::HeaderValue::from_static("realtime=v1"));
    }
    let found = WEBSOCKET.iter().find(|dialect| (dialect.serves)(PATH)).expect("served");
    let mut dialect = (found.open)(&Upgrade { path: PATH, query: "model=m", headers: &headers }).expect("opened").dialect;
    let mut event = |_| {};
    let mut frame = |frame| {
        let Frame::Text(text) = frame else { panic!("only text is sent") };
        assert!(text.starts_with("{\"type\":\"") && text.ends_with('}'), "{text}");
    };
    let mut to = Exchange::new(&mut event, &mut frame);
    dialect.open(&mut to);
    dialect.encode(server_event(0, 60_000, "s", &[]), &mut to);
    for step in &input.steps {
        match step {
            Step::Text(text) => dialect.decode(Frame::Text((*text).into()), &mut to),
            Step::Binary(bytes) => dialect.decode(Frame::Binary(Bytes::copy_from_slice(bytes)), &mut to),
            Step::Event { kind, fields } => dialect.decode(Frame::Text(event_json(*kind, fields).into()), &mut to),
            Step::Ours { kind, number, text, bytes } => dialect.encode(server_event(*kind, *number, text, bytes), &mut to),
            Step::Closed(code) => dialect.closed(*code, &mut to),
        }
    }
}

fn driver(input: &Input<'_>) {
    let format = AudioFormat::Pcm24k;
    let service = Arc::new(Service { dialect: Dialect::OpenaiRealtime, input: format, output: format, ..Service::default() });
    let mut channel = Channel::new(&service, Protocol::Websocket, "run-1".to_owned());
    for step in &input.steps {
        match step {
            Step::Text(text) => channel.decode(Wire::Text((*text).to_owned())),
            Step::Binary(bytes) => channel.decode(Wire::Binary(Bytes::copy_from_slice(bytes))),
            Step::Event { kind, fields } => channel.decode(Wire::Text(event_json(*kind, fields))),
            Step::Ours { kind, number, text, bytes } => channel.encode(client_event(*kind, *number, text, bytes)),
            Step::Closed(code) => channel.closed(*code),
        }
        while channel.next_wire().is_some() {}
        while channel.next_event().is_some() {}
    }
}

fn server_event(kind: u8, number: u64, text: &str, bytes: &[u8]) -> ServerEvent {
    let (response, turn, text) = (ResponseId(number), TurnId(number), text.to_owned());
    let statuses = [ResponseStatus::Completed, ResponseStatus::Interrupted, ResponseStatus::Cancelled, ResponseStatus::Failed];
    let status = statuses[number as usize % statuses.len()];
    let even = number % 2 == 0;
    match kind % 14 {
        0 => ServerEvent::Accepted(SessionAccepted {
            session_id: text.clone(),
            backend_id: text,
            boot_id: String::new(),
            input: AudioFormat::Pcm24k,
            output: AudioFormat::Pcm24k,
            max_duration_ms: number as u32,
            idle_timeout_ms: 0,
        }),
        1 => ServerEvent::Speech(SpeechMarker { started: even, timestamp_us: number }),
        2 => ServerEvent::Transcript { turn, text, last: even },
        3 => ServerEvent::Committed { turn },
        4 => ServerEvent::Answering { turn },
        5 => ServerEvent::AnswerDropped { turn, status },
        6 => ServerEvent::ResponseStart { response, turn, text },
        7 => ServerEvent::ResponseEnd { response, status, frames: 0 },
        8 => ServerEvent::ToolCall { call_id: text.clone(), name: text.clone(), arguments: text },
        9 => ServerEvent::ToolCancel { call_id: text },
        10 => {
            let codes = [ErrorCode::InvalidArgument, ErrorCode::UnknownToolCall, ErrorCode::Deadline, ErrorCode::BadAudio];
            ServerEvent::Error(SessionError { code: codes[number as usize % codes.len()], message: text, fatal: even })
        }
        11 => ServerEvent::GoingAway { left_ms: number as u32 },
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
        6 => ClientEvent::Discard,
        7 => ClientEvent::Context { role: text.clone(), text },
        8 => ClientEvent::ToolResult { call_id: text.clone(), output: text, failed: number % 2 == 0 },
        9 => ClientEvent::End { reason: text },
        _ => ClientEvent::Audio(ClientAudio { sequence: number, timestamp_us: number, payload: Bytes::copy_from_slice(bytes), ack: false }),
    }
}
