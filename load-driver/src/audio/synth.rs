//! The built-in synthesiser: a voice-like buzz through moving formants, in syllables. It says nothing, but a detector hears speech.

use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// First and second formant of some vowels, Hz.
const VOWELS: [(f64, f64); 5] = [(730.0, 1_090.0), (530.0, 1_840.0), (270.0, 2_290.0), (570.0, 840.0), (300.0, 870.0)];
/// Most of the energy of a voice is below.
const HIGHEST_HZ: f64 = 3_600.0;
/// RMS on the scale of 16-bit samples: that of a person at a telephone.
const LOUDNESS: f64 = 3_000.0;

/// `us` microseconds of speech-like sound at `rate` samples a second; the same for the same seed. It is loud from the first
/// to the last 10 ms, so that its length is the length of its speech.
pub fn synthesise(seed: u64, us: u64, rate: u32) -> Vec<i16> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let length = (us * u64::from(rate) / 1_000_000) as usize;
    let pitch: f64 = rng.random_range(95.0..220.0);
    let syllable = (f64::from(rate) * rng.random_range(0.16..0.24)) as usize;
    let mut samples = Vec::with_capacity(length);
    let mut phase = 0.0;
    while samples.len() < length {
        let (first, second) = VOWELS[rng.random_range(0..VOWELS.len())];
        let bend: f64 = rng.random_range(0.9..1.12);
        let harmonics: Vec<(f64, f64)> = (1..=100)
            .map(f64::from)
            .take_while(|n| n * pitch < HIGHEST_HZ.min(f64::from(rate) / 2.2))
            .map(|n| (n, (resonance(n * pitch, first, 90.0) + 0.6 * resonance(n * pitch, second, 120.0) + 0.03) / n.sqrt()))
            .collect();
        let energy = harmonics.iter().map(|(_, gain)| gain * gain / 2.0).sum::<f64>().sqrt();
        for at in 0..syllable.min(length - samples.len()) {
            let x = at as f64 / syllable as f64;
            phase += pitch * (1.0 + (bend - 1.0) * x) / f64::from(rate);
            // Never silent: a pause inside could end the turn.
            let envelope = 0.45 + 0.55 * (std::f64::consts::PI * x).sin();
            let sound: f64 = harmonics.iter().map(|(n, gain)| gain * (TAU * n * phase).sin()).sum();
            samples.push((sound / energy * LOUDNESS * envelope).clamp(-32_000.0, 32_000.0) as i16);
        }
    }
    samples
}

fn resonance(hz: f64, centre: f64, width: f64) -> f64 {
    1.0 / (1.0 + ((hz - centre) / width).powi(2))
}

#[cfg(test)]
mod tests {
    use proto::audio::AudioFormat;

    use super::*;
    use crate::audio::Utterance;

    #[test]
    fn every_frame_is_speech_and_the_length_is_exact() {
        for format in AudioFormat::ALL {
            for seed in 0..20 {
                let utterance = Utterance::new(format, synthesise(seed, 1_300_000, format.sample_rate()), "").unwrap();
                assert_eq!((utterance.speech_start_us, utterance.speech_end_us), (0, 1_300_000), "{format} {seed}");
                for frame in 0..utterance.frames() {
                    let level = format.rms(&utterance.frame(frame).unwrap());
                    assert!(level > 600.0, "{format} {seed} frame {frame}: {level}");
                }
            }
        }
    }

    #[test]
    fn one_seed_one_sound() {
        assert_eq!(synthesise(3, 500_000, 16_000), synthesise(3, 500_000, 16_000));
        assert_ne!(synthesise(3, 500_000, 16_000), synthesise(4, 500_000, 16_000));
        assert!(synthesise(3, 0, 16_000).is_empty());
    }
}
