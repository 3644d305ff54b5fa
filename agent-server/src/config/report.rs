//! Settings of load reports.

use std::{fmt, str::FromStr, time::Duration};

use anyhow::ensure;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::ServeArgs;
use crate::report::{capacity::CapacityConfig, meter::Meter};

/// Whose CPU time load reports show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuSource {
    /// This process.
    Process,
    /// The control group of this process, other processes in it included.
    Cgroup,
    /// The accounted cost of `--cost virtual:`.
    Virtual,
}

impl FromStr for CpuSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "process" => Ok(Self::Process),
            "cgroup" => Ok(Self::Cgroup),
            "virtual" => Ok(Self::Virtual),
            _ => Err(format!("`{text}` is no source of CPU time: there are process, cgroup and virtual")),
        }
    }
}

/// What load reports claim.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ReportMode {
    /// What was measured: the rate is `virtual_qps`, the application's utilization the higher of CPU and session cap.
    #[default]
    Honest,
    /// The admissible rate as the weight of a weighted round robin: utilization 1, rate × 1000.
    RateWeight,
    /// Always the same rate and this utilization: to see how a balancer weighs it.
    Fixed(f64),
}

impl FromStr for ReportMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("`{text}` is no report mode: there are honest, rate_weight and fixed=U with U above 0, such as fixed=0.9");
        match text {
            "honest" => Ok(Self::Honest),
            "rate_weight" => Ok(Self::RateWeight),
            _ => {
                let share: f64 = text.strip_prefix("fixed=").ok_or_else(error)?.parse().map_err(|_| error())?;
                if share > 0.0 && share.is_finite() { Ok(Self::Fixed(share)) } else { Err(error()) }
            }
        }
    }
}

impl fmt::Display for ReportMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Honest => f.write_str("honest"),
            Self::RateWeight => f.write_str("rate_weight"),
            Self::Fixed(share) => write!(f, "fixed={share}"),
        }
    }
}

impl Serialize for ReportMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReportMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What load reports say, checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportConfig {
    /// Cores that utilization is measured against.
    pub cores: f64,
    /// Whose CPU time.
    pub cpu: CpuSource,
    /// Claims.
    pub mode: ReportMode,
    /// Of out-of-band reports.
    pub min_interval: Duration,
    /// Half-life of the peak cost.
    pub cost_memory: Duration,
    /// The formula's settings.
    #[serde(skip)]
    pub capacity: CapacityConfig,
}

impl ReportConfig {
    pub(super) fn resolve(args: &ServeArgs, cores: usize) -> anyhow::Result<Self> {
        let plain = CapacityConfig::default();
        let is_virtual = args.cost.is_some_and(|cost| cost.is_virtual());
        let config = Self {
            cores: args.cpu_cores.unwrap_or(cores as f64),
            cpu: args.report_cpu.unwrap_or(if is_virtual { CpuSource::Virtual } else { CpuSource::Process }),
            mode: args.report_mode.unwrap_or_default(),
            min_interval: args.report_min_interval.unwrap_or(Duration::from_millis(100)),
            cost_memory: args.report_cost_memory.unwrap_or_default(),
            capacity: CapacityConfig {
                window: args.report_window.unwrap_or(plain.window),
                target: args.report_target.unwrap_or(plain.target),
                scaler: args.report_scaler.unwrap_or(plain.scaler),
                idle_utilization: args.report_idle_utilization.unwrap_or(plain.idle_utilization),
                cost_floor: args.report_cost_floor.unwrap_or(plain.cost_floor),
                cost_prior: args.report_cost_prior.unwrap_or(plain.cost_prior),
                max_sessions: args.max_sessions,
            },
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        let c = &self.capacity;
        let share = |x: f64| x.is_finite() && (0.0..=1.0).contains(&x);
        ensure!(self.cores.is_finite() && (0.001..=4096.0).contains(&self.cores), "cpu_cores is {}: choose 0.001 to 4096", self.cores);
        ensure!(c.target > 0.0 && share(c.target), "report_target is {}: choose a share above 0, at most 1", c.target);
        ensure!((1.0..=1000.0).contains(&c.scaler), "report_scaler is {}: choose 1 to 1000; 2 is the default", c.scaler);
        ensure!(share(c.idle_utilization), "report_idle_utilization is {}: choose a share from 0 to 1", c.idle_utilization);
        ensure!(share(c.cost_floor), "report_cost_floor is {}: choose a share from 0 to 1", c.cost_floor);
        ensure!(c.cost_prior > 0.0 && share(c.cost_prior), "report_cost_prior is {}: choose a share above 0, at most 1", c.cost_prior);
        ensure!(c.window >= Duration::from_millis(100), "report_window is under 100 ms: choose a longer one; 10s is the default");
        ensure!(!self.min_interval.is_zero(), "report_min_interval is 0: choose a time above 0");
        Ok(())
    }

    /// A meter with these settings.
    pub fn meter(&self) -> Meter {
        Meter::new(self.capacity, self.cores, self.cost_memory)
    }
}
