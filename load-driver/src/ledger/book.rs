//! Every session from scheduled to ended, with how.
//!
//! ```text
//! scheduled -> attempted -> accepted -> over (Finish)      established, then completed | interrupted | failed
//!                        \-> over (cause)                  never accepted: refused, or in doubt (the backend may have counted it)
//! worker lost:     accepted -> over Forced(KillWorker) | Lost(WorkerLost);  attempted -> in doubt
//! backend killed:  accepted on that boot -> over Forced(KillBackend)
//! ```
//! A session that is over and reconciled is folded into totals, so that memory follows the sessions that live, not those that lived.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use proto::{
    frame::{ErrorCode, Outcome},
    ids::PlanIndex,
};
use serde::{Deserialize, Serialize};

use super::{
    entry::{FailureCause, Finish, LedgerEntry, LedgerEvent},
    merge::{SourceId, WorkerLoss},
};
use crate::plan::{EndKind, Protocol};

/// Numbers the boots (backend processes) of a run in the order in which they were first heard of.
pub type BootIndex = usize;

/// A session that may still matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Who ran it.
    pub source: SourceId,
    /// Index into the plan's scenarios.
    pub scenario: u16,
    /// Transport.
    pub protocol: Protocol,
    /// As sent to the backend.
    pub client_ref: String,
    /// Target and time of the dial, unix microseconds.
    pub attempted: Option<(usize, u64)>,
    /// The backend said that it counts it.
    pub accepted: Option<Acceptance>,
    /// The driver forced its end: how and when.
    pub forced: Option<(EndKind, u64)>,
    /// It is over.
    pub over: Option<Over>,
    /// The worker that ran it was killed; from here on it may have done things that nobody told.
    pub untold_from_us: Option<u64>,
    /// What the backend's end log says of it.
    pub record: Option<Record>,
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
}

/// How far sessions came. `requested >= attempted >= established` and `established = live + completed + interrupted + failed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Funnel {
    /// Their time came.
    pub requested: u64,
    /// The driver dialled.
    pub attempted: u64,
    /// The backend accepted.
    pub established: u64,
    /// Of those: not over.
    pub live: u64,
    /// Of those: ended in order.
    pub completed: u64,
    /// Of those: cut by the driver, by plan or at the run's end.
    pub interrupted: u64,
    /// Of those: broke, or ended by the backend otherwise than in order.
    pub failed: u64,
    /// Never accepted: refused for lack of room, or the backend drains.
    pub rejected: u64,
    /// Never accepted for another cause.
    pub not_established: u64,
}

impl Funnel {
    /// What must hold in every state.
    pub fn adds_up(&self) -> bool {
        self.requested >= self.attempted
            && self.attempted >= self.established
            && self.established == self.live + self.completed + self.interrupted + self.failed
            && self.requested >= self.established + self.rejected + self.not_established
    }
}

/// All sessions of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Book {
    pub(super) sessions: BTreeMap<PlanIndex, Session>,
    /// By boot too: names are unique within one boot only.
    by_id: HashMap<(BootIndex, String), PlanIndex>,
    by_ref: HashMap<String, PlanIndex>,
    boots: Vec<String>,
    killed: BTreeMap<BootIndex, u64>,
    /// Accepted sessions that were folded, by boot.
    folded: BTreeMap<BootIndex, u64>,
    /// Hashes of the names of folded sessions: a second decrement of one of them must be known for what it is.
    folded_names: HashSet<u64>,
    losses: Vec<WorkerLoss>,
    total: Funnel,
    scenarios: BTreeMap<u16, Funnel>,
    causes: BTreeMap<FailureCause, u64>,
    last_end_us: BTreeMap<usize, u64>,
    first_attempt_us: BTreeMap<usize, u64>,
    extra_attempts: BTreeMap<usize, u64>,
    irregular: Vec<String>,
}

