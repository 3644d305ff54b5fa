//! One turn: wait, speak, be answered, perhaps interrupt.

use std::sync::Arc;

use proto::{
    frame::{ClientEvent, FRAME_US, ResponseWish, TurnHint},
    ids::{ResponseId, TurnId},
    time::Micros,
};

use super::{
    Action, Caller,
    ear::Ear,
    mouth::{Edge, Voiced, after},
    stop::{By, Stop, Stopped},
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
#[expect(clippy::struct_excessive_bools, reason = "things that happen once in a turn, in any order")]
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
    /// The server said that the user's turn is over.
    pub(super) endpointed: bool,
    /// The response that seems to answer.
    pub(super) answer: Option<ResponseId>,
    pub(super) audible: Audible,
    /// `turn_response` was taken, or cannot be.
    pub(super) measured: bool,
    /// The interruption is due.
    pub(super) act_at: Micros,
    /// It was due in a pause of the agent's: it waits for the next word.
    pub(super) act_waits: bool,
    /// Something of the answer must have come.
    pub(super) deadline: Micros,
    /// The answer was heard out, and that is known.
    pub(super) over_at: Micros,
    /// The last of the answer was played, where that became known later.
    pub(super) heard_out: Micros,
}

impl Turn {
    /// The server means this turn by that number; 0 is whatever turn is under way.
    pub(super) fn is(&self, turn: TurnId) -> bool {
        turn.0 == 0 || turn.0 > self.earlier
    }
}

/// A tool call that is being answered, or was and the agent has not resumed.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) call_id: String,
    pub(super) received: Micros,
    /// The result is due; [`Micros::NEVER`] once sent.
    pub(super) due: Micros,
    /// The result was sent.
    pub(super) answered: Micros,
    /// The turn is about it: it is not over before the agent has resumed.
    pub(super) planned: bool,
}

impl Caller {
    /// Plans the turn after one that was over at `over`, as was `known` then or later; or ends the session.
    pub(super) fn next_turn(&mut self, over: Micros, known: Micros, now: Micros, out: &mut Vec<Action>) {
        if self.ending && !self.moving {
            self.say_goodbye(now, out);
            return;
        }
        self.next = self.upcoming(over, known).map(Box::new);
        if self.next.is_none() {
            self.end_as_planned(now, out);
            return;
        }
        self.turn_number = self.turn_number.wrapping_add(1);
        if self.moving {
            self.say_goodbye(now, out);
        }
    }

    /// The turn after one that was over at `over`, as was `known` then or later; none when the conversation is over.
    pub(super) fn upcoming(&mut self, over: Micros, known: Micros) -> Option<Next> {
        let mut plan = self.plan.turn(self.turn_number);
        if plan.is_none() && matches!(self.plan.end, EndKind::KillWorker | EndKind::KillBackend) {
            self.turn_number = 0;
            plan = self.plan.turn(0);
        }
        let plan = plan?;
        let at = match plan.wait {
            Wait::After(wait) => over + wait,
            Wait::At(at) => at,
            Wait::Cycle(cycle) => self.last_begin.unwrap_or(over) + cycle,
        };
        // Turns of silence without length must not spin.
        let soonest = if plan.says.is_none() && self.last_begin == Some(over) { after(over, FRAME_US) } else { known };
        Some(Next { at: at.max(soonest), plan })
    }

