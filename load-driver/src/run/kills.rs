//! Kills that the controller makes: worker processes and backends, at the run times that the plan names.

use std::{collections::BTreeMap, time::Duration};

use proto::time::Micros;

use crate::{
    plan::{EndKind, Fault, FaultKind, Plan, ScenarioPlan},
    profile::{DEAD_FOR, Member},
};

/// Whom a kill strikes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Victim {
    /// The worker process of this scenario.
    Worker {
        /// Index into the plan's scenarios.
        scenario: u16,
    },
    /// An embedded backend, started again afterwards.
    Backend {
        /// Index into the fleet.
        index: usize,
        /// How long it stays dead.
        dead_for: Duration,
    },
}

/// One kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kill {
    /// Run time.
    pub(super) at: Micros,
    /// Whom.
    pub(super) victim: Victim,
    /// The fault of the timeline that asks for it, which is told what came of it.
    pub(super) fault: Option<u16>,
}

/// Whether the sessions of a scenario run in a worker process of their own: it is killed, or stopped.
pub(super) fn needs_worker(plan: &Plan, scenario: &ScenarioPlan) -> bool {
    let stopped = |fault: &Fault| fault.kind == FaultKind::Stop && fault.target.scenario == Some(scenario.number);
    has(scenario, EndKind::KillWorker) || plan.faults.iter().any(stopped)
}

fn has(scenario: &ScenarioPlan, kind: EndKind) -> bool {
    scenario.ends.iter().any(|(weight, end)| *weight > 0.0 && *end == kind)
}

/// All kills of a run, in order of time: those that end scenarios, and those that the fleet or the timeline of faults names. Scenarios that wait for the same
/// backend's death at the same moment share one kill; a scenario without a pinned backend kills them all.
///
/// A kill that the fleet or the timeline names ends sessions that were to end otherwise: the ledger writes them off as `dropped`, neither failed nor completed.
/// Whoever is sent to the backend while it is dead fails as with any dead backend.
///
/// `from`: run time that drivers before this one have used up. The plan is without it; the fleet is as the profile says.
pub(super) fn planned(plan: &Plan, members: &[Member], backends: usize, from: Micros) -> Vec<Kill> {
    let mut strikes: BTreeMap<(Micros, u8, usize), (Duration, Option<u16>)> = BTreeMap::new();
    for scenario in &plan.scenarios {
        let Some(at) = scenario.kill_at else { continue };
        if has(scenario, EndKind::KillWorker) {
            strikes.insert((at, 0, usize::from(scenario.number)), (Duration::ZERO, None));
        }
        if has(scenario, EndKind::KillBackend) {
            let struck = scenario.backend.map_or(0..backends, |one| one..one + 1);
            strikes.extend(struck.map(|index| ((at, 1, index), (DEAD_FOR, None))));
        }
    }
    for (index, member) in members.iter().enumerate() {
        if let Some((at, dead_for)) = member.killed.filter(|(at, _)| *at >= from) {
            strikes.insert((Micros(at.0 - from.0), 1, index), (dead_for, None));
        }
    }
    for fault in &plan.faults {
        if let FaultKind::KillBackend { dead_for } = fault.kind {
            let struck = fault.target.backend.map_or(0..backends, |one| one..one + 1);
            strikes.extend(struck.map(|index| ((fault.at, 1, index), (dead_for, Some(fault.number)))));
        }
    }
    let kill = |((at, what, number), (dead_for, fault)): ((Micros, u8, usize), (Duration, Option<u16>))| {
        let victim = if what == 0 { Victim::Worker { scenario: number as u16 } } else { Victim::Backend { index: number, dead_for } };
        Kill { at, victim, fault }
    };
    strikes.into_iter().map(kill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(killed: Option<(u64, u64)>) -> Member {
        let killed = killed.map(|(at_s, dead_ms)| (Micros(at_s * 1_000_000), Duration::from_millis(dead_ms)));
        Member { address: None, server: std::collections::BTreeMap::default(), joins: Micros::ZERO, killed }
    }

    #[test]
    fn kills_of_the_fleet_come_in_order_of_time_and_with_their_own_death() {
        let plan =
            Plan { run_id: "run".into(), seed: 1, warmup: Duration::ZERO, scenarios: Vec::new(), faults: Vec::new(), first_iteration: 0 };
        let members = [member(Some((3, 900))), member(None), member(Some((1, 0)))];
        let kills = planned(&plan, &members, 3, Micros::ZERO);
        let of = |at_s: u64, index, dead_ms| Kill {
            at: Micros(at_s * 1_000_000),
            victim: Victim::Backend { index, dead_for: Duration::from_millis(dead_ms) },
            fault: None,
        };
        assert_eq!(kills, [of(1, 2, 0), of(3, 0, 900)]);
        assert_eq!(planned(&plan, &members, 3, Micros(2_000_000)), [of(1, 0, 900)], "what is past is not made again");
    }
}
