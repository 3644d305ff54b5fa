//! Whose a session is, and which backend goes by which name.
//!
//! Without a front it is the backend's that the driver dialled. Behind a front it is nobody's until a backend has accepted it, and then that one's
//! whose name came with the acceptance. From this follow the rules for everything that is asked by backend:
//!
//! - *first attempt*: a dial through the front counts for every backend, for it may have reached any. A first look that came after it proves
//!   nothing about the time before.
//! - *last end*: an accepted session's end counts for its backend, that of any other for every backend: a refusal may have been anyone's, and the
//!   last look at each must come after it.
//! - *open*: a session that is being dialled may be with every backend, an accepted one is with its own.
//! - *in doubt*: a session that failed unaccepted, for a cause that leaves it possible, may have been counted by every backend, until its window
//!   is over or one of them has told of its end.
//! - *further dials*: a front may try a second backend by itself, and the first may have counted the session. A record of a known session from
//!   another backend than its own is such a dial: counted there, over, and no fault. While it lives it counts among others' sessions, which is
//!   why no backend behind a front is ours alone.
//! - What the front refuses, or breaks, is never held against a backend: what was not accepted is at most in doubt, and what was accepted ends as a
//!   broken connection does, within the longest window.

use std::collections::{BTreeMap, BTreeSet};

/// More names than any fleet has: who tells of more invents them.
const MAX_IDS: usize = 1 << 14;
const OTHERS: &str = "(others)";

/// Names of the backends, as their snapshots give them, and how many sessions were accepted under each.
///
/// A name that two backends have, or had at different times, tells nothing: sessions accepted under it are never placed, and the verdict
/// says so.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ids {
    holders: BTreeMap<String, BTreeSet<usize>>,
    accepted: BTreeMap<String, u64>,
}

impl Ids {
    /// A snapshot of this backend bore this name. True when that is news.
    pub fn learn(&mut self, backend: usize, id: &str) -> bool {
        if let Some(holders) = self.holders.get_mut(id) {
            return holders.insert(backend);
        }
        if self.holders.len() >= MAX_IDS {
            return false;
        }
        self.holders.insert(id.to_owned(), BTreeSet::from([backend])).is_none()
    }

    /// The only backend of this name.
    pub fn find(&self, id: &str) -> Option<usize> {
        let holders = self.holders.get(id)?;
        if holders.len() == 1 { holders.first().copied() } else { None }
    }

    /// One session more that was accepted under this name.
    pub fn accepted(&mut self, id: &str) {
        if let Some(count) = self.accepted.get_mut(id) {
            *count += 1;
        } else if self.accepted.len() < MAX_IDS {
            self.accepted.insert(id.to_owned(), 1);
        } else {
            *self.accepted.entry(OTHERS.to_owned()).or_default() += 1;
        }
    }

    /// Why sessions have no backend, in words; empty when each has one.
    pub fn faults(&self) -> Vec<String> {
        let fault = |(id, sessions): (&String, &u64)| match self.holders.get(id).map(BTreeSet::len) {
            Some(1) => None,
            Some(backends) => Some(format!(
                "{sessions} sessions were accepted under the id `{id}`, which {backends} backends have: start each with a --backend-id of its own"
            )),
            None => Some(format!(
                "{sessions} sessions were accepted under the id `{id}`, which no backend of this run has: is one missing in `backends`?"
            )),
        };
        self.accepted.iter().filter_map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_two_backends_is_nobodys() {
        let mut ids = Ids::default();
        assert!(ids.learn(0, "a") && ids.learn(1, "b") && !ids.learn(0, "a"));
        assert_eq!((ids.find("a"), ids.find("b"), ids.find("c")), (Some(0), Some(1), None));
        ids.accepted("a");
        assert_eq!(ids.faults(), Vec::<String>::new());
        ids.accepted("c");
        assert!(ids.learn(1, "a"));
        assert_eq!(ids.find("a"), None);
        let faults = ids.faults();
        assert!(faults.len() == 2 && faults[0].contains("2 backends have") && faults[1].contains("`c`"), "{faults:?}");
    }
}