impl Session {
    /// The backend may have counted it although it never said so.
    pub fn in_doubt(&self) -> bool {
        self.attempted.is_some() && self.accepted.is_none() && self.over.is_none_or(|over| may_have_started(over.how))
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
}

/// The backend may have counted a session that failed so.
const fn may_have_started(how: How) -> bool {
    let How::Failed(cause) = how else { return true };
    !matches!(
        cause,
        FailureCause::ConnectionRefused
            | FailureCause::Unreachable
            | FailureCause::ConnectTimeout
            | FailureCause::TooManyFiles
            | FailureCause::NotAnAgent
            | FailureCause::Rejected
            | FailureCause::Draining
            | FailureCause::ServerError(ErrorCode::Overloaded | ErrorCode::Draining)
    )
}

impl Book {
    /// The number of a boot; new ones get the next.
    pub fn boot(&mut self, boot_id: &str) -> BootIndex {
        self.boots.iter().position(|known| known == boot_id).unwrap_or_else(|| {
            self.boots.push(boot_id.to_owned());
            self.boots.len() - 1
        })
    }

    /// A step of a session.
    pub fn apply(&mut self, source: SourceId, entry: LedgerEntry) {
        let (index, at_us) = (entry.index, entry.at_us);
        if let LedgerEvent::Scheduled { scenario, protocol, end: _, client_ref } = entry.event {
            if self.sessions.contains_key(&index) || self.by_ref.contains_key(&client_ref) {
                return self.complain(index, "was scheduled twice");
            }
            self.count(scenario, |funnel| funnel.requested += 1);
            self.by_ref.insert(client_ref.clone(), index);
            let (attempted, accepted, forced, over, untold_from_us, record) = (None, None, None, None, None, None);
            let session = Session { source, scenario, protocol, client_ref, attempted, accepted, forced, over, untold_from_us, record };
            self.sessions.insert(index, session);
            return;
        }
        let Some(session) = self.sessions.get(&index) else { return self.complain(index, "was not scheduled") };
        let (scenario, over) = (session.scenario, session.over.is_some());
        match entry.event {
            LedgerEvent::Scheduled { .. } => {}
            // The kill of its backend or worker closed it; the driver's own view of that comes later.
            _ if over && session.closed_from_outside(&self.killed) => {}
            _ if over => self.complain(index, "went on after its end"),
            LedgerEvent::Attempted { backend } => self.attempted(index, scenario, backend, at_us),
            LedgerEvent::Accepted { session_id, boot_id, .. } => self.accepted(index, session_id, &boot_id, at_us),
            LedgerEvent::Forced { kind } => {
                if let Some(session) = self.sessions.get_mut(&index) {
                    session.forced = session.forced.or(Some((kind, at_us)));
                }
            }
            LedgerEvent::Ended { finish } if session.accepted.is_some() => self.over(index, at_us, How::Finished(finish)),
            LedgerEvent::Failed { cause } if session.accepted.is_none() => self.over(index, at_us, How::Failed(cause)),
            LedgerEvent::Ended { .. } => self.complain(index, "ended without acceptance"),
            LedgerEvent::Failed { .. } => self.complain(index, "failed to start after acceptance"),
        }
    }

    fn attempted(&mut self, index: PlanIndex, scenario: u16, backend: usize, at_us: u64) {
        self.first_attempt_us.entry(backend).or_insert(at_us);
        let Some(session) = self.sessions.get_mut(&index) else { return };
        if session.attempted.is_some() {
            // Dialled again: the backend may have counted both.
            *self.extra_attempts.entry(backend).or_default() += 1;
            return;
        }
        session.attempted = Some((backend, at_us));
        self.count(scenario, |funnel| funnel.attempted += 1);
    }

    fn accepted(&mut self, index: PlanIndex, session_id: String, boot_id: &str, at_us: u64) {
        let boot = self.boot(boot_id);
        let Some(session) = self.sessions.get_mut(&index) else { return };
        if session.accepted.is_some() || session.attempted.is_none() {
            return self.complain(index, "was accepted twice or before it was attempted");
        }
        self.by_id.insert((boot, session_id.clone()), index);
        session.accepted = Some(Acceptance { at_us, session_id, boot });
        let scenario = session.scenario;
        self.count(scenario, |funnel| {
            funnel.established += 1;
            funnel.live += 1;
        });
        // News of a session of a killed process that was under way.
        if let Some(&killed_us) = self.killed.get(&boot) {
            self.over(index, killed_us.max(at_us), How::Finished(Finish::Forced(EndKind::KillBackend)));
        }
    }

