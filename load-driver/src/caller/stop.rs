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

/// How the user interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A message, sent then: the client silences its own loudspeaker with it.
    Message(Edge),
    /// Speech, whose onset is still to come.
    Speech,
}

/// What came of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The agent stopped.
    Yes,
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
    spoken: bool,
    /// The response had been sent in full: only what waits to be played can be stopped.
    sent: bool,
    /// Last audio of the response, or its end.
    last: Micros,
    /// Last audio of the response.
    last_audio: Micros,
    /// The first sign that the server knows of the interruption.
    signal: Option<Micros>,
    /// When the loudspeaker is silent, as far as it is known.
    silent: Micros,
    ended: bool,
}

impl Stop {
    /// `sent`: the server has sent all of the response; `silent`: what came is played until then.
    pub(super) fn new(response: ResponseId, by: By, sent: bool, silent: Micros) -> Self {
        let (from, spoken) = match by {
            By::Message(edge) => (Some(edge), false),
            By::Speech => (None, true),
        };
        let last = from.map_or(Micros::ZERO, |edge| edge.actual);
        Self { response, from, spoken, sent, last, last_audio: last, signal: None, silent, ended: false }
    }

    /// The interrupting speech can be heard; true when this made the interruption.
    pub(super) fn onset(&mut self, edge: Edge) -> bool {
        let made = self.from.is_none();
        if made {
            self.from = Some(edge);
            self.last = edge.actual;
            self.last_audio = edge.actual;
        }
        made
    }

    /// The user interrupts by speech, and can be heard.
    pub(super) fn heard(&self, now: Micros) -> bool {
        self.spoken && self.from.is_some_and(|from| from.intended <= now)
    }

    /// The server shows that it knows; true when this is the first sign.
    pub(super) fn sign(&mut self, now: Micros) -> bool {
        let first = self.signal.is_none() && self.from.is_some_and(|from| from.intended <= now);
        if first {
            self.signal = Some(now);
            if self.sent {
                // There is nothing more to end.
                self.stopped(now);
            }
        }
        first
    }

    /// What came so far will have been played by then.
    pub(super) fn plays_until(&mut self, silent: Micros) {
        self.silent = silent;
    }

    /// Audio of the response came.
    pub(super) fn audio(&mut self, now: Micros) -> Option<Stopped> {
        let from = self.from?;
        self.last = self.last.max(now);
        self.last_audio = self.last_audio.max(now);
        (now > from.actual + BOUND).then_some(Stopped::Never)
    }

    /// The response ended. Some when this settles it.
    pub(super) fn end(&mut self, status: ResponseStatus, now: Micros) -> Option<Stopped> {
        let Some(from) = self.from.filter(|from| from.intended <= now) else { return Some(Stopped::Crossed) };
        match status {
            ResponseStatus::Interrupted | ResponseStatus::Cancelled => {
                self.sign(now);
                self.stopped(now);
                None
            }
            ResponseStatus::Completed if self.last - from.actual >= IGNORED => Some(Stopped::Never),
            ResponseStatus::Completed | ResponseStatus::Failed => Some(Stopped::Crossed),
        }
    }

    /// The agent has fallen silent, and said nothing about it.
    pub(super) fn fell_silent(&mut self) -> Stopped {
        if self.from.is_some() { Stopped::Yes } else { Stopped::Crossed }
    }

    fn stopped(&mut self, now: Micros) {
        self.ended = true;
        self.last = self.last.max(now);
    }

    /// The response had been sent in full before.
    pub(super) fn sent(&self) -> bool {
        self.sent
    }

    /// The agent has ended the response; what still comes is stale.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// When [`Self::settle`] is due.
    pub(super) fn due(&self) -> Micros {
        match self.from {
            None => Micros::NEVER,
            // What still plays is heard out.
            Some(_) if self.ended => (self.last + SETTLE).max(self.silent),
            Some(from) => from.actual + BOUND,
        }
    }

    /// What it has come to.
    pub(super) fn settle(&self) -> Stopped {
        match self.from {
            Some(_) if self.ended => Stopped::Yes,
            Some(from) if self.sent && self.silent <= from.actual + IGNORED => Stopped::Crossed,
            Some(_) => Stopped::Never,
            None => Stopped::Crossed,
        }
    }

    /// The latencies of an agent that stopped (all of them) or did not (its first sign, if it gave one). `now` ends what is not over.
    pub(super) fn samples(&self, stopped: Stopped, now: Micros) -> impl Iterator<Item = Sample> {
        let from = self.from.filter(|_| stopped != Stopped::Crossed);
        let yes = stopped == Stopped::Yes;
        // What is silent by the client's own doing says nothing of the server. What still plays when the session ends is not known.
        let silent = (yes && self.spoken && self.silent <= now).then_some(self.silent);
        [
            (Metric::BargeInStop, yes.then_some(self.last)),
            (Metric::BargeInSignal, self.signal),
            (Metric::BargeInLastPacket, (yes && !self.sent).then_some(self.last_audio)),
            (Metric::BargeInSilent, silent),
        ]
        .into_iter()
        .filter_map(move |(metric, to)| {
            let from = from?;
            Some(Sample { metric, intended: from.intended, actual: from.actual, to: to?.max(from.intended) })
        })
    }
}
