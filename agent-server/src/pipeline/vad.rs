//! Where user speech begins and ends, judged by energy.
//!
//! - Onset: 60 ms of loud audio, of which quiet audio between takes back half its own length (three loud frames in a row, or three of
//!   four). The onset reported is where the first of them began.
//! - Loud: above the configured threshold and above three times the noise floor. The floor starts high, falls fast with quiet audio and
//!   rises slowly, so that noise which is there from the beginning starts no turn. It never raises the threshold above
//!   2.5 times the configured one, so that a steady tone is still heard.
//! - End: no loud audio for the endpoint silence, where the bar is 0.6 of the onset's (hysteresis). Silence is counted in media
//!   time; when no audio comes at all (discontinuous transmission) wall time counts on from the last that came.

use std::time::Duration;

use proto::time::Micros;

/// Loud audio that makes an onset, microseconds.
const ONSET_US: u64 = 60_000;
/// Most that noise can raise the threshold.
const MAX_RAISE: f32 = 2.5;
/// Noise must be exceeded this many times.
const ABOVE_FLOOR: f32 = 3.0;
/// Speech goes on while it is above this share of the onset's bar.
const RELEASE: f32 = 0.6;
/// ... and this many times above the noise.
const OVER_NOISE: f32 = 1.5;
/// Shares of the distance that the floor moves in 20 ms: down, up in quiet, up in speech.
const FALL: f32 = 0.25;
const RISE: f32 = 0.02;
const RISE_IN_SPEECH: f32 = 0.002;

/// What the detector heard, in media time of the client's audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Speech began at this time, microseconds.
    Started(u64),
    /// Speech ended at this time, microseconds.
    Stopped(u64),
}

/// The detector of one session.
#[derive(Debug)]
pub struct Vad {
    threshold: f32,
    floor: f32,
    endpoint_us: u64,
    /// Loud audio towards an onset.
    loud_us: u64,
    /// Where that, or the speech under way, began.
    onset: u64,
    /// End of the last loud audio.
    loud_end: u64,
    /// Silence since then.
    silence_us: u64,
    /// End of all audio so far.
    cursor: u64,
    /// When speech will have ended if nothing more comes.
    end_due: Micros,
    speaking: bool,
}

impl Vad {
    /// `threshold` is an RMS on the scale of 16-bit samples, at least 1.
    pub fn new(threshold: f32, endpoint_silence: Duration) -> Self {
        let threshold = threshold.max(1.0);
        Self {
            threshold,
            floor: threshold * MAX_RAISE / ABOVE_FLOOR,
            endpoint_us: u64::try_from(endpoint_silence.as_micros()).unwrap_or(u64::MAX),
            loud_us: 0,
            onset: 0,
            loud_end: 0,
            silence_us: 0,
            cursor: 0,
            end_due: Micros::NEVER,
            speaking: false,
        }
    }

    /// Silence that ends a turn from now on.
    pub fn set_endpoint(&mut self, silence: Duration) {
        self.endpoint_us = u64::try_from(silence.as_micros()).unwrap_or(u64::MAX);
    }

    /// Forgets speech under way, not the noise of the room.
    pub fn forget(&mut self) {
        self.stop();
        self.loud_us = 0;
    }

    /// Takes a piece of at most 20 ms that arrived at `now`: its media time and length in microseconds, and its RMS. Media time that goes
    /// backwards is taken as going on.
    pub fn on_audio(&mut self, timestamp_us: u64, length_us: u64, rms: f32, now: Micros) -> Option<Heard> {
        let start = timestamp_us.max(self.cursor);
        let gap = start - self.cursor;
        self.cursor = start.saturating_add(length_us);
        let heard = self.silent_for(gap);
        let bar = (self.floor * ABOVE_FLOOR).clamp(self.threshold, self.threshold * MAX_RAISE);
        // In a loud room the release bar stays above the noise, or speech would never end.
        let release = (bar * RELEASE).max(self.floor * OVER_NOISE).min(bar);
        let loud = rms >= if self.speaking { release } else { bar };
        self.adapt(rms, loud, length_us);
        let heard = match (self.speaking, loud) {
            (true, true) => {
                self.silence_us = 0;
                self.loud_end = self.cursor;
                heard
            }
            (_, false) => heard.or_else(|| self.silent_for(length_us)),
            // A gap that ended the speech before this piece leaves too little in the bucket for an onset here: nothing is overwritten.
            (false, true) => heard.or(self.loud_for(start, length_us)),
        };
        if self.speaking {
            // The piece arrived when it began, so its own length is still to come.
            self.end_due = now + Duration::from_micros(self.endpoint_us.saturating_sub(self.silence_us).saturating_add(length_us));
        }
        heard
    }

