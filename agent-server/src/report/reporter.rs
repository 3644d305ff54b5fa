//! Looks at the counters and the CPU every so often, and publishes the load for all who tell it.
//!
//! A thread of its own: looking must not cost a shard a tick, nor wait for an operator's request. What it reads are the counters as the backend
//! believes them, defects included. A torn snapshot is the fault of `/snapshot` alone, and is not asked for here.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use anyhow::Context;
use parking_lot::RwLock;
use proto::frame::{ErrorCode, Outcome};
use tokio::{
    runtime::Builder,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    meter::{Meter, Reading},
    orca::Published,
    usage::{self, CpuTime},
};
use crate::{
    config::ReportConfig,
    shard::Shared,
    tracker::{Phase, Snapshot},
};

/// Between looks, at most; at least, whatever interval reports may have.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(10));

/// Where the latest report hangs.
#[derive(Debug)]
pub struct Board(RwLock<Arc<Published>>);

impl Board {
    /// Before the first look: no session, no work.
    pub fn new(config: &ReportConfig) -> Self {
        Self(RwLock::new(Arc::new(Published::new(config.meter().load(false), 0, config.mode, 0.0))))
    }

    /// The latest.
    pub fn latest(&self) -> Arc<Published> {
        Arc::clone(&self.0.read())
    }

    fn hang(&self, published: Published) {
        *self.0.write() = Arc::new(published);
    }
}

/// Who looks.
#[derive(Debug)]
pub struct Reporter {
    shared: Arc<Shared>,
    cpu: CpuTime,
    memory: u64,
    meter: Meter,
    used_us: u64,
}

impl Reporter {
    /// Takes the first look, so that the first report says something.
    pub fn new(shared: Arc<Shared>, cpu: CpuTime) -> Self {
        let meter = shared.config.report.meter();
        let mut reporter = Self { shared, cpu, memory: usage::memory_bytes(), meter, used_us: 0 };
        reporter.look();
        reporter
    }

    /// Goes on looking until `stop`.
    pub fn start(mut self, stop: CancellationToken) -> anyhow::Result<JoinHandle<()>> {
        let runtime = Builder::new_current_thread().enable_time().build().context("failed to start the reporter's runtime")?;
        let between = self.shared.config.report.min_interval.clamp(LOOK.1, LOOK.0);
        let thread = std::thread::Builder::new().name("reporter".to_owned()).spawn(move || {
            runtime.block_on(async {
                let mut looks = interval(between);
                looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    tokio::select! {
                        _ = looks.tick() => self.look(),
                        () = stop.cancelled() => return,
                    }
                }
            });
        });
        thread.context("failed to start the reporter's thread")
    }

    fn look(&mut self) {
        let shared = &self.shared;
        let cut = shared.sessions.snapshot();
        // A file that cannot be read just now says nothing of work: what was used stays what it was.
        self.used_us = self.cpu.used_us(shared).unwrap_or(self.used_us);
        self.meter.read(Reading {
            at: shared.clock.now(),
            active: cut.active,
            speaking: speaking(&cut),
            used_us: self.used_us,
            errors: errors(shared, &cut),
        });
        let memory = if self.memory == 0 { 0.0 } else { usage::rss_bytes() as f64 / self.memory as f64 };
        let load = self.meter.load(shared.draining());
        shared.board.hang(Published::new(load, self.used_us, shared.config.report.mode, memory));
    }
}

/// Sessions in which somebody speaks.
pub fn speaking(cut: &Snapshot) -> u64 {
    [Phase::UserSpeaking, Phase::AgentSpeaking].into_iter().map(|phase| cut.phases[phase as usize].max(0) as u64).sum()
}

/// Sessions refused (at the cap, while draining) and sessions that failed. What clients did wrong before they had a session is their fault.
fn errors(shared: &Shared, cut: &Snapshot) -> u64 {
    let while_draining = shared.refused.lock().get(&ErrorCode::Draining).copied().unwrap_or(0);
    cut.rejected + while_draining + cut.ended[Outcome::Failed as usize]
}
