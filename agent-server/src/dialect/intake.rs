//! Audio of any length, as clients of most dialects send it, as the frames that sessions take.

use bytes::Bytes;
use proto::{
    audio::AudioFormat,
    frame::{ClientAudio, ClientEvent, ErrorCode, SessionError},
};

use super::Exchange;

/// One session's audio from its client: numbers it, keeps its media time, and cuts what is longer than a session takes at once (1 s).
#[derive(Debug)]
pub(super) struct Intake {
    format: AudioFormat,
    sequence: u64,
    media_us: u64,
}

impl Intake {
    /// Audio of this format.
    pub(super) const fn new(format: AudioFormat) -> Self {
        Self { format, sequence: 0, media_us: 0 }
    }

    /// Of what comes next.
    pub(super) const fn format(&self) -> AudioFormat {
        self.format
    }

    /// What comes next is of this format.
    pub(super) const fn set_format(&mut self, format: AudioFormat) {
        self.format = format;
    }

    /// All audio so far, microseconds.
    pub(super) const fn media_us(&self) -> u64 {
        self.media_us
    }

    /// Says `audio` to the session. Nothing of it is said when it is no whole number of samples; an empty payload says nothing.
    pub(super) fn take<M>(&mut self, audio: &Bytes, to: &mut Exchange<'_, M>) -> Result<(), SessionError> {
        let sample = self.format.sample_bytes();
        if !audio.len().is_multiple_of(sample) {
            let message = format!("{} bytes of audio are no whole samples: {} has {sample} bytes a sample", audio.len(), self.format);
            return Err(SessionError::warning(ErrorCode::BadAudio, message));
        }
        let second = self.format.sample_rate() as usize * sample;
        for from in (0..audio.len()).step_by(second) {
            let payload = audio.slice(from..audio.len().min(from + second));
            let length_us = self.format.duration_us(payload.len());
            to.event(ClientEvent::Audio(ClientAudio { sequence: self.sequence, timestamp_us: self.media_us, payload, ack: false }));
            self.sequence += 1;
            self.media_us = self.media_us.saturating_add(length_us);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(intake: &mut Intake, bytes: usize) -> Result<Vec<(u64, u64, usize)>, SessionError> {
        let mut said = Vec::new();
        let mut event = |event| {
            let Ok(ClientEvent::Audio(audio)) = event else { panic!("{event:?}") };
            said.push((audio.sequence, audio.timestamp_us, audio.payload.len()));
        };
        intake.take(&Bytes::from(vec![0; bytes]), &mut Exchange::new(&mut event, &mut |()| {}))?;
        Ok(said)
    }

    #[test]
    fn audio_of_any_length_is_cut_and_numbered_on() {
        let mut intake = Intake::new(AudioFormat::Mulaw8k);
        assert_eq!(take(&mut intake, 160), Ok(vec![(0, 0, 160)]));
        assert_eq!(take(&mut intake, 20_000), Ok(vec![(1, 20_000, 8_000), (2, 1_020_000, 8_000), (3, 2_020_000, 4_000)]));
        assert_eq!(take(&mut intake, 0), Ok(vec![]));
        assert_eq!(take(&mut intake, 160), Ok(vec![(4, 2_520_000, 160)]));
    }

    #[test]
    fn half_a_sample_is_refused_and_changes_nothing() {
        let mut intake = Intake::new(AudioFormat::Pcm16k);
        assert_eq!(take(&mut intake, 641).unwrap_err().code, ErrorCode::BadAudio);
        assert_eq!(take(&mut intake, 640), Ok(vec![(0, 0, 640)]));
    }
}
