//! How many sessions a backend can take: sessions as a rate, with feedback from utilization.
//!
//! ```text
//! virtual_qps = N / W
//! C           = max((U - U_idle) / N, C_floor)        N = 0: C_prior
//! rate        = max(0, T - U) / (C * S) / W           sessions per second
//! capacity    = min(N + rate * W, max_sessions)
//! ```
//! N is the mean number of sessions and U the mean utilization of *the same* window of W seconds: the sessions of now with the utilization
//! of a window ago would promise room that is gone. T is the utilization to aim at, S a safety factor, because cost is not linear.
//!
//! Many silent sessions look cheap, so C has a floor: what a session costs that speaks.

use std::time::Duration;

/// What a backend knows of itself before it measures anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CapacityConfig {
    /// W.
    pub window: Duration,
    /// T, above 0; 1 is all of the CPU.
    pub target: f64,
    /// S, at least 1.
    pub scaler: f64,
    /// `U_idle`: utilization without any session.
    pub idle_utilization: f64,
    /// `C_floor`: least cost of a session, as a share of the CPU.
    pub cost_floor: f64,
    /// `C_prior`: cost of a session while there is none, as a share of the CPU; above 0.
    pub cost_prior: f64,
    /// Hard cap.
    pub max_sessions: Option<u64>,
}

impl Default for CapacityConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            target: 0.8,
            scaler: 2.0,
            idle_utilization: 0.0,
            cost_floor: 0.0,
            cost_prior: 0.01,
            max_sessions: None,
        }
    }
}

/// What follows from N and U of one window. Never negative, never NaN.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Capacity {
    /// N / W, 1/s.
    pub virtual_qps: f64,
    /// C, a share of the CPU.
    pub cost: f64,
    /// Sessions per second that may be added.
    pub rate: f64,
    /// Sessions that fit at the end of the next window.
    pub effective: f64,
}

/// Smallest cost of a session that is believed: less is noise, and would promise millions of sessions.
const COST_MIN: f64 = 1e-6;

impl CapacityConfig {
    /// From the mean sessions and the mean utilization of one window. Values that make no sense (negative, NaN) count as 0.
    pub fn capacity(&self, sessions: f64, utilization: f64) -> Capacity {
        self.capacity_at_least(sessions, utilization, 0.0)
    }

    /// As [`Self::capacity`], with a cost that was seen before as a further floor.
    pub fn capacity_at_least(&self, sessions: f64, utilization: f64, cost_seen: f64) -> Capacity {
        let sane = |x: f64| if x.is_finite() { x.max(0.0) } else { 0.0 };
        let (n, u) = (sane(sessions), sane(utilization));
        let w = self.window.as_secs_f64().max(1e-3);
        let measured = if n > 0.0 { (u - self.idle_utilization) / n } else { self.cost_prior };
        let cost = sane(measured).max(self.cost_floor).max(sane(cost_seen)).max(COST_MIN);
        let rate = (self.target - u).max(0.0) / (cost * self.scaler.max(1e-3)) / w;
        let cap = self.max_sessions.map_or(f64::INFINITY, |max| max as f64);
        Capacity { virtual_qps: n / w, cost, rate, effective: (n + rate * w).min(cap) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_worked_examples_holds() {
        let plain = CapacityConfig::default();
        let floor = CapacityConfig { cost_floor: 0.005, ..plain };
        for (config, n, u, cost, rate, effective) in [
            (plain, 10.0, 0.90, 0.09, 0.0, 10.0),
            (plain, 80.0, 0.40, 0.005, 4.0, 120.0),
            (plain, 90.0, 0.45, 0.005, 3.5, 125.0),
            (plain, 20.0, 0.02, 0.001, 39.0, 410.0),
            (floor, 20.0, 0.02, 0.005, 7.8, 98.0),
            (plain, 0.0, 0.05, 0.01, 3.75, 37.5),
        ] {
            let c = config.capacity(n, u);
            for (got, want) in [(c.cost, cost), (c.rate, rate), (c.effective, effective), (c.virtual_qps, n / 10.0)] {
                assert!((got - want).abs() < 1e-9, "N {n}, U {u}: {c:?}, want cost {cost}, rate {rate}, capacity {effective}");
            }
        }
    }

    #[test]
    fn the_hard_cap_caps() {
        let capped = CapacityConfig { max_sessions: Some(100), ..CapacityConfig::default() };
        assert!((capped.capacity(80.0, 0.4).effective - 100.0).abs() < 1e-9);
    }

    /// A fleet of one that fills up to its capacity each window, at a true cost of 0.005 a session.
    fn peak(scaler: f64, lag: usize, same_window: bool) -> f64 {
        let config = CapacityConfig { scaler, ..CapacityConfig::default() };
        let mut sessions = vec![80.0_f64];
        for _ in 0..40 {
            let now = sessions.len() - 1;
            let seen = now.saturating_sub(lag);
            let (n, u) = (sessions[if same_window { seen } else { now }], sessions[seen] * 0.005);
            let room = config.capacity(n, u).rate * 10.0;
            sessions.push(sessions[now] + room);
        }
        sessions.into_iter().fold(0.0, f64::max) * 0.005
    }

    #[test]
    fn without_lag_it_approaches_the_target_and_never_passes_it() {
        assert!(peak(2.0, 0, true) <= 0.8 + 1e-9 && peak(2.0, 0, true) > 0.79);
    }

    #[test]
    fn a_stale_utilization_with_the_sessions_of_now_overshoots() {
        assert!(peak(2.0, 1, false) > 1.0, "{}", peak(2.0, 1, false));
        assert!(peak(2.0, 1, true) < peak(2.0, 1, false), "{} {}", peak(2.0, 1, true), peak(2.0, 1, false));
        assert!(peak(4.0, 1, true) <= 0.8 + 1e-9, "{}", peak(4.0, 1, true));
    }
}
