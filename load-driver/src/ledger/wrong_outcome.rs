//! Whether an end was counted under an outcome, and at a time, that the session can have had.

use proto::frame::Outcome;

use super::{
    boot::{Boot, Watch},
    config::LedgerConfig,
    entry::{FailureCause, Finish},
    session::{How, Record, Session},
    standstill::Standstills,
};
use crate::plan::EndKind;

/// An end of the backend's own so soon after ours raced with it.
const RACE_US: u64 = 100_000;

/// What an end record is worth beside what the driver knows of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Judged {
    /// The session can have ended so.
    Right,
    /// It can, if the backend ended it by itself in the moment in which the driver cut it: that happens, and seldom. What was expected otherwise; nothing
    /// where only the time is odd.
    Crossed(Option<String>),
    /// The backend gave up, as for a silent peer, a session that the driver cut, and in all the time between the cut and that the driver stood still, or made
    /// good what had waited: it had not answered, and the cut need not have been out.
    Overtaken,
    /// It cannot. What was expected.
    Wrong(String),
}

/// Judges an end record. `stood`: when the shard of the driver that ran the session stood still.
pub(super) fn judge(session: &Session, (boot, watch): (&Boot, &Watch), stood: &Standstills, config: &LedgerConfig) -> Judged {
    let (Some(over), Some(record)) = (session.over, session.record) else { return Judged::Right };
    let timed_out = record.outcome == Some(Outcome::TimedOut);
    let kind = match over.how {
        How::Finished(Finish::Goodbye(Outcome::Completed)) if timed_out && config.goodbye_may_be_late(session.scenario) => {
            return Judged::Right;
        }
        How::Finished(Finish::Goodbye(outcome) | Finish::ByServer(outcome)) if record.outcome == Some(outcome) => return Judged::Right,
        How::Finished(Finish::Goodbye(outcome) | Finish::ByServer(outcome)) => return Judged::Wrong(outcome.name().to_owned()),
        How::Finished(Finish::Forced(kind)) => kind,
        // A killed worker may have said goodbye and not told of it, and one that was forced to end in order may not have heard the answer; nobody else said one.
        How::Finished(Finish::Lost(cause)) if record.outcome == Some(Outcome::Completed) => {
            let unsaid = cause != FailureCause::WorkerLost && session.forced.is_none();
            return if unsaid { Judged::Wrong("an end without a goodbye".to_owned()) } else { Judged::Right };
        }
        How::Finished(Finish::Lost(_)) | How::Failed(_) => return Judged::Right,
    };
    let Some(cut) = outcomes_of(kind, session.through_front()) else { return Judged::Right };
    let before = record.at_us <= over.at_us;
    // Nobody told what the worker had done by then; a session that the plan ends otherwise may just have done that.
    if session.untold_from_us.is_some() && (before || session.planned != EndKind::KillWorker) {
        return Judged::Right;
    }
    let deadline = timed_out && (session.raced || config.expects_timeout(session.scenario));
    let as_cut = record.outcome.is_some_and(|outcome| cut.contains(&outcome));
    if as_cut {
        let news_us = RACE_US.saturating_add(boot.trip_us());
        let early = !deadline && record.at_us.saturating_add(news_us) < over.at_us;
        let crossed = early && !is_unheard(session, (record, over.at_us), watch, stood, config);
        return if crossed { Judged::Crossed(None) } else { Judged::Right };
    }
    // The plan let a deadline of the backend's fall on the cut; which of them a stalled backend sees first says nothing. Or the cut was lost on the way, or late.
    let soon = watch.watched_us(over.at_us, record.at_us) <= RACE_US;
    if deadline && (session.raced || soon) || timed_out && watch.disturbances.within(over.at_us, record.at_us) {
        return Judged::Right;
    }
    if record.outcome == Some(Outcome::Drained) && boot.drained_with(session, record.at_us) {
        return Judged::Right;
    }
    let expected = cut.iter().map(|outcome| outcome.name()).collect::<Vec<_>>().join(" or ");
    // Completed takes a goodbye, and the driver said none. Any other end may have been the backend's own, decided before it could know of ours.
    if before && record.outcome != Some(Outcome::Completed) || timed_out && soon {
        let held_up = !before && record.at_us.saturating_sub(over.at_us) > RACE_US;
        let unheard = held_up || is_unheard(session, (record, over.at_us), watch, stood, config);
        return if unheard { Judged::Right } else { Judged::Crossed(Some(expected)) };
    }
    let overtaken = timed_out && watch.acted_us(stood.with_what_waited(), over.at_us, record.at_us) <= RACE_US;
    if overtaken { Judged::Overtaken } else { Judged::Wrong(expected) }
}

/// What the backend sees of a cut; none where it sees an end in order, or nothing any more. A front may keep the cut from it, which then sees a silent peer.
const fn outcomes_of(kind: EndKind, front: bool) -> Option<&'static [Outcome]> {
    match kind {
        EndKind::HalfOpen => Some(&[Outcome::TimedOut, Outcome::Cancelled]),
        EndKind::Cancel | EndKind::TcpFin | EndKind::TcpRst | EndKind::KillWorker if front => {
            Some(&[Outcome::Cancelled, Outcome::TimedOut])
        }
        EndKind::Cancel | EndKind::TcpFin | EndKind::TcpRst | EndKind::KillWorker => Some(&[Outcome::Cancelled]),
        EndKind::Graceful | EndKind::KillBackend => None,
    }
}

/// Of an end of the backend's own the driver need not have heard by its cut: it did not read, it stood still, or the network was disturbed.
fn is_unheard(session: &Session, (record, cut_us): (Record, u64), watch: &Watch, stood: &Standstills, config: &LedgerConfig) -> bool {
    let (from_us, to_us) = (record.at_us.min(cut_us).saturating_sub(RACE_US), record.at_us.max(cut_us).saturating_add(RACE_US));
    session.was_deaf(record.at_us, config.grace_us)
        || watch.disturbances.within(from_us, to_us)
        || stood.with_what_waited().any(|(stood_us, went_on_us)| stood_us < to_us && from_us < went_on_us)
}