    /// Ends the speech if no audio came for the endpoint silence.
    pub fn on_time(&mut self, now: Micros) -> Option<Heard> {
        (now >= self.end_due).then(|| self.stop())
    }

    /// When [`Self::on_time`] will end the speech; [`Micros::NEVER`] when nobody speaks.
    pub fn end_due(&self) -> Micros {
        self.end_due
    }

    /// Speech heard since the onset, microseconds.
    pub fn speech_us(&self) -> u64 {
        self.loud_end.saturating_sub(self.onset)
    }

    fn loud_for(&mut self, start: u64, length_us: u64) -> Option<Heard> {
        if self.loud_us == 0 {
            self.onset = start;
        }
        self.loud_us += length_us;
        self.loud_end = self.cursor;
        if self.loud_us < ONSET_US {
            return None;
        }
        self.speaking = true;
        self.silence_us = 0;
        Some(Heard::Started(self.onset))
    }

    fn silent_for(&mut self, length_us: u64) -> Option<Heard> {
        if !self.speaking {
            self.loud_us = self.loud_us.saturating_sub(length_us.div_ceil(2));
            return None;
        }
        self.silence_us = self.silence_us.saturating_add(length_us);
        (self.silence_us >= self.endpoint_us).then(|| self.stop())
    }

    fn stop(&mut self) -> Heard {
        self.speaking = false;
        self.loud_us = 0;
        self.end_due = Micros::NEVER;
        Heard::Stopped(self.loud_end)
    }

