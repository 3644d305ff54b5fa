//! What happens between ears and mouth: voice activity, transcript, thinking, tools, speech. Pure code; [`crate::session`] decides when.
//!
//! Everything made up here is a function of (seed, session number, turn), so a turn is the same whatever happened before it.

pub mod think;
pub mod tool;
pub mod transcript;
pub mod tts;
pub mod vad;

/// Mixes a seed with two numbers into a new seed.
pub(crate) const fn mix(seed: u64, a: u64, b: u64) -> u64 {
    scramble(scramble(scramble(seed).wrapping_add(a)).wrapping_add(b))
}

/// One step of `SplitMix64`.
pub(crate) const fn scramble(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
