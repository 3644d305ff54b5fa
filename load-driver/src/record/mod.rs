//! What is measured: metrics by name, histograms per shard and interval, merged without loss.
//!
//! SKELETON: the types are the contract between modules.

pub mod metric;

pub use metric::{Counter, Metric, Sample};
