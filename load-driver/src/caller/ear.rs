//! What the caller hears: sequence, responses, and whose audio it is that comes.
//!
//! Where the dialect names no responses the ear finds them: one begins with the first audio that can be heard, and is over when it was
//! played and nothing more can be heard.

use std::time::Duration;

use proto::{
    audio::AudioFormat,
    frame::{AgentAudio, FRAME_US, ResponseStatus},
    ids::{ResponseId, TurnId},
    time::Micros,
};

use super::{
    mouth::after,
    playout::{JITTER_BUFFER_US, Playout, audible},
};

/// A response that nobody names is over when nothing of it was heard for so long: longer than a voice pauses between sentences and than a
/// synthesiser takes for its next one, and short enough for a conversation.
const PAUSE: Duration = Duration::from_secs(1);
/// The same after the user broke in: who was interrupted does not pause, and the next thing heard must pass for a new answer.
const BROKEN_OFF: Duration = Duration::from_millis(500);
/// What is heard again so soon, with nothing said in between, goes on with what was said before.
const GOES_ON: Duration = Duration::from_secs(3);
/// Marks the numbers of responses that nobody named.
const UNNAMED: u64 = 1 << 63;

/// What audio turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Belongs to a response that was interrupted or cancelled, after its end.
    Stale,
    /// Belongs to a response that is over, overtaken or unheard of.
    Old,
    /// Silence while nobody speaks.
    Idle,
    /// Of the response under way.
    Current {
        /// Whether it can be heard.
        voice: Voice,
        /// When the first of it that can be heard is played.
        played: Micros,
        /// Came after its playout deadline, which was this.
        late: Option<Micros>,
    },
}

/// Whether audio of a response can be heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    /// No.
    Silent,
    /// For the first time.
    First,
    /// As before.
    More,
}

/// The agent's side of the line.
#[derive(Debug, Default)]
pub(super) struct Ear {
    pub(super) playout: Playout,
    /// Next sequence number.
    expected: u64,
    /// Highest response announced or heard; the one under way unless it ended.
    response: ResponseIdOrNone,
    /// Highest response that ended.
    ended: ResponseIdOrNone,
    /// Last response that ended by interruption or cancel.
    cancelled: ResponseIdOrNone,
    /// Highest user turn that the server spoke of.
    turn: u64,
    /// The response under way began, or could be heard first.
    began: Micros,
    /// Something of the named response under way could be heard.
    audible: bool,
    unnamed: Unnamed,
    stream: Stream,
    /// Audio that makes no whole frame yet, microseconds.
    rest_us: u64,
}

/// Ids count from 1; 0 is none.
type ResponseIdOrNone = u64;

/// The responses that nobody names.
#[derive(Debug, Default)]
struct Unnamed {
    /// Of the last one.
    number: u64,
    active: bool,
    /// When something was heard last.
    heard: Micros,
    /// The user broke in.
    broken: bool,
    /// The last one ended by itself at this time.
    over: Option<Micros>,
}

/// How fast a response comes.
#[derive(Debug, Default, Clone, Copy)]
struct Stream {
    first: Option<Micros>,
    last: Micros,
    /// What came in all.
    us: u64,
    /// What came before the last.
    before_us: u64,
}

impl Ear {
    /// A message's sequence number; true when it is not the next one.
    pub(super) fn gap(&mut self, sequence: u64) -> bool {
        let gap = sequence != self.expected;
        self.expected = self.expected.max(sequence.saturating_add(1));
        gap
    }

    /// So much audio came: in whole frames, the rest is carried on.
    pub(super) fn frames(&mut self, duration_us: u64) -> u64 {
        let us = self.rest_us.saturating_add(duration_us);
        self.rest_us = us % FRAME_US;
        us / FRAME_US
    }

