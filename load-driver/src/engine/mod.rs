//! Drives callers over transports: shards with one current-thread runtime each, stepped by one tick.
//!
//! A shard is a thread that owns its callers, their connections and its measurements (`core`). A 1 ms tick steps the callers that are
//! due and writes what they say at once; one task a session reads. Shards share nothing but the plan, the targets, the router where there
//! is one, and a channel to the controller, which they never wait for: what does not fit goes with the next batch.

use std::{io, sync::Arc, thread};

use agent_server::runtime::clock::Clock;
use proto::time::Micros;
use tokio::sync::mpsc::Sender;

use crate::{
    plan::Plan,
    transport::{Net, TransportOptions},
};

mod agenda;
mod balancer;
mod control;
mod core;
pub mod event;
pub mod routes;
mod shard;
pub mod targets;
pub mod wire;
pub mod worker;

pub use balancer::{Balancer, BalancerConfig, PolicyError};
pub use event::{EngineEvent, IntervalReport, ScenarioInterval};
pub use targets::{Target, TargetError, Targets};

use control::{Control, Order};

/// How an engine runs a plan.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct EngineOptions {
    /// Threads; lanes are dealt round over them.
    pub shards: usize,
    /// Dials that a shard has under way at once; further sessions wait, and their wait shows in what is measured from the schedule.
    pub handshakes: usize,
    /// The target is a balancer: which backend gets a session is not known here before it says so itself.
    pub front: bool,
    /// How to dial.
    pub transport: TransportOptions,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { shards: 1, handshakes: 256, front: false, transport: TransportOptions::default() }
    }
}

/// Starts engines.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    /// Starts the shards. `clock`'s epoch is the start of the run. The channel wants room for a few events a shard.
    ///
    /// `balancer` gives sessions to targets; without one each target has its turn, by the session's index in the plan. It has a pinned
    /// backend's sessions in its reports at most. It ends with the engine.
    ///
    /// Every shard sends `Done` last, whatever happens to its sessions, unless the engine is `Fatal`.
    pub fn start(
        plan: Plan,
        options: EngineOptions,
        targets: Arc<Targets>,
        balancer: Option<Balancer>,
        clock: Clock,
        events: Sender<EngineEvent>,
    ) -> io::Result<EngineHandle> {
        let control = Arc::new(Control::default());
        let routes = balancer.as_ref().map(|balancer| Arc::clone(balancer.routes()));
        if let Some(routes) = &routes {
            routes.begin(clock);
        }
        let mut handle = EngineHandle { control: Arc::clone(&control), threads: Vec::new(), _balancer: balancer };
        let common = shard::Start { shard: 0, plan: Arc::new(plan), options, net: Net::Tcp, targets, routes, clock, control, events };
        for shard in 0..options.shards.max(1) {
            let start = shard::Start { shard, ..common.clone() };
            handle.threads.push(thread::Builder::new().name(format!("shard-{shard}")).spawn(move || shard::run(start))?);
        }
        Ok(handle)
    }

    /// As one shard, here: on the caller's runtime and local task set, over a network and in the time of a simulation. Ends when the channel
    /// is closed after `Done`.
    pub async fn simulate(
        plan: Arc<Plan>,
        options: EngineOptions,
        net: Net,
        targets: Arc<Targets>,
        clock: Clock,
        events: Sender<EngineEvent>,
    ) -> io::Result<()> {
        let options = EngineOptions { shards: 1, ..options };
        shard::drive(shard::Start { shard: 0, plan, options, net, targets, routes: None, clock, control: Arc::default(), events }).await
    }
}

/// A running engine. Dropping it aborts the run and waits for the shards.
#[derive(Debug)]
pub struct EngineHandle {
    control: Arc<Control>,
    threads: Vec<thread::JoinHandle<()>>,
    /// Dropped after the threads were joined.
    _balancer: Option<Balancer>,
}

impl EngineHandle {
    /// Begins nothing more; sessions say goodbye by `deadline` (run time) and are cut when the answer does not come in a few seconds.
    pub fn stop(&self, deadline: Micros) {
        self.control.give(Order::Stop(deadline));
    }

    /// Cuts every session now; they are `Aborted`.
    pub fn abort(&self) {
        self.control.give(Order::Abort);
    }

    /// Ends the engine: what still runs is aborted, silent sockets are reset, threads are joined. Call it after the last `Done`, and
    /// after the counters were compared if half-open sessions are to be found by the backend. Blocks; the channel must be read or
    /// closed meanwhile.
    pub fn join(self) {
        drop(self);
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.control.give(Order::Release);
        for thread in self.threads.drain(..) {
            // A panic was told as `Fatal`.
            let _ = thread.join();
        }
    }
}
