//! Turns that a client writes instead of speaking them.

use proto::frame::{ClientEvent, MAX_TEXT_BYTES, ResponseWish};

use super::Exchange;

/// Text that waits for the end of its turn.
#[derive(Debug, Default)]
pub(super) struct Written(String);

impl Written {
    /// More of the turn; what is too long is cut, as it is only quoted.
    pub(super) fn add(&mut self, text: &str) {
        if !self.0.is_empty() && !text.is_empty() {
            self.0.push(' ');
        }
        let room = MAX_TEXT_BYTES.saturating_sub(self.0.len());
        let end = (0..=text.len().min(room)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        self.0.push_str(text.get(..end).unwrap_or_default());
    }

    /// None of it counts any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// All of it, if there is any.
    pub(super) fn take(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.0)).filter(|text| !text.is_empty())
    }

    /// The turn is over: it stops the answer under way and gets its own.
    pub(super) fn answer<M>(&mut self, to: &mut Exchange<'_, M>) {
        let text = self.take();
        to.event(ClientEvent::BargeIn { response: None, heard_ms: 0 });
        to.event(ClientEvent::Respond(ResponseWish { text, ..ResponseWish::default() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_much_is_written_takes_a_bounded_room() {
        let mut written = Written::default();
        assert_eq!(written.take(), None);
        for text in ["a", "", "b"] {
            written.add(text);
        }
        assert_eq!(written.take().as_deref(), Some("a b"));
        for _ in 0..3 {
            written.add(&"\u{e9}".repeat(MAX_TEXT_BYTES));
        }
        assert!(written.take().unwrap().len() <= MAX_TEXT_BYTES + 2);
    }
}
