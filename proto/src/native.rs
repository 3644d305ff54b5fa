//! The native dialect: `voiceagent.v1` messages to events and back.
//!
//! Both programs use it on both transports. Decoding checks what the wire can say wrong (a missing event, an unknown enum value, a format
//! that is not served); limits of a session are the session's to check.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};

use crate::{
    audio::AudioFormat,
    frame::{
        AgentAudio, ClientAudio, ClientEvent, ErrorCode, Outcome, ResponseStatus, ServerEvent, SessionAccepted, SessionEnded, SessionError,
        SessionStart, SpeechMarker, TurnHint, TurnTaking,
    },
    ids::{ResponseId, TurnId},
    voiceagent::v1::{self, client_message::Event as C, server_message::Event as S},
};

/// WebSocket path of the native protocol.
pub const WEBSOCKET_PATH: &str = "/voiceagent.v1";

fn malformed(what: impl Into<String>) -> SessionError {
    SessionError::fatal(ErrorCode::MalformedMessage, what)
}

/// Decodes one binary message of a client.
pub fn decode_client(bytes: bytes::Bytes) -> Result<ClientEvent, SessionError> {
    let message = v1::ClientMessage::decode(bytes).map_err(|e| {
        malformed(format!("not a voiceagent.v1.ClientMessage: {e}; send protobuf in binary frames, protobuf-JSON in text frames"))
    })?;
    client_event(message)
}

/// Decodes one binary message of a server.
pub fn decode_server(bytes: bytes::Bytes) -> Result<ServerEvent, SessionError> {
    let message = v1::ServerMessage::decode(bytes).map_err(|e| malformed(format!("not a voiceagent.v1.ServerMessage: {e}")))?;
    server_event(message)
}

/// What a client message says, or what is wrong with it.
pub fn client_event(message: v1::ClientMessage) -> Result<ClientEvent, SessionError> {
    let Some(event) = message.event else { return Err(malformed("the client message holds no event")) };
    Ok(match event {
        C::Start(m) => ClientEvent::Start(SessionStart {
            input: format(m.encoding, m.sample_rate)?,
            output: format(m.encoding, m.sample_rate)?,
            turns: TurnTaking::default(),
            warning_ms: 0,
            client_ref: m.client_ref,
            voice: m.voice,
            tools: m.tools.into_iter().map(|t| t.name).collect(),
            max_duration_ms: m.max_duration_ms,
            default_duration_ms: 0,
            idle_timeout_ms: m.idle_timeout_ms,
            resume: String::new(),
        }),
        C::Audio(m) => {
            ClientEvent::Audio(ClientAudio { sequence: m.sequence, timestamp_us: m.timestamp_us, payload: m.payload, ack: m.ack })
        }
        C::Speech(m) => ClientEvent::Speech(marker(&m)?),
        C::Hint(m) => ClientEvent::Hint(TurnHint {
            tool: some_text(m.tool),
            response_ms: (m.response_ms > 0).then_some(m.response_ms),
            text: some_text(m.text),
        }),
        C::BargeIn(m) => ClientEvent::BargeIn { response: some_response(m.response_id), heard_ms: m.heard_ms },
        C::Cancel(m) => ClientEvent::Cancel { response: some_response(m.response_id) },
        C::ToolResult(m) => ClientEvent::ToolResult { call_id: m.call_id, output: m.output, failed: m.failed },
        C::Context(m) => ClientEvent::Context { role: m.role, text: m.text },
        C::End(m) => ClientEvent::End { reason: m.reason },
    })
}

