//! The order of a run.
//!
//! 1. Check profile, thresholds, defects, file descriptors: nothing has started, every fault is the user's to mend.
//! 2. Start embedded backends, or see that the targets listen; take a first look at every backend's counters.
//! 3. Start the engine of this process and the worker processes, all on one epoch; then only listen: the controller's thread merges
//!    what shards, workers, pollers and signals say, and kills what the plan says is to be killed.
//! 4. When every session is over, look at the counters until they agree with the ledger or the time for that is over.
//! 5. Judge, tell the sinks, stop what was started.
//!
//! With several policies all of this happens for each, with backends of its own, and then they are compared.

mod backends;
mod balance;
mod baseline;
mod begin;
mod checkpoint;
mod controller;
mod discovery;
mod ending;
mod faults;
mod finish;
mod former;
mod ground;
mod growth;
mod kills;
mod leftover;
pub mod lock;
mod options;
mod poller;
mod predict;
mod progress;
pub mod reach;
pub(crate) mod remote;
mod resume;
mod series;
mod signals;
mod strikes;
mod sums;
mod targets;
mod workers;

use std::{path::PathBuf, sync::Arc};

use agent_server::runtime::clock::Clock;
use tokio::runtime::Builder;

pub use self::{
    baseline::Matters,
    options::{Prepared, RunArgs, UsageError, overrides, prepare, thresholds},
    reach::ReachArgs,
    resume::{ResumeArgs, resume},
};
use crate::{
    balance::Balance,
    compare::Recorded,
    plan::Maker,
    report::{Exit, Live, LiveMode, Reporters, Style},
    transport::fds,
};

/// What ends a run before it has results.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// Its exit code.
    pub exit: Exit,
    message: String,
}

impl RunError {
    fn new(exit: Exit, message: impl std::fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }
}

/// Runs a profile from start to verdict, for each of its policies; what went wrong before there were results is an error with its exit code.
pub fn run(args: &RunArgs) -> Result<Exit, RunError> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| RunError::new(Exit::InternalFault, format!("failed to start the controller: {e}")))?;
    runtime.block_on(series::all(args, &new_run_id()))
}

/// What came of one run.
#[derive(Debug)]
struct Outcome {
    exit: Exit,
    interrupted: bool,
    balance: Option<Balance>,
}

/// Makes sure of file descriptors enough for sessions towards so many targets.
fn descriptors(prepared: &Prepared, targets: usize) -> Result<(), RunError> {
    let shared = u64::from(prepared.profile.driver.connections) * shards(prepared) as u64 * targets as u64;
    // The relay has two descriptors for each connection, and they are this process's.
    let each = if ground::has(&prepared.plan, Maker::Relay) { 3 } else { 1 };
    fds::ensure(fds::required(&prepared.plan, shared) * each).map_err(|e| RunError::new(Exit::InvalidProfile, e))?;
    Ok(())
}

/// Everything about a run that is known before it starts.
#[derive(Debug, Clone)]
struct Job {
    args: RunArgs,
    prepared: Arc<Prepared>,
    run_id: String,
    out: PathBuf,
    /// To compare with.
    baseline: Option<Arc<Recorded>>,
    /// A killed driver's part of the run, which this one goes on with.
    former: Option<Arc<former::Former>>,
}

/// Threads that run sessions in this process.
fn shards(prepared: &Prepared) -> usize {
    prepared.profile.driver.shards.map_or_else(crate::system::available_cores, |n| n as usize)
}

/// A name in words that every file system takes, and that leads nowhere else.
fn folder_name(name: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '-' };
    name.chars().map(safe).take(64).collect()
}

/// Names the run on both sides; no other run on this machine has it at this moment.
fn new_run_id() -> String {
    let now = Clock::start();
    let mixed = poller::unix_now(&now).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id()).rotate_left(40);
    format!("{:08x}", (mixed >> 16) as u32)
}

/// Progress on a terminal or as lines, and the files of the run.
fn reporters(job: &Job) -> std::io::Result<Reporters> {
    use std::io::IsTerminal;
    let mut reporters = Reporters::default();
    reporters.add(Live::new(LiveMode::detect(std::io::stderr().is_terminal())));
    let style = Style::detect(std::io::stdout().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
    finish::add_files(&mut reporters, &job.out, job.prepared.profile.driver.rotate.0, style)?;
    Ok(reporters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stay_in_their_folder() {
        for (name, folder) in [("talkers", "talkers"), ("../../x", "------x"), ("größe 1", "größe-1"), ("/etc", "-etc"), ("", "")] {
            assert_eq!(folder_name(name), folder);
        }
        assert_eq!(folder_name(&"x".repeat(1_000)).len(), 64);
    }
}
