//! Whether an end was counted under an outcome that the session can have had.

use proto::frame::Outcome;

use super::{
    boot::{Boot, Watch},
    config::LedgerConfig,
    entry::Finish,
    session::{How, Session},
    standstill::Standstills,
};
use crate::plan::EndKind;

/// A timeout of the backend's own so soon after our end raced with it.
const RACE_US: u64 = 100_000;

/// What was expected, when the backend counted something else.
pub(super) fn expected(session: &Session, boot: &Boot, watch: &Watch, config: &LedgerConfig) -> Option<String> {
    let (over, record) = (session.over?, session.record?);
    let expected: &[Outcome] = match over.how {
        How::Finished(Finish::Goodbye(Outcome::Completed))
            if record.outcome == Some(Outcome::TimedOut) && config.goodbye_may_be_late(session.scenario) =>
        {
            return None;
        }
        How::Finished(Finish::Goodbye(outcome) | Finish::ByServer(outcome)) => {
            return (record.outcome != Some(outcome)).then(|| outcome.name().to_owned());
        }
        // Nobody told what the worker had done by then; a session that the plan ends otherwise may just have done that.
        How::Finished(Finish::Forced(_))
            if session.untold_from_us.is_some() && (record.at_us <= over.at_us || session.planned != EndKind::KillWorker) =>
        {
            return None;
        }
        // Completed takes a goodbye, and the driver said none. Any other end may have been the backend's own, decided before it could know of ours.
        How::Finished(Finish::Forced(_)) if record.outcome != Some(Outcome::Completed) && (boot.draining || record.at_us <= over.at_us) => {
            return None;
        }
        How::Finished(Finish::Forced(_))
            if record.outcome == Some(Outcome::TimedOut) && watch.watched_us(over.at_us, record.at_us) <= RACE_US =>
        {
            return None;
        }
        // The deadline was due at the same moment; which of them a stalled backend sees first says nothing.
        How::Finished(Finish::Forced(_)) if session.raced && record.outcome == Some(Outcome::TimedOut) => return None,
        // The cut was lost on the way, or late.
        How::Finished(Finish::Forced(_))
            if record.outcome == Some(Outcome::TimedOut) && watch.disturbances.within(over.at_us, record.at_us) =>
        {
            return None;
        }
        // A front may keep the cut from the backend, which then sees a silent peer.
        How::Finished(Finish::Forced(EndKind::Cancel | EndKind::TcpFin | EndKind::TcpRst | EndKind::KillWorker | EndKind::HalfOpen))
            if session.through_front() =>
        {
            &[Outcome::Cancelled, Outcome::TimedOut]
        }
        How::Finished(Finish::Forced(EndKind::HalfOpen)) => &[Outcome::TimedOut, Outcome::Cancelled],
        How::Finished(Finish::Forced(EndKind::Cancel | EndKind::TcpFin | EndKind::TcpRst | EndKind::KillWorker)) => &[Outcome::Cancelled],
        How::Finished(Finish::Forced(EndKind::Graceful | EndKind::KillBackend) | Finish::Lost(_)) | How::Failed(_) => return None,
    };
    let right = record.outcome.is_some_and(|outcome| expected.contains(&outcome));
    (!right).then(|| expected.iter().map(|outcome| outcome.name()).collect::<Vec<_>>().join(" or "))
}

/// The backend gave up, as for a silent peer, a session that the driver cut, and in all the time between the cut and that the driver stood still, or made
/// good what had waited: it had not answered, and the cut need not have been out.
pub(super) fn overtaken(session: &Session, watch: &Watch, stood: &Standstills) -> bool {
    let (Some(over), Some(record)) = (session.over, session.record) else { return false };
    let cut = matches!(over.how, How::Finished(Finish::Forced(_)));
    cut && record.outcome == Some(Outcome::TimedOut) && watch.acted_us(stood.with_what_waited(), over.at_us, record.at_us) <= RACE_US
}
