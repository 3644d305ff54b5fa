//! Load testing with synthetic voice agents: thousands of streams, counters proven.

pub mod arrival;
pub mod audio;
pub mod caller;
pub mod cli;
pub mod counters;
pub mod dialect;
pub mod engine;
pub mod ledger;
pub mod plan;
pub mod profile;
pub mod record;
pub mod report;
pub mod run;
pub mod system;
pub mod threshold;
pub mod transport;
