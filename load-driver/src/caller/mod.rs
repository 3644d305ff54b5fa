//! A synthetic person as a pure state machine: events and time in, actions out.
//!
//! # Life
//!
//! | state | what happens | then |
//! |---|---|---|
//! | dialling | connected | sends `Start`; starting |
//! | dialling, starting | closed; start timeout; fatal error; anything but `Accepted` | **failed** |
//! | dialling | stop | **failed** (aborted) |
//! | starting | `Accepted` | live |
//! | starting | stop | goodbye on acceptance; **failed** (aborted) at the stop's deadline |
//! | live | length over or stop, between turns; a turn ends after either; conversation over; stop's deadline | sends `End`; leaving |
//! | live | planned end of an abrupt kind: length over, in mid-turn too, or conversation over | `Force`; **ended** (forced) |
//! | live | struck by a fault of the timeline | `Force` or `Race`; **ended** (forced) |
//! | live | planned end by a kill | talks on, from the top of the conversation if need be, until closed |
//! | live | fatal error | says nothing more; leaving |
//! | live | `GoingAway` | says goodbye between turns, or when the time that is left is nearly over; turns that were still due are missed |
//! | live, leaving | `Ended` | **ended** (goodbye if we said ours and no fatal error came, else by server) |
//! | live, leaving | closed; second `Accepted`; no `Ended` within 5 s | **ended** (lost) |
//!
//! # A turn
//!
//! | state | what happens | then |
//! |---|---|---|
//! | waiting | its time has come | `TurnHint`; speaking. A turn of silence is over at once |
//! | speaking | speech is over (by energy, not by the file) | waiting for the answer, up to the response timeout |
//! | answer awaited | first audio of a response that began after the turn did | listening |
//! | answer awaited, listening | nothing of it for the response timeout (a tool's own time excepted) | over: missed |
//! | listening | interruption is due | `BargeIn` or `Cancel` is sent, or (by speech) the turn is answered and the interruption is the next turn |
//! | listening, or all came and still plays | tool call | answer awaited, once the response has ended: the agent has to resume |
//! | listening | response ended | over when it has been played: answered; failed responses: missed |
//! | any | the session ends | over: interrupted |
//!
//! What happened is known by response and turn numbers, so that a late answer to a missed turn never passes for the next one's. A
//! response that begins before the user's speech is over can end the turn, but is no measure of `turn_response`.
//! Where nobody names responses one that begins so is an answer only if it goes on well after the user, or has an onset of its own after a silence: an
//! echo is none. An answer is heard when it is played, which for a burst is later than it came.
//!
//! # A conversation that goes on
//! Where the plan has session resumption, what is left of the conversation when the backend goes away is packed before anything is forgotten, and
//! handed over (`Resume`) with the end of the session, however that came: see `moving`. The caller of the next session begins with it.
//!
//! Every input first does what is due by its time, so that the order of ticks and events makes no difference.

mod ear;
mod faults;
mod hear;
mod life;
mod mouth;
mod moving;
mod playout;
mod sound;
mod stop;
mod turn;

#[cfg(test)]
mod tests;

use proto::{
    frame::{ClientEvent, ErrorCode, ServerEvent},
    ids::ResponseId,
    time::Micros,
};

pub(crate) use self::playout::JITTER_BUFFER_US;
use self::{
    ear::Ear,
    faults::Watch,
    mouth::Mouth,
    moving::Rest,
    sound::Greeting,
    stop::Stop,
    turn::{Next, Tool, Turn},
};
use crate::{
    ledger::{FailureCause, Finish},
    plan::{EndKind, Resumption, SessionPlan},
    record::{Counter, Sample},
};

/// What the shard must do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// To the backend.
    Send(ClientEvent),
    /// End the stream this way now (abrupt kinds; for graceful the caller sends `End` itself and waits for the answer).
    Force(EndKind),
    /// End the stream by a cancel and a disconnect at once.
    Race,
    /// Stop waiting: cut the stream. Not sent when the server ended the session in order: then it closes the stream itself.
    Drop,
    /// Into the histograms.
    Measure(Sample),
    /// Into the counters.
    Count(Counter, u64),
    /// For people: in what way the server broke the protocol, before the failure that comes of it.
    Explain(FailureCause, String),
    /// Into the book of voice faults: what the session was like. Just before the last action.
    Voice(crate::voice::Verdict),
    /// The conversation goes on so in another session. Just before [`Self::Ended`].
    Resume(Box<Resumption>),
    /// Into the ledger: accepted.
    Accepted(proto::frame::SessionAccepted),
    /// Into the ledger: over, after acceptance. The last action.
    Ended(Finish),
    /// Into the ledger: over, never accepted. The last action.
    Failed(FailureCause),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Dialling,
    Starting,
    Live,
    /// `End` was sent.
    Leaving,
    /// The server ends the session with this error.
    Doomed(ErrorCode),
    Over,
}

