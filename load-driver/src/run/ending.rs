//! Why and how a run ends: by signal, by threshold, by hopelessness, in order.

use std::time::Duration;

use proto::time::Micros;

use super::controller::Run;
use crate::{
    engine::{IntervalReport, worker::WorkerCommand},
    ledger::LiveView,
    report::Exit,
};

/// After Ctrl-C sessions get so long to say goodbye.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(5);
/// So many sessions fail, and none comes to be, within this time: the target is given up.
const HOPELESS: (u64, Duration) = (20, Duration::from_secs(5));

impl Run {
    /// Nothing but failures from the start: there is nothing to test.
    pub(super) fn give_up_if_hopeless(&mut self, now: Micros, live: &LiveView) {
        let total = live.funnels.total();
        let (sessions, after) = HOPELESS;
        let failed = total.sessions_failed();
        if self.stopped_early.is_none() && total.established == 0 && failed >= sessions && now - Micros::ZERO >= after {
            self.stopped_early = Some(format!("{failed} sessions failed and none was accepted"));
            self.reasons.push(Exit::TargetUnusable);
            self.stop(Duration::ZERO);
        }
    }

    pub(super) fn signalled(&mut self) {
        if self.reasons.contains(&Exit::Interrupted) {
            // The second time: at once.
            if let Some(engine) = &self.engine {
                engine.abort();
            }
            for worker in self.workers.values_mut() {
                worker.tell(&WorkerCommand::Abort);
            }
            self.reasons.push(Exit::Interrupted);
            return;
        }
        self.reasons.push(Exit::Interrupted);
        self.stopped_early.get_or_insert_with(|| "interrupted".to_owned());
        self.kills.clear();
        self.stop(STOP_GRACE);
    }

    /// Interrupted twice.
    pub(super) fn gave_up(&self) -> bool {
        self.reasons.iter().filter(|reason| **reason == Exit::Interrupted).count() > 1
    }

    /// What is left to agree with has had its settling time.
    pub(super) fn all_fallen(&self, over_at: Micros) -> bool {
        !self.fallen.is_empty() && self.clock.now() > over_at + self.job.prepared.profile.counters.settle.0
    }

    pub(super) fn stop(&mut self, grace: Duration) {
        let deadline = self.clock.now() + grace;
        if let Some(engine) = &self.engine {
            engine.stop(deadline);
        }
        for worker in self.workers.values_mut() {
            worker.tell(&WorkerCommand::Stop { deadline });
        }
    }

    /// Looks that were taken before the names were asked for.
    pub(super) fn drain_poller(&mut self) {
        while let Ok(look) = self.poller.looks.try_recv() {
            self.look(look);
        }
    }

    pub(super) fn close_engines(&mut self) {
        // Both channels are closed first: nobody waits for a reader that waits for them.
        self.events.close();
        self.news.close();
        if let Some(engine) = self.engine.take() {
            engine.join();
        }
        for (_, worker) in std::mem::take(&mut self.workers) {
            worker.join();
        }
    }

    /// The convergence of the counters as an interval of a shard of its own.
    pub(super) fn convergence_report(&mut self, over_at: Micros) -> IntervalReport {
        self.take_convergence();
        let to_us = self.clock.unix_us(over_at);
        IntervalReport {
            shard: usize::MAX,
            from_us: to_us,
            to_us,
            active: 0,
            speaking: 0,
            tasks: 0,
            warmup: false,
            scenarios: self.convergence.take(),
        }
    }
}
