//! What the programs themselves cost, and whether the driver was the bottleneck.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use proto::time::Micros;
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::record::histogram;

/// User and system CPU time of this process so far, microseconds.
pub fn own_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// Most memory that this process ever held, bytes, as the kernel counted it.
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// CPUs that this process may use.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// One look at one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// User and system CPU time so far, microseconds.
    pub cpu_us: u64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
}

/// Reads CPU and memory of this process and of given others.
#[derive(Debug)]
pub struct Sampler {
    system: System,
    own: Pid,
}

impl Sampler {
    /// An error where the system tells nothing of processes.
    pub fn new() -> Result<Self, sysinfo::Error> {
        Ok(Self { system: System::new()?, own: Pid::from_u32(std::process::id()) })
    }

    /// This process.
    pub fn own(&mut self) -> Usage {
        let rss_bytes = self.others(&[self.own.as_u32()]).values().next().map_or(0, |usage| usage.rss_bytes);
        // The own clock is exact to the microsecond; what /proc tells of others moves in ticks of 10 ms.
        Usage { cpu_us: own_cpu_us(), rss_bytes }
    }

    /// Other processes by pid; those that are gone are left out.
    pub fn others(&mut self, pids: &[u32]) -> BTreeMap<u32, Usage> {
        let wanted: Vec<Pid> = pids.iter().map(|pid| Pid::from_u32(*pid)).collect();
        let what = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&wanted), true, what);
        let usage = |pid: &Pid| {
            let process = self.system.process(*pid)?;
            Some((pid.as_u32(), Usage { cpu_us: process.accumulated_cpu_time() * 1_000, rss_bytes: process.memory() }))
        };
        wanted.iter().filter_map(usage).collect()
    }
}

/// One process over the run, fed once a second.
#[derive(Debug, Clone, Default)]
pub struct ProcessTrack {
    first: Option<(Micros, Usage)>,
    last: Option<(Micros, Usage)>,
    rss_peak: u64,
    busiest_cores: f64,
    sustained_cores: f64,
    window: std::collections::VecDeque<(Micros, u64)>,
}

/// Over how many seconds a load counts as sustained.
pub const SUSTAINED_S: u64 = 5;

impl ProcessTrack {
    /// Takes a look. `at` is run time.
    pub fn add(&mut self, at: Micros, usage: Usage) {
        self.first.get_or_insert((at, usage));
        if let Some((before, then)) = self.last {
            self.busiest_cores = self.busiest_cores.max(cores(before, then.cpu_us, at, usage.cpu_us));
        }
        self.last = Some((at, usage));
        self.rss_peak = self.rss_peak.max(usage.rss_bytes);
        self.window.push_back((at, usage.cpu_us));
        // Keep the youngest look that is at least SUSTAINED_S old, and all after it.
        let old = |entry: &(Micros, u64)| (at - entry.0).as_secs() >= SUSTAINED_S;
        while self.window.get(1).is_some_and(old) {
            self.window.pop_front();
        }
        if let Some((then, cpu_us)) = self.window.front().copied().filter(old) {
            self.sustained_cores = self.sustained_cores.max(cores(then, cpu_us, at, usage.cpu_us));
        }
    }

    /// CPU time between the first and the last look, microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.span().map_or(0, |(_, first, _, last)| last.cpu_us.saturating_sub(first.cpu_us))
    }

    /// Mean load in cores; none with fewer than two looks.
    pub fn mean_cores(&self) -> Option<f64> {
        self.span().filter(|(from, _, to, _)| to > from).map(|(from, first, to, last)| cores(from, first.cpu_us, to, last.cpu_us))
    }

    /// Highest load between two looks, cores.
    pub fn busiest_cores(&self) -> f64 {
        self.busiest_cores
    }

    /// Highest load over [`SUSTAINED_S`] seconds, cores; 0 in a shorter run.
    pub fn sustained_cores(&self) -> f64 {
        self.sustained_cores
    }

    /// Most resident memory seen, bytes.
    pub fn rss_peak_bytes(&self) -> u64 {
        self.rss_peak
    }

    /// Resident memory at the first look, bytes.
    pub fn rss_first_bytes(&self) -> u64 {
        self.first.map_or(0, |(_, usage)| usage.rss_bytes)
    }

    fn span(&self) -> Option<(Micros, Usage, Micros, Usage)> {
        let ((from, first), (to, last)) = (self.first?, self.last?);
        Some((from, first, to, last))
    }
}

fn cores(from: Micros, cpu_from: u64, to: Micros, cpu_to: u64) -> f64 {
    let wall = (to - from).as_micros() as f64;
    if wall > 0.0 { cpu_to.saturating_sub(cpu_from) as f64 / wall } else { 0.0 }
}

/// When the driver calls itself saturated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SaturationLimits {
    /// For the 99th percentile of `schedule_lag`, milliseconds.
    pub lag_p99_ms: f64,
    /// Cores that the driver has: its shards, or the machine's cores when those are fewer.
    pub cores: f64,
}

impl SaturationLimits {
    /// For a driver with so many shards, with the usual 10 ms.
    pub fn for_shards(shards: usize) -> Self {
        Self { lag_p99_ms: 10.0, cores: shards.clamp(1, available_cores().max(1)) as f64 }
    }
}

/// Fewest samples of `schedule_lag` for a judgement: with fewer, the 99th percentile is the one worst sample.
pub const MIN_LAG_SAMPLES: u64 = 100;

/// Share of the driver's cores from which on it is at its end.
pub const CPU_SHARE: f64 = 0.95;

