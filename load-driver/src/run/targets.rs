//! Whom the run talks to: backends that it starts itself, or what runs already.
//!
//! Two counts that need not be the same: *targets* are where the engines send sessions, *members* are the backends of the fleet, whose counters are
//! read. Without a front they are the same, by the same index; with one there is one target, and the members stand behind it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use tokio::{net::TcpStream, time::timeout};

use super::{
    Job, RunError,
    backends::{Backend, BackendSpec},
    discovery,
    ground::Ground,
    poller::{self, Look, Watched, Whose},
    sums,
};
use crate::{
    counters::AgentServerSource,
    engine::Targets,
    ledger::TotalsConfig,
    plan::Connection,
    profile::{Address, CounterKind, Fleet, Member, Reach, Site, TargetUrl},
    report::Exit,
};

/// A target that does not take a connection within this time is unreachable.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);

/// The targets of a run, and the backends behind them.
#[derive(Debug)]
pub(super) struct TargetSet {
    /// Where sessions go, for the engines: the members by index, or the front alone.
    pub(super) targets: Arc<Targets>,
    /// Sessions go to a front, which picks a member for each.
    pub(super) front: bool,
    /// How many backends the fleet has.
    pub(super) members: usize,
    /// Whom the run is against, in words.
    pub(super) names: Vec<String>,
    /// Processes that the run started, by index of the fleet; empty when the backends run already.
    pub(super) backends: Vec<Backend>,
    /// Counter sources, of whom there are any.
    pub(super) sources: Vec<Watched>,
    /// What the sources of sums are about, by their numbers.
    pub(super) totals: Vec<TotalsConfig>,
    /// First looks.
    pub(super) looks: Vec<Look>,
    /// Why backends are not watched, in words.
    pub(super) unwatched: Vec<String>,
    /// What stands between, for faults of the network. Dropped after the backends that live in it.
    pub(super) ground: Ground,
}

/// Starts or finds the backends, and takes the first look at their counters; then puts before them what the profile's faults need.
pub(super) async fn ready(job: &Job, clock: Clock) -> Result<TargetSet, RunError> {
    let mut set = found(job, clock).await?;
    let fault = |e| RunError::new(Exit::InternalFault, format!("failed to start the relay: {e}"));
    set.ground.relay(job, &set.targets).map_err(fault)?;
    Ok(set)
}

async fn found(job: &Job, clock: Clock) -> Result<TargetSet, RunError> {
    let Fleet { reach, members } = job.prepared.profile.fleet();
    if reach != Reach::Embedded && members.iter().any(|member| member.killed.is_some()) {
        return Err(RunError::new(Exit::InvalidProfile, "`killed` is for backends that the run starts itself: these run already"));
    }
    match reach {
        Reach::Embedded => embedded(job, &members, clock).await,
        Reach::Direct => direct(job, &addresses(&members)?, clock).await,
        Reach::Discovered(name) => {
            let found = discovery::resolve(&name, &job.prepared.profile.connection, clock).await?;
            let names = discovery::names(&name, &found);
            // Nobody reads it when even stderr is gone.
            let _ = writeln!(std::io::stderr(), "{}", names.join(", "));
            super::descriptors(&job.prepared, found.len())?;
            Ok(TargetSet { names, ..direct(job, &found, clock).await? })
        }
        Reach::Front(front) => behind(job, &front, &addresses(&members)?, clock).await,
    }
}

/// Of members that run already.
fn addresses(members: &[Member]) -> Result<Vec<Address>, RunError> {
    let each = |(index, member): (usize, &Member)| {
        let missing =
            || RunError::new(Exit::InvalidProfile, format!("backend {index} has no `address`: the run starts none beside those that run"));
        member.address.clone().ok_or_else(missing)
    };
    members.iter().enumerate().map(each).collect()
}

fn empty(job: &Job, addresses: &[String], names: Vec<String>) -> Result<TargetSet, RunError> {
    let targets = Targets::resolve_with(addresses, &job.prepared.profile.connection).map_err(|e| RunError::new(Exit::TargetUnusable, e))?;
    Ok(TargetSet {
        members: targets.count(),
        targets: Arc::new(targets),
        front: false,
        names,
        backends: Vec::new(),
        sources: Vec::new(),
        totals: Vec::new(),
        looks: Vec::new(),
        unwatched: Vec::new(),
        ground: Ground::default(),
    })
}

