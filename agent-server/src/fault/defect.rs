//! A defect as the command line names it: `ghost=0.02`, `late_decrement=0.05:5s`.

use std::{fmt, str::FromStr, time::Duration};

/// Used when `late_decrement` names no duration.
const DEFAULT_LATENESS: Duration = Duration::from_secs(5);
/// Longest lateness: no run waits longer.
const MAX_LATENESS: Duration = Duration::from_hours(1);
/// Rates are whole parts of this, so that a rate of 0.05 strikes every 20th time exactly.
const WHOLE: u64 = 1_000_000_000;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefectKind {
    /// An abrupt end (outcome cancelled) is never counted: the session stays live for ever.
    Ghost,
    /// An end is counted twice: disconnect and cancel both count.
    DoubleDecrement,
    /// A refused start is counted as an end.
    DecrementOnReject,
    /// An abrupt end (outcome cancelled) is counted late.
    LateDecrement {
        /// By this much.
        after: Duration,
    },
    /// A snapshot's gauges and its ends are of different instants, and it says that it is exact.
    TornSnapshot,
    /// An end by timeout is never counted.
    ForgetOnTimeout,
}

impl DefectKind {
    /// As on the command line and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ghost => "ghost",
            Self::DoubleDecrement => "double_decrement",
            Self::DecrementOnReject => "decrement_on_reject",
            Self::LateDecrement { .. } => "late_decrement",
            Self::TornSnapshot => "torn_snapshot",
            Self::ForgetOnTimeout => "forget_on_timeout",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::Ghost,
            Self::DoubleDecrement,
            Self::DecrementOnReject,
            Self::LateDecrement { after: DEFAULT_LATENESS },
            Self::TornSnapshot,
            Self::ForgetOnTimeout,
        ];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// A kind and the share of events that it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defect {
    /// What goes wrong.
    pub kind: DefectKind,
    rate: u64,
}

/// `KIND=RATE[:DURATION]` was something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseDefectError {
    /// No equals sign.
    #[error("defect '{0}' has no rate: write KIND=RATE, such as ghost=0.02")]
    NoRate(String),
    /// Not in the list.
    #[error(
        "unknown defect '{0}': there are ghost, double_decrement, decrement_on_reject, late_decrement, torn_snapshot and forget_on_timeout"
    )]
    UnknownKind(String),
    /// Not a share.
    #[error("rate '{rate}' of defect {kind} is no share: want a number above 0, at most 1")]
    Rate {
        /// Whose.
        kind: &'static str,
        /// As written.
        rate: String,
    },
    /// Only one kind takes a duration.
    #[error("defect {0} takes no duration: only late_decrement does")]
    NoDurationWanted(&'static str),
    /// Not a duration.
    #[error("duration '{0}' of defect late_decrement is not understood: want 1ms to 1h, such as 500ms, 5s or 2m")]
    Duration(String),
}

impl FromStr for Defect {
    type Err = ParseDefectError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or_else(|| ParseDefectError::NoRate(text.to_owned()))?;
        let mut kind = DefectKind::from_name(name.trim()).ok_or_else(|| ParseDefectError::UnknownKind(name.to_owned()))?;
        let (rate, duration) = value.split_once(':').map_or((value, None), |(rate, duration)| (rate, Some(duration)));
        match (&mut kind, duration) {
            (_, None) => {}
            (DefectKind::LateDecrement { after }, Some(text)) => *after = lateness(text)?,
            (other, Some(_)) => return Err(ParseDefectError::NoDurationWanted(other.name())),
        }
        let bad_rate = || ParseDefectError::Rate { kind: kind.name(), rate: rate.to_owned() };
        let share: f64 = rate.trim().parse().map_err(|_| bad_rate())?;
        // NaN fails this too. A rate that rounds to nothing would be a defect that never strikes.
        let parts = if share > 0.0 && share <= 1.0 { (share * WHOLE as f64).round() as u64 } else { 0 };
        if parts == 0 {
            return Err(bad_rate());
        }
        Ok(Self { kind, rate: parts })
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind.name(), self.rate as f64 / WHOLE as f64)?;
        match self.kind {
            DefectKind::LateDecrement { after } => write!(f, ":{}ms", after.as_millis()),
            _ => Ok(()),
        }
    }
}

fn lateness(text: &str) -> Result<Duration, ParseDefectError> {
    let bad = || ParseDefectError::Duration(text.to_owned());
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    let lateness = Duration::from_millis(milliseconds.ok_or_else(bad)?);
    if lateness.is_zero() || lateness > MAX_LATENESS { Err(bad()) } else { Ok(lateness) }
}

/// Strikes by error diffusion, not by chance: the first event, and from then on the rate exactly.
#[derive(Debug)]
pub struct Diffusion {
    rate: u64,
    error: u64,
    strikes: u64,
}

impl Diffusion {
    /// At the rate of a defect.
    pub fn new(defect: Defect) -> Self {
        Self { rate: defect.rate, error: WHOLE - defect.rate, strikes: 0 }
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

    fn struck(text: &str, events: usize) -> Vec<usize> {
        let mut diffusion = Diffusion::new(text.parse().unwrap());
        (0..events).filter(|_| diffusion.strike()).collect()
    }

    #[test]
    fn the_first_event_strikes_and_then_every_nth() {
        assert_eq!(struck("ghost=0.05", 61), [0, 20, 40, 60]);
        assert_eq!(struck("ghost=1", 4), [0, 1, 2, 3]);
        assert_eq!(struck("ghost=0.4", 10), [0, 3, 5, 8]);
    }

    #[test]
    fn the_share_is_exact_over_any_length() {
        for percent in 1..=100 {
            let strikes = struck(&format!("ghost={}", f64::from(percent) / 100.0), 10_000).len();
            assert_eq!(strikes, percent as usize * 100);
        }
    }

    #[test]
    fn every_kind_parses_and_prints() {
        for text in ["ghost=0.02", "double_decrement=1", "decrement_on_reject=0.5", "torn_snapshot=0.1", "forget_on_timeout=0.25"] {
            assert_eq!(text.parse::<Defect>().unwrap().to_string(), text);
        }
        for (text, shown) in [
            ("late_decrement=0.05:5s", "late_decrement=0.05:5000ms"),
            ("late_decrement=0.05", "late_decrement=0.05:5000ms"),
            ("late_decrement=0.05:250ms", "late_decrement=0.05:250ms"),
            ("late_decrement=1:2m", "late_decrement=1:120000ms"),
        ] {
            let defect: Defect = text.parse().unwrap();
            assert_eq!(defect.to_string(), shown);
            assert_eq!(shown.parse::<Defect>().unwrap(), defect);
        }
    }

    #[test]
    fn what_is_no_defect_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "has no rate"),
            ("ghost", "has no rate"),
            ("ghoul=0.1", "unknown defect 'ghoul'"),
            ("ghost=", "no share"),
            ("ghost=0", "no share"),
            ("ghost=-0.1", "no share"),
            ("ghost=1.01", "no share"),
            ("ghost=nan", "no share"),
            ("ghost=inf", "no share"),
            ("ghost=1e-12", "no share"),
            ("ghost=0.1:5s", "takes no duration"),
            ("late_decrement=0.1:", "not understood"),
            ("late_decrement=0.1:5", "not understood"),
            ("late_decrement=0.1:s", "not understood"),
            ("late_decrement=0.1:0s", "not understood"),
            ("late_decrement=0.1:61m", "not understood"),
            ("late_decrement=0.1:18446744073709551615h", "not understood"),
        ] {
            let error = text.parse::<Defect>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
