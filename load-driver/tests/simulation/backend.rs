//! A backend on a host of the simulation: the server's own parts, all on one runtime.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use agent_server::{
    admin::{self, Admin},
    config::{CpuSource, ServeArgs, ServerConfig},
    dialect, listen,
    report::usage::CpuTime,
    runtime::clock::Clock,
    serve::{Parts, drain, run_shard, wrongs},
    shard::{Shard, Shared},
    tracker::Snapshot,
};
use clap::Parser;
use tokio_util::sync::CancellationToken;

use super::net::{Network, Port};

/// Unix time at which every simulation begins, microseconds.
pub const T0: u64 = 1_700_000_000_000_000;
pub const SESSIONS: u16 = 7000;
pub const ADMIN: u16 = 7001;

/// The process that runs on a host now.
#[derive(Debug)]
pub struct Process {
    pub shared: Arc<Shared>,
    pub shards: Arc<[Arc<Shard>]>,
}

/// What the simulation sees of a host: a window into its process.
#[derive(Debug, Default)]
pub struct Host {
    pub boots: u64,
    pub process: Option<Process>,
}

pub type SharedHost = Rc<RefCell<Host>>;

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    args: ServeArgs,
}

pub fn boot_id(backend: usize, boot: u64) -> String {
    format!("backend-{backend}-boot-{boot}")
}

pub fn config(flags: &[String]) -> ServerConfig {
    let flags = Flags::parse_from(std::iter::once("agent-server").chain(flags.iter().map(String::as_str)));
    ServerConfig::resolve(flags.args).expect("settings")
}

/// The clock of a host, of a simulation that ticks so often.
pub fn clock(tick: Duration) -> Clock {
    Clock::simulated(T0 + turmoil::sim_elapsed().expect("on a host").as_micros() as u64, tick)
}

/// Runs a backend for as long as its host is up.
pub async fn run(backend: usize, host: SharedHost, network: Network, tick: Duration, config: ServerConfig) -> turmoil::Result {
    let boot = {
        let mut host = host.borrow_mut();
        host.boots += 1;
        host.boots
    };
    let wrongs = wrongs(&config)?;
    let parts = Parts::new(clock(tick), config, wrongs, format!("backend-{backend}"), boot_id(backend, boot));
    let Parts { shared, shards, health, dealer, inboxes } = parts;
    let (sessions, looks) = (Port::bind(SESSIONS, network.clone()).await?, Port::bind(ADMIN, network).await?);
    host.borrow_mut().process = Some(Process { shared: Arc::clone(&shared), shards: Arc::clone(&shards) });
    for (index, (shard, inbox)) in shards.iter().zip(inboxes).enumerate() {
        let grpc = dialect::routes(shard, &health)?;
        tokio::task::spawn_local(run_shard(index, Arc::clone(shard), grpc, inbox));
    }
    let cpu = CpuTime::open(CpuSource::Virtual)?;
    let admin = Admin { shared: Arc::clone(&shared), shards: Arc::clone(&shards), cpu };
    tokio::task::spawn_local(admin::serve(looks, None, admin, CancellationToken::new()));
    tokio::task::spawn_local(listen::accept(sessions, None, dealer, Arc::clone(&shared.admission), shared.stop.clone()));
    shared.drain_asked.cancelled().await;
    drain(&shared, &shards, &health, shared.config.drain_timeout).await;
    std::future::pending().await
}

impl Process {
    pub fn live(&self) -> u64 {
        self.shards.iter().map(|shard| shard.live()).sum()
    }

    /// Streams that are open, with or without a session.
    pub fn streams(&self) -> u64 {
        self.shards.iter().map(|shard| shard.started()).sum()
    }

    /// The invariants that hold in every snapshot.
    pub fn check(&self) -> Result<Snapshot, String> {
        let cut = self.shared.sessions.snapshot();
        let ended: u64 = cut.ended.iter().sum();
        let phases: i64 = cut.phases.iter().sum();
        let wrong = |what: &str| Err(format!("{what}: {cut:?}, {} live", self.live()));
        if !cut.exact {
            return wrong("a cut on one thread is not exact");
        }
        if i128::from(cut.started) != i128::from(cut.active) + i128::from(ended) {
            return wrong("started is not active and ended");
        }
        if cut.active < 0 || self.shared.sessions.max_sessions().is_some_and(|max| cut.active > max as i64) {
            return wrong("active is out of its bounds");
        }
        if phases != cut.active || cut.phases.iter().any(|phase| *phase < 0) {
            return wrong("the phases do not sum up to active");
        }
        if cut.active != self.live() as i64 {
            return wrong("active is not the number of live sessions");
        }
        Ok(cut)
    }
}
