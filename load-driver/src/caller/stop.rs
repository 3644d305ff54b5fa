//! From an interruption to the agent's silence.

use std::time::Duration;

use proto::{frame::ResponseStatus, ids::ResponseId, time::Micros};

use super::mouth::Edge;
use crate::record::{Metric, Sample};

/// An agent that has not stopped by then never does.
const BOUND: Duration = Duration::from_secs(3);
/// The agent has stopped when nothing of the response came for so long after its end.
const SETTLE: Duration = Duration::from_millis(500);
/// A response that goes on for so long after the interruption and then ends by itself was not stopped; one that ends sooner crossed
/// the interruption on the wire and says nothing.
const IGNORED: Duration = Duration::from_millis(500);

/// What came of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The agent stopped, so late.
    After(Sample),
    /// It never stopped.
    Never,
    /// The response was over before the interruption could reach it.
    Crossed,
}

/// An interruption whose effect is awaited.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) response: ResponseId,
    /// The interruption; none until the interrupting speech can be heard.
    from: Option<Edge>,
    /// Last audio of the response, or its end.
    last: Micros,
    ended: bool,
}

impl Stop {
    /// `from` is absent for an interruption by speech whose onset is still to come.
    pub(super) fn new(response: ResponseId, from: Option<Edge>) -> Self {
        Self { response, from, last: from.map_or(Micros::ZERO, |edge| edge.actual), ended: false }
    }

    /// The interrupting speech can be heard; true when this made the interruption.
    pub(super) fn onset(&mut self, edge: Edge) -> bool {
        let made = self.from.is_none();
        if made {
            self.from = Some(edge);
            self.last = edge.actual;
        }
        made
    }

    /// A frame of the response came.
    pub(super) fn audio(&mut self, now: Micros) -> Option<Stopped> {
        let from = self.from?;
        self.last = self.last.max(now);
        (now > from.actual + BOUND).then_some(Stopped::Never)
    }

    /// The response ended. Some when this settles it.
    pub(super) fn end(&mut self, status: ResponseStatus, now: Micros) -> Option<Stopped> {
        let Some(from) = self.from.filter(|from| from.intended <= now) else { return Some(Stopped::Crossed) };
        match status {
            ResponseStatus::Interrupted | ResponseStatus::Cancelled => {
                self.ended = true;
                self.last = self.last.max(now);
                None
            }
            ResponseStatus::Completed if self.last - from.actual >= IGNORED => Some(Stopped::Never),
            ResponseStatus::Completed | ResponseStatus::Failed => Some(Stopped::Crossed),
        }
    }

    /// When [`Self::settle`] is due.
    pub(super) fn due(&self) -> Micros {
        match self.from {
            None => Micros::NEVER,
            Some(_) if self.ended => self.last + SETTLE,
            Some(from) => from.actual + BOUND,
        }
    }

    /// What it has come to.
    pub(super) fn settle(&self) -> Stopped {
        match self.from {
            Some(from) if self.ended => {
                Stopped::After(Sample { metric: Metric::BargeInStop, intended: from.intended, actual: from.actual, to: self.last })
            }
            Some(_) => Stopped::Never,
            None => Stopped::Crossed,
        }
    }
}