/// The message of a client event; none for what this protocol has no word for.
pub fn client_message(event: ClientEvent) -> Option<v1::ClientMessage> {
    let event = match event {
        ClientEvent::Start(e) => {
            let (encoding, sample_rate) = wire_format(e.input);
            C::Start(v1::SessionStart {
                client_ref: e.client_ref,
                voice: e.voice,
                encoding: encoding as i32,
                sample_rate,
                tools: e.tools.into_iter().map(|name| v1::Tool { name, description: String::new() }).collect(),
                max_duration_ms: e.max_duration_ms,
                idle_timeout_ms: e.idle_timeout_ms,
            })
        }
        ClientEvent::Audio(e) => {
            C::Audio(v1::AudioFrame { sequence: e.sequence, timestamp_us: e.timestamp_us, payload: e.payload, ack: e.ack, response_id: 0 })
        }
        ClientEvent::Speech(e) => C::Speech(wire_marker(e)),
        ClientEvent::Hint(e) => C::Hint(v1::TurnHint {
            tool: e.tool.unwrap_or_default(),
            response_ms: e.response_ms.unwrap_or_default(),
            text: e.text.unwrap_or_default(),
        }),
        ClientEvent::BargeIn { response, heard_ms } => C::BargeIn(v1::BargeIn { response_id: wire_response(response), heard_ms }),
        ClientEvent::Cancel { response } => C::Cancel(v1::ResponseCancel { response_id: wire_response(response) }),
        ClientEvent::ToolResult { call_id, output, failed } => C::ToolResult(v1::ToolResult { call_id, output, failed }),
        ClientEvent::Context { role, text } => C::Context(v1::ContextUpdate { role, text, response_id: 0, heard_ms: 0 }),
        ClientEvent::End { reason } => C::End(v1::SessionEnd { reason }),
        ClientEvent::Configure(_)
        | ClientEvent::Commit
        | ClientEvent::Discard
        | ClientEvent::Respond(_)
        | ClientEvent::Truncate { .. }
        | ClientEvent::Played { .. }
        | ClientEvent::GiveUp { .. }
        | ClientEvent::Digit(_) => return None,
    };
    Some(v1::ClientMessage { event: Some(event) })
}

