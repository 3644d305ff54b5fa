//! Load testing with synthetic voice agents: thousands of streams, counters proven.

pub mod arrival;
pub mod audio;
pub mod balance;
pub mod caller;
pub mod cli;
pub mod compare;
pub mod counters;
pub mod dialect;
pub mod engine;
pub mod feed;
pub mod leak;
pub mod ledger;
pub mod netns;
pub mod plan;
pub mod profile;
pub mod record;
pub mod relay;
pub mod report;
pub mod routing;
pub mod run;
pub mod sim;
pub mod system;
pub mod threshold;
pub mod transport;
pub mod voice;
