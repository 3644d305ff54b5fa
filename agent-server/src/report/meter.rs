//! From readings of the counters and the CPU to a report of load, over a sliding window.

use std::{collections::VecDeque, time::Duration};

use proto::time::Micros;

use super::capacity::{Capacity, CapacityConfig};

/// One look at the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// When.
    pub at: Micros,
    /// Live sessions by the counters; negative when they are wrong.
    pub active: i64,
    /// Of those: user or agent speaks.
    pub speaking: u64,
    /// CPU time used since boot, microseconds.
    pub used_us: u64,
    /// Sessions refused or failed since boot.
    pub errors: u64,
}

/// What a backend says of its load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// When it was last looked at.
    pub at: Micros,
    /// Live sessions by the counters, then; never negative.
    pub active: f64,
    /// Of those: somebody speaks.
    pub speaking: f64,
    /// Hard cap.
    pub max_sessions: Option<u64>,
    /// Mean sessions of the window.
    pub sessions: f64,
    /// Mean utilization of the same window; above 1 when work piles up.
    pub utilization: f64,
    /// Refusals and failures per second, of the same window.
    pub eps: f64,
    /// What follows from both.
    pub capacity: Capacity,
    /// No new session is taken.
    pub draining: bool,
}

impl Load {
    /// Share of the hard cap in use; 0 without one.
    pub fn sessions_util(&self) -> f64 {
        self.max_sessions.map_or(0.0, |max| self.active / max.max(1) as f64)
    }

    /// Sessions per second that may be added; none while draining.
    pub fn rate(&self) -> f64 {
        if self.draining { 0.0 } else { self.capacity.rate }
    }

    /// Sessions that fit at the end of the next window; those that are there while draining.
    pub fn effective_capacity(&self) -> f64 {
        if self.draining { self.sessions } else { self.capacity.effective }
    }
}

/// Keeps the readings of one window.
#[derive(Debug, Clone)]
pub struct Meter {
    config: CapacityConfig,
    cores: f64,
    /// Half-life of the highest cost seen; zero forgets at once.
    memory: Duration,
    /// Oldest first; the first is the last one at or before the window's begin.
    readings: VecDeque<Reading>,
    /// Highest cost of a session seen, decayed to the last reading.
    peak_cost: f64,
}

impl Meter {
    /// `cores` is what utilization is measured against. `memory` is the half-life of the peak of a session's cost, which then is a floor
    /// for the cost (sessions that fell silent will speak again); zero switches that off.
    pub fn new(config: CapacityConfig, cores: f64, memory: Duration) -> Self {
        Self { config, cores: cores.max(1e-6), memory, readings: VecDeque::new(), peak_cost: 0.0 }
    }

    /// Takes a look; looks come in order of time.
    pub fn read(&mut self, reading: Reading) {
        let decay = match self.readings.back() {
            Some(last) if !self.memory.is_zero() => {
                let age = reading.at.since(last.at).as_secs_f64() / self.memory.as_secs_f64();
                0.5_f64.powf(age)
            }
            _ => 0.0,
        };
        self.readings.push_back(reading);
        let from = Micros(reading.at.0.saturating_sub(self.config.window.as_micros() as u64));
        while self.readings.get(1).is_some_and(|second| second.at <= from) {
            self.readings.pop_front();
        }
        self.peak_cost *= decay;
        if !self.memory.is_zero() {
            let (sessions, utilization, _) = self.means();
            if sessions >= 1.0 {
                self.peak_cost = self.peak_cost.max((utilization - self.config.idle_utilization) / sessions);
            }
        }
    }

    /// Mean sessions, utilization, errors per second between the oldest and the newest reading.
    fn means(&self) -> (f64, f64, f64) {
        let (Some(first), Some(last)) = (self.readings.front(), self.readings.back()) else { return (0.0, 0.0, 0.0) };
        let seconds = last.at.since(first.at).as_secs_f64();
        if seconds <= 0.0 {
            return (last.active.max(0) as f64, 0.0, 0.0);
        }
        let pairs = self.readings.iter().zip(self.readings.iter().skip(1));
        let area: f64 = pairs.map(|(a, b)| (a.active.max(0) + b.active.max(0)) as f64 / 2.0 * b.at.since(a.at).as_secs_f64()).sum();
        let used = last.used_us.saturating_sub(first.used_us) as f64 / 1e6;
        (area / seconds, used / seconds / self.cores, last.errors.saturating_sub(first.errors) as f64 / seconds)
    }

    /// The load as of the last reading. Before the first there is none: zeros.
    pub fn load(&self, draining: bool) -> Load {
        let last = self.readings.back().copied().unwrap_or_default();
        let (sessions, utilization, eps) = self.means();
        Load {
            at: last.at,
            active: last.active.max(0) as f64,
            speaking: last.speaking as f64,
            max_sessions: self.config.max_sessions,
            sessions,
            utilization,
            eps,
            capacity: self.config.capacity_at_least(sessions, utilization, self.peak_cost),
            draining,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ms: u64, active: i64, used_ms: u64) -> Reading {
        Reading { at: Micros::from_millis(ms), active, used_us: used_ms * 1_000, ..Reading::default() }
    }

    #[test]
    fn sessions_and_utilization_are_of_the_same_window() {
        let config = CapacityConfig { window: Duration::from_secs(1), ..CapacityConfig::default() };
        let mut meter = Meter::new(config, 2.0, Duration::ZERO);
        for step in 0..=40_u64 {
            // One core busy for two seconds, then none; 10 sessions, then 20.
            let (active, used) = if step <= 20 { (10, step * 100) } else { (20, 2_000) };
            meter.read(reading(step * 100, active, used));
            let load = meter.load(false);
            if step == 20 {
                assert!((load.sessions - 10.0).abs() < 1e-9 && (load.utilization - 0.5).abs() < 1e-9, "{load:?}");
            }
        }
        let load = meter.load(false);
        assert!((load.sessions - 20.0).abs() < 1e-9 && load.utilization == 0.0 && (load.active - 20.0).abs() < 1e-9, "{load:?}");
    }

    #[test]
    fn what_a_session_cost_when_it_spoke_is_remembered_for_a_while() {
        let config = CapacityConfig { window: Duration::from_secs(1), ..CapacityConfig::default() };
        let cost = |memory: Duration| {
            let mut meter = Meter::new(config, 1.0, memory);
            for step in 0..=100_u64 {
                meter.read(reading(step * 100, 10, step.min(20) * 50));
            }
            meter.load(false).capacity.cost
        };
        assert!(cost(Duration::ZERO) < 1e-5);
        let remembered = cost(Duration::from_secs(8));
        assert!((0.024..0.027).contains(&remembered), "half of 0.05 after one half-life: {remembered}");
    }

    #[test]
    fn a_meter_without_a_look_says_zero() {
        let load = Meter::new(CapacityConfig::default(), 1.0, Duration::ZERO).load(true);
        assert!(load.draining && load.active == 0.0 && load.capacity.rate > 0.0);
    }
}
