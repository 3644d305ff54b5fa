//! What a caller can tell of the backend as a voice agent: the rules of `docs/voice-faults.md`, each with what must hold so that a backend that is
//! only slow is never taken for a broken one.
//!
//! It listens beside the rest of the caller and changes nothing. *Signs* are events that show that the backend heard the user or works for
//! them; an acknowledgement, a warning or the goodbye shows only that it lives.

mod overrun;
mod responses;
mod verdict;

use std::time::Duration;

use proto::{
    audio::AudioFormat,
    frame::{ResponseStatus, ServerEvent},
    time::Micros,
};

use self::overrun::Overrun;
use crate::{
    plan::Service,
    voice::{Found, Occurrence, Verdict, VoiceFault},
};

/// What the caller's dialect and its profile let it tell.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about a dialect")]
struct Terms {
    /// Responses have names that the backend gave them.
    named: bool,
    /// Audio of an interrupted response is known for what it is.
    tells_old: bool,
    /// An onset that is told gives up answers that have not begun.
    onset_drops: bool,
    /// The end of a response is signalled.
    ends: bool,
    /// Whether an onset ends a response cannot be told.
    onset_ends: bool,
    /// What was heard is shown.
    shows: bool,
    /// The agent may speak first.
    greets: bool,
    /// The answer to the goodbye comes after everything that was to be said before it.
    in_order: bool,
    output: AudioFormat,
}

/// A response as it is heard.
#[derive(Debug, Clone, Copy, Default)]
struct Response {
    number: u64,
    /// What the user had done when it began.
    user: u32,
    /// What the backend had said by then that it heard.
    heard: Heard,
    ended: Option<(ResponseStatus, Micros)>,
    /// When what came of it is played.
    play_end: Micros,
    audio_us: u64,
    /// The driver's own stalls when its last frame came, microseconds.
    stall_us: u64,
}

/// Turns that got no sign of having been heard.
#[derive(Debug, Clone, Copy, Default)]
struct Quiet {
    /// In a row, up to now.
    turns: u32,
    since: Micros,
    /// Turns that the backend had spoken of, and onsets and final transcripts that it had told, when the first of them began.
    before: Heard,
    /// Turns before that one.
    asked: u32,
    /// The driver's own stalls when the first of them was given up, microseconds.
    stall_us: u64,
    /// Something came meanwhile that shows life.
    alive: bool,
}

/// Quiet turns, and what had been heard and asked before the first of them.
#[derive(Debug, Clone, Copy, Default)]
struct Drops {
    turns: u32,
    /// When the first of them began.
    since: Micros,
    before: Heard,
    asked: u32,
}

/// What the backend said that it heard.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    /// Highest number of a turn.
    turn: u64,
    onsets: u64,
    finals: u64,
    commits: u64,
}

impl Heard {
    /// Turns heard since, by whichever tells most.
    fn since(self, before: Self) -> u64 {
        let by = [
            self.turn.saturating_sub(before.turn),
            self.onsets - before.onsets,
            self.finals - before.finals,
            self.commits - before.commits,
        ];
        by.into_iter().max().unwrap_or(0)
    }
}

/// Watches one session.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is something that did or did not happen yet")]
pub(super) struct Watch {
    terms: Terms,
    verdict: Verdict,
    accepted: Micros,
    /// What a response may answer, so far: onsets of speech, turns that the backend heard, tool calls.
    user: u32,
    spoken: bool,
    /// All that the driver itself came too late so far, microseconds.
    stall_us: u64,
    response: Response,
    /// The response that was stopped last, and when it ended.
    stopped: Option<(u64, Micros)>,
    /// Answers to turns up to this one were given up before they began, and when that was told.
    dropped: Option<(u64, Micros)>,
    /// Highest turn of which something was answered.
    answered: u64,
    /// When something that could have gone on all the same was stopped first.
    stopped_first: Option<Micros>,
    stale_frames: u32,
    /// It was found to be stale.
    stale: bool,
    /// Where the wire does not say whose audio it is.
    overrun: Overrun,
    /// One or two are no fault yet.
    holes: Found,
    /// Audio of all responses, microseconds.
    audio_us: u64,
    /// When a response was over that no other may follow yet.
    heard_out: Option<Micros>,
    /// Something of the session so far showed what was heard.
    shown: bool,
    heard: Heard,
    /// When the user began a turn last, an interruption too.
    asked: Micros,
    /// The turn under way: what had been heard when it began, and when that was. An interruption is none to judge by.
    turn: Option<(Heard, Micros)>,
    /// A sign came since the turn under way began.
    signs: bool,
    quiet: Quiet,
    /// Quiet turns before the one under way.
    unheard: Drops,
    /// Of the whole session, each followed by a turn that was answered.
    drops: Option<Drops>,
    /// A turn is under way.
    open: bool,
    /// The driver's own stalls at acceptance, microseconds.
    stall_first_us: u64,
    turns: u32,
    /// Of those: answered or given up.
    over: u32,
    /// A turn that had two before it was answered: one of them that was not heard would have been seen.
    between: bool,
    /// The last interruption was at an edge, and nothing was answered since.
    edge: bool,
    /// Something was answered after one at an edge.
    edge_survived: bool,
    /// A response that was played out and has no end yet, and the turn that it answers.
    unended: Option<(u64, Micros)>,
    /// An onset may have ended it.
    doubtful: bool,
    /// Responses that no end came for, unless an onset was it, and since when.
    doubts: (u32, Micros),
    /// What became of the end of some response is not known.
    unclear: bool,
    /// The end of some response came.
    ended: bool,
    /// Audio of the caller was dropped by the driver itself: what the backend heard is not known.
    deaf: bool,
    /// The caller did not listen for a while.
    excused: bool,
    /// When the goodbye was said.
    left: Option<Micros>,
}

