//! The rest of a plan, for a run that goes on after its driver was killed.

use std::{sync::Arc, time::Duration};

use proto::time::Micros;
use serde::{Deserialize, Serialize};

use super::{Plan, ScenarioPlan, WaitTemplate};

/// Iterations of a lane that each segment may use: the indices of two segments never meet.
const ITERATIONS: u32 = 1 << 18;
/// So many segments fit into an index.
pub const MAX_SEGMENTS: u32 = 1 << (super::ITERATION_BITS - ITERATIONS.trailing_zeros());

/// Where a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// Run time that the segments before have used up.
    pub from: Micros,
    /// Number of the segment that begins; the first of a run is 0.
    pub segment: u32,
}

impl Plan {
    /// What is left of the plan from this run time on, with that time as its zero.
    ///
    /// - Open lanes (one session each) whose time has passed are gone; those to come are drawn as they would have been.
    /// - Closed lanes begin at once, spread over the warm-up, with iterations that no segment before had.
    /// - The warm-up is repeated: what goes on after a kill has to dial all its sessions again.
    /// - Kills and faults before that time are gone; the others keep their order and are numbered anew.
    #[must_use]
    pub fn resumed(mut self, at: Resumed) -> Self {
        let earlier = |time: Micros| Micros(time.0.saturating_sub(at.from.0));
        self.first_iteration = at.segment.min(MAX_SEGMENTS - 1) * ITERATIONS;
        let warmup = self.warmup;
        for scenario in &mut self.scenarios {
            rest(Arc::make_mut(scenario), at.from, warmup);
        }
        self.faults.retain(|fault| fault.at >= at.from);
        for (number, fault) in self.faults.iter_mut().enumerate() {
            fault.number = number as u16;
            fault.at = earlier(fault.at);
        }
        self
    }
}

fn rest(scenario: &mut ScenarioPlan, from: Micros, warmup: Duration) {
    let earlier = |time: Micros| Micros(time.0.saturating_sub(from.0));
    scenario.lanes.retain(|lane| lane.stop > from && (lane.repeat || lane.start >= from));
    let under_way = scenario.lanes.iter().filter(|lane| lane.start < from).count() as u64;
    let mut late = 0;
    for lane in &mut scenario.lanes {
        let spread = if lane.start < from { Micros(warmup.as_micros() as u64 * late / under_way.max(1)) } else { Micros::ZERO };
        late += u64::from(lane.start < from);
        lane.stop = earlier(lane.stop);
        lane.start = Micros(earlier(lane.start).0.max(spread.0).min(lane.stop.0.saturating_sub(1)));
    }
    scenario.lanes.sort_by_key(|lane| lane.start);
    scenario.kill_at = scenario.kill_at.filter(|at| *at >= from).map(earlier);
    for turn in scenario.conversations.iter_mut().flat_map(|conversation| &mut conversation.turns) {
        if let WaitTemplate::At(at) = &mut turn.wait {
            *at = earlier(*at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Source, open_text};

    fn plan() -> Plan {
        let text = "name: rest\nwarmup: 4s\nseed: 3\nscenarios:\n  closed: {executor: constant-sessions, sessions: 4, duration: 60s, conversations: [{turns: [{say: {synth: 200ms}}]}]}\n  open: {executor: constant-arrival-rate, rate: 1, duration: 60s, conversations: [{turns: [{say: {synth: 200ms}}]}]}\n";
        let loaded = open_text(&Source::Shipped("rest".to_owned()), "rest", text, &[]).unwrap();
        Plan::build(&loaded.profile, "00000001").unwrap()
    }

    #[test]
    fn what_is_left_is_what_was_to_come() {
        let whole = plan();
        let from = Micros(20_000_000);
        let rest = plan().resumed(Resumed { from, segment: 1 });
        assert_eq!(rest.stops_at().0, whole.stops_at().0 - from.0);
        let starts = |plan: &Plan, n: usize| plan.scenarios[n].lanes.iter().map(|lane| (lane.number, lane.start.0)).collect::<Vec<_>>();
        assert_eq!(starts(&rest, 0), [(0, 0), (1, 1_000_000), (2, 2_000_000), (3, 3_000_000)], "spread over the warm-up");
        let due: Vec<_> = starts(&whole, 1).into_iter().filter(|(_, at)| *at >= from.0).map(|(lane, at)| (lane, at - from.0)).collect();
        assert_eq!(starts(&rest, 1), due);
        assert!(plan().resumed(Resumed { from: Micros(60_000_000), segment: 1 }).scenarios.iter().all(|s| s.lanes.is_empty()));
    }

    #[test]
    fn no_index_is_used_twice_and_open_arrivals_are_drawn_as_ever() {
        let (whole, rest) = (plan(), plan().resumed(Resumed { from: Micros(20_000_000), segment: 1 }));
        let mut used: Vec<_> = (0..1_000).map(|n| whole.session(0, 2, n, Micros::ZERO).index).collect();
        used.extend((0..1_000).map(|n| rest.session(0, 2, n, Micros::ZERO).index));
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0] != pair[1]));
        let open = |plan: &Plan| plan.session(1, 30, 0, Micros::ZERO).index;
        assert_eq!(open(&whole), open(&rest));
    }
}
