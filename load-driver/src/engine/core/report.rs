//! What the controller hears: the ledger as it is written, what was measured each second.

use std::{rc::Rc, time::Duration};

use proto::time::Micros;

use super::Core;
use crate::{
    engine::{EngineEvent, IntervalReport},
    ledger::{LedgerEntry, LedgerEvent},
    plan::SessionPlan,
};

/// Length of an interval.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// A ledger without news is confirmed this often.
const WATERMARK: Duration = Duration::from_millis(50);

impl Core {
    pub(super) fn log_of(&mut self, key: usize, now: Micros, event: LedgerEvent) {
        if let Some(slot) = self.slots.get(key) {
            self.ledger.push(LedgerEntry { index: slot.caller.plan().index, at_us: self.clock.unix_us(now), event });
        }
    }

    pub(super) fn log(&mut self, session: &SessionPlan, now: Micros, event: LedgerEvent) {
        self.ledger.push(LedgerEntry { index: session.index, at_us: self.clock.unix_us(now), event });
    }

    /// There is something for the controller that the ledger's watermark must not overtake.
    pub(in crate::engine) fn news_due(&self) -> bool {
        self.pace.stood() || self.strikes_due()
    }

    /// The next of it.
    pub(in crate::engine) fn take_news(&mut self) -> Option<EngineEvent> {
        let (shard, clock) = (self.shard, self.clock);
        let stood = |(from, to)| EngineEvent::StoodStill { shard, from_us: clock.unix_us(from), to_us: clock.unix_us(to) };
        self.pace.take_stood().map(stood).or_else(|| self.take_strikes())
    }

    /// No session is left, but closes are under way: this thread may still stand still.
    pub(in crate::engine) fn idle(&mut self) {
        self.pace.tick(self.clock.now());
    }

    /// News for the ledger, or a confirmation that there is none.
    pub(in crate::engine) fn ledger_due(&self) -> bool {
        !self.ledger.is_empty() || self.clock.now().since(self.confirmed) >= WATERMARK
    }

    pub(in crate::engine) fn take_ledger(&mut self) -> EngineEvent {
        let now = self.clock.now();
        self.confirmed = now;
        EngineEvent::Ledger { shard: self.shard, entries: std::mem::take(&mut self.ledger), complete_to_us: self.clock.unix_us(now) }
    }

    /// Some sessions are over.
    pub(in crate::engine) fn voice_due(&self) -> bool {
        !self.voice.is_empty()
    }

    pub(in crate::engine) fn take_voice(&mut self) -> EngineEvent {
        EngineEvent::Voice(std::mem::take(&mut self.voice))
    }

    pub(in crate::engine) fn interval_due(&self) -> bool {
        self.clock.now() >= self.interval_to
    }

    pub(in crate::engine) fn take_interval(&mut self) -> EngineEvent {
        let now = self.clock.now();
        let warmup = self.interval_from < Micros::ZERO + self.plan.warmup;
        let report = IntervalReport {
            shard: self.shard,
            from_us: self.clock.unix_us(self.interval_from),
            to_us: self.clock.unix_us(now),
            active: self.slots.iter().filter(|(_, slot)| slot.accepted).count() as u64,
            speaking: self.slots.iter().filter(|(_, slot)| slot.accepted && slot.caller.speaking()).count() as u64,
            tasks: Rc::strong_count(&self.tasks).saturating_sub(1) as u64,
            warmup,
            scenarios: self.recorder.take(),
        };
        self.drop_found();
        self.interval_from = now;
        self.interval_to = self.next_interval(now);
        EngineEvent::Interval(report)
    }

    /// A second on, but never across the end of the warm-up: what came before must not mix with what counts.
    pub(super) fn next_interval(&self, now: Micros) -> Micros {
        let next = now + INTERVAL;
        let warm = Micros::ZERO + self.plan.warmup;
        if self.interval_from < warm && warm < next { warm } else { next }
    }
}
