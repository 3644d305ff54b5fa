//! Backends and their weights, in a tree.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{
    Backend, Policy,
    tree::{Node, Tree},
};

/// Weights end here: the sum of a million such is still a number.
const LIMIT: f64 = 1e200;

/// What a policy picks from. Every question costs the logarithm of the number of backends, or nothing.
#[derive(Debug)]
pub struct Table {
    slots: Vec<Slot>,
    tree: Tree,
    /// Not to be picked just now, whatever is known of it.
    masked: Option<usize>,
}

#[derive(Debug)]
struct Slot {
    backend: Backend,
    /// Finite.
    weight: Option<f64>,
    up: bool,
}

impl Table {
    /// So many backends, all up and unheard of.
    pub fn new(backends: usize, share: f64) -> Self {
        let slot = |_| Slot { backend: Backend { share, ..Backend::default() }, weight: None, up: true };
        let mut table = Self { slots: (0..backends).map(slot).collect(), tree: Tree::new(backends), masked: None };
        for index in 0..backends {
            table.refresh(index);
        }
        table
    }

    /// Backends, eligible or not.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of one.
    ///
    /// # Panics
    /// When there is no such backend.
    pub fn backend(&self, index: usize) -> &Backend {
        &self.slots[index].backend
    }

    /// The policy's weight of one, if it is known. It is finite.
    pub fn weight(&self, index: usize) -> Option<f64> {
        self.slots.get(index)?.weight
    }

    /// It may be picked: up, not draining, not full.
    pub fn eligible(&self, index: usize) -> bool {
        self.masked != Some(index)
            && self
                .slots
                .get(index)
                .is_some_and(|slot| slot.up && !slot.backend.full() && !slot.backend.report.is_some_and(|report| report.draining))
    }

    /// How many may be picked.
    pub fn choices(&self) -> usize {
        self.tree.root().eligible as usize
    }

    /// How many of those have a weight.
    pub fn known(&self) -> usize {
        self.tree.root().known as usize
    }

    /// Mean weight of those that may be picked and have one, weights below 0 counted as 0. None where none has.
    pub fn mean(&self) -> Option<f64> {
        let root = self.tree.root();
        (root.known > 0).then(|| root.sum / f64::from(root.known))
    }

    /// Changes what is known of a backend and asks the policy for its weight again. A weight that is no finite number is unknown.
    pub fn update(&mut self, index: usize, policy: &dyn Policy, change: impl FnOnce(&mut Backend)) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        change(&mut slot.backend);
        // Adding 0 makes one zero of the two.
        slot.weight = policy.weight(&slot.backend).filter(|weight| weight.is_finite()).map(|weight| weight.clamp(-LIMIT, LIMIT) + 0.0);
        self.refresh(index);
    }

    /// The eligible backend of the highest weight; among equals, any. Unknown weights come last.
    pub fn most(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        let Node { max, ties, known, .. } = *self.tree.root();
        if known == 0 {
            return self.any(rng);
        }
        let skip = if ties > 1 { rng.random_range(0..ties) } else { 0 };
        Some(self.tree.nth(skip, |node| if node.max >= max { node.ties } else { 0 }))
    }

    /// Any eligible backend, each as likely as its weight; unknown weights count as the mean of the known (see [`Self::mean`]), and where
    /// none is known all are alike; weights of 0 or less are never drawn. None when no weight is above 0.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        if self.known() == 0 { self.any(rng) } else { self.at(rng.random()) }
    }

    /// The backend at this fraction, below 1, of all weights laid end to end.
    pub(super) fn at(&self, fraction: f64) -> Option<usize> {
        let mean = self.mean()?;
        let total = |node: &Node| node.sum + mean * f64::from(node.unknown());
        let all = total(self.tree.root());
        let mut left_over = fraction * all;
        (all > 0.0).then(|| {
            self.tree.descend(|left, right| {
                let here = total(left);
                // Sums are rounded: never end where there is nothing.
                let go_right = left_over >= here && total(right) > 0.0;
                if go_right {
                    left_over -= here;
                }
                go_right
            })
        })
    }

    /// Any eligible backend, all alike.
    pub fn any(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        let choices = self.choices();
        if choices == 0 { None } else { self.nth(rng.random_range(0..choices)) }
    }

    /// Any eligible backend of unknown weight, all alike.
    pub fn any_unknown(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        let unknown = self.tree.root().unknown();
        (unknown > 0).then(|| self.tree.nth(rng.random_range(0..unknown), Node::unknown))
    }

    /// The eligible backend before which there are `n` others.
    pub fn nth(&self, n: usize) -> Option<usize> {
        let choices = self.choices();
        match n {
            _ if n >= choices => None,
            _ if choices == self.len() => Some(n),
            _ => Some(self.tree.nth(n as u32, |node| node.eligible)),
        }
    }

    /// The first eligible backend after `last`, around the end.
    pub fn after(&self, last: usize) -> Option<usize> {
        if self.eligible(last.saturating_add(1)) {
            return Some(last + 1);
        }
        let rank = if last < self.len() { self.tree.rank(last) as usize } else { 0 };
        self.nth(if rank < self.choices() { rank } else { 0 })
    }

    /// A backend can or cannot be reached.
    pub(super) fn set_up(&mut self, index: usize, up: bool) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.up = up;
            self.refresh(index);
        }
    }

    pub(super) fn up(&self, index: usize) -> bool {
        self.slots.get(index).is_some_and(|slot| slot.up)
    }

    /// Takes one backend out until the next call.
    pub(super) fn mask(&mut self, index: Option<usize>) {
        let before = std::mem::replace(&mut self.masked, index);
        for index in [before, index].into_iter().flatten() {
            self.refresh(index);
        }
    }

    fn refresh(&mut self, index: usize) {
        let eligible = self.eligible(index);
        if let Some(slot) = self.slots.get(index) {
            self.tree.set(index, if eligible { Node::leaf(slot.weight) } else { Node::NONE });
        }
    }

    #[cfg(test)]
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }
}
