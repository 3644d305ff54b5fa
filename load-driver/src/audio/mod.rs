//! What the synthetic people say: WAV files or the built-in synthesiser, cut into frames once and shared.

use bytes::Bytes;
use proto::{audio::AudioFormat, frame::FRAME_US};

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
}
