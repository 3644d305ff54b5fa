//! What happens when: the driver's steps and the backends' operations, from the sessions' specifications.

use proto::{frame::Outcome, ids::PlanIndex};

use super::{Detour, Fate, MS, Op, Spec, Step, Whose, Work, World, at, boot_id, reference};
use crate::{
    ledger::{FailureCause, Finish, LedgerEntry, LedgerEvent, SourceId},
    plan::{EndKind, Protocol},
};

impl World {
    /// Driver's steps and the backend's operations, by time.
    pub(super) fn script(&self) -> (Vec<Step>, Vec<Work>) {
        let (mut steps, mut ops) = (Vec::new(), Vec::new());
        for (i, spec) in self.specs.iter().enumerate() {
            self.session(i, spec, &mut steps, &mut ops);
        }
        for index in 0..self.guests {
            let whose = Whose { index, detour: false, guest: true };
            let begin = self.unstopped(at(100) + index as u64 * 171 * MS);
            ops.push((begin, 0, Op::Start(whose)));
            ops.push((self.unstopped(begin + (50 + index as u64 * 97 % 1_300) * MS), 0, Op::End(whose, Outcome::Completed)));
        }
        if let Some((kill, comes_back)) = self.kill_backend {
            ops.push((at(kill), 0, Op::Boot(if comes_back { 2 } else { 0 })));
        }
        steps.sort_by_key(|(at, _, _)| *at);
        ops.sort_by_key(|(at, _, _)| *at);
        (steps, ops)
    }

