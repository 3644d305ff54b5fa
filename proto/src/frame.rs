//! The events of a voice session as the state machines see them, whatever the dialect on the wire.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    audio::AudioFormat,
    ids::{ResponseId, SessionId, TurnId},
};

/// Audio travels in frames of this many milliseconds, in real time.
pub const FRAME_MS: u64 = 20;
/// [`FRAME_MS`] in microseconds.
pub const FRAME_US: u64 = FRAME_MS * 1_000;
/// Largest message that either side takes, in bytes, over every transport.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Longest client reference, voice, tool name and tool call id, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Most tools that a session may declare.
pub const MAX_TOOLS: usize = 32;
/// Longest free text (tool output, context, reason), in bytes.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// HTTP header in which a client names its session, where the dialect has no field for that.
pub const CLIENT_REF_HEADER: &str = "x-client-ref";
/// HTTP header in which a server names itself ([`SessionAccepted::backend_id`]), whatever the dialect.
pub const BACKEND_ID_HEADER: &str = "x-backend-id";
/// HTTP header in which a server names its process ([`SessionAccepted::boot_id`]), whatever the dialect.
pub const BOOT_ID_HEADER: &str = "x-boot-id";

/// What a client says.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// Opens the session; the first event.
    Start(SessionStart),
    /// Changes what holds for the session from here on.
    Configure(Box<SessionSettings>),
    /// 20 ms of user audio.
    Audio(ClientAudio),
    /// The client's own detector: overrides the server's for the rest of the session.
    Speech(SpeechMarker),
    /// What the mock should understand from the coming turn.
    Hint(TurnHint),
    /// The user's turn is over, says the client: what was heard since the last turn is one. Needs no detector.
    Commit,
    /// What was heard since the last turn is forgotten.
    Discard,
    /// Answer now, whatever was heard. A greeting when nothing was.
    Respond(ResponseWish),
    /// The user interrupts; `response` 0 or absent means whatever is under way.
    BargeIn {
        /// The response that is interrupted.
        response: Option<ResponseId>,
        /// Milliseconds of it that were played.
        heard_ms: u32,
    },
    /// Stop the response, say nothing more until the next turn.
    Cancel {
        /// The response that is stopped.
        response: Option<ResponseId>,
    },
    /// So much of a response that was interrupted was played, and no more will be.
    Truncate {
        /// The response.
        response: ResponseId,
        /// Milliseconds of it that were played.
        heard_ms: u32,
    },
    /// What the agent sent before this mark was played, or thrown away.
    Played {
        /// As in [`ServerEvent::Mark`].
        name: String,
    },
    /// A response was heard, and its end is waited for no longer: what comes after the next words of the user is another, whatever the wire tells.
    GiveUp {
        /// The response.
        response: ResponseId,
    },
    /// A key of the telephone: `0` to `9`, `*`, `#`, `A` to `D`.
    Digit(char),
    /// Answer to a tool call.
    ToolResult {
        /// As in the call.
        call_id: String,
        /// Free text or JSON.
        output: String,
        /// The tool failed.
        failed: bool,
    },
    /// Adds text to the context.
    Context {
        /// `user`, `agent` or `system`.
        role: String,
        /// The text.
        text: String,
    },
    /// The client is done.
    End {
        /// For the log.
        reason: String,
    },
}

/// Opens a session.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionStart {
    /// The client's name for the session.
    pub client_ref: String,
    /// Seeds the agent's voice; empty takes the default.
    pub voice: String,
    /// Of the client's audio.
    pub input: AudioFormat,
    /// Of the agent's audio.
    pub output: AudioFormat,
    /// Names of the tools that the agent may call.
    pub tools: Vec<String>,
    /// How turns are found and taken.
    pub turns: TurnTaking,
    /// Longest life asked for, ms; 0 takes the server's.
    pub max_duration_ms: u32,
    /// The server's longest life where nobody has set it, ms; 0 takes the one that is usual. No wish of a client's: dialects know it.
    pub default_duration_ms: u32,
    /// Longest silence asked for, ms; 0 takes the server's.
    pub idle_timeout_ms: u32,
    /// So long before the longest life is over, or a tenth of it if that is less, the client is told ([`ServerEvent::GoingAway`]), ms; 0: it is
    /// not told.
    pub warning_ms: u32,
    /// Handle of the session that this one goes on from ([`ServerEvent::Resumable`]); empty for one that begins.
    pub resume: String,
}

