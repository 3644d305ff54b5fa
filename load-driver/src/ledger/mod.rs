//! What the driver did to every session, and what the backends' counters say of it.
//!
//! SKELETON: the types are the contract between modules.

pub mod entry;

pub use entry::{FailureCause, Finish, LedgerEntry, LedgerEvent};
