//! What a simulation is made of: a profile, read once for all policies.

use std::{collections::BTreeMap, rc::Rc};

use agent_server::{
    config::{ServeArgs, ServerConfig},
    fault::Defect,
};
use proto::time::Micros;

use super::{SimError, backend::Model};
use crate::{
    plan::{EndKind, Plan},
    profile::{DEAD_FOR, Member, Profile, Routing},
};

/// Shortest time between two looks at the truth, and the most looks of a run.
const LOOK: (u64, u64) = (100_000, 5_000);

/// A profile, ready to be simulated.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) plan: Plan,
    pub(super) routing: Routing,
    pub(super) backends: Vec<Rc<Model>>,
    /// The different ones, and which backends are of each.
    pub(super) models: Vec<(Rc<Model>, Vec<u32>)>,
    /// From when each backend is known.
    pub(super) joins: Vec<u64>,
    /// When which backend dies, and for how long.
    pub(super) kills: Vec<(u64, u32, u64)>,
    /// When the worker of which scenario dies.
    pub(super) worker_kills: Vec<(u64, u16)>,
    /// Latencies are measured from then on.
    pub(super) warmup: u64,
    /// Between two looks at the truth.
    pub(super) look: u64,
    /// Sessions that begin in a second, about; for the queue.
    pub(super) rate: f64,
}

impl Setup {
    pub(super) fn new(profile: &Profile, defects: &[Defect]) -> Result<Self, SimError> {
        let fleet = profile.fleet();
        if fleet.members.is_empty() {
            return Err(SimError(
                "the backends are not known before a name is resolved: list them under `backends` to simulate them".into(),
            ));
        }
        let plan = Plan::build(profile, "sim").map_err(|error| SimError(format!("failed to plan the run: {error}")))?;
        let (backends, models) = models(&fleet.members, defects)?;
        let kills = kills(&plan, &fleet.members);
        let worker_kills = plan.scenarios.iter().filter_map(|s| {
            let kills = s.ends.iter().any(|(weight, end)| *weight > 0.0 && *end == EndKind::KillWorker);
            s.kill_at.filter(|_| kills).map(|at| (at.0, s.number))
        });
        let horizon = plan.ends_at().0;
        let lanes: usize = plan.scenarios.iter().map(|scenario| scenario.lanes.len()).sum();
        Ok(Self {
            routing: profile.routing.clone().unwrap_or_default(),
            backends,
            models,
            joins: fleet.members.iter().map(|member| member.joins.0).collect(),
            kills,
            worker_kills: worker_kills.collect(),
            warmup: profile.warmup.micros(),
            look: (horizon / LOOK.1).max(LOOK.0),
            rate: lanes as f64 / (plan.stops_at().0.max(1) as f64 / 1e6),
            plan,
        })
    }

    /// The utilization that all backends aim at; NaN where they differ.
    pub(super) fn target(&self) -> f64 {
        let mut all = self.models.iter().map(|(model, _)| model.config.report.capacity.target);
        let first = all.next().unwrap_or(f64::NAN);
        if all.all(|other| other.to_bits() == first.to_bits()) { first } else { f64::NAN }
    }

    /// What balance must recover from.
    pub(super) fn disturbances(&self) -> Vec<Micros> {
        let mut all: Vec<Micros> =
            self.joins.iter().filter(|at| **at > 0).chain(self.kills.iter().map(|kill| &kill.0)).map(|at| Micros(*at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

type Models = (Vec<Rc<Model>>, Vec<(Rc<Model>, Vec<u32>)>);

/// Backends of equal settings share them.
fn models(members: &[Member], defects: &[Defect]) -> Result<Models, SimError> {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut models: Vec<(Rc<Model>, Vec<u32>)> = Vec::new();
    let mut backends = Vec::with_capacity(members.len());
    for (number, member) in members.iter().enumerate() {
        let wrong = |error: &dyn std::fmt::Display| SimError(format!("backend {number}: {error}"));
        let key = serde_json::to_string(&member.server).map_err(|error| wrong(&error))?;
        let at = if let Some(at) = known.get(&key) {
            *at
        } else {
            let args: ServeArgs = serde_json::from_str(&key).map_err(|error| wrong(&error))?;
            let config = ServerConfig::resolve(args).map_err(|error| wrong(&format!("{error:#}")))?;
            let own = config.defects.iter().map(|text| text.parse()).collect::<Result<Vec<Defect>, _>>().map_err(|error| wrong(&error))?;
            models.push((Rc::new(Model::new(config, [own.as_slice(), defects].concat())), Vec::new()));
            known.insert(key, models.len() - 1);
            models.len() - 1
        };
        let (model, of) = &mut models[at];
        of.push(number as u32);
        backends.push(Rc::clone(model));
    }
    Ok((backends, models))
}

/// As a run makes them: scenarios that wait for the same death share one, and what the fleet itself says of it holds.
fn kills(plan: &Plan, members: &[Member]) -> Vec<(u64, u32, u64)> {
    let mut all: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    for scenario in &plan.scenarios {
        let Some(at) = scenario.kill_at else { continue };
        if scenario.ends.iter().any(|(weight, end)| *weight > 0.0 && *end == EndKind::KillBackend) {
            let struck = scenario.backend.map_or(0..members.len(), |one| one..one + 1);
            all.extend(struck.map(|number| ((at.0, number as u32), DEAD_FOR.as_micros() as u64)));
        }
    }
    for (number, member) in members.iter().enumerate() {
        all.extend(member.killed.map(|(at, dead)| ((at.0, number as u32), dead.as_micros() as u64)));
    }
    all.into_iter().filter(|((_, number), _)| (*number as usize) < members.len()).map(|((at, number), dead)| (at, number, dead)).collect()
}
