//! Closed lists: how a session travels and how it ends.

use proto::audio::AudioFormat;
use serde::{Deserialize, Serialize};

/// How a session travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// `voiceagent.v1` over gRPC, one bidi stream a session.
    #[default]
    Grpc,
    /// `voiceagent.v1` over WebSocket, one connection a session.
    Websocket,
}

/// What a scenario's sessions speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// `voiceagent.v1`, over either protocol.
    #[default]
    Native,
    /// `OpenAI` Realtime.
    OpenaiRealtime,
    /// Twilio Media Streams: the driver is the telephone network, the backend is a bot.
    Twilio,
    /// Pipecat's protobuf transport, with RTVI messages.
    Pipecat,
    /// Gemini Live (`BidiGenerateContent`).
    GeminiLive,
    /// Google CES (`BidiRunSession`) over gRPC.
    Ces,
    /// `ElevenLabs` Agents.
    Elevenlabs,
    /// Deepgram Voice Agent.
    Deepgram,
    /// JSON over WebSocket as `custom` describes it.
    Custom,
}

impl Dialect {
    /// In the order of every table.
    pub const ALL: [Self; 9] = [
        Self::Native,
        Self::OpenaiRealtime,
        Self::Twilio,
        Self::Pipecat,
        Self::GeminiLive,
        Self::Ces,
        Self::Elevenlabs,
        Self::Deepgram,
        Self::Custom,
    ];

    /// As in profiles and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::OpenaiRealtime => "openai_realtime",
            Self::Twilio => "twilio",
            Self::Pipecat => "pipecat",
            Self::GeminiLive => "gemini_live",
            Self::Ces => "ces",
            Self::Elevenlabs => "elevenlabs",
            Self::Deepgram => "deepgram",
            Self::Custom => "custom",
        }
    }

    /// The only protocol that carries it; none when the profile may choose.
    pub const fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Native => None,
            Self::Ces => Some(Protocol::Grpc),
            Self::OpenaiRealtime | Self::Twilio | Self::Pipecat | Self::GeminiLive | Self::Elevenlabs | Self::Deepgram | Self::Custom => {
                Some(Protocol::Websocket)
            }
        }
    }

    /// The upgrade of the connection may be the start: a backend may have counted a session whose upgrade never came back. Of what `custom`
    /// describes nobody knows better.
    pub const fn starts_at_upgrade(self) -> bool {
        matches!(self, Self::OpenaiRealtime | Self::Pipecat | Self::Elevenlabs | Self::Custom)
    }

    /// Formats of the caller's and of the agent's audio that it can carry; the first are the usual ones.
    pub const fn formats(self) -> &'static [(AudioFormat, AudioFormat)] {
        use AudioFormat::{Alaw8k, Mulaw8k, Pcm8k, Pcm16k, Pcm24k, Pcm48k};
        const BOTH: [(AudioFormat, AudioFormat); 6] =
            [(Pcm16k, Pcm16k), (Pcm24k, Pcm24k), (Mulaw8k, Mulaw8k), (Alaw8k, Alaw8k), (Pcm8k, Pcm8k), (Pcm48k, Pcm48k)];
        match self {
            Self::Native => &[(Pcm16k, Pcm16k), (Pcm24k, Pcm24k), (Mulaw8k, Mulaw8k)],
            Self::OpenaiRealtime => &[(Pcm24k, Pcm24k), (Mulaw8k, Mulaw8k), (Alaw8k, Alaw8k)],
            Self::Twilio => &[(Mulaw8k, Mulaw8k)],
            Self::Pipecat => &[(Pcm16k, Pcm16k), (Pcm8k, Pcm8k), (Pcm24k, Pcm24k), (Pcm48k, Pcm48k)],
            Self::GeminiLive => &[(Pcm16k, Pcm24k)],
            Self::Ces => &[(Pcm16k, Pcm16k), (Pcm8k, Pcm8k), (Pcm24k, Pcm24k), (Pcm48k, Pcm48k), (Mulaw8k, Mulaw8k), (Alaw8k, Alaw8k)],
            Self::Elevenlabs => &[(Pcm16k, Pcm16k), (Pcm8k, Pcm8k), (Pcm24k, Pcm24k), (Pcm48k, Pcm48k), (Mulaw8k, Mulaw8k)],
            Self::Deepgram | Self::Custom => &BOTH,
        }
    }

    /// The formats of a session whose caller's audio is of this format, or the usual ones.
    pub fn formats_of(self, input: Option<AudioFormat>) -> Option<(AudioFormat, AudioFormat)> {
        let formats = self.formats();
        match input {
            None => formats.first().copied(),
            Some(input) => formats.iter().copied().find(|(one, _)| *one == input),
        }
    }

    /// It says when a response that was said in full is over.
    pub const fn signals_ends(self) -> bool {
        !matches!(self, Self::Twilio | Self::Pipecat | Self::Elevenlabs | Self::Custom)
    }

    /// It always shows what was heard of the user (onsets, turns, transcripts); of the others a session shows it or does not.
    pub const fn shows_what_was_heard(self) -> bool {
        matches!(self, Self::Native | Self::OpenaiRealtime | Self::Deepgram)
    }

    /// It never says where a response begins and ends, or not so that it could be relied on: the caller tells by the audio ([`crate::caller`]).
    pub const fn infers_responses(self) -> bool {
        matches!(self, Self::Twilio | Self::Pipecat | Self::Elevenlabs)
    }
}

/// What a scenario is meant to show although it is no good end: then it is no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The backend is full and refuses sessions.
    Rejected,
    /// The backend's deadline ends sessions.
    TimedOut,
}

/// What the caller claims to have heard of a response that it interrupts, when it does not say the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Claim {
    /// Nothing.
    #[serde(rename = "0ms")]
    Nothing,
    /// More than there was.
    #[serde(rename = "beyond")]
    Beyond,
}

impl Claim {
    /// In milliseconds: longer than any answer.
    pub const fn heard_ms(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Beyond => 3_600_000,
        }
    }
}

/// How a session is made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// Goodbye, and the server's answer.
    #[default]
    Graceful,
    /// gRPC: `RST_STREAM`. WebSocket: a close frame without goodbye.
    Cancel,
    /// The socket is closed in order (FIN), without goodbye.
    TcpFin,
    /// The socket is reset (`SO_LINGER` 0).
    TcpRst,
    /// The peer goes silent; the socket stays.
    HalfOpen,
    /// `kill -9` of the worker process that holds the session.
    KillWorker,
    /// `kill -9` of the backend that holds the session.
    KillBackend,
}

impl EndKind {
    /// In the order of every table.
    pub const ALL: [Self; 7] =
        [Self::Graceful, Self::Cancel, Self::TcpFin, Self::TcpRst, Self::HalfOpen, Self::KillWorker, Self::KillBackend];

    /// As in profiles and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Cancel => "cancel",
            Self::TcpFin => "tcp_fin",
            Self::TcpRst => "tcp_rst",
            Self::HalfOpen => "half_open",
            Self::KillWorker => "kill_worker",
            Self::KillBackend => "kill_backend",
        }
    }

    /// The end takes the whole connection with it, so the session needs one of its own.
    pub const fn needs_own_connection(self) -> bool {
        matches!(self, Self::TcpFin | Self::TcpRst | Self::HalfOpen)
    }
}