    fn adapt(&mut self, rms: f32, loud: bool, length_us: u64) {
        let rate = match (rms < self.floor, loud || self.speaking) {
            (true, _) => FALL,
            (false, false) => RISE,
            (false, true) => RISE_IN_SPEECH,
        };
        self.floor += (rms - self.floor) * (rate * length_us as f32 / 20_000.0).min(1.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proto::{audio::AudioFormat, frame::FRAME_US};

    use super::*;
    use crate::pipeline::{scramble, tts::Voice};

    const THRESHOLD: f32 = 300.0;
    const ENDPOINT: Duration = Duration::from_millis(500);

    /// Feeds frames of these loudnesses in real time, 20 ms each.
    fn hear(rms: impl IntoIterator<Item = f32>) -> Vec<Heard> {
        let mut vad = Vad::new(THRESHOLD, ENDPOINT);
        let feed = |(n, rms): (usize, f32)| vad.on_audio(n as u64 * FRAME_US, FRAME_US, rms, Micros(n as u64 * FRAME_US));
        rms.into_iter().enumerate().filter_map(feed).collect()
    }

    fn frames(rms: f32, count: usize) -> impl Iterator<Item = f32> {
        std::iter::repeat_n(rms, count)
    }

    /// White noise of this RMS, frame by frame: what a room sounds like.
    fn noise(format: AudioFormat, rms: f32, count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut sample = || {
            // The sum of four even draws is close enough to a bell.
            let sum: f32 = (0..4)
                .map(|_| {
                    state = scramble(state);
                    (state >> 40) as f32 / (1 << 23) as f32 - 1.0
                })
                .sum();
            (sum * rms * 0.866) as i16
        };
        let mut frame = || format.encode(&(0..format.frame_samples()).map(|_| sample()).collect::<Vec<_>>());
        (0..count).map(|_| format.rms(&frame())).collect()
    }

    #[test]
    fn onset_and_end_are_where_the_speech_was() {
        let heard = hear(frames(0.0, 10).chain(frames(3_000.0, 50)).chain(frames(0.0, 30)));
        assert_eq!(heard, [Heard::Started(10 * FRAME_US), Heard::Stopped(60 * FRAME_US)]);
    }

    #[test]
    fn speech_at_the_very_first_frame_is_heard() {
        assert_eq!(hear(frames(1_000.0, 3)), [Heard::Started(0)]);
        assert_eq!(hear(frames(1_000.0, 2)), []);
    }

    #[test]
    fn three_loud_frames_of_four_are_an_onset_and_clicks_are_not() {
        let loud = 3_000.0;
        assert_eq!(hear([0.0, loud, 0.0, loud, loud]), [], "50 ms");
        assert_eq!(hear([0.0, loud, loud, 0.0, loud]), [], "50 ms");
        assert_eq!(hear([0.0, loud, loud, 0.0, loud, loud]), [Heard::Started(FRAME_US)]);
        assert_eq!(hear([loud, 0.0, 0.0].into_iter().cycle().take(3_000)), []);
    }

    #[test]
    fn a_pause_shorter_than_the_endpoint_does_not_cut_a_turn() {
        let heard = hear(frames(3_000.0, 20).chain(frames(0.0, 24)).chain(frames(3_000.0, 20)));
        assert_eq!(heard, [Heard::Started(0)]);
        let heard = hear(frames(3_000.0, 20).chain(frames(0.0, 25)).chain(frames(3_000.0, 20)));
        assert_eq!(heard, [Heard::Started(0), Heard::Stopped(20 * FRAME_US), Heard::Started(45 * FRAME_US)]);
    }

    #[test]
    fn steady_noise_starts_no_turn_in_any_format_and_speech_over_it_does() {
        for format in AudioFormat::ALL {
            for rms in [50.0, 200.0, 400.0, 600.0] {
                let room = noise(format, rms, 500, 7);
                assert_eq!(hear(room.iter().copied()), [], "{format} {rms}");
                let heard = hear(room.iter().copied().chain(frames(3_000.0, 20)).chain(room.iter().copied()));
                assert_eq!(heard, [Heard::Started(500 * FRAME_US), Heard::Stopped(520 * FRAME_US)], "{format} {rms}");
            }
        }
    }

    #[test]
    fn noise_that_sets_in_later_makes_one_turn_at_most() {
        let heard = hear(frames(0.0, 100).chain(noise(AudioFormat::Pcm16k, 400.0, 3_000, 3)));
        assert!(heard.len() == 2, "{heard:?}");
    }

    #[test]
    fn a_steady_tone_is_still_speech_after_ten_seconds() {
        assert_eq!(hear(frames(5_000.0, 500)), [Heard::Started(0)]);
    }

    #[test]
    fn the_agents_voice_is_speech_in_every_format() {
        for format in AudioFormat::ALL {
            for name in ["", "anna", "bert", "carla", "dirk", "eva"] {
                let voice = Voice::of(name, 1);
                let rms = (0..400).map(|n| format.rms(&voice.frame(format, 0, n)));
                let heard = hear(rms.chain(frames(0.0, 40)));
                assert!(
                    matches!(heard[..], [Heard::Started(0..60_000), Heard::Stopped(7_500_000..8_000_000)]),
                    "{format} {name}: {heard:?}"
                );
            }
        }
    }

    #[test]
    fn without_frames_wall_time_ends_the_speech() {
        let mut vad = Vad::new(THRESHOLD, ENDPOINT);
        assert_eq!(vad.end_due(), Micros::NEVER);
        for n in 0..10 {
            vad.on_audio(n * FRAME_US, FRAME_US, 3_000.0, Micros(1_000_000 + n * FRAME_US));
        }
        // The last frame arrived at 1.18 s and lasts until 1.2 s.
        assert_eq!(vad.end_due(), Micros(1_700_000));
        assert_eq!(vad.on_time(Micros(1_699_999)), None);
        assert_eq!(vad.on_time(Micros(1_700_000)), Some(Heard::Stopped(200_000)));
        assert_eq!((vad.on_time(Micros(9_000_000)), vad.end_due()), (None, Micros::NEVER));
    }

    #[test]
    fn a_hole_in_media_time_counts_as_silence_and_the_next_turn_is_not_lost() {
        let mut vad = Vad::new(THRESHOLD, ENDPOINT);
        let mut feed = |at: u64| vad.on_audio(at, FRAME_US, 3_000.0, Micros(0));
        assert_eq!((0..5).filter_map(|n| feed(n * FRAME_US)).collect::<Vec<_>>(), [Heard::Started(0)]);
        assert_eq!(feed(900_000), Some(Heard::Stopped(100_000)));
        assert_eq!(feed(920_000), None);
        assert_eq!(feed(940_000), Some(Heard::Started(900_000)));
    }

    #[test]
    fn timestamps_that_stand_still_do_not_stop_the_clock() {
        let mut vad = Vad::new(THRESHOLD, ENDPOINT);
        let heard: Vec<_> = (0..60).filter_map(|n| vad.on_audio(0, FRAME_US, if n < 10 { 3_000.0 } else { 0.0 }, Micros(0))).collect();
        assert_eq!(heard, [Heard::Started(0), Heard::Stopped(10 * FRAME_US)]);
    }

    proptest! {
        #[test]
        fn starts_and_stops_alternate_whatever_comes(
            threshold in prop::num::f32::ANY,
            pieces in prop::collection::vec((any::<u64>(), 1..=FRAME_US, 0.0..40_000f32, 0..100_000u64), 0..200),
        ) {
            let mut vad = Vad::new(threshold, ENDPOINT);
            let (mut now, mut speaking) = (0, false);
            for (at, length, rms, step) in pieces {
                now += step;
                for heard in [vad.on_time(Micros(now)), vad.on_audio(at >> 20, length, rms, Micros(now))].into_iter().flatten() {
                    prop_assert_eq!(matches!(heard, Heard::Started(_)), !speaking);
                    speaking = !speaking;
                }
                prop_assert_eq!(vad.end_due() != Micros::NEVER, speaking);
            }
        }
    }
}