/// What a server message says, or what is wrong with it.
pub fn server_event(message: v1::ServerMessage) -> Result<ServerEvent, SessionError> {
    let Some(event) = message.event else { return Err(malformed("the server message holds no event")) };
    Ok(match event {
        S::Accepted(m) => ServerEvent::Accepted(SessionAccepted {
            input: format(m.encoding, m.sample_rate)?,
            output: format(m.encoding, m.sample_rate)?,
            session_id: m.session_id,
            backend_id: m.backend_id,
            boot_id: m.boot_id,
            max_duration_ms: m.max_duration_ms,
            idle_timeout_ms: m.idle_timeout_ms,
        }),
        S::Speech(m) => ServerEvent::Speech(marker(&m)?),
        S::Transcript(m) => ServerEvent::Transcript { turn: TurnId(m.turn), text: m.text, last: m.r#final },
        S::ResponseStart(m) => {
            ServerEvent::ResponseStart { response: ResponseId(m.response_id), turn: TurnId(m.turn), text: String::new() }
        }
        S::Audio(m) => ServerEvent::Audio(AgentAudio {
            sequence: m.sequence,
            timestamp_us: m.timestamp_us,
            payload: m.payload,
            response: ResponseId(m.response_id),
        }),
        S::ResponseEnd(m) => ServerEvent::ResponseEnd { response: ResponseId(m.response_id), status: status(m.status)?, frames: m.frames },
        S::Ack(m) => ServerEvent::Ack { sequence: m.sequence },
        S::ToolCall(m) => ServerEvent::ToolCall { call_id: m.call_id, name: m.name, arguments: m.arguments },
        S::ToolCancel(m) => ServerEvent::ToolCancel { call_id: m.call_id },
        S::Context(m) => ServerEvent::Context { role: m.role, text: m.text, response: some_response(m.response_id), heard_ms: m.heard_ms },
        S::Error(m) => ServerEvent::Error(SessionError { code: error_code(m.code)?, message: m.message, fatal: m.fatal }),
        S::Ended(m) => ServerEvent::Ended(SessionEnded {
            outcome: outcome(m.outcome)?,
            duration_ms: m.duration_ms,
            frames_in: m.frames_in,
            frames_out: m.frames_out,
        }),
    })
}

/// The message of a server event; none for what this protocol has no word for.
pub fn server_message(event: ServerEvent) -> Option<v1::ServerMessage> {
    let event = match event {
        ServerEvent::Accepted(e) => {
            let (encoding, sample_rate) = wire_format(e.output);
            S::Accepted(v1::SessionAccepted {
                session_id: e.session_id,
                backend_id: e.backend_id,
                boot_id: e.boot_id,
                encoding: encoding as i32,
                sample_rate,
                frame_ms: crate::frame::FRAME_MS as u32,
                max_duration_ms: e.max_duration_ms,
                idle_timeout_ms: e.idle_timeout_ms,
            })
        }
        ServerEvent::Speech(e) => S::Speech(wire_marker(e)),
        ServerEvent::Transcript { turn, text, last } => S::Transcript(v1::Transcript { turn: turn.0, text, r#final: last }),
        ServerEvent::ResponseStart { response, turn, .. } => S::ResponseStart(v1::ResponseStart { response_id: response.0, turn: turn.0 }),
        ServerEvent::Audio(e) => S::Audio(v1::AudioFrame {
            sequence: e.sequence,
            timestamp_us: e.timestamp_us,
            payload: e.payload,
            ack: false,
            response_id: e.response.0,
        }),
        ServerEvent::ResponseEnd { response, status, frames } => {
            S::ResponseEnd(v1::ResponseEnd { response_id: response.0, status: wire_status(status) as i32, frames })
        }
        ServerEvent::Ack { sequence } => S::Ack(v1::AudioAck { sequence }),
        ServerEvent::ToolCall { call_id, name, arguments } => S::ToolCall(v1::ToolCall { call_id, name, arguments }),
        ServerEvent::ToolCancel { call_id } => S::ToolCancel(v1::ToolCancel { call_id }),
        ServerEvent::Context { role, text, response, heard_ms } => {
            S::Context(v1::ContextUpdate { role, text, response_id: wire_response(response), heard_ms })
        }
        ServerEvent::Error(e) => S::Error(v1::Error { code: wire_error_code(e.code) as i32, message: e.message, fatal: e.fatal }),
        ServerEvent::Ended(e) => S::Ended(v1::SessionEnded {
            outcome: wire_outcome(e.outcome) as i32,
            duration_ms: e.duration_ms,
            frames_in: e.frames_in,
            frames_out: e.frames_out,
        }),
        ServerEvent::Committed { .. }
        | ServerEvent::Answering { .. }
        | ServerEvent::AnswerDropped { .. }
        | ServerEvent::Mark { .. }
        | ServerEvent::Resumable { .. }
        | ServerEvent::GoingAway { .. } => return None,
    };
    Some(v1::ServerMessage { event: Some(event) })
}

fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn some_response(id: u64) -> Option<ResponseId> {
    (id > 0).then_some(ResponseId(id))
}

fn wire_response(id: Option<ResponseId>) -> u64 {
    id.map_or(0, |r| r.0)
}

fn format(encoding: i32, sample_rate: u32) -> Result<AudioFormat, SessionError> {
    let encoding = v1::AudioEncoding::try_from(encoding).unwrap_or(v1::AudioEncoding::Unspecified);
    match (encoding, sample_rate) {
        (v1::AudioEncoding::Pcm16, 16_000) => Ok(AudioFormat::Pcm16k),
        (v1::AudioEncoding::Pcm16, 24_000) => Ok(AudioFormat::Pcm24k),
        (v1::AudioEncoding::Mulaw, 8_000) => Ok(AudioFormat::Mulaw8k),
        _ => Err(SessionError::fatal(
            ErrorCode::UnsupportedFormat,
            format!(
                "{} at {sample_rate} Hz is not served; use PCM16 at 16000 or 24000 Hz or MULAW at 8000 Hz",
                encoding.as_str_name().trim_start_matches("AUDIO_ENCODING_")
            ),
        )),
    }
}

fn wire_format(format: AudioFormat) -> (v1::AudioEncoding, u32) {
    let encoding = match format {
        AudioFormat::Mulaw8k => v1::AudioEncoding::Mulaw,
        // Only the formats above and these two are the native protocol's: a start with another one is refused by its server.
        _ => v1::AudioEncoding::Pcm16,
    };
    (encoding, format.sample_rate())
}

fn marker(m: &v1::SpeechMarker) -> Result<SpeechMarker, SessionError> {
    let started = match m.kind() {
        v1::speech_marker::Kind::Started => true,
        v1::speech_marker::Kind::Stopped => false,
        v1::speech_marker::Kind::Unspecified => return Err(malformed("speech.kind must be KIND_STARTED or KIND_STOPPED")),
    };
    Ok(SpeechMarker { started, timestamp_us: m.timestamp_us })
}

fn wire_marker(e: SpeechMarker) -> v1::SpeechMarker {
    let kind = if e.started { v1::speech_marker::Kind::Started } else { v1::speech_marker::Kind::Stopped };
    v1::SpeechMarker { kind: kind as i32, timestamp_us: e.timestamp_us }
}

/// Declares both directions of an enum that the wire and the events share, so that neither can miss a value.
macro_rules! both_ways {
    ($decode:ident, $encode:ident, $wire:ty, $event:ty, $field:literal, { $($w:ident = $e:ident),* $(,)? }) => {
        fn $decode(value: i32) -> Result<$event, SessionError> {
            match <$wire>::try_from(value) {
                $(Ok(<$wire>::$w) => Ok(<$event>::$e),)*
                _ => Err(malformed(format!("{} {value} is unknown", $field))),
            }
        }

        fn $encode(value: $event) -> $wire {
            match value {
                $(<$event>::$e => <$wire>::$w,)*
            }
        }
    };
}

both_ways!(status, wire_status, v1::response_end::Status, ResponseStatus, "response status", {
    Completed = Completed, Interrupted = Interrupted, Cancelled = Cancelled, Failed = Failed,
});

both_ways!(outcome, wire_outcome, v1::Outcome, Outcome, "outcome", {
    Completed = Completed, Failed = Failed, Cancelled = Cancelled, TimedOut = TimedOut, Drained = Drained,
});

both_ways!(error_code, wire_error_code, v1::ErrorCode, ErrorCode, "error code", {
    MalformedMessage = MalformedMessage, NotStarted = NotStarted, AlreadyStarted = AlreadyStarted, UnsupportedFormat = UnsupportedFormat,
    BadAudio = BadAudio, MessageTooLarge = MessageTooLarge, SequenceGap = SequenceGap, UnknownToolCall = UnknownToolCall,
    AfterEnd = AfterEnd, InvalidArgument = InvalidArgument, Overloaded = Overloaded, Draining = Draining, Deadline = Deadline,
    Idle = Idle, Internal = Internal,
});

struct Descriptors {
    client: MessageDescriptor,
    server: MessageDescriptor,
}

static DESCRIPTORS: LazyLock<Descriptors> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(crate::DESCRIPTORS).expect("the committed descriptors are those of the schema");
    let message = |name| pool.get_message_by_name(name).expect("the schema declares it");
    Descriptors { client: message("voiceagent.v1.ClientMessage"), server: message("voiceagent.v1.ServerMessage") }
});

fn from_json<M: Message + Default>(descriptor: &MessageDescriptor, text: &str) -> Result<M, SessionError> {
    let error = |e: &dyn std::fmt::Display| malformed(format!("not a {} in protobuf-JSON: {e}", descriptor.full_name()));
    let mut json = serde_json::Deserializer::from_str(text);
    let message =
        DynamicMessage::deserialize_with_options(descriptor.clone(), &mut json, &DeserializeOptions::new()).map_err(|e| error(&e))?;
    json.end().map_err(|e| error(&e))?;
    message.transcode_to().map_err(|e| error(&e))
}

fn to_json<M: Message>(descriptor: &MessageDescriptor, message: &M) -> String {
    let mut dynamic = DynamicMessage::new(descriptor.clone());
    let mut out = Vec::new();
    let options = SerializeOptions::new();
    let written = dynamic
        .transcode_from(message)
        .map_err(|e| e.to_string())
        .and_then(|()| dynamic.serialize_with_options(&mut serde_json::Serializer::new(&mut out), &options).map_err(|e| e.to_string()));
    // Own messages always fit their own descriptor; should they not, the reader gets JSON that says so.
    if let Err(e) = written {
        return format!("{{\"error\":{{\"code\":\"ERROR_CODE_INTERNAL\",\"message\":{e:?}}}}}");
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Decodes a client message from protobuf-JSON.
pub fn client_from_json(text: &str) -> Result<v1::ClientMessage, SessionError> {
    from_json(&DESCRIPTORS.client, text)
}

/// Decodes a server message from protobuf-JSON.
pub fn server_from_json(text: &str) -> Result<v1::ServerMessage, SessionError> {
    from_json(&DESCRIPTORS.server, text)
}

/// A client message as protobuf-JSON.
pub fn client_to_json(message: &v1::ClientMessage) -> String {
    to_json(&DESCRIPTORS.client, message)
}

/// A server message as protobuf-JSON.
pub fn server_to_json(message: &v1::ServerMessage) -> String {
    to_json(&DESCRIPTORS.server, message)
}

#[cfg(test)]
mod tests;