/// The driver's judgement on itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// The run's latencies are the driver's rather than the target's.
    pub saturated: bool,
    /// Why, in words.
    pub reasons: Vec<String>,
}

impl Saturation {
    /// So many sessions were not dialled because the driver may open no more files.
    pub fn out_of_files(&mut self, dials: u64) {
        self.saturated = true;
        self.reasons.push(format!("{dials} sessions found no file descriptor left (ulimit -n)"));
    }
}

/// Judges the driver. `lag` is `schedule_lag` without the warm-up, `track` the driver's own process without it.
///
/// Saturated is a driver that either
/// - sent late: the 99th percentile of `schedule_lag` over at least [`MIN_LAG_SAMPLES`] frames is above the limit, or
/// - had no CPU left: it used [`CPU_SHARE`] of its cores over [`SUSTAINED_S`] seconds, so that what it received waited for it.
///
/// What it could not dial, the ledger tells ([`Saturation::out_of_files`]).
///
/// A driver that sends nothing and uses no CPU is neither: an idle run is never saturated.
pub fn judge(lag: Option<&Histogram<u64>>, track: &ProcessTrack, limits: SaturationLimits) -> Saturation {
    let mut reasons = Vec::new();
    if let Some(lag) = lag.filter(|lag| lag.len() >= MIN_LAG_SAMPLES)
        && let Some(p99) = histogram::quantile(lag, 0.99).map(|us| us as f64 / 1_000.0)
        && p99 > limits.lag_p99_ms
    {
        reasons.push(format!("schedule_lag p99 is {p99:.1} ms, the limit {:.1} ms", limits.lag_p99_ms));
    }
    if track.sustained_cores() >= limits.cores * CPU_SHARE {
        let used = track.sustained_cores();
        reasons.push(format!("the driver used {used:.2} of its {:.0} cores for {SUSTAINED_S} s", limits.cores));
    }
    Saturation { saturated: !reasons.is_empty(), reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SaturationLimits = SaturationLimits { lag_p99_ms: 10.0, cores: 2.0 };

    fn lag(samples: &[(u64, u64)]) -> Histogram<u64> {
        let mut lag = histogram::empty();
        for (us, n) in samples {
            for _ in 0..*n {
                histogram::record(&mut lag, *us);
            }
        }
        lag
    }

    fn track(cores_by_second: &[f64]) -> ProcessTrack {
        let mut track = ProcessTrack::default();
        let mut usage = Usage { cpu_us: 7_000_000, rss_bytes: 1_000 };
        track.add(Micros::ZERO, usage);
        for (second, cores) in cores_by_second.iter().enumerate() {
            usage.cpu_us += (cores * 1e6) as u64;
            usage.rss_bytes += 10;
            track.add(Micros((second as u64 + 1) * 1_000_000), usage);
        }
        track
    }

    #[test]
    fn an_idle_run_is_never_saturated() {
        assert!(!judge(None, &ProcessTrack::default(), LIMITS).saturated);
        assert!(!judge(Some(&histogram::empty()), &track(&[0.0; 20]), LIMITS).saturated);
        assert!(!judge(Some(&lag(&[(500_000, 3)])), &track(&[0.01; 20]), LIMITS).saturated, "three late frames are no p99");
        assert!(!judge(None, &track(&[]), LIMITS).saturated);
    }

    #[test]
    fn late_sends_saturate() {
        // 200 samples: the p99 is the 198th. Two late ones are beyond it, three are not.
        assert!(!judge(Some(&lag(&[(100, 198), (50_000, 2)])), &track(&[]), LIMITS).saturated);
        let verdict = judge(Some(&lag(&[(100, 197), (50_000, 3)])), &track(&[]), LIMITS);
        assert!(verdict.saturated);
        assert_eq!(verdict.reasons, ["schedule_lag p99 is 50.0 ms, the limit 10.0 ms"]);
    }

    #[test]
    fn no_cpu_left_saturates_only_when_sustained() {
        assert!(!judge(None, &track(&[0.1, 2.0, 2.0, 2.0, 2.0, 0.1, 0.1]), LIMITS).saturated, "four seconds are a burst");
        let verdict = judge(None, &track(&[0.1, 2.0, 2.0, 2.0, 2.0, 2.0, 0.1]), LIMITS);
        assert_eq!(verdict.reasons, ["the driver used 2.00 of its 2 cores for 5 s"]);
    }

    #[test]
    fn a_track_adds_up() {
        let track = track(&[0.5, 1.5, 1.0]);
        assert_eq!(track.cpu_us(), 3_000_000);
        assert!((track.mean_cores().unwrap() - 1.0).abs() < 1e-9);
        assert!((track.busiest_cores() - 1.5).abs() < 1e-9);
        assert!(track.sustained_cores().abs() < 1e-9, "shorter than the span");
        assert_eq!((track.rss_first_bytes(), track.rss_peak_bytes()), (1_000, 1_030));
        assert_eq!(ProcessTrack::default().mean_cores(), None);
    }

    #[test]
    fn reads_this_process_and_leaves_out_those_that_are_gone() {
        let mut sampler = Sampler::new().unwrap();
        let own = sampler.own();
        assert!(own.rss_bytes > 100_000);
        let others = sampler.others(&[std::process::id(), u32::MAX - 1]);
        assert_eq!(others.keys().copied().collect::<Vec<_>>(), [std::process::id()]);
        assert!(own_cpu_us() >= own.cpu_us);
    }
}
