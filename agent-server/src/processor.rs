//! A processor that does not exist: accounts the cost of `--cost virtual:` against so many cores, and says how far behind it is.
//!
//! Work queues in one line, first come, first served, and `cores` seconds of it are done each second. What waits is the backlog; who comes
//! now waits `backlog / cores`. With that, a backend of any speed can be had on any machine, and a simulator that knows the cost of every
//! phase gets the same delays by the same code.

use std::time::Duration;

use proto::time::Micros;

/// The queue. Costs in microseconds of one core.
#[derive(Debug, Clone, PartialEq)]
pub struct Processor {
    cores: f64,
    /// Work that waits, as of `at`.
    backlog_us: f64,
    at: Micros,
    /// Work done since the start: what a CPU clock would show.
    used_us: f64,
}

impl Processor {
    /// Idle, with `cores` (above 0) of them.
    pub fn new(cores: f64, now: Micros) -> Self {
        Self { cores: cores.max(1e-6), backlog_us: 0.0, at: now, used_us: 0.0 }
    }

    /// Adds work at `now`.
    pub fn charge(&mut self, cost_us: f64, now: Micros) {
        self.advance(now, 0.0);
        self.backlog_us += cost_us.max(0.0);
    }

    /// Goes on to `now`, under a steady load of `cores_asked` meanwhile (0 where every piece of work is charged).
    pub fn advance(&mut self, now: Micros, cores_asked: f64) {
        let elapsed = now.since(self.at).as_secs_f64() * 1e6;
        self.at = self.at.max(now);
        let work = self.backlog_us + cores_asked.max(0.0) * elapsed;
        let done = work.min(self.cores * elapsed);
        self.used_us += done;
        self.backlog_us = (work - done).max(0.0);
    }

    /// How long work that comes now waits.
    pub fn delay(&self) -> Duration {
        Duration::from_micros((self.backlog_us / self.cores) as u64)
    }

    /// Work done by the last [`Self::advance`], microseconds of one core.
    pub fn used_us(&self) -> u64 {
        self.used_us as u64
    }

    /// Cores.
    pub const fn cores(&self) -> f64 {
        self.cores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_its_turn_and_is_done_at_the_speed_of_the_cores() {
        let mut cpu = Processor::new(0.5, Micros::ZERO);
        cpu.charge(100_000.0, Micros::ZERO);
        assert_eq!(cpu.delay(), Duration::from_millis(200));
        cpu.advance(Micros::from_millis(100), 0.0);
        assert_eq!((cpu.delay(), cpu.used_us()), (Duration::from_millis(100), 50_000));
        cpu.advance(Micros::from_millis(1_000), 0.0);
        assert_eq!((cpu.delay(), cpu.used_us()), (Duration::ZERO, 100_000));
    }

    #[test]
    fn a_steady_load_is_the_same_as_its_pieces() {
        let (mut steady, mut pieces) = (Processor::new(1.0, Micros::ZERO), Processor::new(1.0, Micros::ZERO));
        steady.advance(Micros::from_millis(2_000), 1.5);
        for step in 0..100 {
            pieces.charge(30_000.0, Micros::from_millis(step * 20));
        }
        pieces.advance(Micros::from_millis(2_000), 0.0);
        assert_eq!(steady.delay(), Duration::from_secs(1));
        assert_eq!(pieces.delay(), steady.delay());
        assert_eq!(steady.used_us(), 2_000_000);
    }

    #[test]
    fn time_does_not_run_backwards() {
        let mut cpu = Processor::new(1.0, Micros::from_millis(10));
        cpu.charge(5_000.0, Micros::from_millis(5));
        assert_eq!(cpu.delay(), Duration::from_millis(5));
    }
}
