//! Counters and load in the forms that other programs read.

pub mod capacity;
pub mod meter;
pub mod prometheus;