impl Watch {
    /// Before acceptance.
    pub(super) fn new(service: &Service) -> Self {
        let dialect = service.dialect;
        Self {
            terms: Terms {
                named: !service.infers_responses(),
                tells_old: dialect.tells_old_audio(),
                onset_drops: dialect.onset_drops_answers(),
                ends: service.signals_ends(),
                onset_ends: dialect.ends_by_onset(),
                shows: dialect.shows_what_was_heard(),
                greets: service.agent.greets,
                in_order: dialect.answers_goodbye(),
                output: service.output,
            },
            verdict: Verdict::default(),
            accepted: Micros::ZERO,
            user: 0,
            spoken: false,
            stall_us: 0,
            response: Response::default(),
            stopped: None,
            dropped: None,
            answered: 0,
            stopped_first: None,
            stale_frames: 0,
            stale: false,
            overrun: Overrun::default(),
            holes: Found::new(VoiceFault::OutputGaps),
            audio_us: 0,
            heard_out: None,
            shown: false,
            heard: Heard::default(),
            asked: Micros::ZERO,
            turn: None,
            signs: false,
            quiet: Quiet::default(),
            unheard: Drops::default(),
            drops: None,
            open: false,
            stall_first_us: 0,
            turns: 0,
            over: 0,
            between: false,
            edge: false,
            edge_survived: false,
            unended: None,
            doubtful: false,
            doubts: (0, Micros::ZERO),
            unclear: false,
            ended: false,
            deaf: false,
            excused: false,
            left: None,
        }
    }

    /// The session is there.
    pub(super) fn accepted(&mut self, now: Micros) {
        (self.accepted, self.asked) = (now, now);
        self.stall_first_us = self.stall_us;
    }

    /// The driver dropped audio of this caller.
    pub(super) fn lost_audio(&mut self) {
        self.deaf = true;
    }

    /// The caller itself did not listen: nothing can be said of the session.
    pub(super) fn excuse(&mut self) {
        self.excused = true;
    }

    /// A turn begins. An interruption is answered or not like any other, but what was heard of it proves little.
    pub(super) fn asked(&mut self, interruption: bool, now: Micros) {
        self.signs = false;
        self.asked = now;
        self.turn = (!interruption).then_some((self.heard, now));
        self.turns += u32::from(!interruption);
        self.open |= !interruption;
    }

    /// The user can be heard.
    pub(super) fn onset(&mut self, now: Micros) {
        if !self.spoken && self.terms.named && !self.terms.greets && now.since(self.accepted) >= Duration::from_millis(200) {
            self.verdict.tested.insert(VoiceFault::CrossTalk);
        }
        self.spoken = true;
        self.double_passed(now);
        self.user += 1;
        self.overrun.onset(now);
    }

    /// An interruption was told to the backend; `edge`: at nothing, or at more than there was.
    pub(super) fn interrupted(&mut self, edge: bool) {
        self.edge = edge;
    }

    /// It can be told from the events of this session what was heard.
    const fn shows(&self) -> bool {
        (self.terms.shows || self.shown) && !self.deaf
    }

    /// The user went on before the turn under way was answered: nothing is known of it.
    pub(super) fn turn_dropped(&mut self) {
        self.turn = None;
        self.open = false;
    }

    /// The turn under way is over. `audible`: the response that was being heard, if its end is what is missing.
    pub(super) fn turn_over(&mut self, missed: bool, audible: Option<u64>) {
        let turn = self.turn.take();
        self.open = false;
        self.between |= turn.is_some() && !missed && self.over >= 2;
        self.over += u32::from(turn.is_some());
        if !missed {
            let missed = std::mem::take(&mut self.unheard);
            if missed.turns > 0 && turn.is_some() {
                self.drops.get_or_insert(Drops { turns: 0, ..missed }).turns += missed.turns;
            }
        } else if let Some(number) = audible {
            if self.terms.ends && number == self.response.number && self.response.ended.is_none() {
                // Neither found nor cleared of it before something else is heard.
                (self.unended, self.doubtful) = (Some((number, self.asked)), false);
            }
        } else if let Some((before, since)) = turn
            && !self.signs
        {
            if self.quiet.turns == 0 {
                self.quiet = Quiet { turns: 0, since, before, asked: self.turns - 1, stall_us: self.stall_us, alive: false };
            }
            self.quiet.turns += 1;
        }
    }

