//! What happens when, computed before the run from (profile, seed), and split exactly over workers.
//!
//! SKELETON: the types are the contract between modules.

use std::{sync::Arc, time::Duration};

use proto::{audio::AudioFormat, dist::Distribution, ids::PlanIndex, time::Micros};
use serde::{Deserialize, Serialize};

use crate::audio::Utterance;

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

/// How a session is made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// Goodbye, and the server's answer.
    #[default]
    Graceful,
    /// gRPC: RST_STREAM. WebSocket: a close frame without goodbye.
    Cancel,
    /// The socket is closed in order (FIN), without goodbye.
    TcpFin,
    /// The socket is reset (SO_LINGER 0).
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

/// The whole run. Times are microseconds from the start of the run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Names the run on both sides: 8 hex digits.
    pub run_id: String,
    /// Of everything random.
    pub seed: u64,
    /// Statistics begin here.
    pub warmup: Duration,
    /// In the order of the profile.
    pub scenarios: Vec<Arc<ScenarioPlan>>,
}

/// One scenario: who speaks how, and when sessions begin.
#[derive(Debug, Clone)]
pub struct ScenarioPlan {
    /// Position in the plan.
    pub number: u16,
    /// From the profile.
    pub name: String,
    /// Transport.
    pub protocol: Protocol,
    /// Audio of both directions.
    pub format: AudioFormat,
    /// When sessions begin, in order of `start`.
    pub lanes: Vec<Lane>,
    /// Sessions draw one by weight.
    pub conversations: Vec<Conversation>,
    /// Sessions end at the first turn boundary after this long; none runs the conversation once.
    pub session_length: Option<Distribution>,
    /// Sessions draw one by weight.
    pub ends: Vec<(f64, EndKind)>,
    /// For kills by the controller: the run time of the kill.
    pub kill_at: Option<Micros>,
    /// Sessions may run this long past their lane's stop to finish; then they are ended gracefully.
    pub graceful_stop: Duration,
    /// Only this backend (index into the targets).
    pub backend: Option<usize>,
    /// Each session on a connection of its own (WebSocket always is).
    pub own_connection: bool,
    /// Share of the session in which the user speaks; fixes the silence between turns.
    pub speaking_ratio: Option<f64>,
    /// Send frames of silence while silent (a real microphone) instead of nothing.
    pub send_silence: bool,
    /// Send explicit speech markers (the server's detector is overridden).
    pub markers: bool,
    /// A frame in so many asks for an acknowledgement; 0 asks for none.
    pub ack_every: u32,
    /// Longest wait for an answer before the turn counts as missed.
    pub response_timeout: Duration,
    /// Longest wait from dial to acceptance.
    pub start_timeout: Duration,
    /// Refusals are what this scenario is for: they are no errors.
    pub expect_rejected: bool,
}

/// A place in time where sessions begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Position in the scenario.
    pub number: u32,
    /// First session begins here.
    pub start: Micros,
    /// No session begins here or later; running ones get `graceful_stop` to finish.
    pub stop: Micros,
    /// Closed model: when a session ends the next begins. Open model: one session.
    pub repeat: bool,
}

/// What a session does, turn by turn.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// Relative.
    pub weight: f64,
    /// In order; repeated from the top while the session length lasts.
    pub turns: Vec<TurnTemplate>,
}

/// A turn before its times are drawn.
#[derive(Debug, Clone)]
pub struct TurnTemplate {
    /// Before the user speaks.
    pub wait: WaitTemplate,
    /// One is drawn; none is a turn of silence only.
    pub says: Vec<Arc<Utterance>>,
    /// What is special.
    pub act: ActTemplate,
    /// Length of the answer that the mock is asked for.
    pub response: Option<Distribution>,
}

/// When a turn begins.
#[derive(Debug, Clone)]
pub enum WaitTemplate {
    /// So long after the previous turn's end.
    After(Distribution),
    /// At this time of the run: everybody at once.
    At(Micros),
}

/// What is special in a turn.
#[derive(Debug, Clone)]
pub enum ActTemplate {
    /// Listen to the answer.
    Listen,
    /// Interrupt so long after the first audio of the answer.
    BargeIn {
        /// From the first agent frame.
        after: Distribution,
        /// By message; else by speaking (`says` of the interruption).
        explicit: bool,
        /// What is said over the agent; it is the next thing answered.
        says: Vec<Arc<Utterance>>,
    },
    /// Cancel the response so long after its first audio.
    Cancel {
        /// From the first agent frame.
        after: Distribution,
    },
    /// The agent calls this tool; the caller takes so long to answer.
    Tool {
        /// Declared at the session's start.
        name: String,
        /// Caller's time.
        takes: Distribution,
    },
}

/// One session of the plan; everything in it follows from (profile, seed, index).
#[derive(Debug, Clone)]
pub struct SessionPlan {
    /// Names it.
    pub index: PlanIndex,
    /// Run time at which it should begin.
    pub start: Micros,
    /// The scenario it belongs to.
    pub scenario: Arc<ScenarioPlan>,
    /// Of the plan.
    pub seed: u64,
    /// Index into the scenario's conversations.
    pub conversation: usize,
    /// Drawn.
    pub length: Option<Duration>,
    /// Drawn.
    pub end: EndKind,
    /// Sent to the backend: `run-index`.
    pub client_ref: String,
}

/// A turn with its times drawn.
#[derive(Debug, Clone)]
pub struct TurnPlan {
    /// When it begins.
    pub wait: Wait,
    /// What the user says.
    pub says: Option<Arc<Utterance>>,
    /// What is special.
    pub act: Act,
    /// Length of the answer asked for.
    pub response_ms: Option<u32>,
}

/// As [`WaitTemplate`], drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// So long after the previous turn's end.
    After(Duration),
    /// At this time of the run.
    At(Micros),
    /// So long after the previous turn's begin, or when its answer is over if that is later.
    Cycle(Duration),
}

/// As [`ActTemplate`], drawn.
#[derive(Debug, Clone)]
pub enum Act {
    /// Listen to the answer.
    Listen,
    /// Interrupt.
    BargeIn {
        /// From the first agent frame.
        after: Duration,
        /// By message, not by speech.
        explicit: bool,
        /// What is said over the agent.
        says: Option<Arc<Utterance>>,
    },
    /// Cancel.
    Cancel {
        /// From the first agent frame.
        after: Duration,
    },
    /// Expect and answer a tool call.
    Tool {
        /// Its name.
        name: String,
        /// Caller's time.
        takes: Duration,
    },
}

impl Plan {
    /// Session `iteration` of a lane, to begin at `start`. Pure.
    pub fn session(&self, _scenario: usize, _lane: u32, _iteration: u32, _start: Micros) -> SessionPlan {
        todo!()
    }

    /// The part of worker `worker` of `workers`: lanes dealt round; the parts add up to the whole.
    pub fn split(&self, _worker: usize, _workers: usize) -> Self {
        todo!()
    }
}

impl SessionPlan {
    /// Turn `n`, or none when the conversation is over. Pure: the same `n` gives the same turn.
    pub fn turn(&self, _n: u32) -> Option<TurnPlan> {
        todo!()
    }

    /// Tools to declare at the start: those of the conversation.
    pub fn tools(&self) -> Vec<String> {
        todo!()
    }
}