/// One process for each member. One that is to join later runs from the start: until then nobody is sent there.
async fn embedded(job: &Job, members: &[Member], clock: Clock) -> Result<TargetSet, RunError> {
    let fault = |e: &dyn std::fmt::Display| RunError::new(Exit::InternalFault, e);
    let program = std::env::current_exe().map_err(|e| fault(&format!("failed to find this program: {e}")))?;
    let mut ground = Ground::prepare(job, members.len());
    let mut backends = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let spec = BackendSpec {
            program: program.clone(),
            config: settings(job, index, &member.server)?,
            flags: job.args.server_flags(),
            log_dir: job.out.clone(),
            home: ground.homes.get(&index).map(|home| (home.namespace.prefix(), home.namespace.address())),
        };
        backends.push(Backend::start(index, spec).await.map_err(|e| RunError::new(Exit::TargetUnusable, e))?);
    }
    let authorities: Vec<String> = backends.iter().map(|b| b.address.to_string()).collect();
    let mut set = empty(job, &authorities, vec!["embedded".to_owned()])?;
    let mut admins = Vec::new();
    for backend in &backends {
        admins.push(match ground.homes.get_mut(&backend.index) {
            Some(home) => {
                home.admin(backend.admin).map_err(|e| fault(&format!("failed to reach backend {} in its namespace: {e}", backend.index)))?
            }
            None => backend.admin,
        });
    }
    if has_sums(job) {
        let site =
            |(b, admin): (&Backend, &SocketAddr)| Site { index: b.index, address: b.address.to_string(), admin: Some(admin.to_string()) };
        let sites: Vec<Site> = backends.iter().zip(&admins).map(site).collect();
        set.backends = backends;
        set.ground = ground;
        sums::watch(job, &mut set, &sites, clock).await?;
        return Ok(set);
    }
    for (backend, admin) in backends.iter().zip(&admins) {
        let (source, look) = first_look(backend.index, &admin.to_string(), &Connection::default(), clock)
            .await
            .map_err(|e| RunError::new(Exit::TargetUnusable, e))?;
        set.watch(backend.index, source, look);
    }
    set.backends = backends;
    set.ground = ground;
    Ok(set)
}

/// The settings of one backend as a file for `agent-server`.
fn settings(job: &Job, index: usize, server: &BTreeMap<String, serde_json::Value>) -> Result<PathBuf, RunError> {
    let fault = |e: &dyn std::fmt::Display| RunError::new(Exit::InternalFault, e);
    let file = job.out.join(format!("backend-{index}.json"));
    let text = serde_json::to_string_pretty(server).map_err(|e| fault(&e))?;
    std::fs::write(&file, text).map_err(|e| fault(&format!("failed to write {}: {e}", file.display())))?;
    Ok(file)
}

async fn direct(job: &Job, addresses: &[Address], clock: Clock) -> Result<TargetSet, RunError> {
    let authorities: Vec<String> = addresses.iter().map(|a| a.address.clone()).collect();
    let names = addresses.iter().map(|a| a.shown().into_owned()).collect();
    let mut set = empty(job, &authorities, names)?;
    if has_sums(job) {
        let mut sites = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            reach(&set, index).await?;
            sites.push(site(index, address));
        }
        sums::watch(job, &mut set, &sites, clock).await?;
        return Ok(set);
    }
    for (index, address) in addresses.iter().enumerate() {
        reach(&set, index).await?;
        // An admin port that the profile names must answer; the one next door is only tried.
        let named = address.admin.is_some();
        let Some(admin) = address.admin() else {
            set.unwatched.push(format!("{} has no counters that the profile names (`admin`)", address.shown()));
            continue;
        };
        match first_look(index, &admin, &job.prepared.profile.connection, clock).await {
            Ok((source, look)) => set.watch(index, source, look),
            Err(reason) if named => return Err(no_counters(&address.shown(), &reason)),
            Err(reason) => set.unwatched.push(format!("{} has no counters to read: {reason}", address.shown())),
        }
    }
    Ok(set)
}

