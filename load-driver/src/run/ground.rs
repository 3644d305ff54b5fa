//! What stands between the driver and its backends when the profile's faults ask for it: the relay, and network namespaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    time::Duration,
};

use super::Job;
use crate::{
    engine::Targets,
    netns::{self, Namespace, tools::Tools},
    plan::{Fault, FaultName, Maker, Plan},
    relay::{Relay, RelayOptions},
};

/// The admin port of a backend in a namespace is on the same machine.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Of one run.
#[derive(Debug, Default)]
pub(super) struct Ground {
    /// Before every target, where faults ask for it.
    pub(super) relay: Option<Relay>,
    /// By index of the fleet.
    pub(super) homes: BTreeMap<usize, Home>,
    /// Kinds that cannot be made here, and why.
    pub(super) missing: BTreeMap<FaultName, String>,
}

/// The namespace of a backend.
#[derive(Debug)]
pub(super) struct Home {
    /// Before the namespace: it holds it open.
    admin: Option<Relay>,
    pub(super) namespace: Namespace,
}

impl Home {
    /// Where the counters of the backend are reached from here: its own admin port is on the namespace's loopback.
    pub(super) fn admin(&mut self, there: SocketAddr) -> io::Result<SocketAddr> {
        let options = RelayOptions { seed: 0, connect_timeout: ADMIN_TIMEOUT, namespace: Some(self.namespace.file()?) };
        let relay = self.admin.insert(Relay::start(&[there], options)?);
        relay.addresses().first().copied().ok_or_else(|| io::Error::other("a relay without an address"))
    }
}

/// There are such faults.
pub(super) fn has(plan: &Plan, maker: Maker) -> bool {
    plan.faults.iter().any(|fault| fault.kind.name().maker() == maker)
}

fn in_namespace(fault: &Fault) -> bool {
    fault.kind.name().maker() == Maker::Namespace
}

impl Ground {
    /// Namespaces for those of so many embedded backends that are targets of faults that need one and can be made here. What cannot be had costs
    /// its faults, and says so; the backend runs without.
    pub(super) fn prepare(job: &Job, backends: usize) -> Self {
        let faults = &job.prepared.plan.faults;
        let kinds: BTreeSet<FaultName> = faults.iter().filter(|fault| in_namespace(fault)).map(|fault| fault.kind.name()).collect();
        if kinds.is_empty() {
            return Self::default();
        }
        let tools = Tools::find();
        for name in tools.iter().flat_map(netns::clear_left) {
            tracing::warn!("removed the network namespace {name}, which a killed run had left");
        }
        let mut ground = Self { missing: netns::missing(&kinds, &job.run_id, &tools), ..Self::default() };
        for (kind, why) in &ground.missing {
            tracing::warn!("faults of the kind {} will be skipped: {why}", kind.name());
        }
        let Ok(tools) = tools else { return ground };
        let able = |fault: &&Fault| !ground.missing.contains_key(&fault.kind.name());
        let wanted = |index: usize| {
            faults.iter().filter(|fault| in_namespace(fault)).filter(able).any(|fault| fault.target.backend.is_none_or(|one| one == index))
        };
        let wanted: Vec<usize> = (0..backends).filter(|index| wanted(*index)).collect();
        for index in wanted {
            match Namespace::create(&job.run_id, index, &tools) {
                Ok(namespace) => drop(ground.homes.insert(index, Home { admin: None, namespace })),
                Err(why) => tracing::warn!("backend {index} runs without a network namespace: {why}"),
            }
        }
        ground
    }

    /// Puts the relay before the targets, if the profile's faults ask for one.
    pub(super) fn relay(&mut self, job: &Job, targets: &Targets) -> io::Result<()> {
        let plan = &job.prepared.plan;
        if !has(plan, Maker::Relay) {
            return Ok(());
        }
        let backends: Vec<SocketAddr> = (0..targets.count()).filter_map(|index| targets.get(index)).map(|target| target.address).collect();
        let connect_timeout = job.prepared.profile.driver.connect_timeout.0;
        let relay = Relay::start(&backends, RelayOptions { seed: plan.seed, connect_timeout, namespace: None })?;
        targets.go_through(relay.addresses());
        self.relay = Some(relay);
        Ok(())
    }
}
