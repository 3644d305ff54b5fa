//! Finds clips and keeps what was encoded, by (clip, format).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use proto::audio::AudioFormat;

use super::{AudioError, Clip, Utterance, resample::resample};
use crate::profile::shipped_clip;

/// The clips of one profile.
#[derive(Debug)]
pub struct Library {
    /// None: the clips that the program carries.
    folder: Option<PathBuf>,
    encoded: BTreeMap<(String, &'static str), Arc<Utterance>>,
}

impl Library {
    /// Clips are relative to `folder`, or carried by the program.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, encoded: BTreeMap::new() }
    }

    /// A clip at its own rate; an error when it holds no speech.
    pub fn clip(&self, path: &str) -> Result<Clip, AudioError> {
        let clip = if let Some(folder) = &self.folder {
            Clip::read(path, &folder.join(path))?
        } else {
            let bytes = shipped_clip(path).ok_or_else(|| AudioError::NotShipped { path: path.to_owned() })?;
            Clip::decode(path, bytes)?
        };
        if super::speech(&clip.samples, clip.rate).is_none() {
            return Err(AudioError::Unusable { path: path.to_owned(), reason: "there is no speech in it, only silence".to_owned() });
        }
        Ok(clip)
    }

    /// A clip as an utterance; loaded once for each format.
    pub fn utterance(&mut self, path: &str, format: AudioFormat) -> Result<Arc<Utterance>, AudioError> {
        let key = (path.to_owned(), key(format));
        if let Some(found) = self.encoded.get(&key) {
            return Ok(found.clone());
        }
        let clip = self.clip(path)?;
        let samples = resample(&clip.samples, clip.rate, format.sample_rate());
        let text = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
        let utterance = Utterance::new(format, samples, &text)
            .ok_or_else(|| AudioError::Unusable { path: path.to_owned(), reason: "there is no speech in it, only silence".to_owned() })?;
        let utterance = Arc::new(utterance);
        self.encoded.insert(key, utterance.clone());
        Ok(utterance)
    }
}

/// `AudioFormat` has no order of its own.
const fn key(format: AudioFormat) -> &'static str {
    match format {
        AudioFormat::Pcm16k => "16k",
        AudioFormat::Pcm24k => "24k",
        AudioFormat::Mulaw8k => "mulaw",
        AudioFormat::Alaw8k => "alaw",
        AudioFormat::Pcm8k => "8k",
        AudioFormat::Pcm48k => "48k",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_clips_speak_in_every_format() {
        let mut library = Library::new(None);
        for path in ["audio/weather.wav", "audio/order.wav", "audio/stop.wav", "audio/backchannel.wav"] {
            let lengths: Vec<u64> =
                AudioFormat::ALL.iter().map(|&format| library.utterance(path, format).unwrap().speech_us() / 1_000).collect();
            assert!(lengths[0] > 300, "{path}: {lengths:?}");
            assert!(lengths.iter().all(|ms| ms.abs_diff(lengths[0]) <= 40), "{path}: {lengths:?}");
        }
        let again = library.utterance("audio/stop.wav", AudioFormat::Pcm16k).unwrap();
        assert!(Arc::ptr_eq(&again, &library.utterance("audio/stop.wav", AudioFormat::Pcm16k).unwrap()));
        assert!(library.utterance("audio/none.wav", AudioFormat::Pcm16k).is_err());
    }
}
