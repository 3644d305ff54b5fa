//! One stream of a client, whatever its transport: from its opening over its start to its end.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use proto::frame::{ClientEvent, ErrorCode, Outcome, ServerEvent, SessionError, SessionStart};

use super::{Close, Ending, Reservation, Shard, Shared, Slot};
use crate::{listen::Peer, session::validate_start};

/// What the transport shall do.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Write this.
    Event(ServerEvent),
    /// Close the stream. The last.
    Close(Close),
}

/// The transport's hold on a session, or on what will become one. Dropping it ends the session as the loss of its peer.
#[derive(Debug)]
pub struct Conversation {
    shard: Arc<Shard>,
    peer: Arc<Peer>,
    ending: Ending,
    /// Held for the session until its start.
    reservation: Option<Reservation>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No start yet.
    Waiting,
    /// Counted.
    Open(Link),
    /// Refused: told why, never counted.
    Refused(Option<ServerEvent>, Close),
}

impl Conversation {
    /// A stream that was just opened, and what shall be told of its end.
    pub fn new(shard: Arc<Shard>, peer: Arc<Peer>, ending: Ending) -> Self {
        Self { shard, peer, ending, reservation: None, state: State::Waiting }
    }

    /// With a place for its session.
    pub fn reserved(mut self, reservation: Option<Reservation>) -> Self {
        self.reservation = reservation;
        self
    }

    /// The start has not come yet.
    pub const fn waiting(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    /// What all shards share.
    pub fn shared(&self) -> &Shared {
        self.shard.shared()
    }

    /// How the stream closes when it was refused: it will not become a session.
    pub const fn refusal(&self) -> Option<&Close> {
        match &self.state {
            State::Refused(_, close) => Some(close),
            State::Waiting | State::Open(_) => None,
        }
    }

    /// What the client said, or why that could not be read.
    pub fn receive(&mut self, event: Result<ClientEvent, SessionError>) {
        match (&mut self.state, event) {
            (State::Open(link), Ok(event)) => link.event(event),
            (State::Open(link), Err(error)) => link.error(error),
            (State::Waiting, Ok(ClientEvent::Start(start))) => self.start(start),
            (State::Waiting, Ok(other)) => {
                let message = format!("{} came before the start: the first message must be `start`", name(&other));
                self.refuse(SessionError::fatal(ErrorCode::NotStarted, message));
            }
            (State::Waiting, Err(error)) => self.refuse(SessionError { fatal: true, ..error }),
            (State::Refused(..), _) => {}
        }
    }

    fn start(&mut self, start: SessionStart) {
        // Who has a place was let in before the drain.
        if self.reservation.is_none() && self.shard.shared.draining() {
            self.refuse(SessionError::fatal(ErrorCode::Draining, "the server is going away: start the session on another backend"));
        } else if let Err(error) = validate_start(&start) {
            self.refuse(SessionError { fatal: true, ..error });
        } else {
            match self.shard.open(start, self.reservation.as_mut().and_then(Reservation::take)) {
                Ok(link) => self.leave_waiting(State::Open(link)),
                Err(full) => self.refuse(SessionError::fatal(ErrorCode::Overloaded, format!("{full}: retry later or on another backend"))),
            }
        }
    }

    fn refuse(&mut self, error: SessionError) {
        tracing::debug!(code = ?error.code, "stream refused: {error}");
        self.shard.shared.count_refusal(error.code);
        let close = Close { outcome: None, error: Some(error.clone()) };
        self.leave_waiting(State::Refused(Some(ServerEvent::Error(error)), close));
    }

    fn leave_waiting(&mut self, state: State) {
        self.shard.started.fetch_add(1, Relaxed);
        match &state {
            State::Waiting => {}
            State::Open(link) => self.ending.open(&link.slot),
            State::Refused(..) => self.ending.refuse(),
        }
        self.state = state;
        // Used, or given back. The stream counts by itself from here on.
        self.reservation = None;
    }

    /// The client's side ended without goodbye, or its connection did, or it has gone silent: [`Peer`] knows.
    pub fn lost(&mut self) {
        match &self.state {
            State::Waiting => self.refuse(SessionError::fatal(ErrorCode::NotStarted, "the stream ended before `start` came")),
            State::Open(link) => link.lost(&self.peer),
            State::Refused(..) => {}
        }
    }

    /// The start did not come in time.
    pub fn start_timed_out(&mut self) {
        if self.waiting() {
            let limit = proto::time::format_duration(self.shard.shared.config.start_timeout);
            self.refuse(SessionError::fatal(ErrorCode::NotStarted, format!("no `start` came within {limit}")));
        }
    }

    /// What to do next; registers for a wake when nothing is due. Pending while the start has not come.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        match &mut self.state {
            State::Waiting => Poll::Pending,
            State::Open(link) => link.poll_next(cx),
            State::Refused(event, close) => match event.take() {
                Some(event) => Poll::Ready(Next::Event(event)),
                None => Poll::Ready(Next::Close(close.clone())),
            },
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.ending.leave();
        if let State::Open(link) = &self.state {
            link.lost(&self.peer);
        }
        if !self.waiting() {
            self.shard.started.fetch_sub(1, Relaxed);
        }
    }
}

