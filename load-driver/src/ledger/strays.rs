//! Dials in doubt that sessions left behind when they were dialled again.

use std::collections::{BTreeMap, HashMap};

use super::{
    entry::FailureCause,
    session::{How, Over, Session},
};

/// Each is a session of its own that failed, so that whatever asks what a backend may have counted asks it too. They stay for as long
/// as a backend may yet tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Strays {
    dials: BTreeMap<usize, Session>,
    by_ref: HashMap<String, Vec<usize>>,
    next: usize,
}

impl Strays {
    /// Keeps a dial that is over, if its backend may have counted it.
    pub fn keep(&mut self, mut dial: Session, cause: FailureCause, at_us: u64) {
        dial.over = Some(Over { at_us, how: How::Failed(cause) });
        if dial.in_doubt() {
            self.by_ref.entry(dial.client_ref.clone()).or_default().push(self.next);
            self.dials.insert(self.next, dial);
            self.next += 1;
        }
    }

    /// One that may be with this backend and has no record yet.
    pub fn untold(&self, client_ref: &str, backend: usize) -> Option<usize> {
        self.of(client_ref, backend).find(|(_, dial)| dial.record.is_none()).map(|(n, _)| n)
    }

    /// One whose end was told of under the name with this hash.
    pub fn told(&self, client_ref: &str, backend: usize, name: u64) -> Option<usize> {
        self.of(client_ref, backend).find(|(_, dial)| dial.record.is_some_and(|record| record.name == name)).map(|(n, _)| n)
    }

    fn of(&self, client_ref: &str, backend: usize) -> impl Iterator<Item = (usize, &Session)> {
        let dials = self.by_ref.get(client_ref).into_iter().flatten().filter_map(|n| Some((*n, self.dials.get(n)?)));
        dials.filter(move |(_, dial)| dial.may_be_at(backend))
    }

    /// By number.
    pub fn get(&self, n: usize) -> Option<&Session> {
        self.dials.get(&n)
    }

    /// By number.
    pub fn get_mut(&mut self, n: usize) -> Option<&mut Session> {
        self.dials.get_mut(&n)
    }

    /// All, in the order in which they were left.
    pub fn all(&self) -> impl Iterator<Item = &Session> {
        self.dials.values()
    }

    /// Takes those out that were left, and whose end was told of, before this time.
    pub fn take_before(&mut self, before_us: u64) -> Vec<Session> {
        let old = |dial: &Session| dial.over.is_some_and(|over| over.at_us.max(dial.record.map_or(0, |record| record.at_us)) < before_us);
        let taken: Vec<(usize, Session)> = self.dials.extract_if(.., |_, dial| old(dial)).collect();
        for (n, dial) in &taken {
            if let Some(numbers) = self.by_ref.get_mut(&dial.client_ref) {
                numbers.retain(|number| number != n);
                if numbers.is_empty() {
                    self.by_ref.remove(&dial.client_ref);
                }
            }
        }
        taken.into_iter().map(|(_, dial)| dial).collect()
    }
}
