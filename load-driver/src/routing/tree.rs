//! A segment tree over weights: counts, sums and maxima of any run of backends.

/// A run of backends, or one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Node {
    /// Of the weights above 0.
    pub(super) sum: f64,
    /// Highest known weight.
    pub(super) max: f64,
    /// How many have it.
    pub(super) ties: u32,
    /// Eligible ones of known weight.
    pub(super) known: u32,
    /// Eligible ones.
    pub(super) eligible: u32,
}

impl Node {
    /// Nobody eligible.
    pub(super) const NONE: Self = Self { sum: 0.0, max: f64::NEG_INFINITY, ties: 0, known: 0, eligible: 0 };

    /// One eligible backend. Its weight, if any, is finite.
    pub(super) fn leaf(weight: Option<f64>) -> Self {
        match weight {
            Some(weight) => Self { sum: weight.max(0.0), max: weight, ties: 1, known: 1, eligible: 1 },
            None => Self { eligible: 1, ..Self::NONE },
        }
    }

    pub(super) fn unknown(&self) -> u32 {
        self.eligible - self.known
    }

    fn join(left: &Self, right: &Self) -> Self {
        let max = left.max.max(right.max);
        let ties = |side: &Self| if side.max >= max { side.ties } else { 0 };
        Self {
            sum: left.sum + right.sum,
            max,
            ties: ties(left) + ties(right),
            known: left.known + right.known,
            eligible: left.eligible + right.eligible,
        }
    }
}

/// The tree: node 1 is the root, the children of `i` are `2 i` and `2 i + 1`, the leaves come last.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tree {
    leaves: usize,
    nodes: Vec<Node>,
}

impl Tree {
    /// Nobody is eligible.
    pub(super) fn new(len: usize) -> Self {
        let leaves = len.next_power_of_two();
        Self { leaves, nodes: vec![Node::NONE; 2 * leaves] }
    }

    pub(super) fn root(&self) -> &Node {
        &self.nodes[1]
    }

    /// Sets a leaf. Everything above it is computed anew from its children, never by differences, so that the tree depends on its leaves
    /// alone: no error adds up.
    pub(super) fn set(&mut self, index: usize, leaf: Node) {
        let mut at = self.leaves + index;
        let mut node = leaf;
        while self.nodes[at] != node {
            self.nodes[at] = node;
            if at == 1 {
                break;
            }
            at /= 2;
            node = Node::join(&self.nodes[2 * at], &self.nodes[2 * at + 1]);
        }
    }

    /// Goes down from the root to a leaf: to the right where `right` says so of the two children.
    pub(super) fn descend(&self, mut right: impl FnMut(&Node, &Node) -> bool) -> usize {
        let mut at = 1;
        while at < self.leaves {
            at *= 2;
            at += usize::from(right(&self.nodes[at], &self.nodes[at + 1]));
        }
        at - self.leaves
    }

    /// The leaf at which `count` adds up to more than `skip`. There must be one.
    pub(super) fn nth(&self, mut skip: u32, count: impl Fn(&Node) -> u32) -> usize {
        self.descend(|left, _| {
            let here = count(left);
            let right = skip >= here;
            if right {
                skip -= here;
            }
            right
        })
    }

    /// Eligible ones up to and with `index`.
    pub(super) fn rank(&self, index: usize) -> u32 {
        let mut at = self.leaves + index;
        let mut rank = self.nodes[at].eligible;
        while at > 1 {
            if at % 2 == 1 {
                rank += self.nodes[at - 1].eligible;
            }
            at /= 2;
        }
        rank
    }
}
