//! Counters in the forms that other programs read.

pub mod prometheus;
