//! Whether this thread is on time.

use std::collections::VecDeque;

use agent_server::runtime::ticker::TICK;
use proto::time::Micros;

use crate::ledger::STANDSTILL_US;

/// Length of a tick.
pub(super) const TICK_US: u64 = TICK.as_micros() as u64;

/// A tick that comes so late is a stall of the driver itself.
const STALL_US: u64 = 10_000;

/// Looks at the time between ticks.
#[derive(Debug)]
pub(super) struct Pace {
    /// When this thread was last seen to be on time.
    on_time: Micros,
    /// All that it came too late so far, microseconds.
    stall_us: u64,
    /// From when to when it did nothing: not told yet.
    stood: VecDeque<(Micros, Micros)>,
}

impl Pace {
    pub(super) const fn new(now: Micros) -> Self {
        Self { on_time: now, stall_us: 0, stood: VecDeque::new() }
    }

    /// A tick.
    pub(super) fn tick(&mut self, now: Micros) {
        self.stall_us = self.stalled_us(now);
        if now.0.saturating_sub(self.on_time.0) >= STANDSTILL_US {
            self.stood.push_back((self.on_time, now));
        }
        self.on_time = now;
    }

    /// All that this thread came too late by now: what it hears after a stall is no later than the stall was long.
    pub(super) fn stalled_us(&self, now: Micros) -> u64 {
        let gap_us = now.0.saturating_sub(self.on_time.0);
        self.stall_us + if gap_us > STALL_US { gap_us - TICK_US } else { 0 }
    }

    /// It stood still, and that was not told yet.
    pub(super) fn stood(&self) -> bool {
        !self.stood.is_empty()
    }

    /// The next of these times.
    pub(super) fn take_stood(&mut self) -> Option<(Micros, Micros)> {
        self.stood.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_late_tells_so_and_one_that_stood_still_when() {
        let at = |ms: u64| Micros(ms * 1_000);
        let mut pace = Pace::new(at(0));
        for ms in [1, 2, 10, 40] {
            pace.tick(at(ms));
        }
        assert_eq!((pace.stalled_us(at(45)), pace.stood()), (29_000, false), "late once");
        pace.tick(at(400));
        pace.tick(at(401));
        assert_eq!(pace.stalled_us(at(401)), 29_000 + 359_000);
        assert_eq!((pace.take_stood(), pace.take_stood()), (Some((at(40), at(400))), None));
    }
}
