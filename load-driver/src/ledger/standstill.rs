//! Times in which a shard of the driver stood still: its thread got no CPU, or its process was stopped.
//!
//! Nobody answers a backend's keepalive then, and a cut that a shard made just before need not be out yet. What waited meanwhile is made good
//! afterwards, which takes up to as long again. Each of these times shows in `schedule_lag` too, by far: where they are more than a hundredth or two
//! of a run, the run is saturated, and no pass.

use std::collections::VecDeque;

use super::config::LedgerConfig;

/// A shard that is late by less need not tell.
pub const STANDSTILL_US: u64 = 100_000;

/// Those that are kept; older ones concern sessions long reconciled.
const MAX: usize = 1_024;

/// Of one shard, in order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standstills(VecDeque<(u64, u64)>);

impl Standstills {
    /// It never did.
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// It did nothing between these two moments.
    pub fn push(&mut self, from_us: u64, to_us: u64) {
        if self.0.len() >= MAX {
            self.0.pop_front();
        }
        self.0.push_back((from_us, to_us));
    }

    /// When it did nothing.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }

    /// The same, each with the time in which what waited is made good.
    pub fn with_what_waited(&self) -> impl Iterator<Item = (u64, u64)> {
        self.spans().map(|(from_us, to_us)| (from_us, to_us.saturating_add(to_us.saturating_sub(from_us))))
    }
}

impl LedgerConfig {
    /// The same, for a run that is saturated when its `schedule_lag` is beyond this, microseconds: only times of twice as much count as a
    /// standstill, so that many of them cannot go by without the run being called saturated.
    #[must_use]
    pub fn with_lag_limit(mut self, limit_us: u64) -> Self {
        self.standstill_us = STANDSTILL_US.max(limit_us.saturating_mul(2));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_takes_as_long_again_and_the_oldest_are_forgotten_first() {
        let mut all = Standstills::default();
        for n in 0..=MAX as u64 {
            all.push(n * 100, n * 100 + 30);
        }
        assert_eq!(all.spans().count(), MAX);
        assert_eq!(all.spans().next(), Some((100, 130)));
        assert_eq!(all.with_what_waited().last(), Some((102_400, 102_460)));
    }
}
