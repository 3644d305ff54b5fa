//! Reads the counters of every backend again and again, and hands what comes to the controller.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use proto::time::Micros;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    counters::{Access, AgentServerSource, CounterSample, CounterSource},
    plan::Connection,
};

/// A poll that takes longer is a gap.
const POLL_TIMEOUT: Duration = Duration::from_secs(2);
/// Looks that may wait for the controller.
const QUEUE: usize = 64;

/// What came of a look.
#[derive(Debug)]
pub(super) enum Look {
    /// Counters.
    Sample(Box<CounterSample>),
    /// None: the backend did not answer.
    Gap {
        /// Index into the targets.
        backend: usize,
        /// Unix microseconds at which the poll ended.
        at_us: u64,
        /// Why.
        reason: String,
    },
}

/// Polls until it is dropped.
#[derive(Debug)]
pub(super) struct Poller {
    /// What the looks gave, in order for each backend.
    pub(super) looks: Receiver<Look>,
    registry: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

/// A look at one backend.
pub(super) async fn look(source: &mut dyn CounterSource, backend: usize, registry: bool, clock: Clock) -> Look {
    match source.poll(registry).await {
        Ok(sample) => Look::Sample(Box::new(sample)),
        Err(error) => Look::Gap { backend, at_us: clock.unix_us(clock.now()), reason: error.to_string() },
    }
}

/// A source for the admin port of a backend.
pub(super) fn source(backend: usize, admin: &str, connection: &Connection, clock: Clock) -> std::io::Result<AgentServerSource> {
    let (address, access) = Access::of(admin, connection)?;
    Ok(AgentServerSource::new(backend, address, clock, POLL_TIMEOUT).with(access))
}

impl Poller {
    /// Polls these sources, each on its own, every `every`. Must be called inside a runtime.
    pub(super) fn start(sources: Vec<(usize, AgentServerSource)>, every: Duration, clock: Clock) -> Self {
        let (sender, looks) = mpsc::channel(QUEUE);
        let registry = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (backend, source) in sources {
            tasks.spawn(poll(backend, source, every, clock, Arc::clone(&registry), sender.clone()));
        }
        Self { looks, registry, _tasks: tasks }
    }

    /// From now on the backends are asked for the names of live sessions as well, or no more.
    pub(super) fn want_names(&self, wanted: bool) {
        self.registry.store(wanted, Ordering::Relaxed);
    }
}

async fn poll(backend: usize, mut source: AgentServerSource, every: Duration, clock: Clock, names: Arc<AtomicBool>, out: Sender<Look>) {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let look = look(&mut source, backend, names.load(Ordering::Relaxed), clock).await;
        if out.send(look).await.is_err() {
            return;
        }
    }
}

/// Unix time now, microseconds.
pub(super) fn unix_now(clock: &Clock) -> u64 {
    clock.unix_us(clock.now().max(Micros::ZERO))
}
