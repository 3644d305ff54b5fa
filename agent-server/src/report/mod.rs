//! Counters and load in the forms that other programs read.

pub mod capacity;
pub mod cgroup;
pub mod meter;
pub mod orca;
pub mod prometheus;
pub mod reporter;
pub mod usage;
