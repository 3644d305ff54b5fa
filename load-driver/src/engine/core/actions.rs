//! What callers want, done.

use std::rc::Rc;

use proto::{frame::ClientEvent, time::Micros};

use super::{Core, Flow, PAUSE_AFTER_FAILURE, Phase, Slot, departing::at_stake};
use crate::{
    caller::Action,
    engine::event::StormStep,
    ledger::{FailureCause, Finish, LedgerEvent},
    plan::{EndKind, Resumption},
    record::Counter,
    transport::{CLOSE_BOUND, How, Link, Remains, Unsent},
};

impl Core {
    /// Does what the caller of `key` asked for. `inside` when the session's own task is what runs now.
    pub(super) fn apply(&mut self, key: usize, now: Micros, inside: bool) -> Flow {
        let mut actions = std::mem::take(&mut self.actions);
        let mut failed = None;
        let mut retry = false;
        let mut later = None;
        let mut forced = false;
        let mut rest = None;
        let mut heard = None;
        for action in actions.drain(..) {
            let Some(slot) = self.slots.get_mut(key) else { break };
            let scenario = slot.start.scenario;
            match action {
                Action::Send(event) => self.say(key, now, event),
                Action::Measure(sample) => self.recorder.record(scenario, &sample),
                Action::Explain(cause, words) => {
                    self.ways.reasons.note(cause, &slot.caller.plan().scenario.service.connection, || words);
                }
                Action::Voice(verdict) => {
                    let plan = slot.caller.plan();
                    self.voice.add((plan.index, &plan.client_ref, slot.backend), verdict, |at| self.clock.unix_us(at));
                }
                Action::Count(counter, by) => self.recorder.count(scenario, counter, by),
                Action::Force(kind) => {
                    forced = true;
                    if let Some(how) = How::of(kind) {
                        // Logged first: the backend may see it before the next entry.
                        self.log_of(key, now, LedgerEvent::Forced { kind });
                        self.end_of(key, how);
                    }
                }
                Action::Race => {
                    forced = true;
                    self.log_of(key, now, LedgerEvent::Forced { kind: EndKind::Cancel });
                    self.end_of(key, How::Race);
                }
                Action::Drop => {
                    forced = true;
                    if !slot.accepted {
                        heard = slot.link.as_ref().and_then(|link| link.heard());
                    }
                    self.end_of(key, How::Cancel);
                }
                Action::Resume(resumption) => rest = Some(*resumption),
                Action::Accepted(accepted) => {
                    slot.accepted = true;
                    if let Some(granted) = &mut slot.granted {
                        granted.accepted();
                    }
                    let back = slot.storm.take();
                    if let Some(storm) = back {
                        self.storm_step(storm.fault, now, StormStep::Back);
                    }
                    let (session_id, backend_id, boot_id) = (accepted.session_id, accepted.backend_id, accepted.boot_id);
                    self.log_of(key, now, LedgerEvent::Accepted { session_id, backend_id, boot_id });
                }
                Action::Ended(finish) => {
                    failed = Some(matches!(finish, Finish::Lost(_)));
                    self.log_of(key, now, LedgerEvent::Ended { finish });
                }
                Action::Failed(cause) => {
                    failed = Some(true);
                    let heard = heard.take().or_else(|| slot.link.as_ref().and_then(|link| link.heard()));
                    if let Some(heard) = heard.filter(|_| cause != FailureCause::Aborted) {
                        self.ways.reasons.note(cause, &slot.caller.plan().scenario.service.connection, || heard);
                    }
                    (retry, later) = self.failed(key, now, cause);
                }
            }
        }
        self.actions = actions;
        let Some(failed) = failed else {
            self.rearm(key);
            return Flow::Continue;
        };
        if retry {
            self.retry(key, inside);
        } else if let Some(at) = later {
            self.retry_at(key, at, inside);
        } else {
            // Who is sent away again and again must not come back in a busy loop either.
            let pause = failed || self.slots.get(key).is_some_and(|slot| slot.caller.cut_short());
            self.free(key, now, pause, inside, rest);
        }
        if forced || failed { Flow::Stop } else { Flow::Drain }
    }

