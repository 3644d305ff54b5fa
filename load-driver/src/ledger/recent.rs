//! Names that are remembered for a while: what has no bound in time has none in memory.
//!
//! A session that is folded leaves a hash of its name behind, so that a second decrement of it is known for what it is. After [`HORIZON_US`]
//! the name is forgotten. A decrement that comes later still is no less a fault, and no pass: where the run has the backend to itself, or the
//! record bears one of the run's references, it is a session that this run never had (`unknown_sessions`); everywhere else the snapshots that
//! follow no longer add up (`started` is not `active` plus what ended), which is a finding of its own.

use std::collections::HashSet;

/// Longer than the longest timer that a backend has for a session (20 minutes): whatever it still holds of one fires within.
pub(super) const HORIZON_US: u64 = 30 * 60 * 1_000_000;
/// Room from the first name on: a table that grows as the run goes on would look like a leak, and be one for the first half hour.
const ROOM: usize = 1 << 16;
/// With so many within one horizon it is shorter: 16 bytes each, twice.
const MAX_NAMES: usize = 1 << 19;

/// Hashes of names, in two generations: each is kept for one horizon at least and two at most.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    young: HashSet<u64>,
    old: HashSet<u64>,
    since_us: u64,
    forgotten: u64,
}

impl Recent {
    /// Remembers a name. Time may step back a little, as ends do that are told late.
    pub(super) fn insert(&mut self, name: u64, now_us: u64) {
        if self.since_us == 0 {
            self.since_us = now_us;
            self.young.reserve(ROOM);
        }
        if now_us.saturating_sub(self.since_us) >= HORIZON_US || self.young.len() >= MAX_NAMES {
            self.forgotten += self.old.len() as u64;
            self.old = std::mem::replace(&mut self.young, HashSet::with_capacity(ROOM));
            self.since_us = now_us;
        }
        self.young.insert(name);
    }

    /// It is remembered.
    pub(super) fn contains(&self, name: u64) -> bool {
        self.young.contains(&name) || self.old.contains(&name)
    }

    /// Forgets one; whether it was remembered.
    pub(super) fn remove(&mut self, name: u64) -> bool {
        self.young.remove(&name) || self.old.remove(&name)
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// How many were forgotten.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