    fn over(&mut self, index: PlanIndex, at_us: u64, how: How) {
        let Some(session) = self.sessions.get_mut(&index) else { return };
        let forced_us = match (session.forced, how) {
            (Some((kind, forced_us)), How::Finished(Finish::Forced(finish))) if kind == finish => Some(forced_us),
            _ => None,
        };
        let backend = session.attempted.map(|(backend, _)| backend);
        session.over = Some(Over { at_us: forced_us.unwrap_or(at_us), how });
        let scenario = session.scenario;
        if let Some(backend) = backend {
            let last = self.last_end_us.entry(backend).or_default();
            *last = (*last).max(at_us);
        }
        if let How::Failed(cause) | How::Finished(Finish::Lost(cause)) = how {
            *self.causes.entry(cause).or_default() += 1;
        }
        self.count(scenario, |funnel| match how {
            How::Finished(finish) => {
                funnel.live = funnel.live.saturating_sub(1);
                match finish {
                    Finish::Goodbye(Outcome::Completed) => funnel.completed += 1,
                    Finish::Forced(_) | Finish::Lost(FailureCause::Aborted) => funnel.interrupted += 1,
                    _ => funnel.failed += 1,
                }
            }
            How::Failed(FailureCause::Rejected | FailureCause::Draining) => funnel.rejected += 1,
            How::Failed(_) => funnel.not_established += 1,
        });
    }

    /// A worker process is gone: its sessions end here, those that were being dialled are in doubt.
    pub fn worker_lost(&mut self, loss: WorkerLoss) {
        let hit: Vec<(PlanIndex, How)> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.source.worker == loss.worker && s.over.is_none())
            .map(|(index, s)| {
                let how = match (s.accepted.is_some(), loss.planned) {
                    (true, true) => How::Finished(Finish::Forced(EndKind::KillWorker)),
                    (true, false) => How::Finished(Finish::Lost(FailureCause::WorkerLost)),
                    (false, _) => How::Failed(FailureCause::WorkerLost),
                };
                (*index, how)
            })
            .collect();
        for (index, how) in hit {
            if let Some(session) = self.sessions.get_mut(&index) {
                session.untold_from_us = Some(loss.known_to_us.get(&session.source.shard).copied().unwrap_or(loss.at_us));
            }
            self.over(index, loss.at_us, how);
        }
        self.losses.push(loss);
    }

    /// A backend process was killed by the plan: whatever it held ends here.
    pub fn backend_killed(&mut self, boot: BootIndex, at_us: u64) {
        self.killed.insert(boot, at_us);
        let on_boot = |s: &Session| s.accepted.as_ref().is_some_and(|a| a.boot == boot);
        let live: Vec<PlanIndex> = self.sessions.iter().filter(|(_, s)| on_boot(s) && s.over.is_none()).map(|(i, _)| *i).collect();
        for index in live {
            self.over(index, at_us, How::Finished(Finish::Forced(EndKind::KillBackend)));
        }
        // The driver saw the connection break before we heard of the kill: the same thing.
        let mut moved = Vec::new();
        for session in self.sessions.values_mut().filter(|s| on_boot(s)) {
            if let Some(over) = &mut session.over
                && let How::Finished(Finish::Lost(cause)) = over.how
                && cause != FailureCause::WorkerLost
                && over.at_us >= at_us
            {
                *over = Over { at_us, how: How::Finished(Finish::Forced(EndKind::KillBackend)) };
                moved.push((session.scenario, cause));
            }
        }
        for (scenario, cause) in moved {
            if let Some(count) = self.causes.get_mut(&cause) {
                *count = count.saturating_sub(1);
            }
            if cause != FailureCause::Aborted {
                self.count(scenario, |funnel| {
                    funnel.failed = funnel.failed.saturating_sub(1);
                    funnel.interrupted += 1;
                });
            }
        }
    }

