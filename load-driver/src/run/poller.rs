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
    counters::{Access, AgentServerSource, CounterSample, CounterSource, Observation, TotalsSample},
    plan::Connection,
};

/// A poll that takes longer is a gap.
pub(super) const POLL_TIMEOUT: Duration = Duration::from_secs(2);
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
    /// Sums.
    Totals(Box<TotalsSample>),
    /// A source of sums gave none.
    Blind {
        /// Its number.
        source: usize,
        /// Unix microseconds at which the poll ended.
        at_us: u64,
        /// Why.
        reason: String,
    },
}

/// Whose counters a source gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Of a backend of the fleet, sessions and all.
    Backend(usize),
    /// Sums; the source's number.
    Totals(usize),
}

/// A source, and whose counters it gives.
pub(super) struct Watched {
    pub(super) whose: Whose,
    pub(super) source: Box<dyn CounterSource>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watched({:?})", self.whose)
    }
}

/// Polls until it is dropped.
#[derive(Debug)]
pub(super) struct Poller {
    /// What the looks gave, in order for each backend.
    pub(super) looks: Receiver<Look>,
    registry: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

/// One look.
pub(super) async fn look(source: &mut dyn CounterSource, whose: Whose, registry: bool, clock: Clock) -> Look {
    let seen = source.poll(registry).await;
    let at_us = clock.unix_us(clock.now());
    match (seen, whose) {
        (Ok(Observation::Snapshot(sample)), _) => Look::Sample(sample),
        (Ok(Observation::Totals(sample)), _) => Look::Totals(Box::new(sample)),
        (Err(error), Whose::Backend(backend)) => Look::Gap { backend, at_us, reason: error.to_string() },
        (Err(error), Whose::Totals(source)) => Look::Blind { source, at_us, reason: error.to_string() },
    }
}

/// A source for the admin port of a backend.
pub(super) fn source(backend: usize, admin: &str, connection: &Connection, clock: Clock) -> std::io::Result<AgentServerSource> {
    let (address, access) = Access::of(admin, connection)?;
    Ok(AgentServerSource::new(backend, address, clock, POLL_TIMEOUT).with(access))
}

impl Poller {
    /// Polls these sources, each on its own, every `every`. Must be called inside a runtime.
    pub(super) fn start(sources: Vec<Watched>, every: Duration, clock: Clock) -> Self {
        let (sender, looks) = mpsc::channel(QUEUE);
        let registry = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for watched in sources {
            tasks.spawn(poll(watched, every, clock, Arc::clone(&registry), sender.clone()));
        }
        Self { looks, registry, _tasks: tasks }
    }

    /// From now on the backends are asked for the names of live sessions as well, or no more.
    pub(super) fn want_names(&self, wanted: bool) {
        self.registry.store(wanted, Ordering::Relaxed);
    }
}

async fn poll(mut watched: Watched, every: Duration, clock: Clock, names: Arc<AtomicBool>, out: Sender<Look>) {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let look = look(&mut *watched.source, watched.whose, names.load(Ordering::Relaxed), clock).await;
        if out.send(look).await.is_err() {
            return;
        }
    }
}

/// Unix time now, microseconds.
pub(super) fn unix_now(clock: &Clock) -> u64 {
    clock.unix_us(clock.now().max(Micros::ZERO))
}
