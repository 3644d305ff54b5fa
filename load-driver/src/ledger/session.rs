//! One session, as the driver and the backend's end log tell of it.

use std::collections::BTreeMap;

use proto::frame::{ErrorCode, Outcome};

use super::{
    book::BootIndex,
    entry::{FailureCause, Finish},
    merge::SourceId,
};
use crate::plan::{EndKind, Protocol};

/// A session that may still matter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts of a session that are learnt one by one")]
pub struct Session {
    /// Who ran it.
    pub source: SourceId,
    /// Index into the plan's scenarios.
    pub scenario: u16,
    /// Transport.
    pub protocol: Protocol,
    /// How the plan ends it.
    pub planned: EndKind,
    /// As sent to the backend.
    pub client_ref: String,
    /// The last dial.
    pub attempted: Option<Attempt>,
    /// That dial came to nothing, and another one is due.
    pub retrying: bool,
    /// The backend said that it counts it.
    pub accepted: Option<Acceptance>,
    /// The driver forced its end: how and when.
    pub forced: Option<(EndKind, u64)>,
    /// A deadline of the backend's was due at that very moment.
    pub raced: bool,
    /// The driver heard nothing of it from then until then, by its own will.
    pub deaf: Option<(u64, u64)>,
    /// It is over.
    pub over: Option<Over>,
    /// The worker that ran it was killed; from here on it may have done things that nobody told.
    pub untold_from_us: Option<u64>,
    /// What the backend's end log says of it.
    pub record: Option<Record>,
    /// Without a record: the first time at which totals, or a new process, agreed that it is gone; the driver's clock.
    pub agreed_us: Option<u64>,
    /// The backend was seen to go on with it after its end: that it is counted until it ends is right, and the fault another one.
    pub lives_on: bool,
    /// The plan killed its worker or backend while it was dialled: that it came to nothing is no failure.
    pub dial_cut: bool,
    /// The driver had its last word: nothing more comes of it from there.
    pub told: bool,
    /// Its dial was more than a connection: the upgrade may have been the start.
    pub starts_at_upgrade: bool,
}

/// A dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Index into the backends; none behind a front, which picks.
    pub backend: Option<usize>,
    /// Unix microseconds.
    pub at_us: u64,
}

/// Acceptance of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance {
    /// Unix microseconds.
    pub at_us: u64,
    /// The backend's name of it.
    pub session_id: String,
    /// The process that counts it.
    pub boot: BootIndex,
    /// Index into the backends: the one that was dialled; behind a front the one that goes by the name that came with the acceptance, and
    /// none as long as nobody, or more than one, does.
    pub backend: Option<usize>,
    /// The backend's name, while nobody goes by it.
    pub unplaced: Option<String>,
}

/// End of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    /// Unix microseconds: when it was forced, else when the driver saw it.
    pub at_us: u64,
    /// How.
    pub how: How,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It had been accepted.
    Finished(Finish),
    /// It had not.
    Failed(FailureCause),
}

/// The backend's decrement for a session: the first, and how many there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// On the backend's clock.
    pub server_at_us: u64,
    /// On the driver's clock.
    pub at_us: u64,
    /// As counted; absent when the name is unknown.
    pub outcome: Option<Outcome>,
    /// Decrements in all.
    pub count: u32,
    /// Which process counted it.
    pub boot: BootIndex,
    /// Hash of the process and the name under which it did.
    pub name: u64,
}

impl Session {
    /// The backend may have counted it although it never said so. Behind a front that is so for every backend, and for more causes: a front
    /// that says UNAVAILABLE may say so because a backend that had counted the session reset it.
    pub fn in_doubt(&self) -> bool {
        let Some(attempt) = self.attempted else { return false };
        let may_have_started = |over: Over| may_have_started(over.how, attempt.backend.is_none(), self.starts_at_upgrade);
        !self.retrying && self.accepted.is_none() && self.over.is_none_or(may_have_started)
    }

    /// A dial is under way.
    pub fn dialling(&self) -> bool {
        self.attempted.is_some() && !self.retrying && self.accepted.is_none() && self.over.is_none()
    }

    /// The backend that it went to, as far as that is known.
    pub fn backend(&self) -> Option<usize> {
        self.attempted?.backend.or(self.accepted.as_ref().and_then(|accepted| accepted.backend))
    }

    /// It went to this backend, or may have: behind a front, until one has accepted it, it may be with any.
    pub fn may_be_at(&self, backend: usize) -> bool {
        self.attempted.is_some() && !self.retrying && self.backend().is_none_or(|at| at == backend)
    }

