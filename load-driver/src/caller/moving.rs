//! From a session that the backend gives up to the next: session resumption.

use std::time::Duration;

use proto::{frame::Outcome, time::Micros};

use super::{Action, Caller, Life, turn::Next};
use crate::{
    ledger::{FailureCause, Finish},
    plan::Resumption,
    record::Counter,
};

/// Of the time that is left, half is kept for the goodbye, but no more than this.
const GOODBYE_MARGIN: Duration = Duration::from_secs(1);

/// What is left of a conversation.
#[derive(Debug)]
pub(super) struct Rest {
    turn: u32,
    at: Micros,
    length: Option<Duration>,
}

impl Caller {
    /// The backend would go on from here.
    pub(super) fn hear_handle(&mut self, handle: String) {
        if self.plan.scenario.service.agent.resume {
            self.handle = Some(handle.into_boxed_str());
        }
    }

    /// The backend goes away in `left_ms`; 0 does not say when. Nothing begins any more; what is under way is heard out.
    pub(super) fn hear_going_away(&mut self, left_ms: u32, now: Micros, out: &mut Vec<Action>) {
        out.push(Action::Count(Counter::GoingAways, 1));
        if self.life != Life::Live {
            return;
        }
        // A conversation that was to end anyway has nothing to go on with.
        self.moving |= !self.ending && self.plan.scenario.service.agent.resume;
        self.cut |= !self.ending && !self.plan.scenario.wants_ends(now);
        self.ending = true;
        if self.moving && left_ms > 0 {
            let left = Duration::from_millis(u64::from(left_ms));
            self.stop_by = self.stop_by.min(now + left.saturating_sub((left / 2).min(GOODBYE_MARGIN)));
        }
        if self.turn.is_none() {
            self.say_goodbye(now, out);
        }
    }

    /// The session was to end by itself: nothing of it goes on.
    pub(super) fn stay(&mut self) {
        self.moving = false;
        self.cut = false;
        self.rest = None;
    }

    /// The session is to end: what is left of the conversation, before it is forgotten.
    pub(super) fn pack(&mut self, now: Micros) {
        if !(self.moving || self.cut) || self.rest.is_some() || self.life != Life::Live {
            return;
        }
        let planned = self.next.as_ref().map(|next| (self.turn_number.wrapping_sub(1), next.at));
        // What was under way is not said again.
        let Some((turn, at)) = planned.or_else(|| self.upcoming(now, now).map(|next| (self.turn_number, next.at))) else { return };
        let length = self.left(now);
        self.rest = Some(Box::new(Rest { turn, at, length }));
    }

    /// The backend ends the session in order. Nobody asked for it unless the run, the plan or the goodbye did.
    pub(super) fn hear_the_last(&mut self, finish: Finish, now: Micros) {
        let unasked = self.life == Life::Live && !self.ending && !self.plan.scenario.wants_ends(now);
        self.cut |= unasked && in_order(finish);
    }

    /// The session is over: what is left of the conversation goes on in another. Where it cannot, what will not be said is counted, and a session that
    /// was to be gone on with is no good one. `mid_turn`: a turn under way was cut.
    pub(super) fn hand_over(&mut self, finish: Finish, mid_turn: bool, out: &mut Vec<Action>) -> Finish {
        let rest = self.rest.take();
        if !self.moving {
            self.cut_short = self.cut && in_order(finish) && (rest.is_some() || mid_turn);
            if self.cut_short {
                out.push(Action::Count(Counter::SessionsCutShort, 1));
                self.count_unspoken(rest.as_deref(), out);
            }
            return finish;
        }
        let Some(rest) = rest else { return finish };
        if let Some(handle) = self.handle.take().filter(|_| self.plan.can_be_resumed()) {
            let Rest { turn, at, length } = *rest;
            out.push(Action::Resume(Box::new(Resumption { handle: handle.into_string(), turn, at, length })));
            return finish;
        }
        self.count_unspoken(Some(&rest), out);
        match finish {
            Finish::Goodbye(_) | Finish::ByServer(_) => Finish::Lost(FailureCause::NotResumed),
            Finish::Lost(_) | Finish::Forced(_) => finish,
        }
    }

    fn count_unspoken(&self, rest: Option<&Rest>, out: &mut Vec<Action>) {
        let turns = rest.map_or(0, |rest| self.plan.turns_from(rest.turn));
        if turns > 0 {
            out.extend(Counter::unspoken(turns).map(|(counter, by)| Action::Count(counter, by)));
        }
    }

    /// Goes on with a conversation that was begun in another session.
    pub(super) fn take_up(&mut self, resumption: &Resumption, now: Micros, out: &mut Vec<Action>) {
        let Some(plan) = self.plan.turn(resumption.turn) else {
            self.end_as_planned(now, out);
            return;
        };
        self.next = Some(Box::new(Next { at: resumption.at.max(now), plan }));
        self.turn_number = resumption.turn.wrapping_add(1);
    }
}

/// Both sides parted as they should, and nothing is said of a session that went wrong.
pub(super) const fn in_order(finish: Finish) -> bool {
    matches!(finish, Finish::Goodbye(Outcome::Completed | Outcome::Drained) | Finish::ByServer(Outcome::Completed | Outcome::Drained))
}
