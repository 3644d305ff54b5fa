//! When the next sessions of a shard begin.

use std::{cmp::Reverse, collections::BinaryHeap};

use proto::time::Micros;

use crate::plan::{Lane, Plan};

/// The start of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Start {
    /// When it should begin.
    pub(super) at: Micros,
    /// Index into the plan.
    pub(super) scenario: u16,
    /// Index into the scenario's lanes.
    pub(super) position: usize,
    /// Of the lane.
    pub(super) iteration: u32,
}

/// Starts to come, earliest first.
#[derive(Debug, Default)]
pub(super) struct Agenda(BinaryHeap<Reverse<Start>>);

impl Agenda {
    /// The first sessions of the lanes of shard `shard` of `shards`: lanes are dealt round over the shards.
    pub(super) fn new(plan: &Plan, shard: usize, shards: usize) -> Self {
        let lanes = plan.scenarios.iter().flat_map(|s| (0..s.lanes.len()).map(move |position| (s, position)));
        let starts = lanes.enumerate().filter(|(index, _)| index % shards == shard).map(|(_, (scenario, position))| {
            Reverse(Start { at: scenario.lanes[position].start, scenario: scenario.number, position, iteration: 0 })
        });
        Self(starts.collect())
    }

    /// The next start that is due by `now`.
    pub(super) fn due(&mut self, now: Micros) -> Option<Start> {
        if self.0.peek()?.0.at > now {
            return None;
        }
        self.0.pop().map(|start| start.0)
    }

    /// The session after `start` in a lane that repeats, at `at`, if the lane is still open then.
    pub(super) fn repeat(&mut self, start: Start, lane: &Lane, at: Micros) {
        if lane.repeat && at < lane.stop {
            self.0.push(Reverse(Start { at, iteration: start.iteration + 1, ..start }));
        }
    }

    /// Nothing begins any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// No start is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