/// One synthetic person in one session.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what was seen of the session, each by itself")]
pub struct Caller {
    plan: SessionPlan,
    dialed: Micros,
    /// A deadline of the backend's is asked for that falls on this time; [`Micros::NEVER`] is none.
    dies_at: Micros,
    life: Life,
    /// Of the state of life: start timeout, planned end, longest wait for the goodbye.
    deadline: Micros,
    /// Say goodbye by then, turn or no turn.
    stop_by: Micros,
    /// Say goodbye at the next turn boundary.
    ending: bool,
    streamed: bool,
    mouth: Mouth,
    ear: Ear,
    next: Option<Box<Next>>,
    turn: Option<Box<Turn>>,
    turn_number: u32,
    /// When the user began to speak last, or a turn of silence was over.
    last_begin: Option<Micros>,
    /// When the user could be heard last; [`Micros::NEVER`] while it speaks.
    spoke: Micros,
    greeting: Option<Box<Greeting>>,
    /// The response that the user interrupted last; 0 is none.
    interrupted: ResponseId,
    /// Answers that are no longer waited for and may still come.
    owed: u32,
    stop: Option<Box<Stop>>,
    tool: Option<Box<Tool>>,
    /// The backend goes away, and the conversation is to go on elsewhere.
    moving: bool,
    /// The backend ends the session, and the plan had more in mind.
    cut: bool,
    /// It did, in order, and the conversation went on nowhere.
    cut_short: bool,
    /// What the backend would go on from, as it said last.
    handle: Option<Box<str>>,
    /// What is left of the conversation, once the session is to end.
    rest: Option<Box<Rest>>,
    /// Judges the backend as a voice agent.
    watch: Box<Watch>,
}

/// What can be due; at equal times in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Life,
    Heard,
    StopBy,
    SpeechEnd,
    Tool,
    Mark,
    Act,
    Inferred,
    Greeted,
    TurnOver,
    TurnMissed,
    TurnBegin,
    Frame,
    Settle,
}

impl Caller {
    /// `now` is when the shard began to dial (the plan's `start` is when it should have).
    pub fn new(plan: SessionPlan, now: Micros) -> Self {
        Self {
            dialed: now,
            dies_at: Micros::NEVER,
            life: Life::Dialling,
            deadline: now + plan.scenario.start_timeout,
            stop_by: Micros::NEVER,
            ending: false,
            // What was measured of the conversation's begin is not measured again.
            streamed: plan.resumes.is_some(),
            mouth: Mouth::new(),
            ear: Ear::default(),
            next: None,
            turn: None,
            turn_number: 0,
            last_begin: None,
            spoke: Micros::ZERO,
            greeting: None,
            interrupted: ResponseId(0),
            owed: 0,
            stop: None,
            tool: None,
            moving: false,
            cut: false,
            cut_short: false,
            handle: None,
            rest: None,
            watch: Box::new(Watch::new(&plan.scenario.service)),
            plan,
        }
    }

    /// The transport is ready (TCP + HTTP/2 or WebSocket upgrade); `fresh` when a connection was dialled for it. Sends the start.
    pub fn on_connected(&mut self, fresh: bool, now: Micros, out: &mut Vec<Action>) {
        if self.life == Life::Dialling {
            self.start(fresh, now, out);
        }
    }

    /// The backend is to be asked for a deadline at this time. Before the start.
    pub fn dies_at(&mut self, at: Micros) {
        self.dies_at = at;
    }

    /// It is there, and neither over nor on its way out.
    pub fn live(&self) -> bool {
        self.life == Life::Live
    }

    /// The caller does not read for a while: what it hears, and when, says nothing of the backend.
    pub fn on_deafness(&mut self) {
        self.watch.excuse();
    }

    /// All that the driver itself came too late since the run began, microseconds: what arrives late for that is not the backend's fault.
    pub fn on_stall(&mut self, total_us: u64) {
        self.watch.stalled(total_us);
    }

    /// The driver dropped audio of this caller: the backend cannot have heard it.
    pub fn on_lost_audio(&mut self) {
        self.watch.lost_audio();
    }

    /// Something from the backend.
    pub fn on_event(&mut self, event: ServerEvent, now: Micros, out: &mut Vec<Action>) {
        self.advance(now, out);
        match self.life {
            Life::Over => return,
            Life::Dialling | Life::Starting => self.hear_before_acceptance(event, now, out),
            Life::Live | Life::Leaving | Life::Doomed(_) => {
                self.watch.hear(&event, self.mouth.speaking(), now);
                self.hear(event, now, out);
            }
        }
        self.advance(now, out);
    }

