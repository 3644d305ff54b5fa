//! What a source of counters is shown, and must not get into results by being sent back: every look goes through [`Secrets::clean`], its errors too.
//!
//! What is said is cut after that, and nowhere before: half a secret would no longer be known for one.

use std::hash::{Hash, Hasher};

use super::{CounterError, CounterSample, Observation, PollResult};
use crate::{
    plan::{Connection, hide, variables::environment},
    profile::secrets_of,
    transport::one_line,
};

/// Longest word of a peer in an error, characters.
const SAID: usize = 300;
/// Longest error about what was read, with the names that are there instead, characters.
const EXPLAINED: usize = 1_000;
/// So long a token stands in no name by chance. A shorter one is masked in an error, and where it is the whole name.
const LONG: usize = 8;

/// Of one source.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    /// In whatever is said.
    words: Vec<String>,
    /// In the names that an admin port gives: alone what it was shown itself, for names are compared with those that sessions were told.
    shown: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.words.len())
    }
}

impl Secrets {
    /// Of what is sent with every request, and of these URLs.
    pub(super) fn of(connection: &Connection, urls: &[String]) -> Self {
        let mut words = connection.secrets(environment);
        words.extend(urls.iter().flat_map(|url| secrets_of(url)));
        Self { words, shown: Vec::new() }
    }

    /// This too, which is the value of a header.
    #[must_use]
    pub(super) fn with_header(mut self, value: Option<&str>) -> Self {
        let all = value.into_iter().chain(value.and_then(|value| Some(value.split_once(' ')?.1)));
        self.shown = all.map(str::to_owned).collect();
        self.words.extend(self.shown.iter().cloned());
        self
    }

    /// The look without them.
    pub(super) fn clean(&self, seen: PollResult) -> PollResult {
        let mut seen = seen.map_err(|error| self.error(error))?;
        match &mut seen {
            Observation::Snapshot(sample) => self.names(sample),
            Observation::Totals(sample) => {
                if let Some(boot) = &mut sample.counts.boot {
                    *boot = short(self.hidden(std::mem::take(boot)));
                }
            }
        }
        Ok(seen)
    }

    fn hidden(&self, text: String) -> String {
        self.words.iter().fold(text, |text, secret| hide(secret, text))
    }

    fn said(&self, text: String, most: usize) -> String {
        one_line(&self.hidden(text), most)
    }

    fn error(&self, error: CounterError) -> CounterError {
        use CounterError as E;
        let brief = |text: String| self.said(text, SAID);
        match error {
            E::Refused { address } => E::Refused { address: brief(address) },
            E::Broken { address, reason } => E::Broken { address: brief(address), reason: brief(reason) },
            E::Status { address, path, status, wants } => E::Status { address: brief(address), path: brief(path), status, wants },
            E::Garbage { address, path, reason } => E::Garbage { address: brief(address), path: brief(path), reason: brief(reason) },
            E::TooLarge { address, path, limit } => E::TooLarge { address: brief(address), path: brief(path), limit },
            E::Timeout { address, ms } => E::Timeout { address: brief(address), ms },
            E::Unreadable { address, reason } => E::Unreadable { address: brief(address), reason: self.said(reason, EXPLAINED) },
            E::Unusable(reason) => E::Unusable(self.said(reason, EXPLAINED)),
        }
    }

    fn names(&self, sample: &mut CounterSample) {
        if self.shown.is_empty() {
            return;
        }
        let s = &mut sample.snapshot;
        self.name(&mut s.backend_id);
        self.name(&mut s.boot_id);
        self.keys(&mut s.ended);
        self.keys(&mut s.phases);
        self.keys(&mut s.defects);
        self.keys(&mut s.faults);
        for end in sample.ends.iter_mut().flatten() {
            self.name(&mut end.session_id);
            self.name(&mut end.client_ref);
            self.name(&mut end.outcome);
        }
        for row in sample.sessions.iter_mut().flatten() {
            self.name(&mut row.session_id);
            self.name(&mut row.client_ref);
            self.name(&mut row.phase);
        }
    }

    fn repeats(&self, name: &str) -> bool {
        self.shown.iter().any(|secret| name == secret || secret.len() >= LONG && hide(secret, name.to_owned()) != name)
    }

