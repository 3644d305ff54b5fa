//! How often something goes wrong on purpose, and for how long.

use std::{fmt, time::Duration};

/// Rates are whole parts of this, so that a rate of 0.05 strikes every 20th time exactly.
const WHOLE: u64 = 1_000_000_000;
/// Longest duration that may be named: no run waits longer.
const MAX_DURATION: Duration = Duration::from_hours(1);

/// A share of events, above 0 and at most 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    /// Every event.
    pub const ALWAYS: Self = Self(WHOLE);

    /// As on the command line; none for what is no such share.
    pub fn parse(text: &str) -> Option<Self> {
        let share: f64 = text.trim().parse().ok()?;
        // NaN fails this too. A rate that rounds to nothing would never strike.
        let parts = if share > 0.0 && share <= 1.0 { (share * WHOLE as f64).round() as u64 } else { 0 };
        (parts > 0).then_some(Self(parts))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as f64 / WHOLE as f64)
    }
}

/// Reads `500ms`, `5s`, `2m`, `1h`; none for anything else, for nothing, and for what is too long.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    let duration = Duration::from_millis(milliseconds?);
    (!duration.is_zero() && duration <= MAX_DURATION).then_some(duration)
}

/// Strikes by error diffusion, not by chance: the first event, and from then on the rate exactly.
#[derive(Debug)]
pub struct Diffusion {
    rate: u64,
    error: u64,
    strikes: u64,
}

impl Diffusion {
    /// At this rate.
    pub fn new(rate: Rate) -> Self {
        Self { rate: rate.0, error: WHOLE - rate.0, strikes: 0 }
    }

    /// One qualifying event: is it struck?
    pub fn strike(&mut self) -> bool {
        self.error += self.rate;
        let struck = self.error >= WHOLE;
        if struck {
            self.error -= WHOLE;
            self.strikes += 1;
        }
        struck
    }

    /// So far.
    pub fn strikes(&self) -> u64 {
        self.strikes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(rate: &str, events: usize) -> Vec<usize> {
        let mut diffusion = Diffusion::new(Rate::parse(rate).unwrap());
        (0..events).filter(|_| diffusion.strike()).collect()
    }

    #[test]
    fn the_first_event_strikes_and_then_every_nth() {
        assert_eq!(struck("0.05", 61), [0, 20, 40, 60]);
        assert_eq!(struck("1", 4), [0, 1, 2, 3]);
        assert_eq!(struck("0.4", 10), [0, 3, 5, 8]);
    }

    #[test]
    fn the_share_is_exact_over_any_length() {
        for percent in 1..=100 {
            let strikes = struck(&format!("{}", f64::from(percent) / 100.0), 10_000).len();
            assert_eq!(strikes, percent as usize * 100);
        }
    }
}
