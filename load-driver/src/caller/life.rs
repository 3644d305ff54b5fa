//! From dial to end.

use std::time::Duration;

use proto::{
    frame::{ClientEvent, ErrorCode, ServerEvent, SessionAccepted, SessionStart, TurnTaking},
    time::Micros,
};

use super::{Action, Caller, Life, moving::in_order, sound::Greeting, stop::Stopped, turn::Audible};
use crate::{
    ledger::{FailureCause, Finish},
    plan::{EndKind, TurnDetection},
    record::{Counter, Metric, Sample},
};

/// Longest wait for the server's goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

impl Caller {
    pub(super) fn start(&mut self, fresh: bool, now: Micros, out: &mut Vec<Action>) {
        if fresh {
            self.measure_from_start(Metric::Connect, now, out);
        }
        self.life = Life::Starting;
        let service = &self.plan.scenario.service;
        out.push(Action::Send(ClientEvent::Start(SessionStart {
            client_ref: self.plan.client_ref.clone(),
            voice: service.agent.voice.clone().unwrap_or_default(),
            input: service.input,
            output: service.output,
            tools: self.plan.tools(),
            turns: TurnTaking { detect: service.agent.turn_detection != TurnDetection::None, ..TurnTaking::default() },
            // Rounded up, so that it is not heard of before its time.
            max_duration_ms: match self.dies_at {
                Micros::NEVER => 0,
                at => u32::try_from(at.since(now).as_millis()).map_or(u32::MAX, |ms| ms.saturating_add(1)),
            },
            default_duration_ms: 0,
            idle_timeout_ms: 0,
            warning_ms: 0,
            resume: self.plan.resumes.as_ref().map_or_else(String::new, |resumption| resumption.handle.clone()),
        })));
    }

    pub(super) fn hear_before_acceptance(&mut self, event: ServerEvent, now: Micros, out: &mut Vec<Action>) {
        match event {
            ServerEvent::Accepted(accepted) if self.life == Life::Starting => self.accept(accepted, now, out),
            ServerEvent::Error(error) if error.fatal => {
                self.fail(FailureCause::of_refusal(&error), true, out);
            }
            ServerEvent::Error(_) => out.push(Action::Count(Counter::ServerErrors, 1)),
            _ => {
                explain("the server began to speak before it accepted the session".to_owned(), out);
                self.fail(FailureCause::Protocol, true, out);
            }
        }
    }

    fn accept(&mut self, accepted: SessionAccepted, now: Micros, out: &mut Vec<Action>) {
        let formats = (accepted.input, accepted.output);
        let idle_timeout_ms = accepted.idle_timeout_ms;
        // Whatever is wrong with it: from here on the server counts the session.
        out.push(Action::Accepted(accepted));
        let resumes = self.plan.resumes.clone();
        if resumes.is_some() {
            self.measure_from_start(Metric::Resumption, now, out);
            out.push(Action::Count(Counter::SessionsResumed, 1));
        } else {
            self.measure_from_start(Metric::SessionStartup, now, out);
        }
        self.life = Life::Live;
        self.watch.accepted(now);
        self.stop_by = Micros::NEVER;
        let asked = (self.plan.scenario.service.input, self.plan.scenario.service.output);
        if formats != asked {
            let words = format!("the server speaks {} and hears {} where {} and {} were asked for", formats.1, formats.0, asked.1, asked.0);
            explain(words, out);
            self.end(Finish::Lost(FailureCause::Protocol), true, now, out);
            return;
        }
        self.deadline = match (self.plan.length, self.plan.end) {
            (None, _) | (_, EndKind::KillWorker | EndKind::KillBackend) => Micros::NEVER,
            (Some(length), _) => now + length,
        };
        self.mouth.open(&self.plan.scenario, idle_timeout_ms, now);
        if let Some(resumption) = resumes {
            self.take_up(&resumption, now, out);
        } else if self.plan.scenario.service.agent.greets {
            self.greeting = Some(Box::new(Greeting::new(now + self.plan.scenario.response_timeout)));
        } else {
            self.next_turn(now, now, now, out);
        }
    }

    /// A sample from the scheduled arrival and from the dial.
    pub(super) fn measure_from_start(&self, metric: Metric, now: Micros, out: &mut Vec<Action>) {
        out.push(Action::Measure(self.since_start(metric, now)));
    }

    /// From the scheduled arrival and from the dial.
    pub(super) fn since_start(&self, metric: Metric, to: Micros) -> Sample {
        Sample { metric, intended: self.plan.start, actual: self.dialed, to }
    }

    /// The deadline of the state of life has come.
    pub(super) fn life_due(&mut self, now: Micros, out: &mut Vec<Action>) {
        self.deadline = Micros::NEVER;
        match self.life {
            Life::Dialling => self.fail(FailureCause::ConnectTimeout, true, out),
            Life::Starting => self.fail(FailureCause::StartTimeout, true, out),
            Life::Live if self.turn.is_none() || self.plan.end != EndKind::Graceful => self.end_as_planned(now, out),
            Life::Live => {
                self.ending = true;
                self.stay();
            }
            Life::Leaving => self.end(Finish::Lost(FailureCause::GoodbyeTimeout), true, now, out),
            Life::Doomed(code) => self.end(Finish::Lost(FailureCause::ServerError(code)), true, now, out),
            Life::Over => {}
        }
    }

