//! The atomics that the counters use; a model checker puts its own here.
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
