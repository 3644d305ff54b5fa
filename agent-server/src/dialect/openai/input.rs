//! The client's audio: events read without a tree of JSON, cut into what the session takes.

use std::borrow::Cow;

use bytes::Bytes;
use proto::{
    audio::AudioFormat,
    frame::{ClientAudio, ClientEvent},
};
use serde::Deserialize;

use super::super::{Exchange, Frame};

/// Longest `audio` of one event, once decoded, bytes.
pub(super) const APPEND_MAX: usize = 15 * 1024 * 1024;

/// Just enough of an event to tell an `input_audio_buffer.append`, whatever the order of its fields.
#[derive(Debug, Deserialize)]
pub(super) struct Append<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) audio: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) event_id: Cow<'a, str>,
}

impl<'a> Append<'a> {
    pub(super) const TYPE: &'static str = "input_audio_buffer.append";

    /// None for anything else, or when the slow way must say what is wrong with it.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let append: Self = serde_json::from_str(text).ok()?;
        (append.kind == Self::TYPE && !append.audio.is_empty()).then_some(append)
    }
}

/// Where the client's audio is.
#[derive(Debug, Default)]
pub(super) struct Input {
    sequence: u64,
    /// Media time where the format last changed, and bytes since.
    base_us: u64,
    bytes: u64,
    /// Half a sample, when the client cut it in two.
    half: Option<u8>,
    /// Not yet taken as a turn.
    buffered_us: u64,
}

impl Input {
    /// Passes audio on in pieces of at most a second.
    pub(super) fn append(&mut self, mut audio: Vec<u8>, format: AudioFormat, to: &mut Exchange<'_, Frame>) {
        let sample = format.sample_bytes();
        if sample > 1 {
            if let Some(half) = self.half.take() {
                audio.insert(0, half);
            }
            if !audio.len().is_multiple_of(sample) {
                self.half = audio.pop();
            }
        }
        let mut audio = Bytes::from(audio);
        let second = format.sample_rate() as usize * sample;
        while !audio.is_empty() {
            let payload = audio.split_to(audio.len().min(second));
            let timestamp_us = self.at_us(format);
            self.bytes += payload.len() as u64;
            self.buffered_us += format.duration_us(payload.len());
            let sequence = self.sequence;
            self.sequence += 1;
            to.event(ClientEvent::Audio(ClientAudio { sequence, timestamp_us, payload, ack: false }));
        }
    }

    /// Media time of what comes next.
    fn at_us(&self, format: AudioFormat) -> u64 {
        self.base_us + self.bytes / format.sample_bytes() as u64 * 1_000_000 / u64::from(format.sample_rate())
    }

    /// What comes is in another format than `old`.
    pub(super) fn reformat(&mut self, old: AudioFormat) {
        (self.base_us, self.bytes, self.half) = (self.at_us(old), 0, None);
    }

    /// Milliseconds that wait for a commit.
    pub(super) fn buffered_ms(&self) -> f64 {
        self.buffered_us as f64 / 1_000.0
    }

    /// All of it became a turn, or was thrown away.
    pub(super) const fn take(&mut self) -> u64 {
        std::mem::replace(&mut self.buffered_us, 0)
    }
}