    /// A response was announced; false when it is not a new one.
    pub(super) fn announce(&mut self, response: ResponseId, turn: TurnId, now: Micros) -> bool {
        if response.0 <= self.response || response.0 >= UNNAMED {
            return false;
        }
        self.response = response.0;
        self.unnamed.active = false;
        self.begin(now);
        self.understood(turn);
        true
    }

    fn begin(&mut self, now: Micros) {
        self.began = now;
        self.audible = false;
        self.stream = Stream::default();
        self.playout.begin();
    }

    /// The server spoke of this user turn.
    pub(super) fn understood(&mut self, turn: TurnId) {
        self.turn = self.turn.max(turn.0);
    }

    /// Whose audio it is that nobody names: of the response under way, else of one that it would begin.
    pub(super) fn unnamed(&self) -> ResponseId {
        if self.response > self.ended {
            ResponseId(self.response)
        } else {
            ResponseId(UNNAMED | (self.unnamed.number + u64::from(!self.unnamed.active)))
        }
    }

    /// The backend never named it.
    pub(super) fn is_unnamed(response: ResponseId) -> bool {
        response.0 >= UNNAMED
    }

    /// Agent audio of a response as [`Self::unnamed`] or the backend names it.
    pub(super) fn hear(&mut self, response: ResponseId, audio: &AgentAudio, format: AudioFormat, now: Micros) -> Heard {
        let duration = format.duration_us(audio.payload.len());
        if Self::is_unnamed(response) {
            return self.hear_unnamed(audio, format, duration, now);
        }
        if !self.knows(response) {
            return Heard::Old;
        }
        if response.0 == self.cancelled {
            return Heard::Stale;
        }
        if response.0 != self.response || response.0 <= self.ended {
            return Heard::Old;
        }
        let (voice, into) = if self.audible {
            (Voice::More, 0)
        } else {
            audible(format, &audio.payload).map_or((Voice::Silent, 0), |into| (Voice::First, into))
        };
        let played = after(self.playout.place(now), into);
        self.audible |= voice == Voice::First;
        let late = self.playout.take(duration, now);
        self.stream.add(duration, true, now);
        if voice != Voice::Silent {
            self.playout.voiced(duration, now);
        }
        Heard::Current { voice, played, late }
    }

    fn hear_unnamed(&mut self, audio: &AgentAudio, format: AudioFormat, duration: u64, now: Micros) -> Heard {
        let heard = audible(format, &audio.payload);
        let loud = heard.is_some();
        let played = after(self.playout.place(now), heard.unwrap_or(0));
        let first = !self.unnamed.active;
        if first && !loud {
            self.playout.idle(duration, now);
            return Heard::Idle;
        }
        if first {
            self.unnamed = Unnamed { number: self.unnamed.number + 1, active: true, heard: now, broken: false, over: self.unnamed.over };
            self.begin(now);
        }
        let late = self.playout.take(duration, now).filter(|_| loud);
        self.stream.add(duration, loud, now);
        if loud {
            self.unnamed.heard = now;
            self.playout.voiced(duration, now);
        }
        let voice = match loud {
            true if first => Voice::First,
            true => Voice::More,
            false => Voice::Silent,
        };
        Heard::Current { voice, played, late }
    }

    /// Audio that is played though it belongs to what was interrupted; true when it can be heard.
    pub(super) fn hear_late(&mut self, audio: &AgentAudio, format: AudioFormat, now: Micros) -> bool {
        let duration = format.duration_us(audio.payload.len());
        let loud = audible(format, &audio.payload).is_some();
        self.playout.append(duration, now);
        if loud {
            self.playout.voiced(duration, now);
        }
        loud
    }

    /// A named response ended; false when there was none such under way.
    pub(super) fn end(&mut self, response: ResponseId, status: ResponseStatus, now: Micros) -> bool {
        if response.0 <= self.ended || response.0 > self.response {
            return false;
        }
        self.ended = response.0;
        if matches!(status, ResponseStatus::Interrupted | ResponseStatus::Cancelled) {
            self.cancelled = response.0;
            self.playout.clear(now);
        }
        true
    }

