//! What the recogniser understands: the hint's words, or made-up ones, as fast as they are spoken.

use std::time::Duration;

use proto::time::Micros;

use super::scramble;

/// From one partial transcript to the next while the user speaks.
pub const PARTIAL_EVERY: Duration = Duration::from_millis(300);
/// From the end of speech (as detected) to the final transcript, if the answer does not come sooner.
pub const FINAL_AFTER: Duration = Duration::from_millis(40);
/// Speech of one word.
const WORD_US: u64 = 300_000;
/// Most words of a made-up transcript.
const MAX_WORDS: u64 = 400;

const WORDS: [&str; 48] = [
    "about",
    "account",
    "actually",
    "address",
    "again",
    "and",
    "appointment",
    "balance",
    "because",
    "book",
    "can",
    "change",
    "could",
    "date",
    "day",
    "delivery",
    "flight",
    "for",
    "have",
    "help",
    "how",
    "is",
    "like",
    "line",
    "me",
    "morning",
    "my",
    "need",
    "next",
    "number",
    "of",
    "on",
    "order",
    "payment",
    "please",
    "question",
    "tell",
    "thanks",
    "the",
    "then",
    "to",
    "today",
    "tomorrow",
    "want",
    "was",
    "weather",
    "when",
    "you",
];

/// Words spoken in this much speech; at least one.
pub fn words_in(speech_us: u64) -> usize {
    usize::try_from(speech_us.div_ceil(WORD_US).clamp(1, MAX_WORDS)).unwrap_or(1)
}

/// The first `count` words of the made-up text of `seed`. More words never change earlier ones.
pub fn made_up(seed: u64, count: usize) -> String {
    let mut text = String::with_capacity(count * 6);
    for index in 0..count as u64 {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(WORDS[(scramble(seed ^ index) % WORDS.len() as u64) as usize]);
    }
    text
}

/// Transcribes one user turn.
#[derive(Debug)]
pub struct Recogniser {
    seed: u64,
    shown: usize,
    next_partial: Micros,
}

impl Recogniser {
    /// The turn was noticed at `now`.
    pub fn new(seed: u64, now: Micros) -> Self {
        Self { seed, shown: 0, next_partial: now + PARTIAL_EVERY }
    }

    /// When [`Self::partial`] has something to do.
    pub fn next_partial(&self) -> Micros {
        self.next_partial
    }

    /// A partial transcript when it is due and has grown. `said` is what a hint says; `speech_us` is the speech so far.
    pub fn partial(&mut self, said: Option<&str>, speech_us: u64, now: Micros) -> Option<String> {
        if now < self.next_partial {
            return None;
        }
        let every = PARTIAL_EVERY.as_micros() as u64;
        let missed = (now.0 - self.next_partial.0) / every;
        self.next_partial += Duration::from_micros(every.saturating_mul(missed + 1));
        let limit = words_in(speech_us);
        let (words, text) = match said {
            None => (limit, made_up(self.seed, limit)),
            Some(said) => {
                let words: Vec<_> = said.split_whitespace().take(limit).collect();
                (words.len(), words.join(" "))
            }
        };
        if words <= self.shown {
            return None;
        }
        self.shown = words;
        Some(text)
    }

    /// The final transcript.
    pub fn last(&self, said: Option<&str>, speech_us: u64) -> String {
        said.map_or_else(|| made_up(self.seed, words_in(speech_us).max(self.shown)), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partials_grow_on_their_cadence_and_the_final_holds_them() {
        let mut recogniser = Recogniser::new(9, Micros(0));
        assert_eq!(recogniser.partial(None, 299_000, Micros(299_999)), None);
        let first = recogniser.partial(None, 300_000, Micros(300_000)).unwrap();
        assert_eq!(recogniser.next_partial(), Micros(600_000));
        let second = recogniser.partial(None, 600_000, Micros(610_000)).unwrap();
        assert!(second.starts_with(&first) && second.len() > first.len());
        assert_eq!(recogniser.partial(None, 600_000, Micros(900_000)), None, "no new word");
        assert_eq!(recogniser.next_partial(), Micros(1_200_000));
        let last = recogniser.last(None, 700_000);
        assert!(last.starts_with(&second), "{last} / {second}");
    }

    #[test]
    fn a_late_partial_comes_once() {
        let mut recogniser = Recogniser::new(9, Micros(0));
        assert!(recogniser.partial(None, 5_000_000, Micros(5_000_000)).is_some());
        assert_eq!(recogniser.next_partial(), Micros(5_100_000));
    }

    #[test]
    fn a_hint_is_said_word_by_word() {
        let mut recogniser = Recogniser::new(9, Micros(0));
        let said = Some("book a table");
        assert_eq!(recogniser.partial(said, 300_000, Micros(300_000)).as_deref(), Some("book"));
        assert_eq!(recogniser.partial(said, 9_000_000, Micros(600_000)).as_deref(), Some("book a table"));
        assert_eq!(recogniser.partial(said, 9_900_000, Micros(900_000)), None);
        assert_eq!(recogniser.last(said, 1), "book a table");
    }

    #[test]
    fn endless_speech_makes_no_endless_text() {
        assert!(Recogniser::new(1, Micros(0)).last(None, u64::MAX).len() < 8_000);
        assert_eq!(made_up(1, 0), "");
    }
}
