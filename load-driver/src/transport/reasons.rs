//! What was said with the first failure of each cause, for people: a body, a reason of a close, an error of TLS.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::{
    ledger::FailureCause,
    plan::{Connection, variables::environment},
};

/// Longest reason that is kept, characters.
const MAX: usize = 300;

/// First words by cause, of one shard.
#[derive(Debug, Clone, Default)]
pub struct Reasons(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    first: BTreeMap<FailureCause, String>,
    /// Not told yet.
    news: Vec<FailureCause>,
}

impl Reasons {
    /// Keeps what was said, if it is the first with this cause; secrets of the connection are masked in it.
    pub fn note(&self, cause: FailureCause, connection: &Connection, said: impl FnOnce() -> String) {
        let mut inner = self.0.borrow_mut();
        if inner.first.contains_key(&cause) {
            return;
        }
        let text = one_line(&connection.scrub(&said(), environment));
        if !text.is_empty() {
            inner.first.insert(cause, text);
            inner.news.push(cause);
        }
    }

    /// What is new since the last time.
    pub fn take(&self) -> Vec<(FailureCause, String)> {
        let mut inner = self.0.borrow_mut();
        let news = std::mem::take(&mut inner.news);
        news.into_iter().filter_map(|cause| Some((cause, inner.first.get(&cause)?.clone()))).collect()
    }

    /// There is something new.
    pub fn any(&self) -> bool {
        !self.0.borrow().news.is_empty()
    }
}

/// Bounded, and nothing that a terminal takes for more than text.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    if line.chars().count() <= MAX { line } else { line.chars().take(MAX).chain("...".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_a_cause_is_kept_in_one_line_and_without_secrets() {
        let connection =
            Connection { headers: [("Authorization".to_owned(), "Bearer hunter22".to_owned())].into(), ..Connection::default() };
        let reasons = Reasons::default();
        reasons.note(FailureCause::Unauthorized, &connection, || "wrong key hunter22\r\n\u{1b}[31m for you".to_owned());
        reasons.note(FailureCause::Unauthorized, &connection, || unreachable!("only the first is asked for"));
        reasons.note(FailureCause::NotFound, &connection, || "x".repeat(1_000));
        let news = reasons.take();
        assert_eq!(news[0], (FailureCause::Unauthorized, "wrong key *** [31m for you".to_owned()));
        assert_eq!(news[1].1.len(), MAX + 3);
        assert!(reasons.take().is_empty() && !reasons.any());
    }
}
