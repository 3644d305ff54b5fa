//! Events that sessions and callers may say to a dialect, out of any bytes.
#![allow(dead_code, reason = "each target uses its part")]

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use proto::{
    audio::AudioFormat,
    frame::{
        AgentAudio, ClientAudio, ClientEvent, ErrorCode, Outcome, ResponseStatus, ResponseWish, ServerEvent, SessionAccepted, SessionEnded,
        SessionError, SessionStart, SpeechMarker, ToolChoice, TurnHint,
    },
    ids::{ResponseId, TurnId},
};

/// What happens to one side of a dialect.
#[derive(Debug, Arbitrary)]
pub enum Step<'a, E> {
    /// The peer sent this.
    Text(&'a str),
    Binary(&'a [u8]),
    /// The peer closed.
    Closed(u16),
    /// Said by our side.
    Event(E),
}

/// Of a session.
#[derive(Debug, Arbitrary)]
pub enum Server<'a> {
    Accepted(&'a str),
    Speech(bool, u64),
    Transcript(u64, &'a str, bool),
    Committed(u64),
    Answering(u64),
    Dropped(u64, u8),
    Start(u64, u64, &'a str),
    Audio(u64, &'a [u8]),
    End(u64, u8, u32),
    Ack(u64),
    ToolCall(&'a str, &'a str, &'a str),
    ToolCancel(&'a str),
    Context(&'a str, Option<u64>, u32),
    Mark(&'a str),
    GoingAway(u32),
    Error(&'a str, bool),
    Ended(u8),
}

fn status(n: u8) -> ResponseStatus {
    [ResponseStatus::Completed, ResponseStatus::Interrupted, ResponseStatus::Cancelled, ResponseStatus::Failed][usize::from(n) % 4]
}

impl From<Server<'_>> for ServerEvent {
    fn from(event: Server<'_>) -> Self {
        match event {
            Server::Accepted(id) => Self::Accepted(SessionAccepted {
                session_id: id.to_owned(),
                backend_id: String::new(),
                boot_id: String::new(),
                input: AudioFormat::default(),
                output: AudioFormat::default(),
                max_duration_ms: 0,
                idle_timeout_ms: 0,
            }),
            Server::Speech(started, timestamp_us) => Self::Speech(SpeechMarker { started, timestamp_us }),
            Server::Transcript(turn, text, last) => Self::Transcript { turn: TurnId(turn), text: text.to_owned(), last },
            Server::Committed(turn) => Self::Committed { turn: TurnId(turn) },
            Server::Answering(turn) => Self::Answering { turn: TurnId(turn) },
            Server::Dropped(turn, how) => Self::AnswerDropped { turn: TurnId(turn), status: status(how) },
            Server::Start(response, turn, text) => {
                Self::ResponseStart { response: ResponseId(response), turn: TurnId(turn), text: text.to_owned() }
            }
            Server::Audio(response, payload) => Self::Audio(AgentAudio {
                sequence: 0,
                timestamp_us: 0,
                payload: Bytes::copy_from_slice(payload),
                response: ResponseId(response),
            }),
            Server::End(response, how, frames) => Self::ResponseEnd { response: ResponseId(response), status: status(how), frames },
            Server::Ack(sequence) => Self::Ack { sequence },
            Server::ToolCall(id, name, arguments) => {
                Self::ToolCall { call_id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
            }
            Server::ToolCancel(id) => Self::ToolCancel { call_id: id.to_owned() },
            Server::Context(text, response, heard_ms) => {
                Self::Context { role: "agent".to_owned(), text: text.to_owned(), response: response.map(ResponseId), heard_ms }
            }
            Server::Mark(name) => Self::Mark { name: name.to_owned() },
            Server::GoingAway(left_ms) => Self::GoingAway { left_ms },
            Server::Error(message, fatal) => {
                Self::Error(SessionError { code: ErrorCode::InvalidArgument, message: message.to_owned(), fatal })
            }
            Server::Ended(n) => Self::Ended(SessionEnded {
                outcome: Outcome::ALL[usize::from(n) % Outcome::ALL.len()],
                duration_ms: 0,
                frames_in: 0,
                frames_out: 0,
            }),
        }
    }
}

/// Of a caller.
#[derive(Debug, Arbitrary)]
pub enum Client<'a> {
    Start(&'a str, Vec<&'a str>),
    Audio(&'a [u8]),
    Speech(bool),
    Hint(&'a str),
    Commit,
    Discard,
    Respond(Option<&'a str>),
    BargeIn(Option<u64>, u32),
    Cancel(Option<u64>),
    Truncate(u64, u32),
    Played(&'a str),
    Digit(char),
    ToolResult(&'a str, &'a str, bool),
    Context(&'a str, &'a str),
    End,
}

impl From<Client<'_>> for ClientEvent {
    fn from(event: Client<'_>) -> Self {
        match event {
            Client::Start(name, tools) => Self::Start(SessionStart {
                client_ref: name.to_owned(),
                voice: name.to_owned(),
                tools: tools.into_iter().map(str::to_owned).collect(),
                ..SessionStart::default()
            }),
            Client::Audio(payload) => {
                Self::Audio(ClientAudio { sequence: 0, timestamp_us: 0, payload: Bytes::copy_from_slice(payload), ack: false })
            }
            Client::Speech(started) => Self::Speech(SpeechMarker { started, timestamp_us: 0 }),
            Client::Hint(text) => Self::Hint(TurnHint { text: Some(text.to_owned()), ..TurnHint::default() }),
            Client::Commit => Self::Commit,
            Client::Discard => Self::Discard,
            Client::Respond(text) => Self::Respond(ResponseWish { tool: ToolChoice::Auto, text: text.map(str::to_owned) }),
            Client::BargeIn(response, heard_ms) => Self::BargeIn { response: response.map(ResponseId), heard_ms },
            Client::Cancel(response) => Self::Cancel { response: response.map(ResponseId) },
            Client::Truncate(response, heard_ms) => Self::Truncate { response: ResponseId(response), heard_ms },
            Client::Played(name) => Self::Played { name: name.to_owned() },
            Client::Digit(digit) => Self::Digit(digit),
            Client::ToolResult(id, output, failed) => Self::ToolResult { call_id: id.to_owned(), output: output.to_owned(), failed },
            Client::Context(role, text) => Self::Context { role: role.to_owned(), text: text.to_owned() },
            Client::End => Self::End { reason: String::new() },
        }
    }
}
