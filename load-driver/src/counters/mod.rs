//! Where the counters of a backend are read. A source is one file: an implementation of [`CounterSource`].

mod access;
mod agent_server;
mod plausible;
mod sample;

#[cfg(test)]
mod tests;

use std::{future::Future, pin::Pin};

pub use access::Access;
pub use agent_server::AgentServerSource;
pub use sample::{CounterError, CounterSample};

/// What one poll gives.
pub type PollResult = Result<CounterSample, CounterError>;

/// Reads the counters of one backend. A poll ends within a bound of the source's own; an error is a gap to record, not a reason to stop.
pub trait CounterSource: Send {
    /// One look. `registry` also lists the live sessions, which costs more: for the end of a run.
    fn poll(&mut self, registry: bool) -> Pin<Box<dyn Future<Output = PollResult> + Send + '_>>;
}
