//! Where the counters of a backend are read. A source is one file and one entry of [`of`]: an implementation of [`CounterSource`], or of
//! [`Fetch`] where what is read are sums alone.

mod access;
mod agent_server;
mod command;
mod counts;
mod exposition;
mod gather;
mod http;
mod json;
mod orca;
mod plausible;
mod prometheus;
mod sample;
mod secrets;
mod shows;

#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod tests;

use std::{future::Future, pin::Pin, time::Duration};

use ::agent_server::runtime::clock::Clock;

pub use self::{
    access::Access,
    agent_server::AgentServerSource,
    counts::{Counts, Document, Number},
    gather::GatheredSource,
    sample::{CounterError, CounterSample, Observation, TotalsSample},
    shows::Shows,
};
use crate::profile::{CounterKind, Counters, Site};

/// What one poll gives.
pub type PollResult = Result<Observation, CounterError>;

/// Reads counters. A poll ends within a bound of the source's own; an error is a gap to record, not a reason to stop.
pub trait CounterSource: Send {
    /// One look. `registry` also lists the live sessions, where there is a list, which costs more: for the end of a run.
    fn poll(&mut self, registry: bool) -> Pin<Box<dyn Future<Output = PollResult> + Send + '_>>;
}

/// A document, or why there is none.
pub type FetchResult = Result<Box<dyn Document>, CounterError>;

/// Reads a document in which sums have places.
pub trait Fetch: Send {
    /// Where it is read, for people: without secrets.
    fn shown(&self) -> String;

    /// The document as it is now.
    fn fetch(&mut self) -> Pin<Box<dyn Future<Output = FetchResult> + Send + '_>>;
}

/// What a source of sums needs to be opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// The profile's word for it.
    pub counters: &'a Counters,
    /// Whose sums.
    pub site: &'a Site,
    /// Bounds a poll.
    pub timeout: Duration,
}

/// The URL for this backend, as the profile gives it.
fn url_of<'a>(opening: &Opening<'a>) -> Option<&'a str> {
    let urls = &opening.counters.url.0;
    let at = if urls.len() > 1 { opening.site.index } else { 0 };
    urls.get(at).map(String::as_str)
}

/// What is wrong with a place in the documents of this source.
pub fn check_place(kind: CounterKind, place: &str) -> Result<(), String> {
    match kind {
        CounterKind::AgentServer => Ok(()),
        CounterKind::Prometheus => prometheus::check_place(place),
        CounterKind::Json | CounterKind::Command => json::check_place(place),
        CounterKind::Orca => orca::check_place(place),
    }
}

/// Both name one place in the documents of this source.
pub fn is_same_place(kind: CounterKind, one: &str, other: &str) -> bool {
    one == other || kind == CounterKind::Prometheus && prometheus::is_same_place(one, other)
}

fn open(opening: &Opening<'_>) -> Result<Box<dyn Fetch>, CounterError> {
    match opening.counters.source {
        CounterKind::Prometheus => prometheus::open(opening),
        CounterKind::Json => json::open(opening),
        CounterKind::Orca => orca::open(opening),
        CounterKind::Command => command::open(opening),
        CounterKind::AgentServer => Err(CounterError::Unusable("an agent-server's counters are no document of sums".to_owned())),
    }
}

/// The source of sums for these backends together: one for each, or all of them added up. `number` is the source's own.
pub fn of(counters: &Counters, number: usize, sites: &[Site], clock: Clock, timeout: Duration) -> Result<GatheredSource, CounterError> {
    let one = if counters.is_one_for_all() { sites.get(..1).unwrap_or_default() } else { sites };
    let parts = one.iter().map(|site| open(&Opening { counters, site, timeout })).collect::<Result<Vec<_>, _>>()?;
    Ok(GatheredSource::new(number, parts, counters, clock, timeout))
}
