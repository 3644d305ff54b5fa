//! Drives callers over transports: shards with one current-thread runtime each, stepped by one tick.
//!
//! SKELETON: the events are the contract between modules.

pub mod event;

pub use event::{EngineEvent, IntervalReport, ScenarioInterval};
