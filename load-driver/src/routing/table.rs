//! Backends and their weights, in a tree.

use rand_chacha::ChaCha8Rng;

use super::{Backend, Policy};

/// What a policy picks from. Every question costs the logarithm of the number of backends, or nothing.
#[derive(Debug, Default)]
pub struct Table {}

impl Table {
    /// So many backends, all up and unheard of.
    pub fn new(backends: usize, share: f64) -> Self {
        let _ = (backends, share);
        todo!("routing helper")
    }

    /// Backends, eligible or not.
    pub fn len(&self) -> usize {
        todo!("routing helper")
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of one.
    pub fn backend(&self, index: usize) -> &Backend {
        let _ = index;
        todo!("routing helper")
    }

    /// It may be picked: up, not draining, not full.
    pub fn eligible(&self, index: usize) -> bool {
        let _ = index;
        todo!("routing helper")
    }

    /// How many may be picked.
    pub fn choices(&self) -> usize {
        todo!("routing helper")
    }

    /// Changes what is known of a backend and asks the policy for its weight again.
    pub fn update(&mut self, index: usize, policy: &dyn Policy, change: impl FnOnce(&mut Backend)) {
        let _ = (index, policy, change);
        todo!("routing helper")
    }

    /// The eligible backend of the highest weight; among equals, any. Unknown weights come last.
    pub fn most(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        let _ = rng;
        todo!("routing helper")
    }

    /// Any eligible backend, each as likely as its weight; unknown weights count as the mean of the known; weights of 0 or less are never
    /// drawn. None when no weight is above 0.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        let _ = rng;
        todo!("routing helper")
    }

    /// Any eligible backend, all alike.
    pub fn any(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        let _ = rng;
        todo!("routing helper")
    }

    /// The first eligible backend after `last`, around the end.
    pub fn after(&self, last: usize) -> Option<usize> {
        let _ = last;
        todo!("routing helper")
    }
}