    /// Removes a reconciled session; totals keep it.
    pub(super) fn fold(&mut self, index: PlanIndex) {
        let Some(session) = self.sessions.remove(&index) else { return };
        self.by_ref.remove(&session.client_ref);
        if let Some(accepted) = session.accepted {
            *self.folded.entry(accepted.boot).or_default() += 1;
            self.folded_names.insert(name_hash(accepted.boot, &accepted.session_id));
            self.by_id.remove(&(accepted.boot, accepted.session_id));
        }
    }

    /// The session of a backend's record, by either name.
    pub(super) fn find(&self, boot: BootIndex, client_ref: &str, session_id: &str) -> Option<PlanIndex> {
        let elsewhere = |index: &PlanIndex| self.sessions.get(index).is_some_and(|s| s.accepted.as_ref().is_some_and(|a| a.boot != boot));
        let by_ref = || self.by_ref.get(client_ref).filter(|index| !elsewhere(index));
        self.by_id.get(&(boot, session_id.to_owned())).or_else(by_ref).copied()
    }

    /// A session of that name was reconciled before.
    pub(super) fn was_folded(&self, boot: BootIndex, session_id: &str) -> bool {
        self.folded_names.contains(&name_hash(boot, session_id))
    }

    /// Accepted on this boot and folded.
    pub(super) fn folded_on(&self, boot: BootIndex) -> u64 {
        self.folded.get(&boot).copied().unwrap_or(0)
    }

    /// When the last session towards this target ended.
    pub(super) fn last_end_us(&self, backend: usize) -> u64 {
        self.last_end_us.get(&backend).copied().unwrap_or(0)
    }

    /// When the first session towards this target was dialled.
    pub(super) fn first_attempt_us(&self, backend: usize) -> Option<u64> {
        self.first_attempt_us.get(&backend).copied()
    }

    /// Dials beyond the first of a session.
    pub(super) fn extra_attempts(&self, backend: usize) -> u64 {
        self.extra_attempts.get(&backend).copied().unwrap_or(0)
    }

    /// Sessions that were being dialled towards this target or are accepted, and are not over.
    pub(super) fn open_towards(&self, backend: usize) -> bool {
        self.sessions.values().any(|s| s.over.is_none() && s.attempted.is_some_and(|(b, _)| b == backend))
    }

    /// A worker took untold news with it.
    pub fn losses(&self) -> &[WorkerLoss] {
        &self.losses
    }

    /// Over all scenarios.
    pub fn funnel(&self) -> &Funnel {
        &self.total
    }

    /// By scenario.
    pub fn scenarios(&self) -> &BTreeMap<u16, Funnel> {
        &self.scenarios
    }

    /// Failures and breaks by cause.
    pub fn causes(&self) -> &BTreeMap<FailureCause, u64> {
        &self.causes
    }

    /// Steps that make no sense: faults of the harness itself, the first few.
    pub fn irregular(&self) -> &[String] {
        &self.irregular
    }

    fn count(&mut self, scenario: u16, step: impl Fn(&mut Funnel)) {
        step(&mut self.total);
        step(self.scenarios.entry(scenario).or_default());
    }

    fn complain(&mut self, index: PlanIndex, what: &str) {
        if self.irregular.len() < 20 {
            self.irregular.push(format!("session {index} {what}"));
        }
    }
}

impl Session {
    fn closed_from_outside(&self, killed: &BTreeMap<BootIndex, u64>) -> bool {
        self.accepted.as_ref().is_some_and(|accepted| killed.contains_key(&accepted.boot)) || self.untold_from_us.is_some()
    }
}

/// Sixteen bytes a session instead of its name; two of a million sessions share one with a chance of 1 in 30 million.
pub(super) fn name_hash(boot: BootIndex, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (boot, name).hash(&mut hasher);
    hasher.finish()
}
