//! What leaves the caller as audio: frames at absolute times, speech markers, acknowledgements asked for.
//!
//! A frame goes when the last of it has been spoken, as from a microphone: to send it when it begins would let the backend hear the end of
//! speech up to a frame early, and every latency from there would look that much better than any user could have it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use proto::{
    audio::AudioFormat,
    frame::{ClientAudio, ClientEvent, FRAME_US, SpeechMarker},
    time::Micros,
};

use super::Action;
use crate::{
    audio::Utterance,
    plan::ScenarioPlan,
    record::{Counter, Metric, Sample},
};

/// Longest silence sent after an utterance while the server has not said that it heard the end.
const HANGOVER_US: u64 = 1_500_000;
/// Acknowledgements waited for at once; older ones are forgotten.
const MAX_ASKED: usize = 16;

/// A moment of the user's audio: when it was planned, and when its frame really went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) intended: Micros,
    pub(super) actual: Micros,
}

/// What [`Mouth::frame`] brought out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voiced {
    /// Nothing that a turn waits for.
    Frame,
    /// The first frame with speech.
    Onset(Edge),
}

#[derive(Debug)]
struct Asked {
    sequence: u64,
    intended: Micros,
    actual: Micros,
}

/// An utterance under way. `start_us < end_us <= duration`.
#[derive(Debug)]
struct Line {
    utterance: Arc<Utterance>,
    begin: Micros,
    frame: u64,
    start_us: u64,
    end_us: u64,
    /// How late the frame with the end of speech went.
    lag: Duration,
    /// The end of speech was reported.
    ended: bool,
}

/// The user's side of the line.
#[derive(Debug)]
pub(super) struct Mouth {
    /// Media time zero: acceptance.
    zero: Micros,
    sequence: u64,
    /// Media time at which the next frame begins; while mute, the earliest at which it may. It is sent [`FRAME_US`] later.
    next: Micros,
    line: Option<Line>,
    /// Silence is sent until here (exclusive).
    silence_until: Micros,
    /// The server has not yet shown that it heard the end of the last utterance.
    unheard: bool,
    /// Longest time without a frame while mute.
    keep_alive: Duration,
    asked: Vec<Asked>,
    /// Sent since [`Self::flush`].
    frames: u64,
    speech_us: u64,
}

impl Mouth {
    /// Closed until [`Self::open`].
    pub(super) fn new() -> Self {
        Self {
            zero: Micros::ZERO,
            sequence: 0,
            next: Micros::ZERO,
            line: None,
            silence_until: Micros::ZERO,
            unheard: false,
            keep_alive: Duration::ZERO,
            asked: Vec::new(),
            frames: 0,
            speech_us: 0,
        }
    }

    /// Media time begins. `idle_timeout_ms` is the server's, 0 for none: a mute caller lets a frame of silence be heard at half of it.
    pub(super) fn open(&mut self, scenario: &ScenarioPlan, idle_timeout_ms: u32, now: Micros) {
        self.zero = now;
        self.next = now;
        self.silence_until = if scenario.send_silence { Micros::NEVER } else { now };
        self.keep_alive = Duration::from_millis(u64::from(idle_timeout_ms) / 2);
    }

    /// Nothing more is said.
    pub(super) fn close(&mut self) {
        self.line = None;
        self.silence_until = Micros::ZERO;
        self.keep_alive = Duration::ZERO;
        self.unheard = false;
    }

    /// Begins to say it at `at`, or with the next frame of the running clock; gives the time at which it begins.
    /// What is left of an earlier utterance (silence: turns end after their speech) is dropped.
    pub(super) fn say(&mut self, utterance: Arc<Utterance>, at: Micros) -> Micros {
        let running = self.line.is_some() || self.next < self.silence_until;
        let begin = match () {
            () if at <= self.next => self.next,
            // The frame under way is silence to its end: a running clock has no gaps.
            () if running => after(self.next, at.0.saturating_sub(self.next.0).next_multiple_of(FRAME_US)),
            () => at,
        };
        if !running {
            self.next = begin;
        }
        let end_us = utterance.speech_end_us.clamp(1, utterance.duration_us().max(1));
        let start_us = utterance.speech_start_us.min(end_us - 1);
        self.unheard = true;
        self.line = Some(Line { utterance, begin, frame: 0, start_us, end_us, lag: Duration::ZERO, ended: false });
        begin
    }

    /// The server heard the end of speech: silence need not follow.
    pub(super) fn heard_end(&mut self) {
        if self.unheard && self.line.as_ref().is_none_or(|line| line.ended) {
            self.unheard = false;
            if self.silence_until != Micros::NEVER {
                self.silence_until = Micros::ZERO;
            }
        }
    }

