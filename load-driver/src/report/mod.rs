//! Tells what happened: one stream of events, many sinks, one file each.

pub mod annotations;
pub mod behaviour;
pub mod build;
pub mod ci;
pub mod comparison;
pub mod exit;
pub mod hlog;
pub mod json;
pub mod junit;
pub mod live;
pub mod markdown;
mod page;
pub mod results;
mod rows;
pub mod summary;
pub mod terminal;
pub mod text;

use std::io;

pub use annotations::Annotations;
pub use exit::Exit;
pub use hlog::Hlog;
pub use json::Json;
pub use junit::Junit;
pub use live::{Live, LiveMode, LoadUnit, ScenarioTick, Stage, Tick};
pub use markdown::Markdown;
pub use summary::{RunInfo, Summary};
pub use terminal::Terminal;
pub use text::{Style, uncommanding};

use crate::record::Second;

/// What sinks are told, in this order: one `Started`, any number of `Tick` and `Second`, one `Finished`.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// The run begins.
    Started(&'a RunInfo),
    /// How it goes, each second.
    Tick(&'a Tick),
    /// A second closed: see [`crate::record::Registry::add`].
    Second(&'a Second),
    /// It is over.
    Finished(&'a Summary),
}

/// Something that shows or stores events.
pub trait Sink {
    /// For error messages.
    fn name(&self) -> &str;
    /// Takes an event. After an error the sink gets no more.
    fn event(&mut self, event: Event<'_>) -> io::Result<()>;
}

/// A sink that could not do its work; what it was to store is incomplete.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {sink}: {source}")]
pub struct SinkError {
    /// Which.
    pub sink: String,
    /// Why.
    pub source: io::Error,
}

/// All sinks of a run.
#[derive(Default)]
pub struct Reporters {
    sinks: Vec<Box<dyn Sink + Send>>,
}

impl std::fmt::Debug for Reporters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.sinks.iter().map(|s| s.name())).finish()
    }
}

impl Reporters {
    /// Registers one more.
    pub fn add(&mut self, sink: impl Sink + Send + 'static) {
        self.sinks.push(Box::new(sink));
    }

    /// Tells all. A sink that fails is dropped and named; a reader that went away (a broken pipe) is no error.
    pub fn emit(&mut self, event: Event<'_>) -> Vec<SinkError> {
        let mut errors = Vec::new();
        self.sinks.retain_mut(|sink| match sink.event(event) {
            Ok(()) => true,
            Err(source) => {
                if source.kind() != io::ErrorKind::BrokenPipe {
                    errors.push(SinkError { sink: sink.name().to_owned(), source });
                }
                false
            }
        });
        errors
    }
}

#[cfg(test)]
mod tests;