    #[expect(clippy::too_many_lines, reason = "one life, from its schedule to its end")]
    fn session(&self, i: usize, spec: &Spec, steps: &mut Vec<Step>, ops: &mut Vec<Work>) {
        let source = SourceId { worker: spec.worker, shard: spec.shard };
        let home = i % self.backends;
        let worker_dies = self.kill_worker.filter(|(worker, _)| *worker == spec.worker).map(|(_, ms)| at(ms));
        let (scheduled, news) = (at(spec.start_ms) + i as u64, 1 + spec.delay_ms * MS / 2);
        let detour = if self.backends > 1 { spec.detour } else { Detour::None };
        let begin = if detour == Detour::None { scheduled } else { self.unstopped(scheduled + news) + news };
        let counted = self.unstopped(begin + news);
        let accepted = counted + news;
        let backend_dies = self.kill_backend.map(|(ms, _)| at(ms));
        // Nothing happens to a backend while it is dead: sessions begin before the kill with time to spare, or after its return.
        let on_dead = home == 0 && backend_dies.is_some_and(|dies| counted < dies);
        let cut = [worker_dies, backend_dies.filter(|_| on_dead)].into_iter().flatten().min().unwrap_or(u64::MAX);
        if worker_dies.is_some_and(|dies| scheduled >= dies) {
            return;
        }
        let mut tell = |at_us: u64, event: LedgerEvent| {
            if at_us < worker_dies.unwrap_or(u64::MAX) {
                steps.push((at_us, source, LedgerEntry { index: PlanIndex(i as u64), at_us, event }));
            }
        };
        let mut serve_at = |at_us: u64, backend: usize, op: Op| {
            let at_us = self.unstopped(at_us);
            if !(on_dead && backend == home && backend_dies.is_some_and(|dies| at_us >= dies)) {
                ops.push((at_us, backend, op));
            }
        };
        let over = accepted + spec.life_ms * MS + 1;
        let end = if worker_dies.is_some_and(|dies| dies == cut && cut <= over) {
            EndKind::KillWorker
        } else if let Fate::Ends(kind) = spec.fate {
            kind
        } else {
            EndKind::Graceful
        };
        let protocol = if i.is_multiple_of(2) { Protocol::Grpc } else { Protocol::Websocket };
        let dial = |backend: usize| LedgerEvent::Attempted { backend: (!self.front).then_some(backend), report_age_us: None };
        tell(scheduled, LedgerEvent::Scheduled { scenario: 0, protocol, end, client_ref: reference(i) });
        let elsewhere = (home + 1) % self.backends;
        let cause = match detour {
            Detour::None => None,
            Detour::Refused => {
                serve_at(scheduled + news, elsewhere, Op::Reject(i));
                Some(FailureCause::Rejected)
            }
            Detour::Broken { counted } => {
                if counted {
                    let whose = Whose { index: i, detour: true, guest: false };
                    serve_at(scheduled + news, elsewhere, Op::Start(whose));
                    serve_at(scheduled + news + 1 + spec.notice_ms * MS, elsewhere, Op::End(whose, Outcome::Cancelled));
                }
                Some(FailureCause::Reset)
            }
        };
        if let Some(cause) = cause.filter(|_| !self.front) {
            tell(scheduled, dial(elsewhere));
            tell(begin, LedgerEvent::Retried { cause });
        }
        if worker_dies.is_some_and(|dies| begin >= dies) {
            if self.front {
                tell(scheduled, dial(home));
            }
            return;
        }
        // A front dials again by itself: the driver hears nothing of it.
        tell(if self.front { scheduled } else { begin }, dial(home));
        let mut serve = |at_us: u64, op: Op| serve_at(at_us, home, op);
        let whose = Whose { index: i, detour: false, guest: false };
        match spec.fate {
            Fate::Rejected => {
                serve(counted, Op::Reject(i));
                return tell(accepted, LedgerEvent::Failed { cause: FailureCause::Rejected });
            }
            Fate::StartTimeout { counted: started } => {
                if started {
                    serve(counted, Op::Start(whose));
                    serve(counted + spec.notice_ms * MS + 1, Op::End(whose, Outcome::Cancelled));
                }
                return tell(counted + 1, LedgerEvent::Failed { cause: FailureCause::StartTimeout });
            }
            Fate::Unavailable { counted: started } => {
                if started && self.front {
                    serve(counted, Op::Start(whose));
                    serve(counted + spec.notice_ms * MS + 1, Op::End(whose, Outcome::Cancelled));
                }
                return tell(counted + 1, LedgerEvent::Failed { cause: FailureCause::Draining });
            }
            Fate::Ends(_) | Fate::ServerTimeout | Fate::Breaks => {}
        }
        serve(counted, Op::Start(whose));
        let boot_id = boot_id(home, if home > 0 || self.kill_backend.is_none() || on_dead { 1 } else { 2 });
        let backend_id = (self.ids)(home);
        if cut <= accepted || cut <= over {
            // The kill decides; what the worker had told by then is told.
            if accepted < cut {
                tell(accepted, LedgerEvent::Accepted { session_id: format!("s{i}"), backend_id, boot_id });
            }
            if worker_dies == Some(cut) {
                serve(cut.max(counted) + spec.notice_ms * MS, Op::End(whose, Outcome::Cancelled));
            } else {
                let lost = cut + 1 + spec.delay_ms * MS;
                if accepted < cut {
                    tell(lost, LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Reset) });
                } else {
                    tell(lost, LedgerEvent::Failed { cause: FailureCause::Reset });
                }
            }
            return;
        }
        tell(accepted, LedgerEvent::Accepted { session_id: format!("s{i}"), backend_id, boot_id });
        match spec.fate {
            Fate::Ends(EndKind::Graceful) => {
                tell(over, LedgerEvent::Forced { kind: EndKind::Graceful });
                serve(over + news, Op::End(whose, Outcome::Completed));
                tell(self.unstopped(over + news) + news, LedgerEvent::Ended { finish: Finish::Goodbye(Outcome::Completed) });
            }
            Fate::ServerTimeout => {
                serve(over, Op::End(whose, Outcome::TimedOut));
                tell(self.unstopped(over) + 2 * news, LedgerEvent::Ended { finish: Finish::ByServer(Outcome::TimedOut) });
            }
            Fate::Breaks => {
                serve(over + news, Op::End(whose, Outcome::Cancelled));
                tell(over, LedgerEvent::Ended { finish: Finish::Lost(FailureCause::Eof) });
            }
            Fate::Ends(kind) => {
                tell(over, LedgerEvent::Forced { kind });
                let outcome = if kind == EndKind::HalfOpen { Outcome::TimedOut } else { Outcome::Cancelled };
                serve(over + spec.notice_ms * MS + 1, Op::End(whose, outcome));
                tell(over + 1, LedgerEvent::Ended { finish: Finish::Forced(kind) });
            }
            Fate::Rejected | Fate::StartTimeout { .. } | Fate::Unavailable { .. } => {}
        }
    }

    /// What would happen while the backend stands still happens at once when it goes on, in the same order.
    pub(super) fn unstopped(&self, at_us: u64) -> u64 {
        let stop = self.stopped.filter(|(from, to)| (at(*from)..at(*to)).contains(&at_us));
        stop.map_or(at_us, |(from, to)| at(to) + (at_us - at(from)) * 997 / (at(to) - at(from)))
    }
}
