//! What was said with the first failure of each cause, for people: a body, a reason of a close, an error of TLS; and with the first error that
//! ended nothing.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::{
    ledger::FailureCause,
    plan::{Connection, hide, variables::environment},
};

/// Longest reason that is kept, characters.
const MAX: usize = 300;

/// What words are about: a cause of failure, or (none) the errors that a session survived.
pub type About = Option<FailureCause>;

/// First words by cause, of one shard.
#[derive(Debug, Clone, Default)]
pub struct Reasons(Rc<RefCell<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    first: BTreeMap<About, String>,
    /// Not told yet.
    news: Vec<About>,
    /// Secrets that no connection holds.
    hidden: Vec<String>,
}

impl Reasons {
    /// With these masked too.
    pub fn without(hidden: Vec<String>) -> Self {
        Self(Rc::new(RefCell::new(Inner { hidden, ..Inner::default() })))
    }

    /// Keeps what was said, if it is the first with this cause; secrets of the connection are masked in it.
    pub fn note(&self, about: impl Into<About>, connection: &Connection, said: impl FnOnce() -> String) {
        let about = about.into();
        let mut inner = self.0.borrow_mut();
        if inner.first.contains_key(&about) {
            return;
        }
        let said = connection.scrub(&said(), environment);
        let text = one_line(&inner.hidden.iter().fold(said, |text, secret| hide(secret, text)), MAX);
        if !text.is_empty() {
            inner.first.insert(about, text);
            inner.news.push(about);
        }
    }

    /// What is new since the last time.
    pub fn take(&self) -> Vec<(About, String)> {
        let mut inner = self.0.borrow_mut();
        let news = std::mem::take(&mut inner.news);
        news.into_iter().filter_map(|about| Some((about, inner.first.get(&about)?.clone()))).collect()
    }

    /// There is something new.
    pub fn any(&self) -> bool {
        !self.0.borrow().news.is_empty()
    }
}

/// Bounded, in characters, and nothing that a terminal takes for more than text.
pub fn one_line(text: &str, most: usize) -> String {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    if line.chars().count() <= most { line } else { line.chars().take(most).chain("...".chars()).collect() }
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
        assert_eq!(news[0], (Some(FailureCause::Unauthorized), "wrong key *** [31m for you".to_owned()));
        assert_eq!(news[1].1.len(), MAX + 3);
        assert!(reasons.take().is_empty() && !reasons.any());
    }

    #[test]
    fn the_scheme_before_a_secret_is_no_secret() {
        let connection =
            Connection { headers: [("Authorization".to_owned(), "Bearer hunter22".to_owned())].into(), ..Connection::default() };
        let reasons = Reasons::default();
        reasons.note(None, &connection, || "show it as Authorization: Bearer TOKEN, not hunter22 or Bearer hunter22".to_owned());
        assert_eq!(reasons.take()[0].1, "show it as Authorization: Bearer TOKEN, not *** or ***");
    }

    #[test]
    fn secrets_of_queries_are_masked_as_they_are_sent_too() {
        let private = ["a".to_owned()].into();
        let connection = Connection { query: [("a".to_owned(), "hunter/2 \u{e9}".to_owned())].into(), private, ..Connection::default() };
        let reasons = Reasons::without(crate::profile::secrets_of("wss://a/b?api_key=pass%2Bword"));
        let body = "GET /?a=hunter%2F2%20%C3%A9&api_key=pass%2Bword or hunter%2f2%20%c3%a9, hunter/2 \u{e9}, pass+word";
        reasons.note(FailureCause::NotFound, &connection, || body.to_owned());
        assert_eq!(reasons.take()[0].1, "GET /?a=***&api_key=*** or ***, ***, ***");
    }
}
