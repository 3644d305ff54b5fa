//! What is measured: metrics by name, histograms per shard and interval, merged without loss.
//!
//! A [`ShardRecorder`] belongs to one shard and is emptied each second. The [`Registry`] merges what all of them took, across
//! shards and processes. [`Measurements`] shows it and the ledger's funnels to thresholds.

pub mod histogram;
pub mod measurements;
pub mod metric;
pub mod registry;
pub mod series;
pub mod shard;

pub use measurements::Measurements;
pub use metric::{Counter, Metric, Sample};
pub use registry::{Registry, ScenarioLabel, Second};
pub use series::{Point, Series};
pub use shard::ShardRecorder;
