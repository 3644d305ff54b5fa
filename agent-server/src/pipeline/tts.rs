//! The agent's voice: not speech, but audible and shaped like it (voiced syllables through formants, pauses between), so that a detector,
//! a codec and an ear take it for speech.
//!
//! A voice is eight seconds long: four phrases of two seconds, each beginning with a syllable. It is rendered once for a process and format
//! and lives as long as the process, so that a frame is a slice of static memory: no copy, and no reference count that shards would share.

use std::{f32::consts::PI, sync::OnceLock};

use bytes::Bytes;
use proto::audio::AudioFormat;

use super::{mix, scramble};

/// Voices that differ. A name and a seed choose one of them.
pub const VOICES: usize = 8;
/// Phrases of a voice.
const PHRASES: usize = 4;
/// Frames of a phrase (2 s).
const PHRASE_FRAMES: usize = 100;
/// Frames of a voice.
const VOICE_FRAMES: usize = PHRASES * PHRASE_FRAMES;
/// RMS of a syllable.
const SYLLABLE_RMS: f32 = 4_500.0;
/// Silence at the end of each phrase, seconds.
const PHRASE_PAUSE: f32 = 0.2;

/// First three formants of five vowels, Hz (averages of adult speakers).
const VOWELS: [[f32; 3]; 5] =
    [[730.0, 1_090.0, 2_440.0], [530.0, 1_840.0, 2_480.0], [270.0, 2_290.0, 3_010.0], [570.0, 840.0, 2_410.0], [300.0, 870.0, 2_240.0]];
/// Bandwidth and weight of each formant.
const FORMANTS: [(f32, f32); 3] = [(80.0, 1.0), (110.0, 0.6), (160.0, 0.3)];

/// One of [`VOICES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Voice(u8);

