//! What a server is made of, without its threads and ports: they belong to [`super::run`], or to a simulation.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use tokio::time::timeout;
use tonic_health::server::HealthReporter;

use super::ServerConfig;
use crate::{
    dialect::Grpc,
    fault::{Defect, Defects, Fault, Faults},
    listen::{self, Dealer, Inbox},
    runtime::clock::Clock,
    shard::{Shard, Shared, Wrongs},
    tracker::{Meddler, Sessions},
};

/// For the last tasks of a shard.
const FAREWELL: Duration = Duration::from_secs(3);

/// The defects and faults that the settings name. Loud: each is told in the log.
///
/// # Errors
/// When one cannot be read, or lacks what it is about.
pub fn wrongs(config: &ServerConfig) -> anyhow::Result<(Vec<Defect>, Vec<Fault>)> {
    let defects: Vec<Defect> =
        config.defects.iter().map(|text| text.parse()).collect::<Result<_, _>>().context("failed to read a defect")?;
    for defect in &defects {
        tracing::warn!("THIS SERVER COUNTS WRONGLY ON PURPOSE: {defect:?}");
    }
    let faults: Vec<Fault> = config.faults.iter().map(|text| text.parse()).collect::<Result<_, _>>().context("failed to read a fault")?;
    for fault in &faults {
        let name = fault.kind.name();
        ensure!(config.max_sessions.is_some() || !fault.kind.needs_cap(), "fault {name} is about the cap of sessions: set --max-sessions");
        tracing::warn!("THIS SERVER MISBEHAVES ON PURPOSE: {fault}");
    }
    Ok((defects, faults))
}

/// A server that nobody runs yet.
#[derive(Debug)]
pub struct Parts {
    /// What all shards share.
    pub shared: Arc<Shared>,
    /// Each to be run by [`run_shard`], with its inbox.
    pub shards: Arc<[Arc<Shard>]>,
    /// Answers for the server's health.
    pub health: HealthReporter,
    /// For [`listen::accept`].
    pub dealer: Dealer,
    /// In the order of the shards.
    pub inboxes: Vec<Inbox>,
}

impl Parts {
    /// Of these settings, under these names.
    pub fn new(
        clock: Clock,
        config: ServerConfig,
        (defects, faults): (Vec<Defect>, Vec<Fault>),
        backend_id: String,
        boot_id: String,
    ) -> Self {
        let between = !defects.is_empty() || faults.iter().any(|fault| fault.kind.needs_cap());
        let faults = Arc::new(Faults::new(&faults));
        let meddler = Defects::with_faults(&defects, Arc::clone(&faults));
        let unix = Box::new(move || clock.unix_us(clock.now()));
        let between = between.then(|| Arc::clone(&meddler) as Arc<dyn Meddler>);
        let sessions = Sessions::with_meddler(config.shards, config.max_sessions, unix, between);
        let shared = Shared::new(clock, config, sessions, Wrongs { defects: meddler, faults }, backend_id, boot_id);
        let shards: Arc<[Arc<Shard>]> = (0..shared.config.shards).map(|_| Shard::new(Arc::clone(&shared))).collect();
        let (dealer, inboxes) = Dealer::new(shards.len());
        Self { shared, shards, health: HealthReporter::new(), dealer, inboxes }
    }
}

/// Runs a shard and its connections until the server stops.
pub async fn run_shard(index: usize, shard: Arc<Shard>, grpc: Grpc, inbox: Inbox) {
    let stop = shard.shared().stop.clone();
    let connections = tokio::spawn(listen::serve(Arc::clone(&shard), grpc, inbox));
    if let Err(error) = Arc::clone(&shard).run(stop.clone()).await {
        tracing::error!("shard-{index} cannot tick, the server stops: {error}");
        stop.cancel();
    }
    let _ = connections.await;
    shard.tasks().close();
    let _ = timeout(FAREWELL, shard.tasks().wait()).await;
}
