//! The end of the run: in order, at once, and how it is known.

use std::time::Duration;

use agent_server::runtime::wire::Parked;
use proto::time::Micros;

use super::{Core, Phase};
use crate::{
    engine::event::StormStep,
    ledger::{FailureCause, LedgerEvent},
    transport::How,
};

/// Past the deadline of a stop, callers wait for the answer to their goodbye by themselves; who is still there after this is cut.
const GOODBYE: Duration = Duration::from_secs(6);

impl Core {
    /// Nothing begins any more; every session says goodbye by `deadline`.
    pub(in crate::engine) fn stop(&mut self, deadline: Micros) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Stopping(deadline);
        self.abandon_waiting();
        let now = self.clock.now();
        for key in self.keys() {
            let Some(slot) = self.slots.get_mut(key) else { continue };
            slot.stop_at = Micros::NEVER;
            // The goodbye is to be heard.
            slot.ears.iter().for_each(|ears| ears.open());
            slot.caller.stop(deadline, now, &mut self.actions);
            self.apply(key, now, false);
        }
    }

    /// Cuts everything now.
    pub(in crate::engine) fn abort(&mut self) {
        if self.phase == Phase::Aborted {
            return;
        }
        self.phase = Phase::Aborted;
        self.abandon_waiting();
        let now = self.clock.now();
        for key in self.keys() {
            self.end_of(key, How::Cancel);
            let Some(slot) = self.slots.get_mut(key) else { continue };
            slot.caller.on_closed(FailureCause::Aborted, now, &mut self.actions);
            self.apply(key, now, false);
            // A caller that is not over after its stream was closed would keep the run from ending.
            if self.slots.contains(key) {
                self.log_of(key, now, LedgerEvent::Failed { cause: FailureCause::Aborted });
                self.free(key, now, true, false, None);
            }
        }
    }

    /// Past the deadline of a stop, goodbyes are over.
    pub(in crate::engine) fn enforce(&mut self) {
        if let Phase::Stopping(deadline) = self.phase
            && self.clock.now() > deadline + GOODBYE
        {
            self.abort();
        }
    }

    fn keys(&self) -> Vec<usize> {
        self.slots.iter().map(|(key, _)| key).collect()
    }

    fn abandon_waiting(&mut self) {
        self.agenda.clear();
        let now = self.clock.now();
        self.abandon_returning(now);
        for waiting in self.take_waiting() {
            self.log(&waiting.session, now, LedgerEvent::Failed { cause: FailureCause::Aborted });
            if let Some(storm) = waiting.storm {
                self.storm_step(storm.fault, now, StormStep::GivenUp);
            }
        }
    }

    /// Every lane is over, every session ended.
    pub(in crate::engine) fn finished(&self) -> bool {
        self.agenda.is_empty() && self.waiting.is_empty() && self.refused.is_empty() && self.returning.is_empty() && self.slots.is_empty()
    }

    /// Resets the sockets that were kept silent.
    pub(in crate::engine) fn release_held(&mut self) {
        self.held.drain(..).for_each(Parked::reset);
    }

    /// Lets those go whose backend has found out: each takes a file descriptor.
    pub(super) fn drop_found(&mut self) {
        self.held.retain(|stream| !stream.peer_is_gone());
    }
}
