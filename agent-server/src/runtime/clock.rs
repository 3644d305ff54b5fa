//! The only reader of time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proto::time::Micros;
use tokio::time::Instant as RuntimeInstant;

/// Monotone microseconds from an epoch of its own, and the unix time of that epoch.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    epoch: Instant,
    epoch_unix_us: u64,
    /// Of a simulation: how often its shards tick.
    simulated_tick: Option<Duration>,
}

impl Clock {
    /// The epoch is now.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads clocks")]
    pub fn start() -> Self {
        let epoch_unix_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64);
        Self { epoch: Instant::now(), epoch_unix_us, simulated_tick: None }
    }

    /// The epoch is now, and called that unix time, on a runtime whose time is paused: it passes as the simulation lets it. Shards tick
    /// every `tick` of it.
    pub fn simulated(epoch_unix_us: u64, tick: Duration) -> Self {
        Self { epoch: now(), epoch_unix_us, simulated_tick: Some(tick) }
    }

    /// How often shards tick, where time is simulated.
    pub fn simulated_tick(&self) -> Option<Duration> {
        self.simulated_tick
    }

    /// A clock whose epoch is the given unix time, past or to come, so that processes on one machine agree.
    pub fn with_epoch_unix_us(epoch_unix_us: u64) -> Self {
        let now = Self::start();
        let back = Duration::from_micros(now.epoch_unix_us.saturating_sub(epoch_unix_us));
        let ahead = Duration::from_micros(epoch_unix_us.saturating_sub(now.epoch_unix_us));
        // An epoch before the machine's own start cannot be told by its monotone clock.
        let epoch = now.epoch.checked_sub(back).unwrap_or(now.epoch) + ahead;
        Self { epoch, epoch_unix_us, simulated_tick: None }
    }

    /// Microseconds since the epoch.
    pub fn now(&self) -> Micros {
        Micros(now().saturating_duration_since(self.epoch).as_micros() as u64)
    }

    /// Unix time of a moment, microseconds.
    pub fn unix_us(&self, at: Micros) -> u64 {
        self.epoch_unix_us + at.0
    }

    /// Moment of a unix time, microseconds; before the epoch is the epoch.
    pub fn at_unix_us(&self, unix_us: u64) -> Micros {
        Micros(unix_us.saturating_sub(self.epoch_unix_us))
    }

    /// From now to a moment; zero when it is past.
    pub fn until(&self, at: Micros) -> Duration {
        self.instant(at).saturating_duration_since(now())
    }

    /// For sleeping until a moment.
    pub fn instant(&self, at: Micros) -> Instant {
        self.epoch + Duration::from_micros(at.0)
    }
}

/// The system's monotone time, but on a runtime whose time is paused that runtime's.
fn now() -> Instant {
    RuntimeInstant::now().into_std()
}