    /// The goodbye is said.
    pub(super) fn leaves(&mut self, now: Micros) {
        self.left = Some(now);
    }

    /// Found so often in this span.
    fn found(&mut self, kind: VoiceFault, size: u32, worst_us: u64, (from, to): (Micros, Micros)) {
        self.verdict.tested.insert(kind);
        let one = Occurrence { from_us: from.0, to_us: to.0, size, worst_us };
        match self.verdict.found.iter_mut().find(|found| found.kind == kind) {
            Some(found) => found.add(one),
            None => self.verdict.found.push(Found { kind, occurrences: vec![one] }),
        }
    }

    /// All that the driver itself came too late so far, microseconds.
    pub(super) fn stalled(&mut self, total_us: u64) {
        self.stall_us = total_us;
    }

    /// Something from the backend. `speaking`: the user is.
    pub(super) fn hear(&mut self, event: &ServerEvent, speaking: bool, now: Micros) {
        self.quiet.alive = true;
        if !self.terms.tells_old {
            self.listen_for_overrun(event, speaking, now);
        }
        match event {
            ServerEvent::Speech(marker) => {
                self.heard.onsets += u64::from(marker.started);
                // A backend that splits what the user said answers each part: it was starved of audio, not confused.
                self.user += u32::from(marker.started);
                self.sign(true);
                self.doubtful |= marker.started && self.terms.onset_ends;
                if marker.started && self.terms.onset_drops && self.heard.turn > self.answered {
                    self.dropped = Some((self.heard.turn, now));
                    self.answer_dropped(now);
                }
            }
            ServerEvent::Transcript { turn, last, .. } => {
                self.spoken_of(turn.0);
                self.heard.finals += u64::from(*last);
                self.sign(true);
                if *last {
                    // What comes after the missing end proves that it was not only late. An onset does not: an interruption says it first.
                    self.confirm_unended(now);
                }
            }
            ServerEvent::Committed { turn } => {
                self.heard.turn = self.heard.turn.max(turn.0);
                self.heard.commits += 1;
                self.user += 1;
                self.sign(true);
            }
            ServerEvent::Answering { turn } => self.works_for(turn.0),
            ServerEvent::AnswerDropped { turn, status } => {
                self.works_for(turn.0);
                if matches!(status, ResponseStatus::Interrupted | ResponseStatus::Cancelled) {
                    self.answer_dropped(now);
                }
            }
            ServerEvent::ResponseStart { response, turn, .. } => {
                if turn.0 > 0 {
                    self.spoken_of(turn.0);
                }
                self.sign(false);
                let dropped = self.dropped.filter(|(dropped, _)| turn.0 > self.answered && turn.0 <= *dropped);
                if let Some((_, at)) = dropped {
                    self.begins_all_the_same(response.0, at);
                } else {
                    self.answered = self.answered.max(turn.0);
                    self.response_begins(response.0, speaking, now);
                }
            }
            ServerEvent::Audio(audio) => {
                self.sign(false);
                self.audio(audio, now);
            }
            ServerEvent::ResponseEnd { response, status, .. } => self.response_ends(response.0, *status, now),
            ServerEvent::ToolCall { .. } => {
                self.sign(false);
                self.double_passed(now);
                // What follows the result answers the result.
                self.user += 1;
                self.response.play_end = Micros::ZERO;
            }
            ServerEvent::Accepted(_)
            | ServerEvent::Ack { .. }
            | ServerEvent::ToolCancel { .. }
            | ServerEvent::Context { .. }
            | ServerEvent::Mark { .. }
            | ServerEvent::Resumable { .. }
            | ServerEvent::GoingAway { .. }
            | ServerEvent::Error(_)
            | ServerEvent::Ended(_) => {}
        }
    }

    /// Of a turn of the user: a new one is something to answer, and one without a number may be.
    fn spoken_of(&mut self, turn: u64) {
        if turn == 0 || turn > self.heard.turn {
            self.user += 1;
        }
        self.heard.turn = self.heard.turn.max(turn);
    }

    fn works_for(&mut self, turn: u64) {
        if turn > 0 {
            self.spoken_of(turn);
        }
        self.sign(true);
    }

    fn sign(&mut self, shows: bool) {
        self.shown |= shows;
        self.signs = true;
        if self.quiet.turns > 0 {
            self.unheard = Drops { turns: self.quiet.turns, since: self.quiet.since, before: self.quiet.before, asked: self.quiet.asked };
            self.quiet = Quiet::default();
        }
    }
}
