//! What the caller makes of the agent's audio: answers, interruptions, and responses that nobody names.

use std::time::Duration;

use proto::{
    frame::{AgentAudio, ClientEvent, ResponseStatus},
    ids::{ResponseId, TurnId},
    time::Micros,
};

use super::{
    Action, Caller, Life,
    ear::{Ear, Heard, Voice},
    hear::{measure, slip},
    stop::{Stop, Stopped},
    turn::{Audible, Turn},
};
use crate::{
    plan::Act,
    record::{Counter, Metric, Sample},
};

/// A pause that may be the agent's wait for a tool; between words it is shorter.
const RESUMES: Duration = Duration::from_millis(200);

/// After a sound that overlapped the user's, silence of this length makes the next one an onset of its own: longer than the hole of an echo that is late on
/// its way.
const OWN_ONSET: Duration = Duration::from_millis(500);
/// What began while the user spoke, and that nobody names, is an answer only if it goes on for so long after the user: an echo, however long its
/// way over networks and jitter buffers, is over by then, and so is an "uh-huh".
const GOES_BEYOND: Duration = Duration::from_secs(1);

/// The agent speaks first: nobody is answered, and the conversation begins when it was heard out.
#[derive(Debug)]
pub(super) struct Greeting {
    response: Option<ResponseId>,
    /// Something of it must have come.
    deadline: Micros,
    /// It was heard out; [`Micros::NEVER`] until that is known.
    over_at: Micros,
    /// The last of it was played.
    heard_out: Micros,
}

impl Greeting {
    pub(super) fn new(deadline: Micros) -> Self {
        Self { response: None, deadline, over_at: Micros::NEVER, heard_out: Micros::NEVER }
    }

    /// When the wait for it is over.
    pub(super) fn due(&self) -> Micros {
        self.deadline.min(self.over_at)
    }
}

impl Caller {
    pub(super) fn hear_audio(&mut self, audio: &AgentAudio, now: Micros, out: &mut Vec<Action>) {
        let service = &self.plan.scenario.service;
        let (format, dialect) = (service.output, service.dialect);
        let frames = self.ear.frames(format.duration_us(audio.payload.len()));
        if frames > 0 {
            out.push(Action::Count(Counter::FramesReceived, frames));
        }
        if dialect.numbers_audio() {
            out.push(Action::Count(Counter::AudioNumbered, 1));
            if self.ear.gap(audio.sequence) {
                out.push(Action::Count(Counter::SequenceGaps, 1));
            }
        }
        let mut response = audio.response;
        if response.0 == 0 && !dialect.names_every_response() {
            response = self.ear.unnamed();
            if self.goes_on_stopped(response) {
                self.hear_stale(audio, now, out);
                return;
            }
        } else if !self.ear.knows(response) {
            // The server's slip, but a person hears it all the same. What it answers was not said: it is taken for the answer.
            slip(out);
            self.end_before(now, out);
            if self.ear.announce(response, TurnId(0), now) {
                self.expect_answer(response);
            }
        }
        let heard_before = self.ear.last_heard();
        match self.ear.hear(response, audio, format, now) {
            Heard::Stale => {
                out.push(Action::Count(Counter::StaleFrames, 1));
                self.hear_of_stopped(response, now, out);
            }
            Heard::Old => self.hear_of_stopped(response, now, out),
            Heard::Idle => {}
            Heard::Current { voice, played, late } => {
                if let Some(due) = late {
                    measure(Metric::AudioGap, due, due, now, out);
                    out.push(Action::Count(Counter::Underruns, 1));
                    out.push(Action::Count(Counter::UnderrunUs, now.0 - due.0));
                }
                // The silence of a line that is never still tells nothing.
                if voice != Voice::Silent || !Ear::is_unnamed(response) {
                    self.hear_of_stopped(response, now, out);
                }
                match voice {
                    Voice::Silent => {}
                    Voice::First => {
                        self.hear_first(response, played, now, out);
                        self.hear_answer(response, played, heard_before, now, out);
                    }
                    Voice::More => {
                        // What goes on after a pause may be what the agent has to say to a tool's result.
                        if now - heard_before >= RESUMES && Ear::is_unnamed(response) {
                            self.hear_resumption(played, now, out);
                        }
                        self.hear_answer(response, played, heard_before, now, out);
                    }
                }
            }
        }
    }

