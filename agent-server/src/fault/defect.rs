//! A defect as the command line names it: `ghost=0.02`, `late_decrement=0.05:5s`.

use std::{fmt, str::FromStr, time::Duration};

use super::rate::{Rate, duration};

/// Used when `late_decrement` names no duration.
const DEFAULT_LATENESS: Duration = Duration::from_secs(5);

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
    /// A session whose end was counted is live again, under its old name and for ever: something that was late wrote it anew.
    Resurrect,
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
            Self::Resurrect => "resurrect",
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
            Self::Resurrect,
        ];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// A kind and the share of events that it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defect {
    /// What goes wrong.
    pub kind: DefectKind,
    /// How often.
    pub rate: Rate,
}

/// `KIND=RATE[:DURATION]` was something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseDefectError {
    /// No equals sign.
    #[error("defect '{0}' has no rate: write KIND=RATE, such as ghost=0.02")]
    NoRate(String),
    /// Not in the list.
    #[error(
        "unknown defect '{0}': there are ghost, double_decrement, decrement_on_reject, late_decrement, torn_snapshot, forget_on_timeout and resurrect"
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
        let (rate, after) = value.split_once(':').map_or((value, None), |(rate, after)| (rate, Some(after)));
        match (&mut kind, after) {
            (_, None) => {}
            (DefectKind::LateDecrement { after: lateness }, Some(text)) => {
                *lateness = duration(text).ok_or_else(|| ParseDefectError::Duration(text.trim().to_owned()))?;
            }
            (other, Some(_)) => return Err(ParseDefectError::NoDurationWanted(other.name())),
        }
        let rate = Rate::parse(rate).ok_or_else(|| ParseDefectError::Rate { kind: kind.name(), rate: rate.to_owned() })?;
        Ok(Self { kind, rate })
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind.name(), self.rate)?;
        match self.kind {
            DefectKind::LateDecrement { after } => write!(f, ":{}ms", after.as_millis()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_parses_and_prints() {
        for text in
            ["ghost=0.02", "double_decrement=1", "decrement_on_reject=0.5", "torn_snapshot=0.1", "forget_on_timeout=0.25", "resurrect=0.5"]
        {
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
            ("resurrect=0.1:5s", "takes no duration"),
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
