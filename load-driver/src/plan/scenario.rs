//! What the callers of a scenario do and when they begin: templates whose times are not drawn yet.

use std::{sync::Arc, time::Duration};

use proto::{dist::Distribution, time::Micros};

use super::{Claim, EndKind, Expect, Protocol, Service, TurnDetection};
use crate::audio::Utterance;

/// One scenario: who speaks how, and when sessions begin.
#[derive(Debug, Clone)]
pub struct ScenarioPlan {
    /// Position in the plan.
    pub number: u16,
    /// From the profile.
    pub name: String,
    /// Transport.
    pub protocol: Protocol,
    /// What is spoken to whom.
    pub service: Arc<Service>,
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
    /// What this scenario is for: no error.
    pub expect: Option<Expect>,
    /// When the run itself has backends of it drain: from, to.
    pub drains: Vec<(Micros, Micros)>,
}

impl ScenarioPlan {
    /// The plan itself is what makes the backend end a session now, or may be.
    pub fn wants_ends(&self, now: Micros) -> bool {
        self.expect == Some(Expect::TimedOut) || self.drains.iter().any(|(from, to)| (*from..=*to).contains(&now))
    }

    /// Callers say where their turns are over, and ask for the answers: nobody else finds them.
    pub fn commits(&self) -> bool {
        self.service.agent.turn_detection == TurnDetection::None && !self.markers
    }
}

/// A place in time where sessions begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Position in the scenario.
    pub number: u32,
    /// First session begins here.
    pub start: Micros,
    /// No session begins here or later.
    pub stop: Micros,
    /// Closed model: when a session ends the next begins. Open model: one session.
    pub repeat: bool,
    /// A running session gets this long past `stop` to finish; then it is ended gracefully.
    pub grace: Duration,
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
    /// Keys that are pressed when it begins; empty for none.
    pub dtmf: Arc<str>,
}

/// When a turn begins.
#[derive(Debug, Clone)]
pub enum WaitTemplate {
    /// So long after the previous turn's end.
    After(Distribution),
    /// At this time of the run: everybody at once.
    At(Micros),
    /// As `speaking_ratio` wants it: so much of the previous turn's speech over the ratio after its begin.
    Ratio(f64),
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
        /// What is claimed to have been heard; none: the truth.
        heard: Option<Claim>,
        /// What is said over the agent; it is the next thing answered.
        says: Vec<Arc<Utterance>>,
    },
    /// Speak again, whether the agent has begun or not; it interrupts what is said by then.
    SpeakAgain {
        /// From the end of the user's speech.
        after: Distribution,
        /// What is said; it is the next thing answered.
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
