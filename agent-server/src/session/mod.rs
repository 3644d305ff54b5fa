//! The session as a pure state machine: events and time in, effects out.
//!
//! SKELETON: signatures are the contract between modules; the transition table goes here.

use std::{sync::Arc, time::Duration};

use proto::{
    dist::Distribution,
    frame::{ClientEvent, Outcome, ServerEvent, SessionError},
    time::Micros,
};

use crate::tracker::Phase;

/// What every session of a server shares.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Stable name of the backend.
    pub backend_id: String,
    /// New with every process.
    pub boot_id: String,
    /// Time from the end of the user's speech to the first frame of the answer (or to the tool call).
    pub think: Distribution,
    /// Time that a tool cancelled by the client's silence may take before the agent answers without it.
    pub tool_timeout: Duration,
    /// Length of an answer that no hint fixes.
    pub response: Distribution,
    /// Share of turns without a hint that call a declared tool, 0 to 1.
    pub tool_rate: f64,
    /// Silence that ends a user turn.
    pub endpoint_silence: Duration,
    /// RMS on the scale of 16-bit samples above which a frame is speech.
    pub vad_threshold: f32,
    /// Longest life of a session.
    pub max_duration: Duration,
    /// Longest time without any message from the client.
    pub idle_timeout: Duration,
    /// Seeds latencies, texts and voices.
    pub seed: u64,
}

/// What the shell must do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// To the client.
    Send(ServerEvent),
    /// The tracker's phase.
    Phase(Phase),
    /// Charge the synthetic cost of one frame of this phase.
    Cost(Phase),
    /// Count the end, close the stream. The last effect of a session.
    End {
        /// As counted.
        outcome: Outcome,
        /// Present when the stream closes with an error status.
        error: Option<SessionError>,
    },
}

/// One session after its start was admitted.
#[derive(Debug)]
pub struct Session;

impl Session {
    /// `number` seeds this session's own stream of randomness; `start` was validated by [`validate_start`]. Emits `Accepted`.
    pub fn new(
        _config: Arc<SessionConfig>,
        _number: u64,
        _session_id: String,
        _start: proto::frame::SessionStart,
        _now: Micros,
        _out: &mut Vec<Effect>,
    ) -> Self {
        todo!()
    }

    /// An event of the client.
    pub fn on_event(&mut self, _event: ClientEvent, _now: Micros, _out: &mut Vec<Effect>) {
        todo!()
    }

    /// The wire could not be decoded: the error goes to the client; a fatal one ends the session as failed.
    pub fn on_error(&mut self, _error: SessionError, _now: Micros, _out: &mut Vec<Effect>) {
        todo!()
    }

    /// The client's stream ended without goodbye (EOF, reset, close frame): ends as cancelled.
    pub fn on_disconnect(&mut self, _now: Micros, _out: &mut Vec<Effect>) {
        todo!()
    }

    /// The transport's keepalive got no answer: ends as timed out.
    pub fn on_keepalive_timeout(&mut self, _now: Micros, _out: &mut Vec<Effect>) {
        todo!()
    }

    /// The server's drain deadline: ends as drained.
    pub fn on_drain(&mut self, _now: Micros, _out: &mut Vec<Effect>) {
        todo!()
    }

    /// Does what is due by `now` (frames, thinking, deadlines).
    pub fn step(&mut self, _now: Micros, _out: &mut Vec<Effect>) {
        todo!()
    }

    /// When [`Self::step`] must be called next; never later than any deadline of the session.
    pub fn next_wake(&self) -> Micros {
        todo!()
    }

    /// True once `End` was emitted.
    pub fn ended(&self) -> bool {
        todo!()
    }
}

/// Checks a start before admission: names, tools, limits.
pub fn validate_start(_start: &proto::frame::SessionStart) -> Result<(), SessionError> {
    todo!()
}