    /// The stop's deadline has come.
    pub(super) fn stop_due(&mut self, now: Micros, out: &mut Vec<Action>) {
        self.stop_by = Micros::NEVER;
        match self.life {
            Life::Starting => self.fail(FailureCause::Aborted, true, out),
            Life::Live => self.say_goodbye(now, out),
            Life::Dialling | Life::Leaving | Life::Doomed(_) | Life::Over => {}
        }
    }

    /// The end that the plan wants; it is no kill.
    pub(super) fn end_as_planned(&mut self, now: Micros, out: &mut Vec<Action>) {
        self.stay();
        match self.plan.end {
            EndKind::Graceful | EndKind::KillWorker | EndKind::KillBackend => self.say_goodbye(now, out),
            kind => {
                self.fall_silent(now, out);
                out.push(Action::Force(kind));
                self.end(Finish::Forced(kind), false, now, out);
            }
        }
    }

    /// The session is cut this way now, whatever the plan had in mind. False when there is none to be cut: it is not there yet, or says goodbye.
    pub fn cut(&mut self, kind: EndKind, now: Micros, out: &mut Vec<Action>) -> bool {
        self.strike(Action::Force(kind), kind, now, out)
    }

    /// As [`Self::cut`], by a cancel and a disconnect at once.
    pub fn race(&mut self, now: Micros, out: &mut Vec<Action>) -> bool {
        self.strike(Action::Race, EndKind::Cancel, now, out)
    }

    fn strike(&mut self, action: Action, kind: EndKind, now: Micros, out: &mut Vec<Action>) -> bool {
        self.advance(now, out);
        if !matches!(self.life, Life::Live | Life::Doomed(_)) {
            return false;
        }
        self.stay();
        self.fall_silent(now, out);
        out.push(action);
        self.end(Finish::Forced(kind), false, now, out);
        true
    }

    /// What is left of the session's length, where it has one.
    pub fn left(&self, now: Micros) -> Option<Duration> {
        let left = |length| match self.deadline {
            Micros::NEVER if self.ending => Duration::ZERO,
            Micros::NEVER => length,
            deadline => deadline.since(now),
        };
        self.plan.length.map(left)
    }

    pub(super) fn say_goodbye(&mut self, now: Micros, out: &mut Vec<Action>) {
        self.fall_silent(now, out);
        out.push(Action::Send(ClientEvent::End { reason: "done".to_owned() }));
        self.life = Life::Leaving;
        self.watch.leaves(now);
        self.deadline = now + GOODBYE_TIMEOUT;
    }

    /// The server said that it ends the session with this error; its `Ended` is awaited.
    pub(super) fn doom(&mut self, code: ErrorCode, now: Micros, out: &mut Vec<Action>) {
        if self.life == Life::Live {
            self.fall_silent(now, out);
            self.deadline = now + GOODBYE_TIMEOUT;
        }
        self.life = Life::Doomed(code);
    }

    /// Nothing more is said or planned; a turn under way counts as interrupted.
    fn fall_silent(&mut self, now: Micros, out: &mut Vec<Action>) {
        self.pack(now);
        self.mouth.flush(out);
        self.mouth.close();
        self.user_ends(now, out);
        self.ear.playout.forget();
        self.next = None;
        self.greeting = None;
        self.tool = None;
        self.stop_by = Micros::NEVER;
        if self.turn.take().is_some() {
            out.push(Action::Count(Counter::TurnsInterrupted, 1));
        }
    }

    /// Over, after acceptance.
    pub(super) fn end(&mut self, finish: Finish, drop: bool, now: Micros, out: &mut Vec<Action>) {
        self.hear_the_last(finish, now);
        let cut = self.turn.take_if(|_| self.cut && !self.moving && self.life == Life::Live && in_order(finish));
        if let Some(turn) = &cut {
            // Who had no answer yet never gets one: that is no end of the session's, but the backend's.
            let how = if turn.audible == Audible::Yes { Counter::TurnsInterrupted } else { Counter::TurnsMissed };
            out.push(Action::Count(how, 1));
        }
        self.fall_silent(now, out);
        if let Some(stop) = self.stop.take().filter(|stop| stop.settle() == Stopped::Yes) {
            Self::stopped(&stop, Stopped::Yes, now, out);
        }
        let verdict = self.watch.close(finish, now);
        out.extend(verdict.map(Action::Voice));
        let finish = self.hand_over(finish, cut.is_some(), out);
        self.finish(Action::Ended(finish), drop, out);
    }

    /// Over, never accepted.
    pub(super) fn fail(&mut self, cause: FailureCause, drop: bool, out: &mut Vec<Action>) {
        // From the start on, what is refused is the handle.
        let resuming = self.life == Life::Starting && self.plan.resumes.is_some();
        self.finish(Action::Failed(if resuming { cause.of_resumption() } else { cause }), drop, out);
    }

    fn finish(&mut self, last: Action, drop: bool, out: &mut Vec<Action>) {
        if drop {
            out.push(Action::Drop);
        }
        self.life = Life::Over;
        out.push(last);
    }
}

/// Says how the server broke the protocol.
pub(super) fn explain(words: String, out: &mut Vec<Action>) {
    out.push(Action::Explain(FailureCause::Protocol, words));
}
