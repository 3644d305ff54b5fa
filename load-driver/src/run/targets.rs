//! Whom the run talks to: backends that it starts itself, or what runs already.

use std::{sync::Arc, time::Duration};

use agent_server::runtime::clock::Clock;
use proto::time::Micros;
use tokio::{net::TcpStream, time::timeout};

use super::{
    Job, RunError,
    backends::{Backend, BackendSpec},
    poller::{self, Look},
};
use crate::{
    counters::AgentServerSource,
    engine::Targets,
    profile::{Address, Member, Reach},
    report::Exit,
};

/// A target that does not take a connection within this time is unreachable.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);

/// The targets of a run.
#[derive(Debug)]
pub(super) struct TargetSet {
    /// Addresses by index, for the engines.
    pub(super) targets: Arc<Targets>,
    /// Processes that the run started; empty when the targets run already.
    pub(super) backends: Vec<Backend>,
    /// Counter sources by index, for those that have one.
    pub(super) sources: Vec<(usize, AgentServerSource)>,
    /// First looks.
    pub(super) looks: Vec<Look>,
    /// Why targets are not watched, in words.
    pub(super) unwatched: Vec<String>,
}

/// Starts or finds the targets, and takes the first look at their counters.
pub(super) async fn ready(job: &Job, clock: Clock) -> Result<TargetSet, RunError> {
    let fleet = job.prepared.profile.fleet();
    // What is asked for and not done would be a wrong result.
    let refuse = |what: &str| Err(RunError::new(Exit::InvalidProfile, format!("a run cannot do this yet: {what}; `simulate` can")));
    if fleet.members.iter().any(|member| member.killed.is_some() || member.joins > Micros::ZERO) {
        return refuse("backends that join or are killed by their entry in `backends`");
    }
    if job.prepared.profile.routing.is_some() {
        return refuse("`routing`");
    }
    match &fleet.reach {
        Reach::Embedded => embedded(job, &fleet.members, clock).await,
        Reach::Direct => direct(fleet.members.into_iter().filter_map(|member| member.address).collect(), clock).await,
        Reach::Discovered(_) => {
            Err(RunError::new(Exit::InvalidProfile, "a run cannot do this yet: backends by a name; list their addresses"))
        }
        Reach::Front(_) => {
            Err(RunError::new(Exit::InvalidProfile, "a run cannot do this yet: a balancer in front of `backends`; drop `backends`"))
        }
    }
}

async fn direct(addresses: Vec<Address>, clock: Clock) -> Result<TargetSet, RunError> {
    let authorities: Vec<String> = addresses.iter().map(|a| a.address.clone()).collect();
    let mut set = empty(&authorities)?;
    for (index, address) in addresses.iter().enumerate() {
        reach(&set, index).await?;
        // An admin port that the profile names must answer; the one next door is only tried.
        let named = address.admin.is_some();
        let Some(admin) = address.admin() else { continue };
        match first_look(index, &admin, clock).await {
            Ok((source, look)) => set.watch(index, source, look),
            Err(reason) if named => {
                return Err(RunError::new(Exit::TargetUnusable, format!("failed to read the counters of {}: {reason}", address.address)));
            }
            Err(reason) => set.unwatched.push(format!("{} has no counters to read: {reason}", address.address)),
        }
    }
    Ok(set)
}

fn empty(authorities: &[String]) -> Result<TargetSet, RunError> {
    let targets = Targets::resolve(authorities).map_err(|e| RunError::new(Exit::TargetUnusable, e))?;
    Ok(TargetSet { targets: Arc::new(targets), backends: Vec::new(), sources: Vec::new(), looks: Vec::new(), unwatched: Vec::new() })
}

async fn embedded(job: &Job, members: &[Member], clock: Clock) -> Result<TargetSet, RunError> {
    let fault = |e: &dyn std::fmt::Display| RunError::new(Exit::InternalFault, e);
    let program = std::env::current_exe().map_err(|e| fault(&format!("failed to find this program: {e}")))?;
    let mut backends = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let config = job.out.join(format!("backend-{index}.json"));
        let settings = serde_json::to_string_pretty(&member.server).map_err(|e| fault(&e))?;
        std::fs::write(&config, settings).map_err(|e| fault(&format!("failed to write {}: {e}", config.display())))?;
        let spec = BackendSpec {
            program: program.clone(),
            config,
            flags: job.args.defects.iter().flat_map(|defect| ["--defect".to_owned(), defect.clone()]).collect(),
            log_dir: job.out.clone(),
        };
        backends.push(Backend::start(index, spec).await.map_err(|e| RunError::new(Exit::TargetUnusable, e))?);
    }
    let mut set = empty(&backends.iter().map(|b| b.address.to_string()).collect::<Vec<_>>())?;
    for backend in &backends {
        let (source, look) =
            first_look(backend.index, &backend.admin.to_string(), clock).await.map_err(|e| RunError::new(Exit::TargetUnusable, e))?;
        set.watch(backend.index, source, look);
    }
    set.backends = backends;
    Ok(set)
}

impl TargetSet {
    fn watch(&mut self, index: usize, source: AgentServerSource, look: Look) {
        self.sources.push((index, source));
        self.looks.push(look);
    }
}

async fn first_look(index: usize, admin: &str, clock: Clock) -> Result<(AgentServerSource, Look), String> {
    let mut source = poller::source(index, admin, clock).map_err(|e| format!("{admin}: {e}"))?;
    match poller::look(&mut source, index, false, clock).await {
        Look::Gap { reason, .. } => Err(reason),
        look @ Look::Sample(_) => Ok((source, look)),
    }
}

async fn reach(set: &TargetSet, index: usize) -> Result<(), RunError> {
    let Some(target) = set.targets.get(index) else { return Ok(()) };
    let unusable = |reason: String| RunError::new(Exit::TargetUnusable, format!("failed to reach target {}: {reason}", target.authority));
    match timeout(REACH_TIMEOUT, TcpStream::connect(target.address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) => Err(unusable(format!("{e}; is the backend running, and is this its address?"))),
        Err(_) => Err(unusable(format!("no answer within {REACH_TIMEOUT:?}"))),
    }
}
