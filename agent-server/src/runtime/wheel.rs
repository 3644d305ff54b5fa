//! A hashed wheel of millisecond slots: one per shard holds the next wake of everything on it.
//!
//! A heap would do, at a logarithm of ten thousand entries for each of fifty wakes a second and session. Here a wake that moves later
//! (the usual case: a deadline pushed on by traffic) touches one word, and one that moves earlier pushes one entry.

use proto::time::Micros;

/// Slots; a wake farther away than so many milliseconds is looked at once a turn.
const SLOTS: usize = 4_096;
const SLOT_US: u64 = 1_000;
const NEVER: u64 = u64::MAX;

/// Next wakes of the things of a shard, by a small key (a slab index). One wake a key; setting it again replaces it.
#[derive(Debug)]
pub struct Wheel {
    slots: Vec<Vec<Entry>>,
    keys: Vec<Key>,
    /// Every slot up to and with this one was advanced over.
    tick: u64,
    /// Keys with a wake.
    set: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u32,
    version: u32,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    /// Tick at which the key is due; [`NEVER`] when it has no wake.
    due: u64,
    /// Tick under which its live entry sits, never later than `due`; [`NEVER`] when no entry is live.
    queued: u64,
    /// Of the live entry; others are stale.
    version: u32,
}

impl Wheel {
    /// Empty, at `now`.
    pub fn new(now: Micros) -> Self {
        Self { slots: vec![Vec::new(); SLOTS], keys: Vec::new(), tick: now.0 / SLOT_US, set: 0 }
    }

    /// Wakes `key` at `at` (rounded up to the next slot); replaces an earlier setting; [`Micros::NEVER`] removes it.
    pub fn set(&mut self, key: usize, at: Micros) {
        if at == Micros::NEVER {
            self.remove(key);
            return;
        }
        if key >= self.keys.len() {
            self.keys.resize(key + 1, Key { due: NEVER, queued: NEVER, version: 0 });
        }
        let due = at.0.div_ceil(SLOT_US).max(self.tick + 1);
        let state = &mut self.keys[key];
        self.set += usize::from(state.due == NEVER);
        state.due = due;
        if state.queued > due {
            state.queued = due;
            state.version = state.version.wrapping_add(1);
            self.slots[slot(due)].push(Entry { key: key as u32, version: state.version });
        }
    }

    /// Forgets `key`.
    pub fn remove(&mut self, key: usize) {
        let Some(state) = self.keys.get_mut(key) else { return };
        self.set -= usize::from(state.due != NEVER);
        // The entry in its slot becomes stale; the next user of the key gets another version.
        state.version = state.version.wrapping_add(1);
        state.due = NEVER;
        state.queued = NEVER;
    }

    /// Moves every key that is due by `now` into `due` (cleared first), earliest first. A key in `due` has no wake until it is set again.
    pub fn advance(&mut self, now: Micros, due: &mut Vec<usize>) {
        due.clear();
        let target = now.0 / SLOT_US;
        if target <= self.tick {
            return;
        }
        // After a stall of more than a turn every slot is looked at once.
        let turns_over = target - self.tick > SLOTS as u64;
        let first = if turns_over { target - SLOTS as u64 + 1 } else { self.tick + 1 };
        self.tick = target;
        for tick in first..=target {
            let mut entries = std::mem::take(&mut self.slots[slot(tick)]);
            entries.retain(|entry| self.keep(*entry, slot(tick), target, due));
            // Entries that moved on to this very slot meanwhile stay behind the kept ones.
            entries.append(&mut self.slots[slot(tick)]);
            self.slots[slot(tick)] = entries;
        }
        if turns_over {
            due.sort_by_key(|&key| self.keys[key].queued);
        }
        for &key in due.iter() {
            self.keys[key].queued = NEVER;
        }
    }

    /// Looks at one entry of a slot: stale goes, due goes to `due`, later moves to its slot; true when it stays.
    fn keep(&mut self, entry: Entry, here: usize, target: u64, due: &mut Vec<usize>) -> bool {
        let state = &mut self.keys[entry.key as usize];
        if state.version != entry.version || state.queued == NEVER {
            return false;
        }
        if state.due <= target {
            // `queued` keeps the due tick until the end of `advance`, which sorts by it.
            state.queued = state.due;
            state.due = NEVER;
            state.version = state.version.wrapping_add(1);
            self.set -= 1;
            due.push(entry.key as usize);
            return false;
        }
        state.queued = state.due;
        let there = slot(state.due);
        if there != here {
            self.slots[there].push(entry);
        }
        there == here
    }

    /// No key has a wake.
    pub fn is_empty(&self) -> bool {
        self.set == 0
    }
}

fn slot(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn due_at(wheel: &mut Wheel, ms: u64) -> Vec<usize> {
        let mut due = Vec::new();
        wheel.advance(Micros::from_millis(ms), &mut due);
        due
    }

    #[test]
    fn wakes_round_up_and_come_once() {
        let mut wheel = Wheel::new(Micros::ZERO);
        wheel.set(3, Micros(1_500));
        assert!(due_at(&mut wheel, 1).is_empty());
        assert_eq!(due_at(&mut wheel, 2), [3]);
        assert!(due_at(&mut wheel, 9_000).is_empty());
        assert!(wheel.is_empty());
    }

    #[test]
    fn past_wakes_come_with_the_next_advance() {
        let mut wheel = Wheel::new(Micros::from_millis(100));
        wheel.set(0, Micros::from_millis(5));
        assert_eq!(due_at(&mut wheel, 101), [0]);
    }

    #[test]
    fn a_stall_of_several_turns_loses_nothing_and_keeps_order() {
        let mut wheel = Wheel::new(Micros::ZERO);
        wheel.set(0, Micros::from_millis(9_000));
        wheel.set(1, Micros::from_millis(20));
        wheel.set(2, Micros::from_millis(90_000));
        assert_eq!(due_at(&mut wheel, 50_000), [1, 0]);
        assert_eq!(due_at(&mut wheel, 90_000), [2]);
    }

    #[test]
    fn pushing_a_deadline_on_costs_no_entries() {
        let mut wheel = Wheel::new(Micros::ZERO);
        for ms in 0..100_000 {
            wheel.set(0, Micros::from_millis(ms + 300_000));
        }
        assert_eq!(wheel.slots.iter().map(Vec::len).sum::<usize>(), 1);
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(ops in prop::collection::vec((0usize..8, 0u64..12_000, 0u8..4, 0u64..6_000), 1..200)) {
            let mut wheel = Wheel::new(Micros::ZERO);
            let mut model: BTreeMap<usize, u64> = BTreeMap::new();
            let mut now = 0;
            for (key, ahead, op, step) in ops {
                match op {
                    0 | 1 => {
                        wheel.set(key, Micros::from_millis(now + ahead));
                        model.insert(key, (now + ahead).max(now + 1));
                    }
                    2 => {
                        wheel.remove(key);
                        model.remove(&key);
                    }
                    _ => {
                        now += step;
                        let mut got = due_at(&mut wheel, now);
                        let mut want: Vec<usize> = model.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
                        let times: Vec<u64> = got.iter().map(|key| model[key]).collect();
                        if step <= SLOTS as u64 {
                            // A wake that was moved later may be found a little early in its old slot; never out of the advance.
                            prop_assert!(times.iter().all(|at| *at <= now));
                        }
                        want.sort_unstable();
                        got.sort_unstable();
                        prop_assert_eq!(&got, &want);
                        for key in want {
                            model.remove(&key);
                        }
                    }
                }
                prop_assert_eq!(wheel.is_empty(), model.is_empty());
            }
        }
    }
}
