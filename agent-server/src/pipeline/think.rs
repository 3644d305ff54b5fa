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
pub const WORD_MS: u32 = 400;

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

#[cfg(test)]
mod tests {
    use proto::dist::Distribution;

    use super::*;

    fn config(tool_rate: f64) -> SessionConfig {
        SessionConfig {
            backend_id: String::new(),
            boot_id: String::new(),
            think: Distribution::Lognormal(Duration::from_millis(300), 0.4),
            tool_timeout: Duration::from_secs(5),
            response: Distribution::Uniform(Duration::from_secs(1), Duration::from_secs(3)),
            tool_rate,
            endpoint_silence: Duration::from_millis(500),
            vad_threshold: 300.0,
            max_duration: None,
            idle_timeout: Duration::from_mins(1),
            seed: 4,
            cost: crate::cost::CostSpec::default(),
        }
    }

    #[test]
    fn a_turn_depends_on_seed_session_and_number_only() {
        let tools = ["a".to_owned()];
        let turn = |session, number| compose(&config(0.5), session, number, &tools, None);
        assert_eq!(turn(3, 5), turn(3, 5));
        assert_ne!(turn(3, 5).seed, turn(3, 6).seed);
        assert_ne!(turn(3, 5).seed, turn(4, 5).seed);
        let hint = TurnHint { response_ms: Some(70), ..TurnHint::default() };
        let hinted = compose(&config(0.5), 3, 5, &tools, Some(&hint));
        assert_eq!((hinted.think, hinted.seed, hinted.frames), (turn(3, 5).think, turn(3, 5).seed, 4));
    }

    #[test]
    fn tools_are_called_at_their_rate_unless_a_hint_says() {
        let tools = ["a".to_owned(), "b".to_owned()];
        let calls = |rate| (0..1_000).filter(|&n| compose(&config(rate), 0, n, &tools, None).tool.is_some()).count();
        assert_eq!((calls(0.0), calls(1.0)), (0, 1_000));
        assert!((200..300).contains(&calls(0.25)), "{}", calls(0.25));
        assert_eq!(compose(&config(1.0), 0, 0, &[], None).tool, None);
        assert_eq!(compose(&config(1.0), 0, 0, &tools, Some(&TurnHint::default())).tool, None);
        let hint = TurnHint { tool: Some("b".to_owned()), ..TurnHint::default() };
        assert_eq!(compose(&config(0.0), 0, 0, &tools, Some(&hint)).tool, Some(1));
    }

    #[test]
    fn an_answer_has_a_frame_at_least_and_a_bound() {
        let frames = |length| compose(&SessionConfig { response: Distribution::Constant(length), ..config(0.0) }, 0, 0, &[], None).frames;
        assert_eq!(frames(Duration::ZERO), 1);
        assert_eq!(frames(Duration::from_millis(20)), 1);
        assert_eq!(frames(Duration::from_millis(21)), 2);
        assert_eq!(frames(Duration::MAX), 30_000);
    }
}
