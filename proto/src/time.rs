//! Time as an argument: the pure state machines take a [`Micros`] and never read a clock.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// Microseconds since an epoch that the owner of the clock chose (start of the process, of the run, of virtual time).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// Later than every time: "no wake wanted".
    pub const NEVER: Self = Self(u64::MAX);

    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000)
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// `self - earlier`, or zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Micros {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Micros {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub for Micros {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A text that is no duration, or none that is meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is none.
    #[error("`{0}` is not a duration: write a number with a unit, such as 250us, 20ms, 1.5s, 2m, 1h, or 1m30s")]
    None(String),
    /// No run lasts so long.
    #[error("`{0}` is longer than a year, which is the most")]
    TooLong(String),
}

/// Parses `250us`, `20ms`, `1.5s`, `2m`, `1h`, `1m30s`; a bare `0` needs no unit. At most a year.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    const YEAR_S: f64 = 31_536_000.0;
    let error = || DurationError::None(text.to_owned());
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(error());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let number: f64 = rest[..digits].parse().map_err(|_| error())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let scale = match &rest[..letters] {
            "us" | "\u{b5}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return Err(error()),
        };
        seconds += number * scale;
        rest = &rest[letters..];
    }
    if seconds > YEAR_S {
        return Err(DurationError::TooLong(text.to_owned()));
    }
    // Whole microseconds: what every clock here counts.
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}

/// Writes a duration so that [`parse_duration`] reads the same back: `1h30m`, `2m`, `1.5s`, `20ms`, `250us`.
pub fn format_duration(duration: Duration) -> String {
    let us = duration.as_micros() as u64;
    match us {
        0 => "0".to_owned(),
        _ if us < 1_000 => format!("{us}us"),
        _ if us < 1_000_000 => format!("{}ms", us as f64 / 1e3),
        _ if us < 60_000_000 => format!("{}s", us as f64 / 1e6),
        _ => {
            let (hours, minutes, rest) = (us / 3_600_000_000, us / 60_000_000 % 60, us % 60_000_000);
            let part = |n: u64, unit: &str| if n > 0 { format!("{n}{unit}") } else { String::new() };
            let rest = if rest > 0 { format_duration(Duration::from_micros(rest)) } else { String::new() };
            part(hours, "h") + &part(minutes, "m") + &rest
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_parse() {
        for (text, us) in [
            ("0", 0),
            ("250us", 250),
            ("20ms", 20_000),
            ("1.5s", 1_500_000),
            ("1m30s", 90_000_000),
            ("2h", 7_200_000_000),
            (" 3s ", 3_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1x", "1s2", "1..5s", "1e3s", "900000h", "1 s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        let long = parse_duration("99999999h").unwrap_err().to_string();
        assert!(long.contains("longer than a year"), "{long}");
    }

    proptest! {
        #[test]
        fn format_then_parse_is_identity(us in 0u64..31_536_000_000_000) {
            let duration = Duration::from_micros(us);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn parse_never_panics(text in ".{0,20}") {
            let _ = parse_duration(&text);
        }
    }
}
