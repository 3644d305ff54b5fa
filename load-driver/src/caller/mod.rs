//! A synthetic person as a pure state machine: events and time in, actions out.
//!
//! SKELETON: signatures are the contract between modules; the transition table goes here.

use proto::{
    frame::{ClientEvent, ServerEvent},
    time::Micros,
};

use crate::{
    ledger::{FailureCause, Finish},
    plan::{EndKind, SessionPlan},
    record::{Counter, Sample},
};

/// What the shard must do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// To the backend.
    Send(ClientEvent),
    /// End the stream this way now (abrupt kinds; for graceful the caller sends `End` itself and waits for the answer).
    Force(EndKind),
    /// Stop waiting: drop the stream. The session is over for the caller.
    Drop,
    /// Into the histograms.
    Measure(Sample),
    /// Into the counters.
    Count(Counter, u64),
    /// Into the ledger: accepted.
    Accepted(proto::frame::SessionAccepted),
    /// Into the ledger: over, after acceptance. The last action, beside counts and samples.
    Ended(Finish),
    /// Into the ledger: over, never accepted. The last action, beside counts and samples.
    Failed(FailureCause),
}

/// One synthetic person in one session.
#[derive(Debug)]
pub struct Caller;

impl Caller {
    /// `now` is when the shard began to dial (the plan's `start` is when it should have).
    pub fn new(_plan: SessionPlan, _now: Micros) -> Self {
        todo!()
    }

    /// The transport is ready (TCP + HTTP/2 or WebSocket upgrade); `fresh` when a connection was dialled for it. Sends the start.
    pub fn on_connected(&mut self, _fresh: bool, _now: Micros, _out: &mut Vec<Action>) {
        todo!()
    }

    /// Something from the backend.
    pub fn on_event(&mut self, _event: ServerEvent, _now: Micros, _out: &mut Vec<Action>) {
        todo!()
    }

    /// The transport could not be had, or ended: `cause` tells how.
    pub fn on_closed(&mut self, _cause: FailureCause, _now: Micros, _out: &mut Vec<Action>) {
        todo!()
    }

    /// Ends the session in order at the next opportunity, by `deadline` at the latest.
    pub fn stop(&mut self, _deadline: Micros, _now: Micros, _out: &mut Vec<Action>) {
        todo!()
    }

    /// Does what is due by `now`.
    pub fn step(&mut self, _now: Micros, _out: &mut Vec<Action>) {
        todo!()
    }

    /// When [`Self::step`] must be called next.
    pub fn next_wake(&self) -> Micros {
        todo!()
    }

    /// The plan of the session.
    pub fn plan(&self) -> &SessionPlan {
        todo!()
    }

    /// The user is speaking now.
    pub fn speaking(&self) -> bool {
        todo!()
    }

    /// True once `Ended` or `Failed` was emitted.
    pub fn over(&self) -> bool {
        todo!()
    }
}
