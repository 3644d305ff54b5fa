//! What a server says before it accepts the session, where that is no acceptance: the best that can be told of a session that never began.

use proto::frame::{ServerEvent, SessionError};

use super::{Wire, said::cut};

/// Longest part of a message that is shown, bytes.
const MAX_SHOWN: usize = 200;

/// Of one session.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    /// The session is accepted: nothing is kept.
    closed: bool,
    /// The first message that came to nothing.
    message: Option<String>,
    /// The first error that did not end the session.
    error: Option<String>,
}

impl Unheard {
    /// The next message may be what is looked for.
    pub(super) const fn wants(&self) -> bool {
        !self.closed && self.error.is_none()
    }

    /// A message came, as it is shown, and came to these events.
    pub(super) fn said<'a>(&mut self, shown: String, events: impl ExactSizeIterator<Item = &'a Result<ServerEvent, SessionError>>) {
        if events.len() == 0 {
            self.message.get_or_insert(shown);
        }
        for event in events {
            if let Ok(ServerEvent::Error(error)) = event {
                self.error.get_or_insert_with(|| error.message.clone());
            }
        }
    }

    /// The session is accepted.
    pub(super) fn close(&mut self) {
        *self = Self { closed: true, ..Self::default() };
    }

    /// In words, if there is something to tell.
    pub(super) fn words(&self) -> Option<String> {
        let message = || self.message.as_ref().map(|message| format!("what begins no session here: {message}"));
        self.error.clone().or_else(message)
    }
}

/// The begin of a message.
pub(super) fn shown(message: &Wire) -> String {
    match message {
        Wire::Text(text) => excerpt(text),
        Wire::Binary(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if text.starts_with('{') => excerpt(text),
            _ => format!("{} bytes of binary", bytes.len()),
        },
        Wire::Close(code) => format!("a close with {code}"),
    }
}

/// The begin of a text of the server.
pub(super) fn excerpt(text: &str) -> String {
    let mut shown = text.chars().take(MAX_SHOWN).collect::<String>();
    if text.len() > MAX_SHOWN {
        cut(&mut shown, MAX_SHOWN);
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use proto::frame::ErrorCode;

    use super::*;

    #[test]
    fn the_first_error_is_told_before_the_first_message() {
        let mut unheard = Unheard::default();
        assert_eq!(unheard.words(), None);
        let complaint =
            |text: &str| [Ok(ServerEvent::Error(SessionError { code: ErrorCode::Internal, message: text.into(), fatal: false }))];
        for (shown, events) in [("a", vec![]), ("b", vec![]), ("c", complaint("no").to_vec()), ("d", complaint("never").to_vec())] {
            unheard.said(shown.to_owned(), events.iter());
        }
        assert_eq!(unheard.words().as_deref(), Some("no"));
        unheard.close();
        unheard.said("e".to_owned(), [].iter());
        assert!(!unheard.wants());
    }

    #[test]
    fn what_is_shown_is_short() {
        assert_eq!(shown(&Wire::Binary(vec![0; 9].into())), "9 bytes of binary");
        assert_eq!(shown(&Wire::Binary("{\"a\":1}".into())), "{\"a\":1}");
        let text = shown(&Wire::Text("\u{e9}".repeat(5_000)));
        assert_eq!(text.len(), MAX_SHOWN + 3);
    }
}