    pub(super) fn begin_turn(&mut self, now: Micros, out: &mut Vec<Action>) {
        let Some(Next { at, plan }) = self.next.take().map(|next| *next) else { return };
        self.last_begin = Some(at);
        out.extend(plan.dtmf.chars().map(|key| Action::Send(ClientEvent::Digit(key))));
        match plan.says {
            Some(says) => {
                self.ask(says, plan.act, plan.response_ms, at, out);
                self.watch.asked(false, at);
            }
            None => self.next_turn(at, at, now, out),
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
            endpointed: false,
            answer: None,
            audible: Audible::NotYet,
            measured: false,
            act_at: Micros::NEVER,
            act_waits: false,
            deadline: Micros::NEVER,
            over_at: Micros::NEVER,
            heard_out: Micros::NEVER,
        }));
        out.push(Action::Count(Counter::Turns, 1));
    }

    pub(super) fn send_frame(&mut self, now: Micros, out: &mut Vec<Action>) {
        let Voiced::Onset(edge) = self.mouth.frame(&self.plan.scenario, now, out) else { return };
        if let Some(turn) = &mut self.turn {
            turn.onset = Some(edge);
        }
        self.watch.onset(now);
        self.spoke = Micros::NEVER;
        self.ear.playout.user_begins(edge.actual);
        if self.stop.as_mut().is_some_and(|stop| stop.onset(edge)) {
            out.push(Action::Count(Counter::BargeIns, 1));
        }
    }

    pub(super) fn speech_ended(&mut self, out: &mut Vec<Action>) {
        let Some(edge) = self.mouth.end_speech(&self.plan.scenario, out) else { return };
        self.user_ends(edge.actual, out);
        if let Some(turn) = &mut self.turn {
            turn.end = Some(edge);
            if let Act::SpeakAgain { after, .. } = &turn.act {
                turn.act_at = edge.intended + *after;
            }
            turn.deadline = edge.intended + self.plan.scenario.response_timeout;
        }
        self.judge_early();
        if self.plan.scenario.commits() {
            out.push(Action::Send(ClientEvent::Commit));
            out.push(Action::Send(ClientEvent::Respond(ResponseWish::default())));
        }
    }

    /// Nothing of the user can be heard from here on.
    pub(super) fn user_ends(&mut self, at: Micros, out: &mut Vec<Action>) {
        if self.spoke == Micros::NEVER {
            self.spoke = at;
            let both = self.ear.playout.user_ends(at);
            if both > 0 {
                out.push(Action::Count(Counter::TalkOverUs, both));
            }
        }
    }

    /// The answer was heard out.
    pub(super) fn turn_over(&mut self, at: Micros, now: Micros, out: &mut Vec<Action>) {
        let heard_out = self.turn.as_ref().map_or(at, |turn| turn.heard_out.min(at));
        self.close_turn(Counter::TurnsAnswered, out);
        self.next_turn(heard_out, at, now, out);
    }

    /// The turn is over, answered or missed.
    pub(super) fn finish_turn(&mut self, how: Counter, at: Micros, now: Micros, out: &mut Vec<Action>) {
        self.close_turn(how, out);
        self.next_turn(at, at, now, out);
    }

    fn close_turn(&mut self, how: Counter, out: &mut Vec<Action>) {
        let turn = self.turn.take();
        let audible = turn.filter(|turn| turn.audible == Audible::Yes).and_then(|turn| turn.answer);
        if how == Counter::TurnsMissed
            && let Some(response) = audible.filter(|response| !Ear::is_unnamed(*response))
        {
            out.push(Action::Send(ClientEvent::GiveUp { response }));
        }
        self.watch.turn_over(how == Counter::TurnsMissed, audible.map(|response| response.0));
        // An answer that is still to come is late, but answers somebody.
        if how == Counter::TurnsMissed || self.tool.take().is_some() {
            self.owed = self.owed.saturating_add(1);
        }
        self.tool = None;
        out.push(Action::Count(how, 1));
    }

    /// The interruption of the turn is due.
    pub(super) fn interrupt(&mut self, at: Micros, now: Micros, out: &mut Vec<Action>) {
        let Some(turn) = &mut self.turn else { return };
        turn.act_at = Micros::NEVER;
        let Some(response) = turn.answer else { return self.speak_again(at, out) };
        let unnamed = Ear::is_unnamed(response);
        if unnamed && self.ear.playout.voice_end() <= at {
            turn.act_waits = true;
            return;
        }
        let response_ms = turn.response_ms;
        let act = match std::mem::replace(&mut turn.act, Act::Listen) {
            // The agent has begun: an interruption like any other.
            Act::SpeakAgain { after, says } => Act::BargeIn { after, explicit: false, heard: None, says },
            act => act,
        };
        let sent = self.ear.only_played(response, now);
        let named = (!unnamed).then_some(response);
        let message = By::Message(Edge { intended: at, actual: now });
        let (by, says) = match act {
            Act::BargeIn { explicit, says, heard, .. } if explicit || (says.is_some() && self.plan.scenario.commits()) => {
                // Where nobody listens for speech, who breaks in says so.
                let played_ms = self.silence_agent(now);
                let heard_ms = heard.map_or(played_ms, Claim::heard_ms);
                // A claim that has no word on the wire tests nothing.
                self.watch.interrupted(heard.is_some() && (!sent || self.plan.scenario.service.dialect.truncates_played()));
                out.push(Action::Send(match named {
                    Some(response) if sent => ClientEvent::Truncate { response, heard_ms },
                    _ => ClientEvent::BargeIn { response: named, heard_ms },
                }));
                (message, says)
            }
            Act::Cancel { .. } => {
                let heard_ms = self.silence_agent(now);
                out.push(Action::Send(match named {
                    Some(response) if sent => ClientEvent::Truncate { response, heard_ms },
                    _ => ClientEvent::Cancel { response: named },
                }));
                (message, None)
            }
            Act::BargeIn { says: Some(says), .. } => {
                self.ear.broken_into();
                (By::Speech, Some(says))
            }
            Act::BargeIn { says: None, .. } | Act::SpeakAgain { .. } | Act::Listen | Act::Tool { .. } => return,
        };
        // An older interruption whose settling this one overtakes.
        if let Some(older) = self.stop.take() {
            Self::stopped(&older, older.settle(), now, out);
        }
        self.interrupted = response;
        if by == message {
            out.push(Action::Count(Counter::BargeIns, 1));
        }
        if !sent || by == By::Speech {
            self.stop = Some(Box::new(Stop::new(response, by, sent, self.ear.playout.voice_end())));
        }
        if let Some(says) = says {
            // The first question has its answer; the interruption is the next.
            out.push(Action::Count(Counter::TurnsAnswered, 1));
            self.watch.turn_over(false, None);
            self.ask(says, Act::Listen, response_ms, at, out);
            self.watch.asked(true, at);
        } else if sent && let Some(turn) = &mut self.turn {
            turn.over_at = at;
        }
    }

    /// The user speaks again, and the agent has not begun: what it was asked before need not be answered any more. Nothing is said that could be
    /// stopped, so that this is none of the interruptions that are measured.
    fn speak_again(&mut self, at: Micros, out: &mut Vec<Action>) {
        let Some(turn) = &mut self.turn else { return };
        let Act::SpeakAgain { says: Some(says), .. } = &turn.act else { return };
        let (says, response_ms) = (says.clone(), turn.response_ms);
        if self.plan.scenario.commits() {
            out.push(Action::Send(ClientEvent::BargeIn { response: None, heard_ms: 0 }));
        }
        out.push(Action::Count(Counter::TurnsInterrupted, 1));
        // Begun before the agent hears of it, it answers somebody.
        self.owed = self.owed.saturating_add(1);
        self.watch.turn_dropped();
        self.ask(says, Act::Listen, response_ms, at, out);
        self.watch.asked(true, at);
    }

    /// The client throws away what waits to be played, and plays no more of it. Gives the milliseconds that were played.
    fn silence_agent(&mut self, now: Micros) -> u32 {
        let heard_ms = self.ear.playout.played_ms(now);
        self.ear.playout.clear(now);
        self.ear.playout.mute();
        heard_ms
    }

    pub(super) fn settle_stop(&mut self, at: Micros, now: Micros, out: &mut Vec<Action>) {
        let Some(stop) = self.stop.take() else { return };
        let stopped = stop.settle();
        Self::stopped(&stop, stopped, now, out);
        // An agent that will not be stopped is listened to no longer.
        if stopped == Stopped::Never && self.turn.as_ref().is_some_and(|turn| turn.answer == Some(stop.response)) {
            self.finish_turn(Counter::TurnsAnswered, at, now, out);
        }
    }

    /// An interruption has come to this.
    pub(super) fn stopped(stop: &Stop, stopped: Stopped, now: Micros, out: &mut Vec<Action>) {
        out.extend(stop.samples(stopped, now).map(Action::Measure));
        if stopped != Stopped::Crossed {
            out.push(Action::Count(Counter::BargeInsJudged, 1));
        }
        if stopped == Stopped::Never {
            out.push(Action::Count(Counter::BargeInsMissed, 1));
        }
    }

    /// The planned time of a tool has passed.
    pub(super) fn answer_tool(&mut self, at: Micros, out: &mut Vec<Action>) {
        let Some(tool) = &mut self.tool else { return };
        tool.due = Micros::NEVER;
        tool.answered = at;
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
