//! Kills that the controller makes: worker processes and backends, at the run times that the plan names.

use std::collections::BTreeSet;

use proto::time::Micros;

use crate::plan::{EndKind, Plan, ScenarioPlan};

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
        /// Index into the targets.
        index: usize,
    },
}

/// One kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kill {
    /// Run time.
    pub(super) at: Micros,
    /// Whom.
    pub(super) victim: Victim,
}

/// Whether the sessions of a scenario run in a worker process of their own.
pub(super) fn needs_worker(scenario: &ScenarioPlan) -> bool {
    has(scenario, EndKind::KillWorker)
}

fn has(scenario: &ScenarioPlan, kind: EndKind) -> bool {
    scenario.ends.iter().any(|(weight, end)| *weight > 0.0 && *end == kind)
}

/// All kills of a plan, in order of time. Scenarios that wait for the same backend's death at the same moment share one kill; a scenario
/// without a pinned backend kills them all.
pub(super) fn planned(plan: &Plan, backends: usize) -> Vec<Kill> {
    let mut strikes = BTreeSet::new();
    for scenario in &plan.scenarios {
        let Some(at) = scenario.kill_at else { continue };
        if needs_worker(scenario) {
            strikes.insert((at, 0, usize::from(scenario.number)));
        }
        if has(scenario, EndKind::KillBackend) {
            let struck = scenario.backend.map_or(0..backends, |one| one..one + 1);
            strikes.extend(struck.map(|index| (at, 1, index)));
        }
    }
    let kill = |(at, what, number): (Micros, u8, usize)| {
        let victim = if what == 0 { Victim::Worker { scenario: number as u16 } } else { Victim::Backend { index: number } };
        Kill { at, victim }
    };
    strikes.into_iter().map(kill).collect()
}