/// A session's slot, held by its writer.
#[derive(Debug)]
pub(super) struct Link {
    shard: Arc<Shard>,
    slot: Arc<Slot>,
    /// Words that come after the session's own end.
    after_end: VecDeque<ServerEvent>,
    told_after_end: bool,
}

impl Link {
    pub(super) const fn new(shard: Arc<Shard>, slot: Arc<Slot>) -> Self {
        Self { shard, slot, after_end: VecDeque::new(), told_after_end: false }
    }

    fn event(&mut self, event: ClientEvent) {
        if self.slot.state.lock().close.is_some() {
            // The session is counted and gone; the client may still learn what it did wrong.
            if !std::mem::replace(&mut self.told_after_end, true) {
                let message = format!("{} came after the session's end and was ignored", name(&event));
                self.after_end.push_back(ServerEvent::Error(SessionError::warning(ErrorCode::AfterEnd, message)));
            }
            return;
        }
        self.shard.act(&self.slot, |session, now, out| session.on_event(event, now, out));
    }

    fn error(&self, error: SessionError) {
        self.shard.act(&self.slot, |session, now, out| session.on_error(error, now, out));
    }

    fn lost(&self, peer: &Peer) {
        let faults = &self.shard.shared.faults;
        self.shard.lose(&self.slot, |session, now, out| {
            if session.haunts() {
                return;
            }
            let outcome = if peer.is_silent() { Outcome::TimedOut } else { Outcome::Cancelled };
            if let Some(afterlife) = faults.of_hangup() {
                session.haunt(outcome, now + afterlife, now);
            } else if peer.is_silent() {
                session.on_keepalive_timeout(now, out);
            } else {
                session.on_disconnect(now, out);
            }
        });
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.slot.state.lock();
        if let Some(event) = state.next_event() {
            if matches!(event, ServerEvent::Audio(_)) {
                state.counted.frame_out();
            }
            return Poll::Ready(Next::Event(event));
        }
        if let Some(close) = state.closing() {
            return Poll::Ready(self.after_end.pop_front().map_or_else(|| Next::Close(close.clone()), Next::Event));
        }
        state.wake(cx);
        Poll::Pending
    }
}

/// For messages to people.
const fn name(event: &ClientEvent) -> &'static str {
    match event {
        ClientEvent::Start(_) => "a second `start`",
        ClientEvent::Audio(_) => "`audio`",
        ClientEvent::Speech(_) => "`speech`",
        ClientEvent::Configure(_) => "a change of settings",
        ClientEvent::Commit => "a commit",
        ClientEvent::Discard => "a clear",
        ClientEvent::Respond(_) => "a wish for an answer",
        ClientEvent::Truncate { .. } => "a truncation",
        ClientEvent::Played { .. } => "a mark",
        ClientEvent::GiveUp { .. } => "an end that did not come",
        ClientEvent::Digit(_) => "a digit",
        ClientEvent::Hint(_) => "`hint`",
        ClientEvent::BargeIn { .. } => "`barge_in`",
        ClientEvent::Cancel { .. } => "`cancel`",
        ClientEvent::ToolResult { .. } => "`tool_result`",
        ClientEvent::Context { .. } => "`context`",
        ClientEvent::End { .. } => "`end`",
    }
}
