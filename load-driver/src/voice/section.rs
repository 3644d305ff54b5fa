//! What the summary says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::VoiceFault;

/// Faults of the backends as voice agents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct VoiceSection {
    /// What was found; each kind once.
    pub findings: Vec<VoiceFinding>,
    /// Every kind: whether it was judged, and what came of that.
    pub kinds: Vec<VoiceRow>,
}

/// One kind that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VoiceFinding {
    /// What.
    pub kind: VoiceFault,
    /// In so many sessions; 0 where only counters tell.
    pub sessions: u64,
    /// How often in all; what is counted, the detail says.
    pub size: u64,
    /// In words.
    pub detail: String,
    /// The profile allows it: it does not fail the run.
    pub allowed: bool,
    /// The first few sessions, by the driver's name.
    pub session_refs: Vec<String>,
}

/// One kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VoiceRow {
    /// What.
    pub kind: VoiceFault,
    /// What came of it.
    pub status: VoiceStatus,
    /// Sessions (refusals, looks at counters) that put it to the test.
    pub tested: u64,
    /// Sessions that showed it only while a fault of this run struck the way to their backend, or the backend itself: neither found nor tested.
    #[serde(default)]
    pub excused: u64,
    /// Why it was not judged; empty when it was.
    pub reason: String,
}

/// What came of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoiceStatus {
    /// Put to the test, and not found.
    Clean,
    /// Found.
    Found,
    /// Nothing put it to the test: that it was not found says nothing.
    NotJudged,
}

impl VoiceSection {
    /// Kinds that some sessions showed only while faults of the run struck them.
    pub fn excused(&self) -> impl Iterator<Item = &VoiceRow> {
        self.kinds.iter().filter(|row| row.excused > 0)
    }

    /// Findings that fail the run.
    pub fn failing(&self) -> impl Iterator<Item = &VoiceFinding> {
        self.findings.iter().filter(|finding| !finding.allowed)
    }
}