    fn say(&mut self, key: usize, now: Micros, event: ClientEvent) {
        // A goodbye is a forced end like the others: the counters must follow it from here on.
        let goodbye = matches!(event, ClientEvent::End { .. });
        if goodbye {
            self.log_of(key, now, LedgerEvent::Forced { kind: EndKind::Graceful });
        }
        let Some(slot) = self.slots.get_mut(key) else { return };
        if goodbye {
            // Its answer is to be heard.
            slot.ears.iter().for_each(|ears| ears.open());
        }
        let audio = matches!(event, ClientEvent::Audio(_));
        if slot.link.as_mut().is_some_and(|link| link.send(event) == Err(Unsent::Full)) {
            if audio {
                slot.caller.on_lost_audio();
            }
            self.recorder.count(slot.start.scenario, Counter::SendDrops, 1);
        }
    }

    /// The session was not accepted: whether it goes to another backend, or comes back at some time, and what is to be said of it.
    fn failed(&mut self, key: usize, now: Micros, cause: FailureCause) -> (bool, Option<Micros>) {
        let Some(slot) = self.slots.get(key) else { return (false, None) };
        let retry = self.may_retry(key, cause);
        let later = self.tries_again_at(slot.storm, slot.caller.plan().index, &slot.lane, cause, now).filter(|_| !retry);
        let again = retry || later.is_some();
        let (scenario, storm) = (slot.start.scenario, slot.storm);
        let turns = if again { 0 } else { at_stake(slot.caller.plan(), cause) };
        self.count_unspoken(scenario, turns);
        if let Some(storm) = storm {
            self.storm_step(storm.fault, now, if again { StormStep::Fails } else { StormStep::GivenUp });
        }
        self.log_of(key, now, if again { LedgerEvent::Retried { cause } } else { LedgerEvent::Failed { cause } });
        (retry, later)
    }

    /// Sets the wheel to what the caller, or its end, wants next.
    pub(super) fn rearm(&mut self, key: usize) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let wake = slot.caller.next_wake().min(slot.stop_at);
        if wake != slot.wake {
            slot.wake = wake;
            let at = self.in_phase(wake);
            self.wheel.set(key, at);
        }
    }

    /// The session is over: its lane goes on with the `rest` of its conversation, or with the next, at once or after a `pause`.
    pub(super) fn free(&mut self, key: usize, now: Micros, pause: bool, inside: bool, rest: Option<Resumption>) {
        let Some(slot) = self.take_out(key, inside) else { return };
        if self.phase == Phase::Running {
            if let Some(scattered) = slot.scattered
                && self.come_back(&slot, scattered, now)
            {
                return;
            }
            // Who was to be told to stop by now is stopped.
            let rest = rest.filter(|_| now < slot.stop_at);
            if let Some(session) = rest.and_then(|rest| slot.caller.plan().successor(rest, now)) {
                self.resume(slot.start, session, now);
                return;
            }
            let at = if pause { now + PAUSE_AFTER_FAILURE } else { now };
            self.agenda.repeat(slot.start, &slot.lane, at);
        }
    }

    /// Ends the stream of a session, and gives its slot away. What the router granted goes with it.
    pub(super) fn take_out(&mut self, key: usize, inside: bool) -> Option<Slot> {
        self.end_of(key, How::Done);
        self.wheel.remove(key);
        let slot = self.slots.try_remove(key)?;
        self.dialling -= usize::from(slot.dialling);
        if let (Some(task), false) = (&slot.task, inside) {
            task.abort();
        }
        Some(slot)
    }

    /// Ends the stream of a session, if it still has one.
    pub(super) fn end_of(&mut self, key: usize, how: How) {
        if let Some(link) = self.slots.get_mut(key).and_then(|slot| slot.link.take()) {
            self.end(link, how);
        }
    }

    pub(super) fn end(&mut self, link: Box<dyn Link>, how: How) {
        match link.end(how) {
            Remains::Nothing => {}
            Remains::Closing(close) => {
                let alive = Rc::clone(&self.tasks);
                // Owned by the shard's task set, which is dropped with the shard.
                tokio::task::spawn_local(async move {
                    // A peer that does not finish is what the bound is for.
                    let _ = tokio::time::timeout(CLOSE_BOUND, close).await;
                    drop(alive);
                });
            }
            Remains::Held(stream) => {
                self.held.push(stream);
            }
        }
    }
}
