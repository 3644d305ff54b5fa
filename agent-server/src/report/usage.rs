//! What this process uses of the machine.

use std::fs;

use super::cgroup::{self, CgroupCpu};
use crate::{config::CpuSource, shard::Shared};

/// Whose CPU time load is computed from.
#[derive(Debug, Clone)]
pub enum CpuTime {
    /// This process's.
    Process,
    /// Its control group's.
    Cgroup(CgroupCpu),
    /// That of the processor which the accounted cost waits for.
    Virtual,
}

impl CpuTime {
    /// Of a source.
    ///
    /// # Errors
    /// When this machine does not have it.
    pub fn open(source: CpuSource) -> anyhow::Result<Self> {
        Ok(match source {
            CpuSource::Process => Self::Process,
            CpuSource::Cgroup => Self::Cgroup(CgroupCpu::open()?),
            CpuSource::Virtual => Self::Virtual,
        })
    }

    /// Used so far, microseconds; none when it cannot be read just now.
    pub fn used_us(&self, shared: &Shared) -> Option<u64> {
        match self {
            Self::Process => Some(process_cpu_us()),
            Self::Cgroup(cgroup) => cgroup.used_us(),
            Self::Virtual => Some(shared.virtual_used_us()),
        }
    }
}

/// User + system time of the process.
pub fn process_cpu_us() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0) / 1_000
}

/// Resident memory; 0 where the kernel has no such file.
pub fn rss_bytes() -> u64 {
    kilobytes("/proc/self/status", "VmRSS:").unwrap_or(0)
}

/// Memory that this process may use: its control group's limit, or the machine's; 0 when unknown.
pub fn memory_bytes() -> u64 {
    let machine = kilobytes("/proc/meminfo", "MemTotal:");
    machine.into_iter().chain(cgroup::memory_limit()).min().unwrap_or(0)
}

/// A line `NAME N kB`, in bytes.
fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_some_of_the_memory_there_is() {
        assert!(rss_bytes() > 0 && memory_bytes() >= rss_bytes(), "{} of {}", rss_bytes(), memory_bytes());
        let before = process_cpu_us();
        while process_cpu_us() == before {
            std::hint::black_box(0);
        }
    }
}