/// What may change while a session lives; absent fields leave what holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionSettings {
    /// Of the client's audio.
    pub input: Option<AudioFormat>,
    /// Of the agent's audio, from the next response on.
    pub output: Option<AudioFormat>,
    /// Seeds the agent's voice.
    pub voice: Option<String>,
    /// Names of all tools that the agent may call.
    pub tools: Option<Vec<String>>,
    /// How turns are found and taken.
    pub turns: Option<TurnTaking>,
}

/// How the user's turns are found, and what is done about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four switches that clients of real backends set one by one")]
pub struct TurnTaking {
    /// The server's detector finds where speech begins and ends. Without it the client commits its turns, or marks its speech.
    pub detect: bool,
    /// Every turn that was detected or marked is answered; else the client asks for each answer.
    pub respond: bool,
    /// The user's speech stops the agent's answer.
    pub interrupt: bool,
    /// Silence that ends a turn, ms; 0 takes the server's.
    pub silence_ms: u32,
    /// A tool's result is answered at once; else the client asks for the answer, however long it takes.
    pub resume: bool,
}

impl Default for TurnTaking {
    fn default() -> Self {
        Self { detect: true, respond: true, interrupt: true, silence_ms: 0, resume: true }
    }
}

/// How an answer that the client asks for shall be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseWish {
    /// Whether, and which, tool is called first.
    pub tool: ToolChoice,
    /// What is answered, where the client wrote it.
    pub text: Option<String>,
}

/// Which tool an answer calls first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The agent's own choice.
    #[default]
    Auto,
    /// None.
    Never,
    /// Any of the declared.
    Any,
    /// This one.
    Named(String),
}

/// A frame of user audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAudio {
    /// From 0, without gaps.
    pub sequence: u64,
    /// Media time, microseconds.
    pub timestamp_us: u64,
    /// Encoded samples.
    pub payload: Bytes,
    /// Asks for an acknowledgement.
    pub ack: bool,
}

/// Start or end of user speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeechMarker {
    /// True at onset, false at the end.
    pub started: bool,
    /// Media time of the client's audio, microseconds.
    pub timestamp_us: u64,
}

/// What the mock should understand from the coming turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnHint {
    /// Tool to call before answering.
    pub tool: Option<String>,
    /// Length of the answer, ms; absent draws it.
    pub response_ms: Option<u32>,
    /// What the user says.
    pub text: Option<String>,
}

/// What an agent says.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// The session counts from here.
    Accepted(SessionAccepted),
    /// The server's detector heard speech begin or end.
    Speech(SpeechMarker),
    /// What was understood so far.
    Transcript {
        /// User turn.
        turn: TurnId,
        /// All of it, not a delta.
        text: String,
        /// No more will come for this turn.
        last: bool,
    },
    /// The user's turn was taken, detected, marked or committed.
    Committed {
        /// From 1; 0 for a turn without number.
        turn: TurnId,
    },
    /// The agent works at an answer, after a turn, a wish or a tool's result. What comes of it: [`Self::ResponseStart`], [`Self::ToolCall`] or
    /// [`Self::AnswerDropped`].
    Answering {
        /// The turn that is answered.
        turn: TurnId,
    },
    /// The answer was given up before anything of it was heard.
    AnswerDropped {
        /// The turn that was answered.
        turn: TurnId,
        /// Why.
        status: ResponseStatus,
    },
    /// The agent begins to answer.
    ResponseStart {
        /// From 1.
        response: ResponseId,
        /// The turn that it answers; 0 when the dialect does not say.
        turn: TurnId,
        /// All that will be said; empty when the dialect does not say.
        text: String,
    },
    /// 20 ms of agent audio.
    Audio(AgentAudio),
    /// The agent stopped.
    ResponseEnd {
        /// Which.
        response: ResponseId,
        /// Why.
        status: ResponseStatus,
        /// Audio frames sent for it.
        frames: u32,
    },
    /// A frame that asked for it has arrived.
    Ack {
        /// Of the client's frame.
        sequence: u64,
    },
    /// The agent wants a tool's result.
    ToolCall {
        /// Names the call within the session.
        call_id: String,
        /// The tool.
        name: String,
        /// A JSON object.
        arguments: String,
    },
    /// The agent no longer wants it.
    ToolCancel {
        /// As in the call.
        call_id: String,
    },
    /// What the context holds after a truncation.
    Context {
        /// Whose words.
        role: String,
        /// What stays.
        text: String,
        /// The response that was truncated.
        response: Option<ResponseId>,
        /// Milliseconds of it that stay.
        heard_ms: u32,
    },
    /// Tell when what was sent before this was played.
    Mark {
        /// For the answer, [`ClientEvent::Played`].
        name: String,
    },
    /// What was said so far can be gone on from in another session, under this handle; an older one is worth no more.
    Resumable {
        /// For [`SessionStart::resume`].
        handle: String,
    },
    /// The session will end soon, and not by the client.
    GoingAway {
        /// Milliseconds until then.
        left_ms: u32,
    },
    /// Something was wrong.
    Error(SessionError),
    /// The last event of a session that ends in order.
    Ended(SessionEnded),
}

