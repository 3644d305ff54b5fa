//! One turn: wait, speak, be answered, perhaps interrupt.

use std::sync::Arc;

use proto::{
    frame::{ClientEvent, FRAME_US, TurnHint},
    ids::ResponseId,
    time::Micros,
};

use super::{
    Action, Caller,
    mouth::{Edge, Voiced, after},
    stop::{Stop, Stopped},
};
use crate::{
    audio::Utterance,
    plan::{Act, Claim, EndKind, TurnPlan, Wait},
    record::Counter,
};

/// The turn that comes.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) at: Micros,
    pub(super) plan: TurnPlan,
}

/// How far the answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audible {
    NotYet,
    /// While the user was still speaking.
    Early,
    /// After the user's speech.
    Yes,
}

/// The turn under way. Times are [`Micros::NEVER`] while not set.
#[derive(Debug)]
pub(super) struct Turn {
    /// What is still to be done.
    pub(super) act: Act,
    pub(super) response_ms: Option<u32>,
    /// The server's turn numbers up to this one belong to earlier turns.
    pub(super) earlier: u64,
    /// Speech began.
    pub(super) onset: Option<Edge>,
    /// Speech ended.
    pub(super) end: Option<Edge>,
    pub(super) transcript_first: bool,
    pub(super) transcript_final: bool,
    /// The response that seems to answer.
    pub(super) answer: Option<ResponseId>,
    pub(super) audible: Audible,
    /// `turn_response` was taken, or cannot be.
    pub(super) measured: bool,
    /// The interruption is due.
    pub(super) act_at: Micros,
    /// Something of the answer must have come.
    pub(super) deadline: Micros,
    /// The answer was heard out.
    pub(super) over_at: Micros,
}

/// A tool call that is being answered, or was and the agent has not resumed.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) call_id: String,
    pub(super) received: Micros,
    /// The result is due; [`Micros::NEVER`] once sent.
    pub(super) due: Micros,
    /// The turn is about it: it is not over before the agent has resumed.
    pub(super) planned: bool,
}

impl Caller {
    /// Plans the turn after one that was over at `over`, or ends the session.
    pub(super) fn next_turn(&mut self, over: Micros, now: Micros, out: &mut Vec<Action>) {
        if self.ending {
            self.say_goodbye(now, out);
            return;
        }
        let mut plan = self.plan.turn(self.turn_number);
        if plan.is_none() {
            match self.plan.end {
                EndKind::KillWorker | EndKind::KillBackend => {
                    self.turn_number = 0;
                    plan = self.plan.turn(0);
                }
                _ => {
                    self.end_as_planned(now, out);
                    return;
                }
            }
        }
        self.next = plan.map(|plan| {
            let at = match plan.wait {
                Wait::After(wait) => over + wait,
                Wait::At(at) => at,
                Wait::Cycle(cycle) => self.last_begin.unwrap_or(over) + cycle,
            };
            // Turns of silence without length must not spin.
            let soonest = if plan.says.is_none() && self.last_begin == Some(over) { after(over, FRAME_US) } else { over };
            Next { at: at.max(soonest), plan }
        });
        self.turn_number = self.turn_number.wrapping_add(1);
    }

    pub(super) fn begin_turn(&mut self, now: Micros, out: &mut Vec<Action>) {
        let Some(Next { at, plan }) = self.next.take() else { return };
        self.last_begin = Some(at);
        match plan.says {
            Some(says) => {
                self.ask(says, plan.act, plan.response_ms, at, out);
                self.watch.asked(false, at);
            }
            None => self.next_turn(at, now, out),
        }
    }

    /// The user begins to speak, and wants an answer.
    fn ask(&mut self, says: Arc<Utterance>, act: Act, response_ms: Option<u32>, at: Micros, out: &mut Vec<Action>) {
        let hint = TurnHint {
            tool: match &act {
                Act::Tool { name, .. } => Some(name.clone()),
                _ => None,
            },
            response_ms,
            text: (!says.text.is_empty()).then(|| says.text.clone()),
        };
        if hint != TurnHint::default() {
            out.push(Action::Send(ClientEvent::Hint(hint)));
        }
        self.mouth.say(says, at);
        self.tool = None;
        self.turn = Some(Box::new(Turn {
            act,
            response_ms,
            earlier: self.ear.last_turn(),
            onset: None,
            end: None,
            transcript_first: false,
            transcript_final: false,
            answer: None,
            audible: Audible::NotYet,
            measured: false,
            act_at: Micros::NEVER,
            deadline: Micros::NEVER,
            over_at: Micros::NEVER,
        }));
        out.push(Action::Count(Counter::Turns, 1));
    }

