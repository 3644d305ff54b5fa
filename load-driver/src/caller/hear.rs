//! What the backend says after acceptance.

use proto::{
    frame::{ResponseStatus, ServerEvent},
    ids::{ResponseId, TurnId},
    time::Micros,
};

use super::{
    Action, Caller, Life,
    ear::Ear,
    life::explain,
    mouth::after,
    playout::JITTER_BUFFER_US,
    turn::{Audible, Tool, tool_result},
};
use crate::{
    ledger::{FailureCause, Finish},
    plan::Act,
    record::{Counter, Metric, Sample},
};

impl Caller {
    pub(super) fn hear(&mut self, event: ServerEvent, now: Micros, out: &mut Vec<Action>) {
        match event {
            ServerEvent::Accepted(_) => {
                explain("the server accepted the session a second time".to_owned(), out);
                self.end(Finish::Lost(FailureCause::Protocol), true, now, out);
            }
            ServerEvent::Speech(marker) if marker.started => self.hear_interest(now, out),
            ServerEvent::Speech(_) => {
                self.hear_endpoint(now, out);
                self.mouth.heard_end();
            }
            ServerEvent::Committed { .. } => self.hear_endpoint(now, out),
            ServerEvent::Transcript { turn, last, .. } => self.hear_transcript(turn, last, now, out),
            ServerEvent::ResponseStart { response, turn, .. } => self.hear_response_start(response, turn, now, out),
            ServerEvent::Audio(audio) => self.hear_audio(&audio, now, out),
            ServerEvent::ResponseEnd { response, status, .. } => self.hear_response_end(response, status, now, out),
            ServerEvent::Ack { sequence } => {
                if !self.mouth.acked(sequence, now, out) {
                    slip(out);
                }
            }
            ServerEvent::ToolCall { call_id, name, .. } => self.hear_tool_call(call_id, &name, now, out),
            ServerEvent::ToolCancel { call_id } => {
                if self.tool.as_ref().is_some_and(|tool| tool.call_id == call_id) {
                    self.tool = None;
                    self.extend_deadline(now);
                }
            }
            ServerEvent::Context { .. } | ServerEvent::Answering { .. } | ServerEvent::AnswerDropped { .. } => {}
            ServerEvent::Mark { name } => {
                if self.life == Life::Live && !self.ear.playout.mark(name, now) {
                    slip(out);
                }
            }
            ServerEvent::Resumable { handle } => self.hear_handle(handle),
            ServerEvent::GoingAway { left_ms } => self.hear_going_away(left_ms, now, out),
            ServerEvent::Error(error) if error.fatal => self.doom(error.code, now, out),
            ServerEvent::Error(_) => slip(out),
            ServerEvent::Ended(ended) => {
                let finish = match self.life {
                    Life::Leaving => Finish::Goodbye(ended.outcome),
                    _ => Finish::ByServer(ended.outcome),
                };
                // The server closes the stream now; to cut it would be one more reset for nothing.
                self.end(finish, false, now, out);
            }
        }
    }

    /// The agent's first transcript or audible audio, heard `at` that time.
    pub(super) fn hear_stream(&mut self, at: Micros, now: Micros, out: &mut Vec<Action>) {
        if !self.streamed {
            self.streamed = true;
            self.measure_heard(self.since_start(Metric::TimeToFirstStream, at), now, out);
        }
    }

    /// Measures what is heard at `sample.to`, now or later.
    pub(super) fn measure_heard(&mut self, sample: Sample, now: Micros, out: &mut Vec<Action>) {
        if sample.to <= now {
            out.push(Action::Measure(sample));
        } else {
            self.ear.playout.will_be_heard(sample);
        }
    }

    fn hear_transcript(&mut self, turn: TurnId, last: bool, now: Micros, out: &mut Vec<Action>) {
        self.hear_stream(now, now, out);
        self.ear.understood(turn);
        let Some(open) = self.turn.as_mut().filter(|open| open.is(turn)) else { return };
        if let Some(onset) = open.onset.filter(|onset| onset.intended <= now && !open.transcript_first) {
            open.transcript_first = true;
            measure(Metric::TranscriptFirst, onset.intended, onset.actual, now, out);
        }
        // A last word before the end of speech is about a part of it.
        if let Some(end) = open.end.filter(|_| last && !open.transcript_final) {
            open.transcript_final = true;
            measure(Metric::TranscriptFinal, end.intended, end.actual, now, out);
            self.mouth.heard_end();
        }
    }

    /// The server says that the user's turn is over. Where the caller said so first, that is no news.
    fn hear_endpoint(&mut self, now: Micros, out: &mut Vec<Action>) {
        let told = self.plan.scenario.markers || self.plan.scenario.commits();
        let Some(open) = self.turn.as_mut().filter(|open| !told && !open.endpointed) else { return };
        // One inside the speech was about a part of it.
        if let Some(end) = open.end {
            open.endpointed = true;
            measure(Metric::Endpointing, end.intended, end.actual, now, out);
        }
    }

    fn hear_response_start(&mut self, response: ResponseId, turn: TurnId, now: Micros, out: &mut Vec<Action>) {
        self.end_before(now, out);
        if !self.ear.announce(response, turn, now) {
            slip(out);
        } else if self.turn.as_ref().is_some_and(|open| open.is(turn)) {
            self.expect_answer(response);
        }
    }

    /// A response begins that can be the answer, unless another is being heard.
    pub(super) fn expect_answer(&mut self, response: ResponseId) {
        if let Some(open) = self.turn.as_mut().filter(|open| open.audible != Audible::Yes) {
            open.answer = Some(response);
            open.audible = Audible::NotYet;
            self.mouth.heard_end();
        }
    }