    /// The process that counted it, as far as that is known.
    pub(super) fn counted_by(&self) -> Option<BootIndex> {
        self.accepted.as_ref().map(|accepted| accepted.boot).or(self.record.map(|record| record.boot))
    }

    /// The front chose the backend.
    pub fn through_front(&self) -> bool {
        self.attempted.is_some_and(|attempt| attempt.backend.is_none())
    }

    /// When and how the driver ended it, or gave up on it.
    pub fn end_kind(&self) -> Option<EndKind> {
        match self.over?.how {
            How::Finished(Finish::Forced(kind)) => Some(kind),
            How::Finished(Finish::Goodbye(_) | Finish::ByServer(_)) => Some(EndKind::Graceful),
            How::Finished(Finish::Lost(FailureCause::WorkerLost)) | How::Failed(FailureCause::WorkerLost) => Some(EndKind::KillWorker),
            How::Finished(Finish::Lost(_)) | How::Failed(_) => None,
        }
    }

    /// Since when the backend may have ended it, and by what: it was forced, or is over.
    pub fn ending(&self) -> Option<(u64, Option<EndKind>)> {
        match (self.over, self.forced) {
            (Some(over), _) => Some((over.at_us, self.end_kind())),
            (None, Some((kind, at_us))) if kind != EndKind::Graceful => Some((at_us, Some(kind))),
            (None, _) => None,
        }
    }

    /// From here on the driver no longer insists that it lives.
    pub fn lives_until_us(&self) -> u64 {
        let over = self.over.map_or(u64::MAX, |over| over.at_us);
        let forced = self.forced.map_or(u64::MAX, |(_, at_us)| at_us);
        over.min(forced).min(self.untold_from_us.unwrap_or(u64::MAX))
    }

    /// The driver could not have known of an end at this time. `slack_us`: what waited to be heard takes its time too.
    pub fn was_deaf(&self, at_us: u64, slack_us: u64) -> bool {
        self.deaf.is_some_and(|(from_us, to_us)| (from_us.saturating_sub(slack_us)..=to_us.saturating_add(slack_us)).contains(&at_us))
    }

    /// From here on the driver can have known of an end at this time.
    pub fn heard_from_us(&self, at_us: u64, slack_us: u64) -> u64 {
        let deaf = self.deaf.filter(|_| self.was_deaf(at_us, slack_us));
        deaf.map_or(at_us, |(_, to_us)| at_us.max(to_us.saturating_add(slack_us)))
    }

    /// The backend ended it, or was left to end it, by a timeout.
    pub fn timed_out(&self) -> bool {
        matches!(
            self.over.map(|over| over.how),
            Some(How::Finished(
                Finish::Forced(EndKind::HalfOpen) | Finish::ByServer(Outcome::TimedOut) | Finish::Goodbye(Outcome::TimedOut)
            ))
        )
    }

    /// The name to print: the backend's where known, else ours.
    pub fn name(&self) -> &str {
        self.accepted.as_ref().map_or(&self.client_ref, |accepted| &accepted.session_id)
    }

    /// A kill of its backend or worker ended it; the driver's own view comes later or never.
    pub(super) fn closed_from_outside(&self, killed: &BTreeMap<BootIndex, u64>) -> bool {
        self.accepted.as_ref().is_some_and(|accepted| killed.contains_key(&accepted.boot)) || self.untold_from_us.is_some()
    }
}

/// The backend may have counted a session that failed so. `front`: what was heard may be the front's own word. `at_upgrade`: a request whose
/// answer did not come in time may have been a start, and that it was not even sent is not known.
const fn may_have_started(how: How, front: bool, at_upgrade: bool) -> bool {
    let How::Failed(cause) = how else { return true };
    if at_upgrade && matches!(cause, FailureCause::ConnectTimeout) {
        return true;
    }
    if front && matches!(cause, FailureCause::Draining) {
        return true;
    }
    !matches!(
        cause,
        FailureCause::ConnectionRefused
            | FailureCause::Unreachable
            | FailureCause::ConnectTimeout
            | FailureCause::TooManyFiles
            | FailureCause::Tls
            | FailureCause::NotAnAgent
            | FailureCause::Unauthorized
            | FailureCause::NotFound
            | FailureCause::Rejected
            | FailureCause::Draining
            | FailureCause::NoBackend
            | FailureCause::ServerError(ErrorCode::Overloaded | ErrorCode::Draining)
    )
}