    pub(super) fn send_frame(&mut self, now: Micros, out: &mut Vec<Action>) {
        let Voiced::Onset(edge) = self.mouth.frame(&self.plan.scenario, now, out) else { return };
        if let Some(turn) = &mut self.turn {
            turn.onset = Some(edge);
        }
        self.watch.onset(now);
        if self.stop.as_mut().is_some_and(|stop| stop.onset(edge)) {
            out.push(Action::Count(Counter::BargeIns, 1));
        }
    }

    pub(super) fn speech_ended(&mut self, out: &mut Vec<Action>) {
        let edge = self.mouth.end_speech(&self.plan.scenario, out);
        if let (Some(turn), Some(edge)) = (&mut self.turn, edge) {
            turn.end = Some(edge);
            turn.deadline = edge.intended + self.plan.scenario.response_timeout;
        }
    }

    /// The turn is over, answered or missed.
    pub(super) fn finish_turn(&mut self, how: Counter, at: Micros, now: Micros, out: &mut Vec<Action>) {
        let turn = self.turn.take();
        let audible = turn.filter(|turn| turn.audible == Audible::Yes).and_then(|turn| turn.answer);
        self.watch.turn_over(how == Counter::TurnsMissed, audible.map(|response| response.0));
        self.tool = None;
        out.push(Action::Count(how, 1));
        self.next_turn(at, now, out);
    }

    /// The interruption of the turn is due.
    pub(super) fn interrupt(&mut self, at: Micros, now: Micros, out: &mut Vec<Action>) {
        let Some(turn) = &mut self.turn else { return };
        turn.act_at = Micros::NEVER;
        let response_ms = turn.response_ms;
        let act = std::mem::replace(&mut turn.act, Act::Listen);
        let Some(response) = turn.answer else { return };
        let sent = Some(Edge { intended: at, actual: now });
        let (from, says) = match act {
            Act::BargeIn { explicit: true, says, heard, .. } => {
                let played_ms = self.ear.mute(now);
                let heard_ms = heard.map_or(played_ms, Claim::heard_ms);
                self.watch.interrupted(heard.is_some());
                out.push(Action::Send(ClientEvent::BargeIn { response: Some(response), heard_ms }));
                (sent, says)
            }
            Act::Cancel { .. } => {
                self.ear.mute(now);
                out.push(Action::Send(ClientEvent::Cancel { response: Some(response) }));
                (sent, None)
            }
            Act::BargeIn { explicit: false, says: Some(says), .. } => {
                self.ear.mute(now);
                (None, Some(says))
            }
            Act::BargeIn { explicit: false, says: None, .. } | Act::Listen | Act::Tool { .. } => return,
        };
        // An older interruption whose settling this one overtakes.
        if let Some(older) = self.stop.take() {
            Self::stopped(older.settle(), out);
        }
        self.stop = Some(Stop::new(response, from));
        if from.is_some() {
            out.push(Action::Count(Counter::BargeIns, 1));
        }
        if let Some(says) = says {
            // The first question has its answer; the interruption is the next.
            out.push(Action::Count(Counter::TurnsAnswered, 1));
            self.watch.turn_over(false, None);
            self.ask(says, Act::Listen, response_ms, at, out);
            self.watch.asked(true, at);
        }
    }

    pub(super) fn settle_stop(&mut self, at: Micros, now: Micros, out: &mut Vec<Action>) {
        let Some(stop) = self.stop.take() else { return };
        let stopped = stop.settle();
        Self::stopped(stopped, out);
        // An agent that will not be stopped is listened to no longer.
        if stopped == Stopped::Never && self.turn.as_ref().is_some_and(|turn| turn.answer == Some(stop.response)) {
            self.finish_turn(Counter::TurnsAnswered, at, now, out);
        }
    }

    /// An interruption has come to this.
    pub(super) fn stopped(stopped: Stopped, out: &mut Vec<Action>) {
        match stopped {
            Stopped::After(sample) => out.push(Action::Measure(sample)),
            Stopped::Never => out.push(Action::Count(Counter::BargeInsMissed, 1)),
            Stopped::Crossed => {}
        }
    }

    /// The planned time of a tool has passed.
    pub(super) fn answer_tool(&mut self, at: Micros, out: &mut Vec<Action>) {
        let Some(tool) = &mut self.tool else { return };
        tool.due = Micros::NEVER;
        out.push(tool_result(tool.call_id.clone()));
        self.extend_deadline(at);
    }

    /// The agent gets its time anew: the caller kept it waiting.
    pub(super) fn extend_deadline(&mut self, at: Micros) {
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.end.is_some()) {
            turn.deadline = turn.deadline.max(at + self.plan.scenario.response_timeout);
        }
    }
}

/// What a tool gives back.
pub(super) fn tool_result(call_id: String) -> Action {
    Action::Send(ClientEvent::ToolResult { call_id, output: r#"{"ok":true}"#.to_owned(), failed: false })
}