    /// Audio of a response whose interruption is awaited.
    fn hear_of_stopped(&mut self, response: ResponseId, now: Micros, out: &mut Vec<Action>) {
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.response == response) {
            let stopped = stop.audio(now);
            if !stop.ended() {
                stop.plays_until(self.ear.playout.voice_end());
            }
            self.settled(stopped, now, out);
        }
    }

    /// Nobody names it, and it cannot be an answer yet: it belongs to what was interrupted before.
    fn goes_on_stopped(&self, response: ResponseId) -> bool {
        let Some(stop) = self.stop.as_ref().filter(|stop| stop.ended() && Ear::is_unnamed(stop.response)) else { return false };
        let asked = self.turn.as_ref().is_some_and(|open| open.answer != Some(stop.response) && open.end.is_some());
        response != stop.response && !asked
    }

    /// Audio that is played although it was interrupted, since nothing says what it belongs to.
    fn hear_stale(&mut self, audio: &AgentAudio, now: Micros, out: &mut Vec<Action>) {
        if !self.ear.hear_late(audio, self.plan.scenario.service.output, now) {
            return;
        }
        out.push(Action::Count(Counter::StaleFrames, 1));
        if let Some(stop) = &mut self.stop {
            let stopped = stop.audio(now);
            stop.plays_until(self.ear.playout.voice_end());
            self.settled(stopped, now, out);
        }
    }

    /// What follows a tool's result is the agent's resumption; true when there was one.
    fn hear_resumption(&mut self, played: Micros, now: Micros, out: &mut Vec<Action>) -> bool {
        let tool = self.tool.take_if(|tool| tool.due == Micros::NEVER);
        if let Some(tool) = &tool {
            let (intended, actual) = (tool.received, tool.received);
            self.measure_heard(Sample { metric: Metric::ToolRoundTrip, intended, actual, to: played }, now, out);
        }
        tool.is_some()
    }

    /// A response can be heard for the first time, once this is played.
    fn hear_first(&mut self, response: ResponseId, played: Micros, now: Micros, out: &mut Vec<Action>) {
        self.hear_stream(played, now, out);
        if self.hear_resumption(played, now, out) {
            if Ear::is_unnamed(response) {
                self.expect_answer(response);
            }
            return;
        }
        if let Some(greeting) = self.greeting.as_mut().filter(|greeting| greeting.response.is_none()) {
            greeting.response = Some(response);
        }
        if self.greeting.as_ref().is_some_and(|greeting| greeting.response == Some(response)) {
            return;
        }
        if Ear::is_unnamed(response) {
            if self.ear.goes_on(self.spoke) {
                return;
            }
            self.expect_answer(response);
        }
        if self.turn.as_ref().is_some_and(|open| open.answer == Some(response)) {
            self.owed = 0;
        } else if self.owed > 0 {
            // The answer to a turn that was given up.
            self.owed -= 1;
        } else {
            out.push(Action::Count(Counter::ResponsesSpurious, 1));
        }
    }

    /// Something of a response that may be the answer: played then, and heard of last before.
    fn hear_answer(&mut self, response: ResponseId, played: Micros, heard_before: Micros, now: Micros, out: &mut Vec<Action>) {
        let unnamed = Ear::is_unnamed(response);
        if let Some(greeting) = self.greeting.as_mut().filter(|greeting| greeting.response == Some(response)) {
            greeting.deadline = if unnamed { Micros::NEVER } else { self.ear.wait_from(now) + self.plan.scenario.response_timeout };
        }
        let Some(open) = self.turn.as_mut().filter(|open| open.answer == Some(response)) else { return };
        let Some(end) = open.end else {
            open.audible = Audible::Early;
            return;
        };
        if unnamed && open.audible == Audible::Early {
            // An answer has an onset of its own, after the user's end and a silence.
            if now - heard_before.max(end.actual) < OWN_ONSET {
                self.judge_early();
                return;
            }
            open.audible = Audible::NotYet;
        }
        let mut heard = None;
        if open.audible != Audible::Yes {
            let first = open.audible == Audible::NotYet && !open.measured;
            open.audible = Audible::Yes;
            open.measured = true;
            // Who speaks again anyhow has set the time already.
            if let Act::BargeIn { after, .. } | Act::Cancel { after } = &open.act {
                open.act_at = played + *after;
            }
            heard = first.then_some(Sample { metric: Metric::TurnResponse, intended: end.intended, actual: end.actual, to: played });
        } else if open.act_waits {
            open.act_waits = false;
            open.act_at = now;
        }
        // One that nobody names cannot dry up: it is over then.
        open.deadline = if unnamed { Micros::NEVER } else { self.ear.wait_from(now) + self.plan.scenario.response_timeout };
        if let Some(sample) = heard {
            self.measure_heard(sample, now, out);
        }
    }

    /// What began while the user spoke goes on well after the user: an answer after all, but nobody knows since when.
    pub(super) fn judge_early(&mut self) {
        let until = self.ear.playout.voice_end();
        let early = |open: &&mut Box<Turn>| open.audible == Audible::Early && open.answer.is_some_and(Ear::is_unnamed);
        let Some(open) = self.turn.as_mut().filter(early) else { return };
        let Some(beyond) = open.end.map(|end| end.actual + GOES_BEYOND).filter(|beyond| until >= *beyond) else { return };
        open.audible = Audible::Yes;
        open.measured = true;
        open.deadline = Micros::NEVER;
        if let Act::BargeIn { after, .. } | Act::Cancel { after } = &open.act {
            open.act_at = beyond + *after;
        }
    }

    /// A response with a name begins: the one without is over.
    pub(super) fn end_before(&mut self, now: Micros, out: &mut Vec<Action>) {
        self.infer_end(now, now, out);
    }

    /// Nothing more was heard of the response that nobody names.
    pub(super) fn infer_end(&mut self, at: Micros, now: Micros, out: &mut Vec<Action>) {
        let Some(response) = self.ear.speaking_unnamed() else { return };
        let played = self.ear.playout.voice_end();
        // The agent went on without a pause, and nobody can tell where.
        let heard = self.ear.last_heard();
        self.tool.take_if(|tool| tool.due == Micros::NEVER && heard > tool.answered);
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.response == response) {
            let stopped = stop.fell_silent();
            stop.plays_until(played);
            self.settled(Some(stopped), now, out);
        }
        self.end_response(response, ResponseStatus::Completed, now, out);
        if let Some(open) = self.turn.as_mut().filter(|open| open.answer == Some(response) && open.over_at != Micros::NEVER) {
            // Over when it had been played, known only now.
            open.over_at = at;
            open.heard_out = played;
        }
        if let Some(greeting) = self.greeting.as_mut().filter(|greeting| greeting.response == Some(response)) {
            greeting.over_at = at;
            greeting.heard_out = played;
        }
    }

    /// The response may have been the greeting.
    pub(super) fn end_greeting(&mut self, response: ResponseId, status: ResponseStatus, now: Micros) {
        if let Some(greeting) = self.greeting.as_mut().filter(|greeting| greeting.response == Some(response)) {
            greeting.over_at = if status == ResponseStatus::Completed { self.ear.playout.end().max(now) } else { now };
            greeting.heard_out = greeting.over_at;
        }
    }

    /// The greeting was heard out, or there was none in time: the conversation begins.
    pub(super) fn greeted(&mut self, at: Micros, now: Micros, out: &mut Vec<Action>) {
        let Some(greeting) = self.greeting.take() else { return };
        self.next_turn(at.min(greeting.heard_out), at, now, out);
    }

    /// The server's detector hears the user.
    pub(super) fn hear_interest(&mut self, now: Micros, out: &mut Vec<Action>) {
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.heard(now) && !stop.ended()) {
            let response = stop.response;
            let first = stop.sign(now);
            // A telephone plays on until it is told otherwise; other clients throw away what they have.
            if first && !Ear::is_unnamed(response) {
                self.ear.playout.clear(now);
                self.ear.playout.mute();
                if let Some(stop) = &mut self.stop {
                    stop.plays_until(now.min(self.ear.playout.voice_end()));
                }
                if self.stops_playout_of(response) {
                    self.tell_heard(response, now, out);
                }
            }
        } else if self.ear.still_playing(now).is_some() && self.spoke < self.ear.began() {
            self.throw_away(now, out);
        }
    }

    /// The interruption is of a response that was sent in full before.
    pub(super) fn stops_playout_of(&self, response: ResponseId) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.response == response && stop.sent())
    }

    /// The server takes it that the user interrupts what was sent in full and is still being played.
    pub(super) fn throw_away(&mut self, now: Micros, out: &mut Vec<Action>) {
        let playing = self.ear.still_playing(now);
        self.ear.playout.clear(now);
        let Some(response) = playing else { return };
        self.judge_interruption(response, out);
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.response == response) {
            let first = stop.sign(now);
            stop.plays_until(self.ear.playout.voice_end());
            if first {
                self.tell_heard(response, now, out);
            }
        }
        if let Some(open) = self.turn.as_mut().filter(|open| open.answer == Some(response) && open.over_at != Micros::NEVER) {
            open.over_at = now;
            open.act_at = Micros::NEVER;
        }
    }

    /// A response was interrupted. By whom?
    pub(super) fn judge_interruption(&mut self, response: ResponseId, out: &mut Vec<Action>) {
        if self.interrupted != response && self.spoke < self.ear.began() {
            out.push(Action::Count(Counter::BargeInsFalse, 1));
        }
    }

    /// After an interruption by speech: how much of the response was played.
    pub(super) fn tell_heard(&mut self, response: ResponseId, now: Micros, out: &mut Vec<Action>) {
        let interrupts = |stop: &Stop| stop.response == response && stop.heard(now);
        if self.life == Life::Live && !Ear::is_unnamed(response) && self.stop.as_deref().is_some_and(interrupts) {
            let heard_ms = self.ear.playout.played_ms(now);
            out.push(Action::Send(ClientEvent::Truncate { response, heard_ms }));
        }
    }

    /// A mark was reached.
    pub(super) fn tell_played(&mut self, out: &mut Vec<Action>) {
        if let Some(name) = self.ear.playout.reached() {
            out.push(Action::Send(ClientEvent::Played { name }));
        }
    }

    /// The interruption that is awaited has come to this, if to anything.
    pub(super) fn settled(&mut self, stopped: Option<Stopped>, now: Micros, out: &mut Vec<Action>) {
        if let Some(stopped) = stopped
            && let Some(stop) = self.stop.take()
        {
            Self::stopped(&stop, stopped, now, out);
        }
    }
}
