//! What the agent makes of a turn: how long it thinks, whether it calls a tool, how long it speaks.

use std::time::Duration;

use proto::frame::{FRAME_MS, TurnHint};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::session::SessionConfig;

/// Longest answer, whatever a distribution draws.
pub const MAX_RESPONSE: Duration = Duration::from_mins(10);
/// Words of random numbers kept apart for each turn.
const WORDS_PER_TURN: u128 = 1_024;
/// Speech of one word of the answer, ms.
const WORD_MS: u32 = 400;

/// The answer to one turn, before it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composition {
    /// From the end of speech to the answer or the tool call.
    pub think: Duration,
    /// From the tool's result to the answer.
    pub think_again: Duration,
    /// Index of the tool to call first.
    pub tool: Option<usize>,
    /// Audio frames of the answer, at least one.
    pub frames: u32,
    /// Where in the voice the answer begins; any number.
    pub phrase: u32,
    /// Of the answer's words.
    pub seed: u64,
}

/// Composes the answer to a turn. Every draw is made in the same order whatever the hint says, so that one turn does not shift another.
pub fn compose(config: &SessionConfig, session: u64, turn: u64, tools: &[String], hint: Option<&TurnHint>) -> Composition {
    let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
    rng.set_stream(session);
    rng.set_word_pos(u128::from(turn) * WORDS_PER_TURN);
    let think = config.think.sample(&mut rng);
    let think_again = config.think.sample(&mut rng);
    let length = config.response.sample(&mut rng);
    let chance: f64 = rng.random();
    let pick: u32 = rng.random();
    let phrase = rng.random();
    let seed = rng.random();
    let tool = match hint {
        Some(hint) => hint.tool.as_ref().and_then(|name| tools.iter().position(|t| t == name)),
        None => (!tools.is_empty() && chance < config.tool_rate).then(|| pick as usize % tools.len()),
    };
    let length = hint.and_then(|h| h.response_ms).map_or(length, |ms| Duration::from_millis(ms.into())).min(MAX_RESPONSE);
    let frames = u32::try_from(length.as_millis().div_ceil(u128::from(FRAME_MS))).unwrap_or(u32::MAX).max(1);
    Composition { think, think_again, tool, frames, phrase, seed }
}

/// Words of an answer that were heard whole in its first `heard_ms`.
pub fn heard_words(heard_ms: u32) -> usize {
    (heard_ms / WORD_MS) as usize
}
