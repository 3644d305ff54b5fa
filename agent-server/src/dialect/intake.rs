//! The audio of clients whose dialects send it in pieces of any length, without numbers.

use bytes::Bytes;
use proto::{
    audio::AudioFormat,
    frame::{ClientAudio, ClientEvent},
};

use super::Exchange;

/// Counts a client's audio and cuts it into pieces that a session takes.
#[derive(Debug)]
pub(super) struct Intake {
    format: AudioFormat,
    sequence: u64,
    heard_us: u64,
}

impl Intake {
    /// Nothing was heard yet.
    pub(super) const fn new(format: AudioFormat) -> Self {
        Self { format, sequence: 0, heard_us: 0 }
    }

    /// Of what comes next.
    pub(super) const fn format(&self) -> AudioFormat {
        self.format
    }

    /// What comes next is in this format.
    pub(super) const fn set_format(&mut self, format: AudioFormat) {
        self.format = format;
    }

    /// Media time: all audio so far, microseconds.
    pub(super) const fn heard_us(&self) -> u64 {
        self.heard_us
    }

    /// These are samples, and whole ones.
    pub(super) const fn is_whole(&self, payload: &[u8]) -> bool {
        !payload.is_empty() && payload.len().is_multiple_of(self.format.sample_bytes())
    }

    /// The client said these samples.
    pub(super) fn take<M>(&mut self, mut payload: Bytes, to: &mut Exchange<'_, M>) {
        let second = self.format.sample_rate() as usize * self.format.sample_bytes();
        while !payload.is_empty() {
            let piece = payload.split_to(payload.len().min(second));
            let length_us = self.format.duration_us(piece.len());
            to.event(ClientEvent::Audio(ClientAudio { sequence: self.sequence, timestamp_us: self.heard_us, payload: piece, ack: false }));
            self.sequence += 1;
            self.heard_us = self.heard_us.saturating_add(length_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_piece_is_cut_by_the_second_and_time_goes_on() {
        let mut intake = Intake::new(AudioFormat::Pcm16k);
        let mut heard = Vec::new();
        for length in [80_000, 640] {
            let mut event = |event| heard.push(event);
            intake.take(Bytes::from(vec![0; length]), &mut Exchange::<()>::new(&mut event, &mut |()| {}));
        }
        let seen: Vec<_> = heard
            .into_iter()
            .map(|event| match event {
                Ok(ClientEvent::Audio(audio)) => (audio.sequence, audio.timestamp_us, audio.payload.len()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, [(0, 0, 32_000), (1, 1_000_000, 32_000), (2, 2_000_000, 16_000), (3, 2_500_000, 640)]);
        assert_eq!(intake.heard_us(), 2_520_000);
        assert!(!intake.is_whole(&[]) && !intake.is_whole(&[1]) && intake.is_whole(&[1, 2]));
    }
}
