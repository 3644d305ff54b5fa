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

use proto::ids::PlanIndex;
use serde::{Deserialize, Serialize};

/// One kind as one caller met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What.
    pub kind: VoiceFault,
    /// How often.
    pub size: u32,
    /// The worst of it, microseconds (0 where it has no length).
    pub worst_us: u64,
}

/// What a caller says of its session when it is over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Put to the test.
    pub tested: Kinds,
    /// Found, each kind once.
    pub found: Vec<Found>,
}

/// A session in which something was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoiceReport {
    /// Whose.
    pub index: PlanIndex,
    /// The driver's name of it.
    pub client_ref: String,
    /// What.
    pub found: Vec<Found>,
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

    /// One more session.
    pub fn add(&mut self, index: PlanIndex, client_ref: &str, verdict: Verdict) {
        for kind in verdict.tested.iter() {
            match self.tested.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, sessions)) => *sessions += 1,
                None => self.tested.push((kind, 1)),
            }
        }
        if !verdict.found.is_empty() {
            self.reports.push(VoiceReport { index, client_ref: client_ref.to_owned(), found: verdict.found });
        }
    }
}
