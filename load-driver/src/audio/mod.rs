//! What the synthetic people say: WAV files or the built-in synthesiser, cut into frames once and shared.

mod library;
mod resample;
mod synth;
mod wav;

use bytes::Bytes;
use proto::{audio::AudioFormat, frame::FRAME_US};

pub use self::{
    library::Library,
    synth::synthesise,
    wav::{AudioError, Clip},
};

/// One thing to say, encoded for one format. Frames are slices of one buffer.
#[derive(Debug, Clone)]
pub struct Utterance {
    /// Of the payload.
    pub format: AudioFormat,
    /// Whole frames, end to end; the last is padded with silence.
    pub payload: Bytes,
    /// Where speech begins, microseconds from the start of the audio, judged by energy.
    pub speech_start_us: u64,
    /// Where speech ends (trailing silence trimmed), microseconds from the start of the audio.
    pub speech_end_us: u64,
    /// What is said, for hints and logs.
    pub text: String,
}

impl Utterance {
    /// From samples at the format's rate; none when there is no speech in them.
    pub fn new(format: AudioFormat, mut samples: Vec<i16>, text: &str) -> Option<Self> {
        let (start, end) = speech(&samples, format.sample_rate())?;
        samples.resize(samples.len().next_multiple_of(format.frame_samples()), 0);
        let us = |sample: usize| sample as u64 * 1_000_000 / u64::from(format.sample_rate());
        Some(Self { format, payload: format.encode(&samples), speech_start_us: us(start), speech_end_us: us(end), text: text.to_owned() })
    }

    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.payload.len() / self.format.frame_bytes()
    }

    /// Frame `n`, if there is one.
    pub fn frame(&self, n: usize) -> Option<Bytes> {
        let size = self.format.frame_bytes();
        (n < self.frames()).then(|| self.payload.slice(n * size..(n + 1) * size))
    }

    /// Length of all frames.
    pub fn duration_us(&self) -> u64 {
        self.frames() as u64 * FRAME_US
    }

    /// Length of the speech in it.
    pub fn speech_us(&self) -> u64 {
        self.speech_end_us.saturating_sub(self.speech_start_us)
    }
}

/// First and last sample of speech. A window of 10 ms is speech when its energy is above a floor that no room noise of a clean recording
/// reaches, and within 26 dB of the loudest window.
fn speech(samples: &[i16], rate: u32) -> Option<(usize, usize)> {
    const FLOOR: f64 = 100.0;
    const BELOW_PEAK: f64 = 0.05;
    let window = (rate / 100) as usize;
    let rms: Vec<f64> = samples
        .chunks(window)
        .map(|chunk| (chunk.iter().map(|&s| f64::from(s) * f64::from(s)).sum::<f64>() / chunk.len() as f64).sqrt())
        .collect();
    let limit = rms.iter().copied().fold(0.0, f64::max).mul_add(BELOW_PEAK, 0.0).max(FLOOR);
    let first = rms.iter().position(|&level| level > limit)?;
    let last = rms.iter().rposition(|&level| level > limit)?;
    Some((first * window, ((last + 1) * window).min(samples.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, ms: u32, amplitude: f64) -> Vec<i16> {
        (0..rate * ms / 1_000).map(|i| (amplitude * (f64::from(i) * 0.3).sin()) as i16).collect()
    }

    #[test]
    fn silence_around_speech_is_trimmed_from_the_times_and_kept_in_the_audio() {
        for format in AudioFormat::ALL {
            let rate = format.sample_rate();
            let samples = [tone(rate, 400, 20.0), tone(rate, 1_000, 8_000.0), tone(rate, 1_205, 20.0)].concat();
            let utterance = Utterance::new(format, samples, "tone").unwrap();
            assert_eq!((utterance.speech_start_us, utterance.speech_end_us), (400_000, 1_400_000));
            assert_eq!(utterance.duration_us(), 2_620_000, "padded to whole frames");
            assert_eq!(utterance.frame(130).unwrap().len(), format.frame_bytes());
            assert!(utterance.frame(131).is_none());
        }
    }

    #[test]
    fn silence_is_no_utterance() {
        assert!(Utterance::new(AudioFormat::Pcm16k, vec![3; 16_000], "").is_none());
        assert!(Utterance::new(AudioFormat::Pcm16k, Vec::new(), "").is_none());
    }
}
