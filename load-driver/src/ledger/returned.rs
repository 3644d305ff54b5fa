//! Sessions that come back: their ends were counted and logged, and the same process lists them as live again.
//!
//! Only a list of live sessions can show it, which is asked for when the counts of a backend hint at it, and at the end of a run.

use std::collections::HashSet;

use agent_server::admin::wire::SessionJson;

use super::{
    book::{Book, name_hash},
    boot::{Boot, OddRun, Reading, RecordFaults},
};

/// Names that are kept; more sessions than these come back uncounted.
const MAX_NAMES: usize = 1 << 16;

/// Those of one process.
#[derive(Debug, Default)]
pub(super) struct Returned {
    /// Hashes of the names of all that ever did.
    names: HashSet<u64>,
    /// How many the last list showed.
    pub(super) listed: u64,
    /// When that was asked for, on the driver's clock.
    pub(super) listed_us: u64,
}

impl Returned {
    /// All that ever did.
    pub(super) fn total(&self) -> u64 {
        self.names.len() as u64
    }

    /// One of that name (its hash) did: what is told of its end is the end of that second life.
    pub(super) fn contains(&self, name: u64) -> bool {
        self.names.contains(&name)
    }
}

impl Boot {
    /// Takes a list in. Its ends must not be taken in yet: a session whose end came with an earlier look has ended before this list was made.
    pub(super) fn find_returned(&mut self, rows: &[SessionJson], asked_us: u64, book: &Book, faults: &mut RecordFaults) {
        let before = self.returned.total();
        let back: Vec<&SessionJson> = rows.iter().filter(|row| self.has_ended(row, book)).collect();
        for row in &back {
            if self.returned.names.len() < MAX_NAMES && self.returned.names.insert(name_hash(self.index, &row.session_id)) {
                faults.returned.push(&row.session_id);
            }
        }
        (self.returned.listed, self.returned.listed_us) = (back.len() as u64, asked_us);
        if self.returned.total() > before {
            // This is what was odd.
            self.odd = OddRun::default();
        }
    }

    /// Its end is on record, in this process, under this very name.
    fn has_ended(&self, row: &SessionJson, book: &Book) -> bool {
        let name = name_hash(self.index, &row.session_id);
        match book.find(self.index, self.backend, &row.client_ref, &row.session_id) {
            Some(found) => book.get(found).and_then(|session| session.record).is_some_and(|record| record.name == name),
            None => book.was_folded_with_record(self.index, &row.session_id),
        }
    }

    /// It is one of those that came back.
    pub(super) fn is_returned(&self, row: &SessionJson) -> bool {
        self.returned.contains(name_hash(self.index, &row.session_id))
    }

    /// Those that are live by this reading: by its own list, else by the last one.
    pub(super) fn returned_at(&self, at: &Reading) -> u64 {
        let own = at.sessions.as_ref().map(|rows| rows.iter().filter(|row| self.is_returned(row)).count() as u64);
        own.unwrap_or(self.returned.listed)
    }
}
