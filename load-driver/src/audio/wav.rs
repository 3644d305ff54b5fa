//! WAV files: 8- or 16-bit PCM, 8 to 48 kHz, mono or stereo.

use std::{io::Cursor, path::Path};

use hound::{SampleFormat, WavReader};

/// Longest clip, seconds: all of it is held in memory, once for each format.
const MAX_SECONDS: u32 = 120;
/// A file with more bytes than the longest clip can have is not read.
const MAX_BYTES: u64 = MAX_SECONDS as u64 * 48_000 * 4 + 64 * 1024;

/// A clip that cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum AudioError {
    /// No such file, or not readable.
    #[error("cannot read the WAV file `{path}`: {source}")]
    Read {
        /// As in the profile.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A shipped profile may only use shipped clips.
    #[error("the program carries no WAV file `{path}`")]
    NotShipped {
        /// As in the profile.
        path: String,
    },
    /// Not a WAV file, or not one that can be used.
    #[error("`{path}` cannot be used: {reason}")]
    Unusable {
        /// As in the profile.
        path: String,
        /// Why.
        reason: String,
    },
}

/// A mono recording at its own rate.
#[derive(Debug, Clone)]
pub struct Clip {
    /// Samples a second.
    pub rate: u32,
    /// All of it.
    pub samples: Vec<i16>,
}

impl Clip {
    /// Reads a file; `path` is its name in messages.
    pub fn read(path: &str, file: &Path) -> Result<Self, AudioError> {
        let failed = |source| AudioError::Read { path: path.to_owned(), source };
        let size = std::fs::metadata(file).map_err(failed)?.len();
        if size > MAX_BYTES {
            return Err(AudioError::Unusable {
                path: path.to_owned(),
                reason: format!("it has {size} bytes; at most {MAX_SECONDS} s are held"),
            });
        }
        Self::decode(path, &std::fs::read(file).map_err(failed)?)
    }

    /// Decodes the bytes of a WAV file.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<Self, AudioError> {
        let unusable = |reason: String| AudioError::Unusable { path: path.to_owned(), reason };
        let not_wav = |error: hound::Error| unusable(format!("it is no WAV file of PCM: {}", error.to_string().to_lowercase()));
        let reader = WavReader::new(Cursor::new(bytes)).map_err(not_wav)?;
        let spec = reader.spec();
        if spec.sample_format != SampleFormat::Int || !matches!(spec.bits_per_sample, 8 | 16) {
            return Err(unusable(format!("its samples have {} bits; convert it to 16-bit PCM", spec.bits_per_sample)));
        }
        if !matches!(spec.channels, 1 | 2) {
            return Err(unusable(format!("it has {} channels; convert it to mono", spec.channels)));
        }
        if !(8_000..=48_000).contains(&spec.sample_rate) {
            return Err(unusable(format!("its rate is {} Hz; convert it to 8000 to 48000 Hz", spec.sample_rate)));
        }
        if reader.duration() / spec.sample_rate >= MAX_SECONDS {
            return Err(unusable(format!("it is longer than {MAX_SECONDS} s; cut it")));
        }
        let scale = if spec.bits_per_sample == 8 { 256 } else { 1 };
        let all: Vec<i32> = reader.into_samples::<i32>().map(|s| s.map(|s| s * scale)).collect::<Result<_, _>>().map_err(not_wav)?;
        let channels = usize::from(spec.channels);
        let samples = all.chunks_exact(channels).map(|frame| (frame.iter().sum::<i32>() / channels as i32) as i16).collect();
        Ok(Self { rate: spec.sample_rate, samples })
    }
}

#[cfg(test)]
mod tests {
    use hound::{WavSpec, WavWriter};

    use super::*;

    fn wav(channels: u16, rate: u32, bits: u16, samples: &[i32]) -> Vec<u8> {
        let spec = WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format: SampleFormat::Int };
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
        for sample in samples {
            writer.write_sample(*sample).unwrap();
        }
        writer.finalize().unwrap();
        bytes.into_inner()
    }

    #[test]
    fn eight_and_sixteen_bits_mono_and_stereo() {
        assert_eq!(Clip::decode("a", &wav(1, 8_000, 16, &[1, -2, 3])).unwrap().samples, [1, -2, 3]);
        assert_eq!(Clip::decode("a", &wav(2, 44_100, 16, &[100, 300, -10, 10])).unwrap().samples, [200, 0]);
        assert_eq!(Clip::decode("a", &wav(1, 8_000, 8, &[-128, 0, 127])).unwrap().samples, [-32_768, 0, 32_512]);
    }

    #[test]
    fn what_cannot_be_used_says_what_to_do() {
        let bad = |bytes: &[u8]| Clip::decode("a.wav", bytes).unwrap_err().to_string();
        assert!(bad(b"RIFF").contains("`a.wav` cannot be used: it is no WAV file"));
        assert!(bad(&wav(1, 8_000, 24, &[1])).contains("convert it to 16-bit PCM"));
        assert!(bad(&wav(3, 8_000, 16, &[1, 2, 3])).contains("convert it to mono"));
        assert!(bad(&wav(1, 96_000, 16, &[1])).contains("8000 to 48000"));
        assert!(bad(&wav(1, 8_000, 16, &vec![0; 8_000 * 120])).contains("cut it"));
        let mut cut = wav(1, 8_000, 16, &[1, 2, 3]);
        cut.truncate(47);
        assert!(bad(&cut).contains("cannot be used"));
    }
}
