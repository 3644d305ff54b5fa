//! Closed lists: how a session travels and how it ends.

use proto::audio::AudioFormat;
use serde::{Deserialize, Serialize};

use super::TurnDetection;

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

impl Protocol {
    /// As in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Websocket => "websocket",
        }
    }
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

    /// No message of the backend says that it took the session: the driver says it in its name when the way is open, and the backend may count it a
    /// little later.
    pub const fn implies_acceptance(self) -> bool {
        matches!(self, Self::Twilio | Self::Ces | Self::Custom)
    }

    /// A session's start can ask for a deadline of its own.
    pub const fn asks_for_deadlines(self) -> bool {
        matches!(self, Self::Native)
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

    /// What a caller can say in it, where turns are found so. `custom` says what its templates say: see the profile.
    pub const fn capabilities(self, turn_detection: TurnDetection) -> Capabilities {
        let manual = matches!(turn_detection, TurnDetection::None);
        let none = Capabilities {
            commit: false,
            interrupt: false,
            cancel: false,
            heard_ms: false,
            markers: false,
            dtmf: false,
            tools: true,
            resume: false,
        };
        match self {
            Self::Native => Capabilities { interrupt: true, cancel: true, heard_ms: true, markers: true, ..none },
            Self::OpenaiRealtime => Capabilities { commit: true, interrupt: true, cancel: true, heard_ms: true, ..none },
            Self::Twilio => Capabilities { dtmf: true, tools: false, ..none },
            Self::Pipecat => Capabilities { interrupt: true, cancel: true, dtmf: true, ..none },
            // The begin of the caller's activity interrupts; where the server finds the turns it takes no markers.
            Self::GeminiLive => Capabilities { commit: true, interrupt: manual, markers: manual, resume: true, ..none },
            Self::Ces => Capabilities { dtmf: true, ..none },
            Self::Deepgram => Capabilities { commit: true, ..none },
            Self::Elevenlabs | Self::Custom => none,
        }
    }

    /// Keys of `agent` that mean something to it, beside `greets`, which is the caller's.
    pub const fn agent_keys(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["voice", "turn_detection"],
            Self::OpenaiRealtime => &["model", "voice", "instructions", "turn_detection", "beta"],
            Self::Twilio => &[],
            Self::Pipecat => &["without_rtvi"],
            Self::GeminiLive | Self::Deepgram => &["model", "voice", "instructions", "turn_detection"],
            Self::Ces => &["id"],
            Self::Elevenlabs => &["id", "voice", "instructions"],
            Self::Custom => &["model", "id", "voice", "instructions", "turn_detection"],
        }
    }

    /// It can leave turns to a backend that finds them by what was said.
    pub const fn detects_by_meaning(self) -> bool {
        matches!(self, Self::OpenaiRealtime)
    }

    /// What was sent in full and is still being played can be truncated.
    pub const fn truncates_played(self) -> bool {
        matches!(self, Self::OpenaiRealtime)
    }

    /// The wire names the response that audio belongs to; elsewhere what goes on after an interruption passes for a new response, and only a
    /// finding says something.
    pub const fn tells_old_audio(self) -> bool {
        matches!(self, Self::Native | Self::OpenaiRealtime)
    }

    /// An onset of speech that the backend tells gives up the answers that have not begun. Others say so, or may go on with them.
    pub const fn onset_drops_answers(self) -> bool {
        matches!(self, Self::Native)
    }

    /// The end of a response that the user interrupts is told by the onset alone, which comes whether anything was interrupted or not.
    pub const fn ends_by_onset(self) -> bool {
        matches!(self, Self::Deepgram)
    }

    /// Every response has a name; elsewhere 0 is one without.
    pub const fn names_every_response(self) -> bool {
        matches!(self, Self::Native)
    }

    /// The backend numbers the agent's audio; elsewhere the driver does it as it arrives, and no gap can be seen.
    pub const fn numbers_audio(self) -> bool {
        matches!(self, Self::Native)
    }

    /// The goodbye is answered, after everything that was to be said before it.
    pub const fn answers_goodbye(self) -> bool {
        matches!(self, Self::Native)
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

/// What a dialect has words for. What it has none for cannot happen, and a run that waited for it would only count misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of its own")]
pub struct Capabilities {
    /// The caller's turn is over: without a detector (`turn_detection: none`).
    pub commit: bool,
    /// The caller interrupts by message.
    pub interrupt: bool,
    /// The answer is not wanted.
    pub cancel: bool,
    /// How much of the interrupted answer was heard.
    pub heard_ms: bool,
    /// The caller's speech begins and ends.
    pub markers: bool,
    /// Keys of a telephone.
    pub dtmf: bool,
    /// Calls of tools and their results.
    pub tools: bool,
    /// A session that goes on from another.
    pub resume: bool,
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