/// Sessions go to the front; the counters of every member must answer, for a session may go to any, and their names must tell them apart.
async fn behind(job: &Job, front: &Address, members: &[Address], clock: Clock) -> Result<TargetSet, RunError> {
    let names = std::iter::once(format!("front {}", front.shown())).chain(members.iter().map(|m| format!("backend {}", m.address)));
    let mut set = empty(job, std::slice::from_ref(&front.address), names.collect())?;
    set.front = true;
    set.members = members.len();
    reach(&set, 0).await?;
    if has_sums(job) {
        let sites: Vec<Site> = members.iter().enumerate().map(|(index, member)| site(index, member)).collect();
        sums::watch(job, &mut set, &sites, clock).await?;
        return Ok(set);
    }
    let mut ids: BTreeMap<String, &str> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        let admin = member.admin().ok_or_else(|| no_counters(&member.address, "its admin port is not known; name it as `admin`"))?;
        let (source, look) = first_look(index, &admin, &job.prepared.profile.connection, clock)
            .await
            .map_err(|reason| no_counters(&member.address, &reason))?;
        if let Some(id) = id_of(&look)
            && let Some(other) = ids.insert(id.to_owned(), &member.address)
        {
            let reason = format!(
                "backends {other} and {} both go by the id `{id}`, so that sessions behind the front could be either's: start each with a --backend-id of its own",
                member.address
            );
            return Err(RunError::new(Exit::TargetUnusable, reason));
        }
        set.watch(index, source, look);
    }
    Ok(set)
}

fn id_of(look: &Look) -> Option<&str> {
    match look {
        Look::Sample(sample) => Some(&sample.snapshot.backend_id),
        Look::Gap { .. } | Look::Totals(_) | Look::Blind { .. } => None,
    }
}

/// The counters are sums from elsewhere than an agent-server's admin port.
fn has_sums(job: &Job) -> bool {
    job.prepared.profile.counters.source != CounterKind::AgentServer
}

/// Of a backend that runs already.
pub(super) fn site(index: usize, address: &Address) -> Site {
    let url = TargetUrl::parse(&address.address);
    let at = url.map_or_else(|_| address.address.clone(), |url| url.host_and_port());
    Site { index, address: at, admin: address.admin() }
}

fn no_counters(address: &str, reason: &str) -> RunError {
    RunError::new(Exit::TargetUnusable, format!("failed to read the counters of {address}: {reason}"))
}

impl TargetSet {
    fn watch(&mut self, index: usize, source: AgentServerSource, look: Look) {
        self.sources.push(Watched { whose: Whose::Backend(index), source: Box::new(source) });
        self.looks.push(look);
    }

    /// Backends whose sessions are watched by name.
    pub(super) fn watched(&self) -> BTreeSet<usize> {
        let backend = |watched: &Watched| match watched.whose {
            Whose::Backend(index) => Some(index),
            Whose::Totals(_) => None,
        };
        self.sources.iter().filter_map(backend).collect()
    }
}

async fn first_look(index: usize, admin: &str, connection: &Connection, clock: Clock) -> Result<(AgentServerSource, Look), String> {
    let mut source = poller::source(index, admin, connection, clock).map_err(|e| format!("{admin}: {e}"))?;
    match poller::look(&mut source, Whose::Backend(index), false, clock).await {
        Look::Gap { reason, .. } | Look::Blind { reason, .. } => Err(reason),
        look @ (Look::Sample(_) | Look::Totals(_)) => Ok((source, look)),
    }
}

async fn reach(set: &TargetSet, index: usize) -> Result<(), RunError> {
    let Some(target) = set.targets.get(index) else { return Ok(()) };
    let unusable = |reason: String| RunError::new(Exit::TargetUnusable, format!("failed to reach target {}: {reason}", target.name));
    match timeout(REACH_TIMEOUT, TcpStream::connect(target.address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) => Err(unusable(format!("{e}; is it running, and is this its address?"))),
        Err(_) => Err(unusable(format!("no answer within {REACH_TIMEOUT:?}"))),
    }
}