    /// The transport could not be had, or ended: `cause` tells how.
    pub fn on_closed(&mut self, cause: FailureCause, now: Micros, out: &mut Vec<Action>) {
        match self.life {
            Life::Over => {}
            Life::Dialling | Life::Starting => self.fail(cause, false, out),
            Life::Live | Life::Leaving => self.end(Finish::Lost(cause), false, now, out),
            Life::Doomed(code) => self.end(Finish::Lost(FailureCause::ServerError(code).or_closed_for(cause)), false, now, out),
        }
    }

    /// Ends the session in order at the next opportunity: at once between turns, else when the turn is over, but says goodbye by
    /// `deadline` at the latest. The server's answer is awaited for 5 s more.
    pub fn stop(&mut self, deadline: Micros, now: Micros, out: &mut Vec<Action>) {
        self.advance(now, out);
        self.stay();
        match self.life {
            Life::Dialling => self.fail(FailureCause::Aborted, true, out),
            Life::Starting => {
                self.ending = true;
                self.stop_by = self.stop_by.min(deadline);
            }
            Life::Live => {
                self.ending = true;
                self.deadline = Micros::NEVER;
                self.stop_by = self.stop_by.min(deadline);
                if self.turn.is_none() {
                    self.say_goodbye(now, out);
                }
            }
            Life::Leaving | Life::Doomed(_) | Life::Over => {}
        }
        self.advance(now, out);
    }

    /// Does what is due by `now`.
    pub fn step(&mut self, now: Micros, out: &mut Vec<Action>) {
        self.advance(now, out);
    }

    /// When [`Self::step`] must be called next.
    pub fn next_wake(&self) -> Micros {
        self.next_due().0
    }

    /// The plan of the session.
    pub fn plan(&self) -> &SessionPlan {
        &self.plan
    }

    /// The user is speaking now.
    pub fn speaking(&self) -> bool {
        self.mouth.speaking()
    }

    /// The backend ended the session in order before its plan was over, and nothing goes on from it.
    pub fn cut_short(&self) -> bool {
        self.cut_short
    }

    /// True once `Ended` or `Failed` was emitted.
    pub fn over(&self) -> bool {
        self.life == Life::Over
    }

    fn next_due(&self) -> (Micros, Due) {
        if self.life == Life::Over {
            return (Micros::NEVER, Due::Life);
        }
        let turn = self.turn.as_deref();
        let tool = self.tool.as_deref().map_or(Micros::NEVER, |tool| tool.due);
        // While the caller itself works for the agent, the agent is not late.
        let missed = turn.filter(|_| tool == Micros::NEVER).map_or(Micros::NEVER, |turn| turn.deadline);
        let mut first = (self.deadline, Due::Life);
        for (at, due) in [
            (self.ear.playout.heard_due(), Due::Heard),
            (self.stop_by, Due::StopBy),
            (self.mouth.speech_end_due(), Due::SpeechEnd),
            (tool, Due::Tool),
            (self.ear.playout.mark_due(), Due::Mark),
            (turn.map_or(Micros::NEVER, |turn| turn.act_at), Due::Act),
            (self.ear.unnamed_over(), Due::Inferred),
            (self.greeting.as_deref().map_or(Micros::NEVER, Greeting::due), Due::Greeted),
            (turn.map_or(Micros::NEVER, |turn| turn.over_at), Due::TurnOver),
            (missed, Due::TurnMissed),
            (self.next.as_ref().map_or(Micros::NEVER, |next| next.at), Due::TurnBegin),
            (self.mouth.frame_due(), Due::Frame),
            (self.stop.as_deref().map_or(Micros::NEVER, Stop::due), Due::Settle),
        ] {
            if at < first.0 {
                first = (at, due);
            }
        }
        first
    }

    /// Does what is due by `now`, in the order in which it was due.
    fn advance(&mut self, now: Micros, out: &mut Vec<Action>) {
        loop {
            let (at, due) = self.next_due();
            if at > now || at == Micros::NEVER {
                break;
            }
            match due {
                Due::Life => self.life_due(now, out),
                Due::Heard => out.extend(self.ear.playout.heard(at).map(Action::Measure)),
                Due::StopBy => self.stop_due(now, out),
                Due::SpeechEnd => self.speech_ended(out),
                Due::Tool => self.answer_tool(at, out),
                Due::Mark => self.tell_played(out),
                Due::Act => self.interrupt(at, now, out),
                Due::Inferred => self.infer_end(at, now, out),
                Due::Greeted => self.greeted(at, now, out),
                Due::TurnOver => self.turn_over(at, now, out),
                Due::TurnMissed => self.finish_turn(Counter::TurnsMissed, at, now, out),
                Due::TurnBegin => self.begin_turn(now, out),
                Due::Frame => self.send_frame(now, out),
                Due::Settle => self.settle_stop(at, now, out),
            }
        }
        self.mouth.flush(out);
    }
}
