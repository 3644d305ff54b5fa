//! Faults of voice backends by name: what callers heard and what the counters show, put together after the run.
//!
//! A caller judges its own session ([`crate::caller`]) and hands a [`Verdict`] over with its end. What no caller can hear (sessions that live on
//! after the hang-up, places that are lost, admissions over the cap) is found in the counters. Pure: time comes with the calls.
//!
//! `docs/voice-faults.md` has the rule of each kind, and when it is not judged.

mod book;
mod hangups;
mod kind;
mod places;
mod section;

#[cfg(test)]
mod tests;

pub use self::{
    book::{VoiceBook, VoiceConfig},
    kind::{Kinds, VoiceFault},
    section::{VoiceFinding, VoiceRow, VoiceSection, VoiceStatus},
};

use proto::{ids::PlanIndex, time::Micros};
use serde::{Deserialize, Serialize};

/// Times that are kept apart of a kind in a session; those after them are taken for one.
const APART: usize = 32;

/// When a kind came about, from the first of what led to it to what proved it. By the shard's clock in a [`Verdict`], unix time in a [`VoiceReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occurrence {
    /// From, microseconds.
    pub from_us: u64,
    /// To, microseconds.
    pub to_us: u64,
    /// So often.
    pub size: u32,
    /// The worst of it, microseconds (0 where it has no length).
    pub worst_us: u64,
}

/// One kind as one caller met it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What.
    pub kind: VoiceFault,
    /// When and how often.
    pub occurrences: Vec<Occurrence>,
}

impl Found {
    /// Not yet.
    pub const fn new(kind: VoiceFault) -> Self {
        Self { kind, occurrences: Vec::new() }
    }

    /// Once more. Without a size it goes on with the last one.
    pub fn add(&mut self, one: Occurrence) {
        let full = self.occurrences.len() >= APART || one.size == 0;
        match self.occurrences.last_mut().filter(|_| full) {
            Some(last) => {
                last.to_us = last.to_us.max(one.to_us);
                last.size = last.size.saturating_add(one.size);
                last.worst_us = last.worst_us.max(one.worst_us);
            }
            None => self.occurrences.push(one),
        }
    }

    /// How often in all.
    pub fn size(&self) -> u32 {
        self.occurrences.iter().fold(0, |sum, one| sum.saturating_add(one.size))
    }
}

/// What a caller says of its session when it is over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Put to the test.
    pub tested: Kinds,
    /// Found, each kind once.
    pub found: Vec<Found>,
    /// Of those: told by times alone, where the agent does not say what it heard, or whose audio it sends.
    pub by_time: Kinds,
}

/// A session in which something was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoiceReport {
    /// Whose.
    pub index: PlanIndex,
    /// The driver's name of it.
    pub client_ref: String,
    /// Where it was; none behind a front, which picks.
    pub backend: Option<usize>,
    /// What.
    pub found: Vec<Found>,
    /// Of those: told by times alone.
    pub by_time: Kinds,
}

/// From a shard: sessions that were put to the test, by kind, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoiceNews {
    /// Sessions, by kind.
    pub tested: Vec<(VoiceFault, u64)>,
    /// Sessions with findings.
    pub reports: Vec<VoiceReport>,
}

impl VoiceNews {
    /// Nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.tested.is_empty() && self.reports.is_empty()
    }

    /// One more session. `unix_us` makes unix time of the shard's.
    pub fn add(
        &mut self,
        (index, client_ref, backend): (PlanIndex, &str, Option<usize>),
        verdict: Verdict,
        unix_us: impl Fn(Micros) -> u64,
    ) {
        for kind in verdict.tested.iter() {
            match self.tested.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, sessions)) => *sessions += 1,
                None => self.tested.push((kind, 1)),
            }
        }
        let mut found = verdict.found;
        for one in found.iter_mut().flat_map(|found| &mut found.occurrences) {
            (one.from_us, one.to_us) = (unix_us(Micros(one.from_us)), unix_us(Micros(one.to_us)));
        }
        if !found.is_empty() {
            self.reports.push(VoiceReport { index, client_ref: client_ref.to_owned(), backend, found, by_time: verdict.by_time });
        }
    }
}