static BANK: [[OnceLock<&'static [u8]>; AudioFormat::ALL.len()]; VOICES] =
    [const { [const { OnceLock::new() }; AudioFormat::ALL.len()] }; VOICES];

impl Voice {
    /// The voice of a name (the empty one too) and a seed.
    pub fn of(name: &str, seed: u64) -> Self {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self((mix(seed, hash, 0) % VOICES as u64) as u8)
    }

    /// Frame `n` of an answer that begins with phrase `phrase` (any number).
    pub fn frame(self, format: AudioFormat, phrase: u32, n: u32) -> Bytes {
        let index = (phrase as usize % PHRASES * PHRASE_FRAMES + n as usize % VOICE_FRAMES) % VOICE_FRAMES;
        let size = format.frame_bytes();
        Bytes::from_static(&self.bank(format)[index * size..(index + 1) * size])
    }

    /// All of this voice, rendered on first use.
    fn bank(self, format: AudioFormat) -> &'static [u8] {
        let column = AudioFormat::ALL.iter().position(|&f| f == format).unwrap_or(0);
        BANK[usize::from(self.0)][column]
            .get_or_init(|| Box::leak(format.encode(&render(self, format.sample_rate())).to_vec().into_boxed_slice()))
    }
}

/// Renders every voice in the usual formats (7 MiB), so that no session waits for it: a server calls it before it listens.
pub fn prepare() {
    for voice in 0..VOICES as u8 {
        for format in AudioFormat::ALL.into_iter().filter(|&format| format != AudioFormat::Pcm48k) {
            Voice(voice).bank(format);
        }
    }
}

fn render(voice: Voice, rate: u32) -> Vec<i16> {
    let mut samples = vec![0.0; VOICE_FRAMES * rate as usize / 50];
    let phrase_samples = PHRASE_FRAMES * rate as usize / 50;
    for (index, phrase) in samples.chunks_exact_mut(phrase_samples).enumerate() {
        render_phrase(phrase, voice, rate as f32, mix(0x7661, u64::from(voice.0), index as u64));
    }
    samples.into_iter().map(|s: f32| s.clamp(-32_000.0, 32_000.0) as i16).collect()
}

fn render_phrase(phrase: &mut [f32], voice: Voice, rate: f32, seed: u64) {
    let mut dice = Dice(seed);
    let end = phrase.len() - (PHRASE_PAUSE * rate) as usize;
    let mut at = 0;
    let mut count = 0;
    // What is left of a phrase after its last whole syllable stays silent: a scrap of one would be a click.
    while at + (0.06 * rate) as usize <= end {
        let length = ((0.14 + 0.09 * dice.unit()) * rate) as usize;
        let stop = (at + length).min(end);
        // The pitch falls over the phrase, as in a statement.
        let pitch = (95.0 + 18.0 * f32::from(voice.0)) * (1.12 - 0.24 * at as f32 / end as f32) * (0.97 + 0.06 * dice.unit());
        let vowel = VOWELS[(dice.next() % VOWELS.len() as u64) as usize];
        render_syllable(&mut phrase[at..stop], pitch, vowel.map(|f| f * (0.92 + 0.03 * f32::from(voice.0))), rate);
        count += 1;
        let gap = if count % 4 == 0 { 0.12 } else { 0.02 + 0.04 * dice.unit() };
        at = stop + (gap * rate) as usize;
    }
}

/// A pulse train at `pitch` Hz through three resonators, with a soft begin and end, at [`SYLLABLE_RMS`].
fn render_syllable(out: &mut [f32], pitch: f32, formants: [f32; 3], rate: f32) {
    let mut resonators = [0, 1, 2].map(|i| Resonator::new(formants[i].min(rate * 0.45), FORMANTS[i].0, FORMANTS[i].1, rate));
    let ramp = (0.025 * rate) as usize;
    let total = out.len();
    let mut cycle = 0.0;
    let mut glottis = 0.0;
    let mut energy = 0.0;
    for (n, sample) in out.iter_mut().enumerate() {
        cycle += pitch / rate;
        let pulse = if cycle >= 1.0 {
            cycle -= 1.0;
            1.0
        } else {
            0.0
        };
        glottis += (pulse - glottis) * 0.4;
        let edge = n.min(total - 1 - n).min(ramp) as f32 / ramp as f32;
        *sample = resonators.iter_mut().map(|r| r.pass(glottis)).sum::<f32>() * (0.5 - 0.5 * (PI * edge).cos());
        energy += *sample * *sample;
    }
    let gain = SYLLABLE_RMS / (energy / total.max(1) as f32).sqrt().max(f32::MIN_POSITIVE);
    for sample in out {
        *sample *= gain;
    }
}

/// A two-pole filter.
struct Resonator {
    a1: f32,
    a2: f32,
    gain: f32,
    y1: f32,
    y2: f32,
}

impl Resonator {
    fn new(frequency: f32, bandwidth: f32, weight: f32, rate: f32) -> Self {
        let r = (-PI * bandwidth / rate).exp();
        Self { a1: 2.0 * r * (2.0 * PI * frequency / rate).cos(), a2: -r * r, gain: weight * (1.0 - r), y1: 0.0, y2: 0.0 }
    }

    fn pass(&mut self, x: f32) -> f32 {
        let y = self.gain * x + self.a1 * self.y1 + self.a2 * self.y2;
        self.y2 = self.y1;
        self.y1 = y;
        y
    }
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = scramble(self.0);
        self.0
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn frames_have_the_formats_size_and_share_one_memory() {
        for format in AudioFormat::ALL {
            let voice = Voice::of("x", 0);
            let (a, b) = (voice.frame(format, 0, 0), voice.frame(format, 0, 1));
            assert_eq!(a.len(), format.frame_bytes());
            assert_eq!(a.as_ptr().wrapping_add(a.len()), b.as_ptr());
            assert_eq!(voice.frame(format, 4, 400).as_ptr(), a.as_ptr(), "it goes round");
            assert_eq!(voice.frame(format, u32::MAX, u32::MAX).len(), format.frame_bytes());
        }
    }

    #[test]
    fn every_phrase_of_every_voice_begins_loud_and_has_pauses_and_no_clipping() {
        for voice in (0..VOICES as u8).map(Voice) {
            for format in AudioFormat::ALL {
                for phrase in 0..PHRASES as u32 {
                    let rms: Vec<f32> = (0..PHRASE_FRAMES as u32).map(|n| format.rms(&voice.frame(format, phrase, n))).collect();
                    assert!(rms[1] > 2_000.0, "{voice:?} {format} {phrase}: {}", rms[1]);
                    let loud = rms.iter().filter(|&&r| r > 2_000.0).count();
                    assert!((50..90).contains(&loud), "{voice:?} {format} {phrase}: {loud}");
                    assert!(rms[PHRASE_FRAMES - 9..].iter().all(|&r| r < 10.0));
                }
            }
            let samples = render(voice, 16_000);
            assert!(samples.iter().filter(|s| s.unsigned_abs() >= 32_000).count() * 1_000 < samples.len(), "{voice:?} clips");
        }
    }

    #[test]
    fn a_voice_depends_on_name_and_seed_only_and_all_are_reached() {
        assert_eq!(Voice::of("anna", 5), Voice::of("anna", 5));
        assert_eq!(render(Voice(3), 8_000), render(Voice(3), 8_000));
        assert_ne!(render(Voice(3), 8_000), render(Voice(4), 8_000));
        let names: HashSet<_> = (0..200).map(|n| Voice::of(&format!("voice {n}"), 1)).collect();
        let seeds: HashSet<_> = (0..200).map(|seed| Voice::of("anna", seed)).collect();
        assert_eq!((names.len(), seeds.len()), (VOICES, VOICES));
    }
}
