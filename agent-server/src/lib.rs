//! A mock real-time voice agent backend with exact session accounting.
pub mod admin;
pub mod config;
pub mod cost;
pub mod dialect;
pub mod fault;
pub mod listen;
pub mod pipeline;
pub mod processor;
pub mod report;
pub mod runtime;
pub mod serve;
pub mod session;
pub mod shard;
pub mod tracker;
