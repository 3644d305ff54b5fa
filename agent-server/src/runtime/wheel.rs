//! A hashed wheel of millisecond slots: one per shard holds the next wake of everything on it.

use proto::time::Micros;

/// Next wakes of the things of a shard, by a small key (a slab index). One live entry a key; setting it again replaces it.
#[derive(Debug)]
pub struct Wheel;

impl Wheel {
    /// Empty, at `now`.
    pub fn new(_now: Micros) -> Self {
        todo!()
    }

    /// Wakes `key` at `at` (rounded up to the next slot); replaces an earlier setting; [`Micros::NEVER`] removes it.
    pub fn set(&mut self, _key: usize, _at: Micros) {
        todo!()
    }

    /// Forgets `key`.
    pub fn remove(&mut self, _key: usize) {
        todo!()
    }

    /// Moves every key that is due by `now` into `due` (cleared first), earliest slot first.
    pub fn advance(&mut self, _now: Micros, _due: &mut Vec<usize>) {
        todo!()
    }

    /// No key is set.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}
