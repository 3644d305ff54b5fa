//! What can be wrong with counters, by class and by the defect that makes it so.

use serde::{Deserialize, Serialize};

/// Ids that are listed with a finding; the total is always given.
pub const LISTED_IDS: usize = 20;

/// What kind of disagreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Counted as live after it ended: the backend looks full.
    Ghost,
    /// Not counted while it lives: a balancer floods the backend.
    FalseCapacity,
    /// Never counted.
    Lost,
    /// Its end was counted after the detection window.
    Late,
    /// A gauge below zero.
    Negative,
    /// A snapshot that contradicts itself although it is labelled exact.
    Torn,
    /// Counted under another outcome than the one it had, or in a sum that it has no place in.
    Misattributed,
    /// Counted, but no session of this run.
    Unknown,
    /// What had been counted was forgotten while its process lived on.
    Reset,
    /// The counters could not be looked at: no proof is no pass.
    Unverified,
}

/// The defect, in a user's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefectName {
    /// Ended sessions stay counted.
    Ghost,
    /// Only sessions that end by timeout stay counted.
    ForgetOnTimeout,
    /// One session is subtracted twice.
    DoubleDecrement,
    /// A refused session is subtracted although it was never added.
    DecrementOnReject,
    /// Ends are subtracted late.
    LateDecrement,
    /// Snapshots mix moments.
    TornSnapshot,
    /// Sessions were never added.
    Lost,
    /// Live sessions are missing from the count, cause unknown.
    FalseCapacity,
    /// A gauge below zero, cause unknown.
    Negative,
    /// Ends are counted under a wrong outcome.
    WrongOutcome,
    /// More sessions counted than this run had.
    UnknownSessions,
    /// The end log and the counters contradict each other.
    EndLogMismatch,
    /// Sessions whose ends were counted are live again.
    Resurrection,
    /// Ends or refusals are not in the numbers that count them, or are in them too often, whatever the count of live sessions says.
    Miscounted,
    /// A number that only grows fell, and no process had begun anew.
    CounterReset,
    /// No sample that could prove agreement.
    Unverified,
}

impl DefectName {
    /// As in summaries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ghost => "ghost",
            Self::ForgetOnTimeout => "forget_on_timeout",
            Self::DoubleDecrement => "double_decrement",
            Self::DecrementOnReject => "decrement_on_reject",
            Self::LateDecrement => "late_decrement",
            Self::TornSnapshot => "torn_snapshot",
            Self::Lost => "lost",
            Self::FalseCapacity => "false_capacity",
            Self::Negative => "negative",
            Self::WrongOutcome => "wrong_outcome",
            Self::UnknownSessions => "unknown_sessions",
            Self::EndLogMismatch => "end_log_mismatch",
            Self::Resurrection => "resurrection",
            Self::Miscounted => "miscounted",
            Self::CounterReset => "counter_reset",
            Self::Unverified => "unverified",
        }
    }

    /// What kind of disagreement it makes.
    pub const fn class(self) -> Class {
        match self {
            Self::Ghost | Self::ForgetOnTimeout | Self::Resurrection => Class::Ghost,
            Self::DoubleDecrement | Self::DecrementOnReject | Self::FalseCapacity => Class::FalseCapacity,
            Self::LateDecrement => Class::Late,
            Self::TornSnapshot => Class::Torn,
            Self::Lost => Class::Lost,
            Self::Negative => Class::Negative,
            Self::WrongOutcome | Self::Miscounted => Class::Misattributed,
            Self::UnknownSessions | Self::EndLogMismatch => Class::Unknown,
            Self::CounterReset => Class::Reset,
            Self::Unverified => Class::Unverified,
        }
    }
}

/// One thing that is wrong, with its size and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The defect.
    pub name: DefectName,
    /// Its class.
    pub class: Class,
    /// Sessions (or snapshots, for torn ones; or backends, for unverified ones).
    pub size: u64,
    /// In plain English.
    pub evidence: String,
    /// What else was seen that this explains.
    pub consequences: Vec<String>,
    /// Sessions, the first few.
    pub session_ids: Vec<String>,
}

impl Finding {
    /// A finding without consequences or ids.
    pub fn new(name: DefectName, size: u64, evidence: impl Into<String>) -> Self {
        Self { name, class: name.class(), size, evidence: evidence.into(), consequences: Vec::new(), session_ids: Vec::new() }
    }

    /// With the sessions that show it.
    pub(super) fn with_ids(mut self, ids: &Names) -> Self {
        self.session_ids.clone_from(&ids.listed);
        self
    }
}

/// A bounded list of names and how many there were.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// The first few.
    pub listed: Vec<String>,
    /// All.
    pub total: u64,
}

impl Names {
    /// One more.
    pub fn push(&mut self, name: &str) {
        if self.listed.len() < LISTED_IDS {
            self.listed.push(name.to_owned());
        }
        self.total += 1;
    }

    /// These and those.
    pub(super) fn and(&self, others: &Self) -> Self {
        let listed = self.listed.iter().chain(&others.listed).take(LISTED_IDS).cloned().collect();
        Self { listed, total: self.total + others.total }
    }
}
