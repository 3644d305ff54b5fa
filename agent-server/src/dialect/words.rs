//! What an agent says, in step with its audio.

use proto::frame::FRAME_MS;

use crate::pipeline::think::WORD_MS;

/// Frames of audio that a word lasts.
const WORD_FRAMES: u32 = WORD_MS / FRAME_MS as u32;

/// The words of one answer, dealt out as its frames go.
#[derive(Debug, Default)]
pub(super) struct Words {
    text: String,
    /// What was dealt out of it.
    dealt: usize,
    frames: u32,
}

impl Words {
    /// Of an answer that begins.
    pub(super) const fn new(text: String) -> Self {
        Self { text, dealt: 0, frames: 0 }
    }

    /// A frame goes: the word that begins with it, and the space before it.
    pub(super) fn frame(&mut self) -> Option<&str> {
        let first = self.frames.is_multiple_of(WORD_FRAMES);
        self.frames = self.frames.saturating_add(1);
        let rest = self.text.get(self.dealt..).filter(|rest| first && !rest.is_empty())?;
        let word = rest.char_indices().skip(1).find(|(_, c)| *c == ' ').map_or(rest, |(end, _)| &rest[..end]);
        self.dealt += word.len();
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_goes_with_its_first_frame_and_all_of_them_make_the_text() {
        let mut words = Words::new("the caf\u{e9} is open".to_owned());
        let dealt: Vec<_> = (0..100).filter_map(|n| words.frame().map(|word| (n, word.to_owned()))).collect();
        assert_eq!(dealt, [(0, "the".to_owned()), (20, " caf\u{e9}".to_owned()), (40, " is".to_owned()), (60, " open".to_owned())]);
        assert_eq!(Words::new(String::new()).frame(), None);
    }
}
