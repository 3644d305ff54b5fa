//! Where user speech begins and ends, judged by energy.
//!
//! - Onset: 60 ms of loud audio, of which quiet audio between takes back half its own length (three loud frames in a row, or three of
//!   four). The onset reported is where the first of them began.
//! - Loud: above the configured threshold and above three times the noise floor. The floor starts high, falls fast with quiet audio and
//!   rises slowly, so that noise which is there from the beginning starts no turn. It never raises the threshold above
//!   [`MAX_RAISE`] times the configured one, so that a steady tone is still heard.
//! - End: no loud audio for the endpoint silence, where the bar is [`RELEASE`] of the onset's (hysteresis). Silence is counted in media
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

    /// Takes a piece of at most 20 ms that arrived at `now`: its media time and length in microseconds, and its RMS. Media time that goes
    /// backwards is taken as going on.
    pub fn on_audio(&mut self, timestamp_us: u64, length_us: u64, rms: f32, now: Micros) -> Option<Heard> {
        let start = timestamp_us.max(self.cursor);
        let gap = start - self.cursor;
        self.cursor = start.saturating_add(length_us);
        let heard = self.silent_for(gap);
        let bar = (self.floor * ABOVE_FLOOR).clamp(self.threshold, self.threshold * MAX_RAISE);
        let loud = rms >= if self.speaking { bar * RELEASE } else { bar };
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
