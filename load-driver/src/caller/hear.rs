//! What the backend says after acceptance.

use proto::{
    frame::{AgentAudio, ResponseStatus, ServerEvent},
    ids::{ResponseId, TurnId},
    time::Micros,
};

use super::{
    Action, Caller, Life,
    ear::Heard,
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
            ServerEvent::Accepted(_) => self.end(Finish::Lost(FailureCause::Protocol), true, now, out),
            ServerEvent::Speech(marker) => {
                if !marker.started {
                    self.mouth.heard_end();
                }
            }
            ServerEvent::Transcript { turn, last, .. } => self.hear_transcript(turn, last, now, out),
            ServerEvent::ResponseStart { response, turn, .. } => self.hear_response_start(response, turn, out),
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
            ServerEvent::Context { .. }
            | ServerEvent::Committed { .. }
            | ServerEvent::Answering { .. }
            | ServerEvent::AnswerDropped { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::GoingAway { .. } => {}
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

    /// The agent's first media or transcript frame.
    fn hear_stream(&mut self, now: Micros, out: &mut Vec<Action>) {
        if !self.streamed {
            self.streamed = true;
            self.measure_from_start(Metric::TimeToFirstStream, now, out);
        }
    }

    fn hear_transcript(&mut self, turn: TurnId, last: bool, now: Micros, out: &mut Vec<Action>) {
        self.hear_stream(now, out);
        self.ear.understood(turn);
        let Some(open) = self.turn.as_mut().filter(|open| turn.0 > open.earlier) else { return };
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

    fn hear_response_start(&mut self, response: ResponseId, turn: TurnId, out: &mut Vec<Action>) {
        if !self.ear.announce(response, turn) {
            slip(out);
        } else if self.turn.as_ref().is_some_and(|open| turn.0 > open.earlier) {
            self.expect_answer(response);
        }
    }

    /// A response begins that can be the answer, unless another is being heard.
    fn expect_answer(&mut self, response: ResponseId) {
        if let Some(open) = self.turn.as_mut().filter(|open| open.audible != Audible::Yes) {
            open.answer = Some(response);
            open.audible = Audible::NotYet;
            self.mouth.heard_end();
        }
    }

    fn hear_audio(&mut self, audio: &AgentAudio, now: Micros, out: &mut Vec<Action>) {
        let response = audio.response;
        out.push(Action::Count(Counter::FramesReceived, 1));
        if self.ear.gap(audio.sequence) {
            out.push(Action::Count(Counter::SequenceGaps, 1));
        }
        self.hear_stream(now, out);
        if !self.ear.knows(response) {
            // The server's slip, but a person hears it all the same. What it answers was not said: it is taken for the answer.
            slip(out);
            if self.ear.announce(response, TurnId(0)) {
                self.expect_answer(response);
            }
        }
        if let Some(stopped) = self.stop.as_mut().filter(|stop| stop.response == response).and_then(|stop| stop.audio(now)) {
            self.stop = None;
            Self::stopped(stopped, out);
        }
        match self.ear.hear(response, now) {
            Heard::Stale => out.push(Action::Count(Counter::StaleFrames, 1)),
            Heard::Old => {}
            Heard::Current { first, late } => {
                if let Some(due) = late {
                    measure(Metric::AudioGap, due, due, now, out);
                    out.push(Action::Count(Counter::Underruns, 1));
                    out.push(Action::Count(Counter::UnderrunUs, now.0 - due.0));
                }
                if first {
                    self.hear_resumption(now, out);
                }
                self.hear_answer(response, now, out);
            }
        }
    }

    /// A response becomes audible: if it follows a tool's result, the agent has resumed.
    fn hear_resumption(&mut self, now: Micros, out: &mut Vec<Action>) {
        if let Some(tool) = self.tool.take_if(|tool| tool.due == Micros::NEVER) {
            measure(Metric::ToolRoundTrip, tool.received, tool.received, now, out);
        }
    }

    fn hear_answer(&mut self, response: ResponseId, now: Micros, out: &mut Vec<Action>) {
        let Some(open) = self.turn.as_mut().filter(|open| open.answer == Some(response)) else { return };
        let Some(end) = open.end else {
            open.audible = Audible::Early;
            return;
        };
        if open.audible != Audible::Yes {
            if open.audible == Audible::NotYet && !open.measured {
                measure(Metric::TurnResponse, end.intended, end.actual, now, out);
            }
            open.audible = Audible::Yes;
            open.measured = true;
            if let Act::BargeIn { after, .. } | Act::Cancel { after } = &open.act {
                open.act_at = now + *after;
            }
        }
        open.deadline = now + self.plan.scenario.response_timeout;
    }

    fn hear_response_end(&mut self, response: ResponseId, status: ResponseStatus, now: Micros, out: &mut Vec<Action>) {
        if !self.ear.end(response, status, now) {
            slip(out);
            return;
        }
        out.push(Action::Count(Counter::Responses, 1));
        if let Some(stopped) = self.stop.as_mut().filter(|stop| stop.response == response).and_then(|stop| stop.end(status, now)) {
            self.stop = None;
            Self::stopped(stopped, out);
        }
        let Some(open) = self.turn.as_mut().filter(|open| open.answer == Some(response)) else { return };
        open.act_at = Micros::NEVER;
        let more_to_come = self.tool.as_ref().is_some_and(|tool| tool.planned);
        if open.audible != Audible::Yes || more_to_come {
            open.answer = None;
            open.audible = Audible::NotYet;
            return;
        }
        match status {
            ResponseStatus::Completed => open.over_at = self.ear.play_end().max(now),
            ResponseStatus::Interrupted | ResponseStatus::Cancelled => open.over_at = now,
            ResponseStatus::Failed => self.finish_turn(Counter::TurnsMissed, now, now, out),
        }
    }

    fn hear_tool_call(&mut self, call_id: String, name: &str, now: Micros, out: &mut Vec<Action>) {
        out.push(Action::Count(Counter::ToolCalls, 1));
        if self.life != Life::Live {
            return;
        }
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
            self.tool = Some(Box::new(Tool { call_id, received: now, due: now + takes, planned: true }));
            return;
        }
        out.push(tool_result(call_id.clone()));
        if self.tool.is_none() {
            self.tool = Some(Box::new(Tool { call_id, received: now, due: Micros::NEVER, planned: false }));
            self.extend_deadline(now);
        }
    }
}

/// The server broke the protocol in a way that a session survives, or said that the caller did.
fn slip(out: &mut Vec<Action>) {
    out.push(Action::Count(Counter::ServerErrors, 1));
}

fn measure(metric: Metric, intended: Micros, actual: Micros, to: Micros, out: &mut Vec<Action>) {
    out.push(Action::Measure(Sample { metric, intended, actual, to }));
}