    fn hear_response_end(&mut self, response: ResponseId, status: ResponseStatus, now: Micros, out: &mut Vec<Action>) {
        let thrown_away = matches!(status, ResponseStatus::Interrupted | ResponseStatus::Cancelled);
        if response.0 == 0 && !self.plan.scenario.service.dialect.names_every_response() {
            match self.ear.speaking_unnamed() {
                Some(response) if thrown_away => self.end_response(response, status, now, out),
                Some(_) => self.ear.no_more(),
                None if thrown_away => self.throw_away(now, out),
                None => {}
            }
        } else if thrown_away && (self.ear.only_played(response, now) || self.stops_playout_of(response)) {
            self.throw_away(now, out);
        } else if self.ear.end(response, status, now) {
            self.end_response(response, status, now, out);
        } else {
            slip(out);
        }
    }

    /// A response is over, as the server says or as it was inferred.
    pub(super) fn end_response(&mut self, response: ResponseId, status: ResponseStatus, now: Micros, out: &mut Vec<Action>) {
        out.push(Action::Count(Counter::Responses, 1));
        let last_came = self.ear.last_came();
        if let Some((media, wall)) = self.ear.pace() {
            out.push(Action::Count(Counter::PacedMediaUs, media));
            out.push(Action::Count(Counter::PacedWallUs, wall));
        }
        if Ear::is_unnamed(response) {
            self.ear.end_unnamed(status, now);
        }
        if matches!(status, ResponseStatus::Interrupted | ResponseStatus::Cancelled) {
            self.judge_interruption(response, out);
            self.tell_heard(response, now, out);
        }
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.response == response) {
            let stopped = stop.end(status, now);
            stop.plays_until(self.ear.playout.voice_end());
            self.settled(stopped, now, out);
        }
        self.end_greeting(response, status, now);
        self.judge_early();
        let Some(open) = self.turn.as_mut().filter(|open| open.answer == Some(response)) else { return };
        // An unplanned call is answered at once: what is heard after it in the same response is the agent's word on the result already.
        let more_to_come =
            self.tool.as_ref().is_some_and(|tool| tool.planned || status == ResponseStatus::Completed && last_came <= tool.answered);
        if open.audible != Audible::Yes || more_to_come {
            if open.audible == Audible::Early && Ear::is_unnamed(response) {
                // It spoke into the user's words, and was no answer to them.
                self.ear.forget_last();
                out.push(Action::Count(Counter::ResponsesSpurious, 1));
            }
            open.act_at = Micros::NEVER;
            open.answer = None;
            open.audible = Audible::NotYet;
            if open.end.is_some() && open.deadline == Micros::NEVER {
                open.deadline = now + self.plan.scenario.response_timeout;
            }
            return;
        }
        let heard_out = self.ear.playout.end().max(now);
        // What is played long enough can still be interrupted.
        if status != ResponseStatus::Completed || heard_out <= after(open.act_at, JITTER_BUFFER_US) {
            open.act_at = Micros::NEVER;
        }
        match status {
            ResponseStatus::Completed => {
                open.over_at = heard_out;
                // It is all there, however long it is played.
                open.deadline = Micros::NEVER;
            }
            ResponseStatus::Interrupted | ResponseStatus::Cancelled => open.over_at = now,
            ResponseStatus::Failed => self.finish_turn(Counter::TurnsMissed, now, now, out),
        }
    }

    fn hear_tool_call(&mut self, call_id: String, name: &str, now: Micros, out: &mut Vec<Action>) {
        out.push(Action::Count(Counter::ToolCalls, 1));
        if self.life != Life::Live {
            return;
        }
        self.reopen_turn(now);
        let takes = match self.turn.as_mut().map(|open| &mut open.act) {
            Some(act @ Act::Tool { .. }) => match std::mem::replace(act, Act::Listen) {
                Act::Tool { name: expected, takes } if expected == name => Some(takes),
                other => {
                    *act = other;
                    None
                }
            },
            _ => None,
        };
        if let Some(takes) = takes {
            self.tool = Some(Box::new(Tool { call_id, received: now, due: now + takes, answered: Micros::NEVER, planned: true }));
            return;
        }
        out.push(tool_result(call_id.clone()));
        if self.tool.is_none() {
            self.tool = Some(Box::new(Tool { call_id, received: now, due: Micros::NEVER, answered: now, planned: false }));
            self.extend_deadline(now);
        }
    }

    /// The agent has more to do: what was said in full before its call was not the whole answer, and the turn goes on until it has resumed.
    fn reopen_turn(&mut self, now: Micros) {
        if let Some(open) = self.turn.as_mut().filter(|open| open.over_at != Micros::NEVER) {
            open.over_at = Micros::NEVER;
            open.heard_out = Micros::NEVER;
            open.act_at = Micros::NEVER;
            open.answer = None;
            open.audible = Audible::NotYet;
            open.deadline = now + self.plan.scenario.response_timeout;
        }
    }
}

/// The server broke the protocol in a way that a session survives, or said that the caller did.
pub(super) fn slip(out: &mut Vec<Action>) {
    out.push(Action::Count(Counter::ServerErrors, 1));
}

pub(super) fn measure(metric: Metric, intended: Micros, actual: Micros, to: Micros, out: &mut Vec<Action>) {
    out.push(Action::Measure(Sample { metric, intended, actual, to }));
}