/// The session was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionAccepted {
    /// The server's name for it.
    pub session_id: SessionId,
    /// Stable over restarts.
    pub backend_id: String,
    /// New with every process.
    pub boot_id: String,
    /// Agreed format of the client's audio.
    pub input: AudioFormat,
    /// Agreed format of the agent's audio.
    pub output: AudioFormat,
    /// Longest life, ms.
    pub max_duration_ms: u32,
    /// Longest silence, ms.
    pub idle_timeout_ms: u32,
}

/// A frame of agent audio: 20 ms in the native dialect, any length of whole samples in others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAudio {
    /// From 0 over the session, without gaps.
    pub sequence: u64,
    /// Media time, microseconds.
    pub timestamp_us: u64,
    /// Encoded samples.
    pub payload: Bytes,
    /// What it belongs to; 0 when the dialect does not say.
    pub response: ResponseId,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// Said in full.
    Completed,
    /// Barge-in.
    Interrupted,
    /// The client cancelled it.
    Cancelled,
    /// The backend failed.
    Failed,
}

/// Why a session or message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Not a message of the protocol.
    MalformedMessage,
    /// Something before the start.
    NotStarted,
    /// A second start.
    AlreadyStarted,
    /// Encoding or sample rate that is not served.
    UnsupportedFormat,
    /// Odd PCM length, empty or overlong frame.
    BadAudio,
    /// Over [`MAX_MESSAGE_BYTES`].
    MessageTooLarge,
    /// Frames are missing or repeated.
    SequenceGap,
    /// No such call is open.
    UnknownToolCall,
    /// Something after the end.
    AfterEnd,
    /// A field out of its limits.
    InvalidArgument,
    /// Admission refused.
    Overloaded,
    /// The server is going away.
    Draining,
    /// The session's deadline passed.
    Deadline,
    /// Nothing came for too long.
    Idle,
    /// The server's own fault.
    Internal,
}

/// An error of a session, in words for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    /// For programs.
    pub code: ErrorCode,
    /// What, where, what to do.
    pub message: String,
    /// The session ends with it.
    pub fatal: bool,
}

impl SessionError {
    /// An error that ends the session.
    pub fn fatal(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), fatal: true }
    }

    /// An error that the session survives.
    pub fn warning(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), fatal: false }
    }
}

/// How a session ended: exactly one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Both sides said goodbye.
    Completed,
    /// A protocol error of the client or a fault of the server.
    Failed,
    /// The peer went away or cancelled without goodbye.
    Cancelled,
    /// Deadline, idle or keepalive timeout.
    TimedOut,
    /// The server went away in order.
    Drained,
}

impl Outcome {
    /// In the order of the wire and of every table.
    pub const ALL: [Self; 5] = [Self::Completed, Self::Failed, Self::Cancelled, Self::TimedOut, Self::Drained];

    /// As in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Drained => "drained",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The last event of an orderly session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionEnded {
    /// How it was counted.
    pub outcome: Outcome,
    /// Milliseconds from acceptance.
    pub duration_ms: u64,
    /// Audio frames received.
    pub frames_in: u64,
    /// Audio frames sent.
    pub frames_out: u64,
}
