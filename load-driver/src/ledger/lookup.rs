//! Whose a backend's record is: the book by the names that a backend knows.

use proto::ids::PlanIndex;

use super::{
    book::{Book, BootIndex, name_hash, ref_hash},
    session::Session,
};

/// Whom a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// A session.
    Session(PlanIndex),
    /// A dial in doubt that a session left behind.
    Stray(usize),
}

impl Book {
    /// The session, or the stray dial, that a record or a row of this boot's is of, by either name.
    pub(super) fn find(&self, boot: BootIndex, backend: usize, client_ref: &str, session_id: &str) -> Option<Found> {
        if let Some(index) = self.by_id.get(&(boot, session_id.to_owned())) {
            return Some(Found::Session(*index));
        }
        let name = name_hash(boot, session_id);
        let here = |s: &Session| match &s.accepted {
            // Behind a front another name is another dial, which only its own name can be told by.
            Some(accepted) => accepted.boot == boot && !self.front,
            None if s.record.is_some_and(|record| record.name != name) => false,
            // What is told of a session whose dial was never told can only be of that.
            None => s.attempted.is_none() || s.may_be_at(backend),
        };
        let by_ref = || self.by_ref.get(client_ref).copied().filter(|index| self.sessions.get(index).is_some_and(here));
        // What was told of before comes first: a second time is a second time.
        let told = self.strays.told(client_ref, backend, name).or_else(|| self.strays.untold(client_ref, backend));
        told.map(Found::Stray).or_else(|| by_ref().map(Found::Session))
    }

    /// What was found.
    pub(super) fn get(&self, found: Found) -> Option<&Session> {
        match found {
            Found::Session(index) => self.sessions.get(&index),
            Found::Stray(n) => self.strays.get(n),
        }
    }

    /// What was found, to write a record to.
    pub(super) fn get_mut(&mut self, found: Found) -> Option<&mut Session> {
        match found {
            Found::Session(index) => self.sessions.get_mut(&index),
            Found::Stray(n) => self.strays.get_mut(n),
        }
    }

    /// Sessions, and dials in doubt that sessions left behind: whatever a backend may have counted.
    pub(super) fn dials(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values().chain(self.strays.all())
    }

    /// The front brought a session of this run to a second backend.
    pub(super) fn dialled_by_front(&self, client_ref: &str) -> bool {
        self.front && (self.by_ref.contains_key(client_ref) || self.folded_refs.contains(ref_hash(client_ref)))
    }

    /// Behind a front: this process had counted a session of this run under that reference.
    pub(super) fn was_at(&self, boot: BootIndex, client_ref: &str) -> bool {
        let session = self.by_ref.get(client_ref).and_then(|index| self.sessions.get(index));
        session.map_or_else(|| self.folded_refs.contains(name_hash(boot, client_ref)), |session| session.counted_by() == Some(boot))
    }

    /// A session of that name was reconciled before.
    pub(super) fn was_folded(&self, boot: BootIndex, session_id: &str) -> bool {
        self.folded_names.contains(name_hash(boot, session_id))
    }

    /// A session of that name was reconciled with its end record.
    pub(super) fn was_folded_with_record(&self, boot: BootIndex, session_id: &str) -> bool {
        let name = name_hash(boot, session_id);
        self.folded_names.contains(name) && !self.folded_unrecorded.contains(name)
    }

    /// A session of that name was reconciled without its end record, which is here now.
    pub(super) fn recorded_after_all(&mut self, boot: BootIndex, session_id: &str) -> bool {
        self.folded_unrecorded.remove(name_hash(boot, session_id))
    }
}
