//! Audio that goes on after the backend itself said that it was interrupted, while the user is still speaking: nobody can be answered yet.
//!
//! For dialects that do not say whose audio it is. There what comes after an interruption may be a new answer, for a backend that is starved of
//! audio takes one thing said for two, and answers the first part early. So only what leaves no time for that is taken for old: the agent was
//! heard when the user began, the signal came and the audio after it sooner than any answer can, and from there on it never paused. It is named where it is seen; that
//! nothing is seen proves nothing.

use std::time::Duration;

use proto::{audio::AudioFormat, frame::AgentAudio, time::Micros};

use super::super::playout::audible;

/// The agent is heard at the user's onset when something of it came so shortly before.
const HEARD: Duration = Duration::from_millis(300);
/// The first audio after the signal comes so soon after the onset: no detector has heard a turn by then, and found its end.
const SOON: Duration = Duration::from_millis(550);
/// Longest pause from then on.
const PAUSE: Duration = Duration::from_millis(150);
/// What was on its way is over so long after the signal.
const GRACE: Duration = Duration::from_millis(400);
/// So much of it must have come, microseconds.
const LEAST_US: u64 = 200_000;

/// What is listened for, from the user's onset on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Overrun {
    /// When something of the agent could be heard last.
    voice: Option<Micros>,
    /// The user began to speak while the agent was heard.
    over: Option<Micros>,
    broken: Option<Broken>,
}

/// The backend said that it is interrupted.
#[derive(Debug, Clone, Copy)]
struct Broken {
    onset: Micros,
    at: Micros,
    /// When something was heard last since.
    last: Option<Micros>,
    came_us: u64,
}

impl Overrun {
    /// The user can be heard.
    pub(super) fn onset(&mut self, now: Micros) {
        self.over = self.voice.is_some_and(|voice| now.since(voice) <= HEARD).then_some(now);
        self.broken = None;
    }

    /// The backend says that it was interrupted; `speaking`: the user is.
    pub(super) fn signal(&mut self, speaking: bool, now: Micros) {
        self.broken = self.over.take().filter(|_| speaking).map(|onset| Broken { onset, at: now, last: None, came_us: 0 });
    }

    /// Whatever shows that a turn was taken: what comes may be an answer.
    pub(super) fn taken(&mut self) {
        self.over = None;
        self.broken = None;
    }

    /// Audio of the agent. Gives how long it has gone on after the signal once that is too long.
    pub(super) fn audio(&mut self, audio: &AgentAudio, format: AudioFormat, speaking: bool, now: Micros) -> Option<Duration> {
        audible(format, &audio.payload)?;
        self.voice = Some(now);
        let broken = self.broken.as_mut()?;
        let goes_on = broken.last.map_or(now.since(broken.onset) <= SOON, |last| now.since(last) <= PAUSE);
        if !speaking || !goes_on {
            self.broken = None;
            return None;
        }
        broken.last = Some(now);
        broken.came_us = broken.came_us.saturating_add(format.duration_us(audio.payload.len()));
        let lasts = now.since(broken.at);
        (lasts >= GRACE && broken.came_us >= LEAST_US).then_some(lasts)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto::ids::ResponseId;

    use super::*;

    const FORMAT: AudioFormat = AudioFormat::Pcm16k;

    fn audio(loud: bool) -> AgentAudio {
        let payload = Bytes::from(vec![if loud { 16 } else { 0 }; FORMAT.frame_bytes()]);
        AgentAudio { sequence: 0, timestamp_us: 0, payload, response: ResponseId(0) }
    }

    /// The agent speaks up to 1000 ms, when the user begins; the signal comes, and the agent is heard again at these times, ms.
    fn goes_on(heard_until: u64, signal: u64, taken: Option<u64>, times: impl Iterator<Item = u64>, silent_at: u64) -> Option<Duration> {
        let at = Micros::from_millis;
        let mut overrun = Overrun::default();
        let _ = overrun.audio(&audio(true), FORMAT, false, at(heard_until));
        overrun.onset(at(1_000));
        overrun.signal(true, at(signal));
        let mut longest = None;
        for time in times {
            if taken.is_some_and(|taken| taken < time) {
                overrun.taken();
            }
            longest = overrun.audio(&audio(true), FORMAT, time < silent_at, at(time)).max(longest);
        }
        longest
    }

    #[test]
    fn what_never_paused_since_the_signal_is_old() {
        let frames = |from: u64, to: u64| (from..to).step_by(20);
        assert_eq!(goes_on(990, 1_100, None, frames(1_100, 2_000), 9_000), Some(Duration::from_millis(880)));
        assert_eq!(goes_on(990, 1_440, None, frames(1_540, 2_000), 9_000), Some(Duration::from_millis(540)));
        // It was on its way.
        assert_eq!(goes_on(990, 1_100, None, frames(1_100, 1_500), 9_000), None);
    }

    #[test]
    fn what_may_be_an_answer_is_not() {
        let frames = |from: u64| (from..3_000).step_by(20);
        let times = [
            // The agent was not heard when the user began; it comes late, with the signal or after it; it pauses.
            goes_on(600, 1_100, None, frames(1_100), 9_000),
            goes_on(990, 1_560, None, frames(1_560), 9_000),
            goes_on(990, 1_100, None, frames(1_560), 9_000),
            goes_on(990, 1_100, None, (1_100..1_480).step_by(20).chain(frames(1_640)), 9_000),
            // A turn was taken; the user is done.
            goes_on(990, 1_100, Some(1_480), frames(1_100), 9_000),
            goes_on(990, 1_100, None, frames(1_100), 1_500),
            // Hardly anything comes.
            goes_on(990, 1_100, None, (1_100..1_900).step_by(150), 9_000),
        ];
        assert_eq!(times, [None; 7]);
    }

    #[test]
    fn silence_is_nothing_that_goes_on() {
        let at = Micros::from_millis;
        let mut overrun = Overrun::default();
        let _ = overrun.audio(&audio(true), FORMAT, false, at(990));
        overrun.onset(at(1_000));
        overrun.signal(true, at(1_100));
        assert!((1_100..3_000).step_by(20).all(|time| overrun.audio(&audio(false), FORMAT, true, at(time)).is_none()));
    }
}