    fn name(&self, name: &mut String) {
        if self.repeats(name) {
            *name = self.hidden(std::mem::take(name));
        }
    }

    fn keys<T: Copy + std::ops::AddAssign>(&self, all: &mut std::collections::BTreeMap<String, T>) {
        if all.keys().any(|key| self.repeats(key)) {
            for (mut key, value) in std::mem::take(all) {
                self.name(&mut key);
                all.entry(key).and_modify(|sum| *sum += value).or_insert(value);
            }
        }
    }
}

/// Bounded, and another one for whatever else was cut.
fn short(text: String) -> String {
    if text.chars().count() <= SAID {
        return text;
    }
    let mut hasher = std::hash::DefaultHasher::new();
    text.hash(&mut hasher);
    text.chars().take(SAID).chain(format!("...{:016x}", hasher.finish()).chars()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::counters::{Counts, TotalsSample};

    fn secrets(token: &str) -> Secrets {
        Secrets::of(&Connection::default(), &[]).with_header(Some(&format!("Bearer {token}")))
    }

    #[test]
    fn what_is_said_is_without_secrets_and_bounded() {
        let headers = BTreeMap::from([("X-Api-Key".to_owned(), "k3y-of-mine".to_owned())]);
        let secrets = Secrets::of(&Connection { headers, ..Connection::default() }, &["http://a/m?key=s%2Fcret".to_owned()])
            .with_header(Some("Bearer hunter2hunter2"));
        let said = |reason: &str| {
            let address = "127.0.0.1:1".to_owned();
            let error = CounterError::Garbage { address, path: "/snapshot".to_owned(), reason: reason.to_owned() };
            secrets.clean(Err(error)).unwrap_err().to_string()
        };
        let told = said("invalid type: string \"Bearer hunter2hunter2\", k3y-of-mine and s/cret, s%2Fcret\r\n\u{1b}[31m");
        assert!(told.ends_with("invalid type: string \"***\", *** and ***, *** [31m"), "{told}");
        // Cut after it was masked: no half of it is left, wherever it stands.
        for before in 200..400 {
            let told = said(&format!("{}hunter2hunter2{}", "x".repeat(before), "y".repeat(9_000)));
            assert!(!told.contains("hun") && told.len() < 500, "{before}: {told}");
        }
        let long = secrets.clean(Err(CounterError::Unusable("hunter2hunter2 ".repeat(9_000)))).unwrap_err().to_string();
        assert!(!long.contains("hunter") && long.len() <= EXPLAINED + 3, "{long}");
    }

    #[test]
    fn no_name_stays_that_repeats_a_token_and_every_other_one_does() {
        let names = |token: &str, given: &[&str]| {
            given
                .iter()
                .map(|name| {
                    let mut name = (*name).to_owned();
                    secrets(token).name(&mut name);
                    name
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(names("hunter2hunter2", &["Bearer hunter2hunter2", "b-hunter2hunter2", "backend-1"]), ["***", "b-***", "backend-1"]);
        // A short one stands in many a name by chance, and names of sessions are compared.
        assert_eq!(names("a1b2", &["a1b2", "xBearer a1b2", "0a1b2c"]), ["***", "x***", "0a1b2c"]);
        let mut counts = BTreeMap::from([("completed".to_owned(), 2_u64), ("hunter2hunter2".to_owned(), 3), ("***".to_owned(), 4)]);
        secrets("hunter2hunter2").keys(&mut counts);
        assert_eq!(counts, [("completed".to_owned(), 2), ("***".to_owned(), 7)].into());
    }

    #[test]
    fn what_names_a_process_stays_another_one_when_it_is_cut() {
        let clean = |boot: String| {
            let counts = Counts { boot: Some(boot), ..Counts::default() };
            let seen = secrets("hunter2hunter2").clean(Ok(Observation::Totals(TotalsSample {
                source: 0,
                asked_at_us: 0,
                answered_at_us: 0,
                counts,
            })));
            let Ok(Observation::Totals(sample)) = seen else { panic!("{seen:?}") };
            sample.counts.boot.unwrap()
        };
        assert_eq!(clean("pid-hunter2hunter2".to_owned()), "pid-***");
        let (one, other) = (clean("x".repeat(5_000) + "1"), clean("x".repeat(5_000) + "2"));
        assert!(one != other && one.len() < 400, "{one}");
    }
}
