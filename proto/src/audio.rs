//! Audio formats of a session: mono PCM16 at 8 to 48 kHz, G.711 mu-law and A-law at 8 kHz, in frames of 20 ms.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::frame::FRAME_MS;

/// Encoding and sample rate of a direction of a session.
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
    /// G.711 A-law at 8 kHz: 160 bytes a frame.
    #[serde(rename = "alaw_8k")]
    Alaw8k,
    /// Signed 16-bit little-endian at 8 kHz: 320 bytes a frame.
    #[serde(rename = "pcm16_8k")]
    Pcm8k,
    /// Signed 16-bit little-endian at 48 kHz: 1,920 bytes a frame.
    #[serde(rename = "pcm16_48k")]
    Pcm48k,
}

impl AudioFormat {
    /// Every format of any dialect.
    pub const ALL: [Self; 6] = [Self::Pcm16k, Self::Pcm24k, Self::Mulaw8k, Self::Alaw8k, Self::Pcm8k, Self::Pcm48k];
    /// The formats of the native protocol.
    pub const NATIVE: [Self; 3] = [Self::Pcm16k, Self::Pcm24k, Self::Mulaw8k];

    /// The linear format of this sample rate, Hz.
    pub fn pcm(sample_rate: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.sample_bytes() == 2 && format.sample_rate() == sample_rate)
    }

    /// Samples a second.
    pub const fn sample_rate(self) -> u32 {
        match self {
            Self::Pcm16k => 16_000,
            Self::Pcm24k => 24_000,
            Self::Pcm48k => 48_000,
            Self::Mulaw8k | Self::Alaw8k | Self::Pcm8k => 8_000,
        }
    }

    /// Bytes of one sample.
    pub const fn sample_bytes(self) -> usize {
        match self {
            Self::Pcm8k | Self::Pcm16k | Self::Pcm24k | Self::Pcm48k => 2,
            Self::Mulaw8k | Self::Alaw8k => 1,
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

    /// Microseconds that so many encoded bytes last.
    pub const fn duration_us(self, bytes: usize) -> u64 {
        (bytes / self.sample_bytes()) as u64 * 1_000_000 / self.sample_rate() as u64
    }

    /// The byte of silence; in A-law the least sample there is.
    pub const fn silence_byte(self) -> u8 {
        match self {
            Self::Pcm8k | Self::Pcm16k | Self::Pcm24k | Self::Pcm48k => 0,
            Self::Mulaw8k => 0xff,
            Self::Alaw8k => 0xd5,
        }
    }

    /// Encodes linear samples (at this format's rate).
    pub fn encode(self, samples: &[i16]) -> Bytes {
        match self {
            Self::Pcm8k | Self::Pcm16k | Self::Pcm24k | Self::Pcm48k => samples.iter().flat_map(|s| s.to_le_bytes()).collect(),
            Self::Mulaw8k => samples.iter().map(|&s| linear_to_mulaw(s)).collect(),
            Self::Alaw8k => samples.iter().map(|&s| linear_to_alaw(s)).collect(),
        }
    }

    /// Root mean square of an encoded payload on the scale of 16-bit samples; 0 for an empty one. An odd last byte of PCM is ignored.
    pub fn rms(self, payload: &[u8]) -> f32 {
        let (sum, count) = match self {
            Self::Pcm8k | Self::Pcm16k | Self::Pcm24k | Self::Pcm48k => {
                let sum: u64 = payload
                    .chunks_exact(2)
                    .map(|b| {
                        let s = i32::from(i16::from_le_bytes([b[0], b[1]]));
                        u64::from((s * s) as u32)
                    })
                    .sum();
                (sum, payload.len() / 2)
            }
            Self::Mulaw8k | Self::Alaw8k => {
                let table = if self == Self::Mulaw8k { &MULAW_TABLE } else { &ALAW_TABLE };
                let sum: u64 = payload
                    .iter()
                    .map(|&b| {
                        let s = i32::from(table[usize::from(b)]);
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
            Self::Pcm8k => "pcm16_8k",
            Self::Pcm48k => "pcm16_48k",
            Self::Mulaw8k => "mulaw_8k",
            Self::Alaw8k => "alaw_8k",
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

/// G.711 A-law of a linear 16-bit sample (ITU-T G.711).
pub const fn linear_to_alaw(sample: i16) -> u8 {
    // 13 bits of magnitude and sign; the complement of a negative number is one less in magnitude, as the recommendation has it.
    let (sign, magnitude) = if sample < 0 { (0, (!sample) as u32 >> 3) } else { (0x80, sample as u32 >> 3) };
    let exponent = if magnitude < 32 { 0 } else { 27 - magnitude.leading_zeros() };
    let shift = if exponent == 0 { 1 } else { exponent };
    let mantissa = (magnitude >> shift) & 0x0f;
    (sign | (exponent << 4 | mantissa) as u8) ^ 0x55
}

/// Linear 16-bit sample of a G.711 A-law byte.
pub const fn alaw_to_linear(byte: u8) -> i16 {
    ALAW_TABLE[byte as usize]
}

const ALAW_TABLE: [i16; 256] = {
    let mut table = [0i16; 256];
    let mut i = 0;
    while i < 256 {
        let code = (i as u8 ^ 0x55) as i32;
        let exponent = (code >> 4) & 0x07;
        let mantissa = code & 0x0f;
        // The middle of the interval, on the scale of 16 bits.
        let magnitude = if exponent == 0 { (mantissa << 4) + 8 } else { ((mantissa << 4) + 0x108) << (exponent - 1) };
        table[i] = if code & 0x80 != 0 { magnitude } else { -magnitude } as i16;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alaw_known_values() {
        // ITU-T G.711 table 1: least and greatest of both signs.
        assert_eq!((linear_to_alaw(0), linear_to_alaw(-1)), (0xd5, 0x55));
        assert_eq!((linear_to_alaw(i16::MAX), linear_to_alaw(i16::MIN)), (0xaa, 0x2a));
        assert_eq!((alaw_to_linear(0xd5), alaw_to_linear(0x55)), (8, -8));
        assert_eq!((alaw_to_linear(0xaa), alaw_to_linear(0x2a)), (32_256, -32_256));
    }

    #[test]
    fn alaw_decode_then_encode_is_identity() {
        for byte in 0..=u8::MAX {
            assert_eq!(linear_to_alaw(alaw_to_linear(byte)), byte, "{byte:#x}");
        }
    }

    #[test]
    fn alaw_is_within_its_step_of_every_sample() {
        for sample in i16::MIN..=i16::MAX {
            let back = i32::from(alaw_to_linear(linear_to_alaw(sample)));
            let error = (back - i32::from(sample)).abs();
            assert!(error <= (i32::from(sample).abs() / 32).max(8) + 1, "{sample}: {back}");
        }
    }

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
        assert_eq!(AudioFormat::Alaw8k.frame_bytes(), 160);
        assert_eq!(AudioFormat::Pcm8k.frame_bytes(), 320);
        assert_eq!(AudioFormat::Pcm48k.frame_bytes(), 1_920);
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
