//! Kills that the plan asks for, made; and backends that end by themselves.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    controller::{Run, global_shard},
    ending::STOP_GRACE,
    faults,
    kills::Victim,
    poller::unix_now,
    workers::WorkerNews,
};
use crate::report::{Exit, Reporters};

impl Run {
    /// Makes the next planned kill.
    pub(super) async fn kill(&mut self, reporters: &mut Reporters) {
        let kill = self.kills.remove(0);
        match kill.victim {
            Victim::Worker { scenario } => self.kill_worker(scenario, reporters).await,
            Victim::Backend { index, dead_for } => {
                let killed = self.kill_backend(index, dead_for).await;
                if let Some(fault) = kill.fault {
                    self.timeline.killed(fault, index, killed);
                }
            }
        }
    }

    /// The sessions are over: who is killed now takes the proof along, and nothing with it that was to be tested.
    pub(super) fn forget_kills(&mut self) {
        for kill in std::mem::take(&mut self.kills) {
            tracing::error!("a kill at {:?} did not come about: the run was over before", Duration::from_micros(kill.at.0));
        }
    }

    async fn kill_worker(&mut self, scenario: u16, reporters: &mut Reporters) {
        let Some(number) = self.worker_of.get(&scenario).copied() else { return };
        let Some(mut worker) = self.workers.remove(&number) else { return };
        let at_us = unix_now(&self.clock);
        let pid = worker.pid();
        if let Err(error) = worker.kill() {
            tracing::error!("failed to kill worker {number}: {error}");
        }
        faults::killed(self, pid);
        // What it said before it died is in the pipe still; only then is it known what it may have taken with it.
        while let Some(news) = self.news.recv().await {
            match news {
                WorkerNews::Event { worker, event } => self.event(worker, event, reporters),
                WorkerNews::Gone { worker, .. } if worker == number => break,
                WorkerNews::Gone { worker, fault } => self.worker_gone(worker, fault),
            }
        }
        worker.join();
        if !self.heard.contains(&number) {
            // A kill that found nobody proves nothing, and must not look as if it did.
            tracing::error!("worker {number} had not begun when it was to be killed: kill it later, or run less beside it");
            self.workers_lost += 1;
        }
        for source in self.open.iter().copied().filter(|s| s.worker == number).collect::<Vec<_>>() {
            self.open.remove(&source);
            self.registry.shard_gone(global_shard(number, source.shard as usize));
        }
        self.balancing.worker_lost(number, at_us, true);
        self.ledger.worker_lost(number, at_us, true);
    }

    /// Whether there was anybody to be killed.
    pub(super) async fn kill_backend(&mut self, index: usize, dead_for: Duration) -> bool {
        if self.dead.iter().any(|(dead, _)| *dead == index) {
            // A kill that found nobody proves nothing, and must not look as if it did.
            tracing::error!(
                "backend {index} was dead already when it was to be killed: kill it later, or let it be dead for a shorter time"
            );
            return false;
        }
        let Some(backend) = self.set.backends.get_mut(index) else { return false };
        let lived = backend.ended().is_none();
        let pid = backend.pid();
        let at_us = unix_now(&self.clock);
        self.balancing.backend_killed(index, at_us);
        self.ledger.backend_killed(index, &backend.boot_id, at_us);
        if let Some(relay) = &self.set.ground.relay {
            relay.shut(index).await;
        }
        if lived && let Err(error) = backend.kill().await {
            tracing::error!("failed to kill backend {index}: {error}");
        }
        faults::killed(self, pid);
        self.draining.remove(&index);
        let back = Instant::now() + dead_for;
        let place = self.dead.partition_point(|(_, other)| *other <= back);
        self.dead.insert(place, (index, back));
        lived
    }

    pub(super) async fn revive(&mut self) {
        let Some((index, _)) = self.dead.pop_front() else { return };
        let Some(backend) = self.set.backends.get_mut(index) else { return };
        if let Err(error) = backend.restart().await {
            tracing::error!("{error}");
            self.reasons.push(Exit::TargetUnusable);
            self.stopped_early.get_or_insert(error.to_string());
            self.stop(STOP_GRACE);
        } else if let Some(relay) = &self.set.ground.relay {
            relay.open(index);
        }
    }

    /// An embedded backend that ends by itself takes its counters along: there is nothing to wait for after the run.
    pub(super) fn find_fallen(&mut self) {
        let restarting: Vec<usize> = self.dead.iter().map(|(index, _)| *index).collect();
        for backend in self.set.backends.iter_mut().filter(|b| !restarting.contains(&b.index) && !self.draining.contains(&b.index)) {
            if let Some(status) = backend.ended()
                && self.fallen.insert(backend.index)
            {
                tracing::error!("backend {} ended by itself: {status}; see its log", backend.index);
            }
        }
    }
}
