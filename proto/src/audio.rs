//! Audio formats of a session: mono PCM16 at 16 or 24 kHz, G.711 mu-law at 8 kHz, in frames of 20 ms.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::frame::FRAME_MS;

/// Encoding and sample rate of both directions of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum AudioFormat {
    /// Signed 16-bit little-endian at 16 kHz: 640 bytes a frame.
    #[default]
    #[serde(rename = "pcm16_16k")]
    Pcm16k,
    /// Signed 16-bit little-endian at 24 kHz: 960 bytes a frame.
    #[serde(rename = "pcm16_24k")]
    Pcm24k,
    /// G.711 mu-law at 8 kHz: 160 bytes a frame.
    #[serde(rename = "mulaw_8k")]
    Mulaw8k,
}

impl AudioFormat {
    /// Every format that a session may ask for.
    pub const ALL: [Self; 3] = [Self::Pcm16k, Self::Pcm24k, Self::Mulaw8k];

    /// Samples a second.
    pub const fn sample_rate(self) -> u32 {
        match self {
            Self::Pcm16k => 16_000,
            Self::Pcm24k => 24_000,
            Self::Mulaw8k => 8_000,
        }
    }

    /// Bytes of one sample.
    pub const fn sample_bytes(self) -> usize {
        match self {
            Self::Pcm16k | Self::Pcm24k => 2,
            Self::Mulaw8k => 1,
        }
    }

    /// Samples of one frame.
    pub const fn frame_samples(self) -> usize {
        self.sample_rate() as usize * FRAME_MS as usize / 1_000
    }

    /// Bytes of one frame.
    pub const fn frame_bytes(self) -> usize {
        self.frame_samples() * self.sample_bytes()
    }

    /// The byte of silence.
    pub const fn silence_byte(self) -> u8 {
        match self {
            Self::Pcm16k | Self::Pcm24k => 0,
            Self::Mulaw8k => 0xff,
        }
    }

    /// Encodes linear samples (at this format's rate).
    pub fn encode(self, samples: &[i16]) -> Bytes {
        match self {
            Self::Pcm16k | Self::Pcm24k => samples.iter().flat_map(|s| s.to_le_bytes()).collect(),
            Self::Mulaw8k => samples.iter().map(|&s| linear_to_mulaw(s)).collect(),
        }
    }

    /// Root mean square of an encoded payload on the scale of 16-bit samples; 0 for an empty one. An odd last byte of PCM is ignored.
    pub fn rms(self, payload: &[u8]) -> f32 {
        let (sum, count) = match self {
            Self::Pcm16k | Self::Pcm24k => {
                let sum: u64 = payload
                    .chunks_exact(2)
                    .map(|b| {
                        let s = i32::from(i16::from_le_bytes([b[0], b[1]]));
                        u64::from((s * s) as u32)
                    })
                    .sum();
                (sum, payload.len() / 2)
            }
            Self::Mulaw8k => {
                let sum: u64 = payload
                    .iter()
                    .map(|&b| {
                        let s = i32::from(mulaw_to_linear(b));
                        u64::from((s * s) as u32)
                    })
                    .sum();
                (sum, payload.len())
            }
        };
        if count == 0 { 0.0 } else { (sum as f64 / count as f64).sqrt() as f32 }
    }
}

impl fmt::Display for AudioFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pcm16k => "pcm16_16k",
            Self::Pcm24k => "pcm16_24k",
            Self::Mulaw8k => "mulaw_8k",
        })
    }
}

const MULAW_BIAS: i32 = 0x84;
const MULAW_CLIP: i32 = 32_635;

/// G.711 mu-law of a linear 16-bit sample (ITU-T G.711).
pub const fn linear_to_mulaw(sample: i16) -> u8 {
    let mut magnitude = sample as i32;
    let sign = if magnitude < 0 { 0x80 } else { 0 };
    if magnitude < 0 {
        magnitude = -magnitude;
    }
    if magnitude > MULAW_CLIP {
        magnitude = MULAW_CLIP;
    }
    magnitude += MULAW_BIAS;
    let exponent = 24 - (magnitude as u32).leading_zeros() as i32;
    let mantissa = (magnitude >> (exponent + 3)) & 0x0f;
    !((sign | (exponent << 4) | mantissa) as u8)
}

/// Linear 16-bit sample of a G.711 mu-law byte.
pub const fn mulaw_to_linear(byte: u8) -> i16 {
    MULAW_TABLE[byte as usize]
}

const MULAW_TABLE: [i16; 256] = {
    let mut table = [0i16; 256];
    let mut i = 0;
    while i < 256 {
        let code = !(i as u8) as i32;
        let exponent = (code >> 4) & 0x07;
        let mantissa = code & 0x0f;
        let magnitude = (((mantissa << 3) + MULAW_BIAS) << exponent) - MULAW_BIAS;
        table[i] = if code & 0x80 != 0 { -magnitude } else { magnitude } as i16;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mulaw_known_values() {
        // ITU-T G.711 table 2: positive maximum, zero, negative maximum.
        assert_eq!(linear_to_mulaw(0), 0xff);
        assert_eq!(linear_to_mulaw(i16::MAX), 0x80);
        assert_eq!(linear_to_mulaw(i16::MIN), 0x00);
        assert_eq!(mulaw_to_linear(0x80), 32_124);
        assert_eq!(mulaw_to_linear(0x00), -32_124);
        assert_eq!(mulaw_to_linear(0xff), 0);
    }

    #[test]
    fn mulaw_decode_then_encode_is_identity() {
        for byte in 0..=u8::MAX {
            // 0x7f is negative zero and encodes as positive zero.
            if byte != 0x7f {
                assert_eq!(linear_to_mulaw(mulaw_to_linear(byte)), byte);
            }
        }
    }

    #[test]
    fn frame_sizes() {
        assert_eq!(AudioFormat::Pcm16k.frame_bytes(), 640);
        assert_eq!(AudioFormat::Pcm24k.frame_bytes(), 960);
        assert_eq!(AudioFormat::Mulaw8k.frame_bytes(), 160);
    }

    #[test]
    fn rms_of_square_wave_is_its_amplitude_in_every_format() {
        for format in AudioFormat::ALL {
            let samples: Vec<i16> = (0..format.frame_samples()).map(|i| if i % 2 == 0 { 8_031 } else { -8_031 }).collect();
            let rms = format.rms(&format.encode(&samples));
            assert!((rms - 8_031.0).abs() < 200.0, "{format}: {rms}");
        }
    }
}
