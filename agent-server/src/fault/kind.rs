//! A fault of a voice backend as the command line names it: `no_turn_end`, `output_gaps=0.2`, `ghost_after_hangup=0.5:19s`.
//!
//! Defects make the counters wrong; faults make the conversation wrong and leave the counters right.

use std::{fmt, str::FromStr, time::Duration};

use super::rate::{Rate, duration};

/// Used when `ghost_after_hangup` names no duration.
const DEFAULT_AFTERLIFE: Duration = Duration::from_secs(19);

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FaultKind {
    /// After an interruption frames of the old response go on for 1 to 3 s.
    StaleAudioAfterBargeIn,
    /// Holes of 110 to 350 ms between audio frames.
    OutputGaps,
    /// After an abrupt hang-up the session lives on, counted and moving, and only then ends.
    GhostAfterHangup,
    /// After its first response the session hears and says nothing more, and stays.
    SilentSession,
    /// A response that is said in full has no end, and the final transcript before it comes twice.
    NoTurnEnd,
    /// A response that is over is followed by another one to the same turn.
    DoubleResponse,
    /// Speech that begins just after a response ended is not heard.
    VadDrop,
    /// A new session begins with the tail of a response that is not its own.
    CrossTalk,
    /// An interruption or truncation at 0 ms, or beyond the audio, silences the session.
    TruncateEdge,
    /// The place of a session that ended by a disconnect is not given back.
    PoolLeak,
    /// One session more than the cap is admitted.
    AdmissionRace,
}

impl FaultKind {
    /// In the order of every table.
    pub const ALL: [Self; 11] = [
        Self::StaleAudioAfterBargeIn,
        Self::OutputGaps,
        Self::GhostAfterHangup,
        Self::SilentSession,
        Self::NoTurnEnd,
        Self::DoubleResponse,
        Self::VadDrop,
        Self::CrossTalk,
        Self::TruncateEdge,
        Self::PoolLeak,
        Self::AdmissionRace,
    ];

    /// As on the command line, in metrics and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StaleAudioAfterBargeIn => "stale_audio_after_barge_in",
            Self::OutputGaps => "output_gaps",
            Self::GhostAfterHangup => "ghost_after_hangup",
            Self::SilentSession => "silent_session",
            Self::NoTurnEnd => "no_turn_end",
            Self::DoubleResponse => "double_response",
            Self::VadDrop => "vad_drop",
            Self::CrossTalk => "cross_talk",
            Self::TruncateEdge => "truncate_edge",
            Self::PoolLeak => "pool_leak",
            Self::AdmissionRace => "admission_race",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Decided for a session when it begins; the others when what they are about happens.
    pub const fn is_of_a_session(self) -> bool {
        !matches!(self, Self::GhostAfterHangup | Self::PoolLeak | Self::AdmissionRace)
    }

    /// It is about the cap of sessions, and means nothing without one.
    pub const fn needs_cap(self) -> bool {
        matches!(self, Self::PoolLeak | Self::AdmissionRace)
    }
}

/// A kind and the share of sessions (hang-ups, refusals) that it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// How often.
    pub rate: Rate,
    /// How long a session lives on after the hang-up.
    pub afterlife: Duration,
}

/// `KIND[=RATE[:DURATION]]` was something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseFaultError {
    /// Not in the list.
    #[error("unknown fault '{name}': there are {}", FaultKind::ALL.map(FaultKind::name).join(", "))]
    UnknownKind {
        /// As written.
        name: String,
    },
    /// Not a share.
    #[error("rate '{rate}' of fault {kind} is no share: want a number above 0, at most 1")]
    Rate {
        /// Whose.
        kind: &'static str,
        /// As written.
        rate: String,
    },
    /// Only one kind takes a duration.
    #[error("fault {0} takes no duration: only ghost_after_hangup does")]
    NoDurationWanted(&'static str),
    /// Not a duration.
    #[error("duration '{0}' of fault ghost_after_hangup is not understood: want 1ms to 1h, such as 500ms, 19s or 2m")]
    Duration(String),
}

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let name = name.trim();
        let kind = FaultKind::from_name(name).ok_or_else(|| ParseFaultError::UnknownKind { name: name.to_owned() })?;
        let mut fault = Self { kind, rate: Rate::ALWAYS, afterlife: DEFAULT_AFTERLIFE };
        let Some(value) = value else { return Ok(fault) };
        let (rate, after) = value.split_once(':').map_or((value, None), |(rate, after)| (rate, Some(after)));
        match after {
            None => {}
            Some(_) if kind != FaultKind::GhostAfterHangup => return Err(ParseFaultError::NoDurationWanted(kind.name())),
            Some(text) => fault.afterlife = duration(text).ok_or_else(|| ParseFaultError::Duration(text.trim().to_owned()))?,
        }
        fault.rate = Rate::parse(rate).ok_or_else(|| ParseFaultError::Rate { kind: kind.name(), rate: rate.to_owned() })?;
        Ok(fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind.name(), self.rate)?;
        match self.kind {
            FaultKind::GhostAfterHangup => write!(f, ":{}ms", self.afterlife.as_millis()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_parses_and_prints() {
        for kind in FaultKind::ALL {
            let fault: Fault = kind.name().parse().unwrap();
            assert_eq!((fault.kind, fault.rate), (kind, Rate::ALWAYS));
            assert_eq!(fault.to_string().parse::<Fault>().unwrap(), fault);
            assert_eq!(FaultKind::ALL[kind as usize], kind);
        }
        for (text, shown) in [
            ("output_gaps=0.25", "output_gaps=0.25"),
            ("ghost_after_hangup", "ghost_after_hangup=1:19000ms"),
            ("ghost_after_hangup=0.5:250ms", "ghost_after_hangup=0.5:250ms"),
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_fault_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "unknown fault ''"),
            ("ghost=0.1", "unknown fault 'ghost': there are stale_audio_after_barge_in"),
            ("output_gaps=", "no share"),
            ("output_gaps=0", "no share"),
            ("output_gaps=1.01", "no share"),
            ("output_gaps=nan", "no share"),
            ("output_gaps=0.1:5s", "takes no duration"),
            ("ghost_after_hangup=0.1:", "not understood"),
            ("ghost_after_hangup=0.1:0s", "not understood"),
            ("ghost_after_hangup=0.1:61m", "not understood"),
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
