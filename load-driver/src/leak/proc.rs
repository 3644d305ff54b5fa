//! What the kernel says of a process on this machine.

use std::fs;

use super::Sample;

/// Which process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// This one.
    Own,
    /// Another, by pid.
    Other(i32),
}

/// A look; what cannot be read (it is gone, or somebody else's) is none.
pub fn look(process: Process, active: u64) -> Sample {
    let root = match process {
        Process::Own => "/proc/self".to_owned(),
        Process::Other(pid) => format!("/proc/{pid}"),
    };
    let status = fs::read_to_string(format!("{root}/status")).unwrap_or_default();
    let field = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    };
    // Of this process, the folder that is being read is one of them, always.
    let fds = fs::read_dir(format!("{root}/fd")).ok().map(|all| all.count() as u64);
    Sample { rss_bytes: field("VmRSS:").map(|kib| kib * 1024), fds, threads: field("Threads:"), tasks: None, active }
}