    /// The unnamed response under way.
    pub(super) fn speaking_unnamed(&self) -> Option<ResponseId> {
        self.unnamed.active.then_some(ResponseId(UNNAMED | self.unnamed.number))
    }

    /// When the unnamed response under way is over unless more of it comes.
    pub(super) fn unnamed_over(&self) -> Micros {
        if !self.unnamed.active {
            return Micros::NEVER;
        }
        let pause = if self.unnamed.broken { BROKEN_OFF } else { PAUSE };
        (self.unnamed.heard + pause).max(self.playout.voice_end())
    }

    /// The unnamed response under way is over: it was heard out, or thrown away.
    pub(super) fn end_unnamed(&mut self, status: ResponseStatus, now: Micros) {
        self.unnamed.active = false;
        self.unnamed.over = (status == ResponseStatus::Completed).then(|| self.playout.voice_end());
        if matches!(status, ResponseStatus::Interrupted | ResponseStatus::Cancelled) {
            self.playout.clear(now);
        }
    }

    /// When something was heard last of responses that nobody names.
    pub(super) fn last_heard(&self) -> Micros {
        self.unnamed.heard
    }

    /// From when on the agent keeps the user waiting for more: not while what came in a burst is being played.
    pub(super) fn wait_from(&self, now: Micros) -> Micros {
        now.max(Micros(self.playout.end().0.saturating_sub(JITTER_BUFFER_US + FRAME_US)))
    }

    /// The backend says that nothing more of the unnamed response comes.
    pub(super) fn no_more(&mut self) {
        self.unnamed.heard = Micros::ZERO;
    }

    /// The user breaks in.
    pub(super) fn broken_into(&mut self) {
        self.unnamed.broken = true;
    }

    /// The unnamed response that began last goes on with the one before it: nothing was said since `spoke`.
    pub(super) fn goes_on(&self, spoke: Micros) -> bool {
        self.unnamed.over.is_some_and(|over| spoke < over && self.began <= over + GOES_ON)
    }

    /// The unnamed response that ended last was no answer: nothing goes on from it.
    pub(super) fn forget_last(&mut self) {
        self.unnamed.over = None;
    }

    /// When the response under way began.
    pub(super) fn began(&self) -> Micros {
        self.began
    }

    /// How fast the response came: microseconds of audio before the last of it, and microseconds from the first of it to the last.
    pub(super) fn pace(&mut self) -> Option<(u64, u64)> {
        let Stream { first, last, before_us, .. } = std::mem::take(&mut self.stream);
        let wall = last.since(first?).as_micros() as u64;
        // What comes within a frame comes at once: how fast the network is, is no pace of the agent's.
        (wall >= FRAME_US).then_some((before_us, wall))
    }

    /// When the last audio of the response came.
    pub(super) fn last_came(&self) -> Micros {
        self.stream.last
    }

    /// The response was ended by the server in full and is still being played.
    pub(super) fn only_played(&self, response: ResponseId, now: Micros) -> bool {
        response.0 == self.response && response.0 == self.ended && response.0 != self.cancelled && self.playout.end() > now
    }

    /// The response that was ended in full and is still being played.
    pub(super) fn still_playing(&self, now: Micros) -> Option<ResponseId> {
        Some(ResponseId(self.response)).filter(|response| response.0 > 0 && self.only_played(*response, now))
    }

    /// Highest user turn that the server spoke of.
    pub(super) fn last_turn(&self) -> u64 {
        self.turn
    }

    /// The response was announced or heard.
    pub(super) fn knows(&self, response: ResponseId) -> bool {
        (1..=self.response).contains(&response.0)
    }
}

impl Stream {
    /// So much came; what is no voice counts when voice follows.
    fn add(&mut self, us: u64, voice: bool, now: Micros) {
        let before = self.us;
        self.us += us;
        if voice {
            self.first.get_or_insert(now);
            self.last = now;
            self.before_us = before;
        }
    }
}