    /// An utterance is under way and its speech is not over.
    pub(super) fn speaking(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.ended)
    }

    /// When [`Self::frame`] is due.
    pub(super) fn frame_due(&self) -> Micros {
        if self.line.is_some() || self.next < self.silence_until {
            after(self.next, FRAME_US)
        } else if self.keep_alive > Duration::ZERO {
            self.next + self.keep_alive
        } else {
            Micros::NEVER
        }
    }

    /// When [`Self::end_speech`] is due.
    pub(super) fn speech_end_due(&self) -> Micros {
        match &self.line {
            // Not before its frame went: how late that was belongs to it.
            Some(line) if !line.ended && line.frame * FRAME_US >= line.end_us => after(line.begin, line.end_us),
            _ => Micros::NEVER,
        }
    }

    /// Sends the frame that is due.
    pub(super) fn frame(&mut self, scenario: &ScenarioPlan, now: Micros, out: &mut Vec<Action>) -> Voiced {
        let intended = self.frame_due();
        let start = Micros(intended.0.saturating_sub(FRAME_US));
        let mut voiced = Voiced::Frame;
        let mut payload = None;
        let mut finished = false;
        if let Some(line) = self.line.as_mut().filter(|line| line.begin <= start) {
            let from = line.frame * FRAME_US;
            let to = from + FRAME_US;
            let lag = now.since(intended);
            if (from..to).contains(&line.start_us) {
                let onset = after(line.begin, line.start_us);
                voiced = Voiced::Onset(Edge { intended: onset, actual: onset + lag });
                if scenario.markers {
                    out.push(marker(true, onset, self.zero));
                }
            }
            if from < line.end_us && line.end_us <= to {
                line.lag = lag;
            }
            self.speech_us += to.min(line.end_us).saturating_sub(from.max(line.start_us));
            payload = line.utterance.frame(line.frame as usize);
            line.frame += 1;
            finished = line.frame >= line.utterance.frames() as u64;
        }
        let ack = scenario.ack_every > 0 && self.sequence.is_multiple_of(u64::from(scenario.ack_every));
        if ack {
            if self.asked.len() == MAX_ASKED {
                self.asked.remove(0);
            }
            self.asked.push(Asked { sequence: self.sequence, intended, actual: now });
        }
        out.push(Action::Send(ClientEvent::Audio(ClientAudio {
            sequence: self.sequence,
            timestamp_us: micros_between(self.zero, start),
            payload: payload.unwrap_or_else(|| silence(scenario.service.input)),
            ack,
        })));
        out.push(Action::Measure(Sample { metric: Metric::ScheduleLag, intended, actual: intended, to: now }));
        self.frames += 1;
        self.sequence += 1;
        self.next = intended;
        if finished && self.speech_end_due() == Micros::NEVER {
            self.finish_line(scenario);
        }
        voiced
    }

    /// Speech is over: its end, as planned and as sent.
    pub(super) fn end_speech(&mut self, scenario: &ScenarioPlan, out: &mut Vec<Action>) -> Option<Edge> {
        let line = self.line.as_mut()?;
        line.ended = true;
        let end = after(line.begin, line.end_us);
        let edge = Edge { intended: end, actual: end + line.lag };
        // Who says that the turn is over does not go on with it.
        let finished = scenario.commits() || line.frame >= line.utterance.frames() as u64;
        if scenario.markers {
            out.push(marker(false, end, self.zero));
        }
        if finished {
            self.finish_line(scenario);
        }
        Some(edge)
    }

    /// The last frame went and speech is over: silence follows until the server shows that it heard it.
    fn finish_line(&mut self, scenario: &ScenarioPlan) {
        self.line = None;
        if !scenario.send_silence {
            let wait = self.unheard && !scenario.markers && !scenario.commits();
            self.silence_until = if wait { after(self.next, HANGOVER_US) } else { Micros::ZERO };
        }
    }

    /// An acknowledgement came; false when no such frame was ever sent.
    pub(super) fn acked(&mut self, sequence: u64, now: Micros, out: &mut Vec<Action>) -> bool {
        if let Some(at) = self.asked.iter().position(|asked| asked.sequence == sequence) {
            let Asked { intended, actual, .. } = self.asked[at];
            self.asked.drain(..=at);
            out.push(Action::Measure(Sample { metric: Metric::FrameRtt, intended, actual, to: now }));
        }
        sequence < self.sequence
    }

    /// Counts what was sent since the last call.
    pub(super) fn flush(&mut self, out: &mut Vec<Action>) {
        for (counter, n) in [(Counter::FramesSent, &mut self.frames), (Counter::SpeechUs, &mut self.speech_us)] {
            if *n > 0 {
                out.push(Action::Count(counter, std::mem::take(n)));
            }
        }
    }
}

/// `us` microseconds after `from`.
pub(super) fn after(from: Micros, us: u64) -> Micros {
    Micros(from.0.saturating_add(us))
}

fn micros_between(from: Micros, to: Micros) -> u64 {
    to.0.saturating_sub(from.0)
}

fn marker(started: bool, at: Micros, zero: Micros) -> Action {
    Action::Send(ClientEvent::Speech(SpeechMarker { started, timestamp_us: micros_between(zero, at) }))
}

fn silence(format: AudioFormat) -> Bytes {
    static PCM: [u8; AudioFormat::Pcm48k.frame_bytes()] = [AudioFormat::Pcm48k.silence_byte(); AudioFormat::Pcm48k.frame_bytes()];
    static MULAW: [u8; AudioFormat::Mulaw8k.frame_bytes()] = [AudioFormat::Mulaw8k.silence_byte(); AudioFormat::Mulaw8k.frame_bytes()];
    static ALAW: [u8; AudioFormat::Alaw8k.frame_bytes()] = [AudioFormat::Alaw8k.silence_byte(); AudioFormat::Alaw8k.frame_bytes()];
    Bytes::from_static(match format {
        AudioFormat::Pcm8k | AudioFormat::Pcm16k | AudioFormat::Pcm24k | AudioFormat::Pcm48k => &PCM[..format.frame_bytes()],
        AudioFormat::Mulaw8k => &MULAW,
        AudioFormat::Alaw8k => &ALAW,
    })
}
