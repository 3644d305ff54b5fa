//! What the driver did to every session, and what the backends' counters say of it.
//!
//! Steps of sessions come from many shards and worker processes. [`merge`] puts them in order of time, [`book`] keeps every session
//! from scheduled to ended, [`funnel`] counts how far they came, [`boot`] takes in what one backend process says, [`reconcile`] judges each of its samples against the
//! book at that time, with what `others` leave room for, how `by_outcome` add up and what it `refused`, [`totals`] does the same with sums that name no session, [`convergence`] tells how long the counters took to follow a forced end, [`drift`] how far they were off
//! and for how long, [`ages`] how old their ghosts got, and [`verdict`] names what is wrong.
//! [`Ledger`] ties them together. All of it is pure: time comes with the calls, and the same calls give the same verdict.
//!
//! Two rules stand above all. **Never a wrong pass**: a backend that could not be looked at after the run is a finding, not a pass.
//! **Never a false alarm**: what may be the time that news takes (a goodbye under way, a poll that a stopped process answers late, a
//! worker killed with unsent news) widens the bounds instead of being judged.

pub mod ages;
pub mod book;
pub mod boot;
mod by_outcome;
pub mod config;
pub mod convergence;
pub mod disturbance;
pub mod drift;
pub mod entry;
pub mod finding;
pub mod funnel;
pub mod ids;
mod keeper;
mod look;
mod lookup;
pub mod merge;
mod naming;
mod others;
mod persistent;
mod races;
mod recent;
pub mod reconcile;
mod refused;
mod resets;
pub mod resume;
pub mod retries;
mod returned;
pub mod session;
pub mod standstill;
pub mod strays;
pub mod tally;
pub mod totals;
mod truth;
mod unseen;
pub mod verdict;
mod wrong_outcome;

#[cfg(test)]
mod tests;

pub use ages::{Ages, GhostAges};
pub use config::{BackendConfig, LedgerConfig, Windows};
pub use convergence::{ConvergenceRow, ConvergenceSample};
pub use disturbance::Weather;
pub use drift::{DriftPoint, DriftRow};
pub(crate) use entry::is_about_credentials;
pub use entry::{FailureCause, Finish, LedgerEntry, LedgerEvent};
pub use finding::{Class, DefectName, Finding};
pub use funnel::{Funnel, Funnels};
pub use keeper::{Ledger, LiveView};
pub use merge::SourceId;
pub use resume::{BackendStand, Carried, SumsStand};
pub use retries::RetriedRow;
pub use standstill::STANDSTILL_US;
pub use totals::TotalsConfig;
pub use truth::DriftSum;
pub use verdict::{Confidence, Judgement, Verdict};
