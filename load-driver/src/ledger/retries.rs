//! Dials that came to nothing and were made again elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::entry::FailureCause;

/// Retries of one cause, off one backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetriedRow {
    /// Why the dial came to nothing.
    pub cause: FailureCause,
    /// Index into the fleet of the backend that was dialled; none behind a front.
    pub backend: Option<usize>,
    /// How many.
    pub count: u64,
}

/// Totals by cause and backend. Each `Retried` counts once: a session that was refused twice is in here twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retries(BTreeMap<(FailureCause, Option<usize>), u64>);

impl Retries {
    /// One more.
    pub fn count(&mut self, cause: FailureCause, backend: Option<usize>) {
        *self.0.entry((cause, backend)).or_default() += 1;
    }

    /// By cause, then backend.
    pub fn rows(&self) -> Vec<RetriedRow> {
        self.0.iter().map(|(&(cause, backend), &count)| RetriedRow { cause, backend, count }).collect()
    }

    /// All.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}
