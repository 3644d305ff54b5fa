//! Load testing with synthetic voice agents: thousands of streams, counters proven.
pub mod audio;
pub mod caller;
pub mod engine;
pub mod ledger;
pub mod plan;
pub mod record;
pub mod report;
pub mod system;
pub mod threshold;
