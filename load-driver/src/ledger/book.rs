//! Every session from scheduled to ended, with how.
//!
//! ```text
//! scheduled -> attempted -> accepted -> over (Finish)      established, then completed | interrupted | failed
//!                        \-> over (cause)                  never accepted: refused, or in doubt (the backend may have counted it)
//!                        \-> retried -> attempted ...      the dial is over like one that failed; one in doubt is kept as a stray
//! worker lost:     accepted -> over Forced(KillWorker) | Lost(WorkerLost);  attempted -> in doubt
//! backend killed:  accepted on that boot -> over Forced(KillBackend)
//! ```
//! A session whose backend the plan kills is over then and there, whatever its scenario meant for it; the funnel tells the ones that were to
//! end otherwise apart (`dropped`).
//! Whose a session is, [`super::ids`] says.
//!
//! A session that is over and reconciled is folded into totals, so that memory follows the sessions that live, not those that lived.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use proto::{frame::Outcome, ids::PlanIndex};

use super::{
    entry::{FailureCause, Finish, LedgerEntry, LedgerEvent},
    funnel::{Funnels, Standing},
    ids::Ids,
    merge::{SourceId, WorkerLoss},
    recent::Recent,
    retries::Retries,
    session::{Acceptance, Attempt, How, Over, Session},
    standstill::Standstills,
    strays::Strays,
    tally::Tally,
};
use crate::plan::{EndKind, Expect};

/// Numbers the boots (backend processes) of a run in the order in which they were first heard of.
pub type BootIndex = usize;

static NONE: Standstills = Standstills::new();

/// More processes than any plan kills: who tells of more invents them.
pub(super) const MAX_BOOTS: usize = 1 << 16;

/// All sessions of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Book {
    pub(super) sessions: BTreeMap<PlanIndex, Session>,
    pub(super) strays: Strays,
    /// A balancer stands before the backends.
    pub(super) front: bool,
    pub(super) ids: Ids,
    retries: Retries,
    /// By boot too: names are unique within one boot only.
    pub(super) by_id: HashMap<(BootIndex, String), PlanIndex>,
    pub(super) by_ref: HashMap<String, PlanIndex>,
    boots: HashMap<String, BootIndex>,
    killed: BTreeMap<BootIndex, u64>,
    /// By backend: the windows of sessions that are folded without a word of their ends are over by then.
    windows_us: BTreeMap<usize, u64>,
    /// Folded sessions of which a boot itself said how they ended.
    told: BTreeMap<(BootIndex, Outcome), u64>,
    /// When each boot last accepted a session.
    last_accepted_us: BTreeMap<BootIndex, u64>,
    /// Accepted sessions that were folded, by boot.
    folded: BTreeMap<BootIndex, u64>,
    /// Hashes of the names of folded sessions: a second decrement of one of them must be known for what it is.
    pub(super) folded_names: Recent,
    /// Of those: folded without an end record, which may yet come.
    pub(super) folded_unrecorded: Recent,
    /// Behind a front: hashes of the references of folded sessions, alone and with the process that counted them.
    pub(super) folded_refs: Recent,
    /// Dials in doubt that were folded, by backend: it may have counted each.
    doubts: BTreeMap<Option<usize>, u64>,
    /// Of those: its log told that it had.
    pub(super) doubts_counted: u64,
    losses: Vec<WorkerLoss>,
    /// When shards of the driver stood still.
    standstills: BTreeMap<SourceId, Standstills>,
    pub(super) tally: Tally,
    /// What each scenario is for, in the order of the plan.
    expect: Vec<Option<Expect>>,
    /// Of which of them a dial may have been the start.
    start_at_upgrade: Vec<bool>,
    funnels: Funnels,
    /// By backend; without one: of sessions that may have been with any.
    last_end_us: BTreeMap<Option<usize>, u64>,
    first_attempt_us: BTreeMap<Option<usize>, u64>,
    irregular: Vec<String>,
}

impl Book {
    /// For these scenarios, in the order of the plan.
    pub fn new(expect: Vec<Option<Expect>>) -> Self {
        Self { expect, ..Self::default() }
    }

    /// The same, where the upgrade of the connection may be the start of these scenarios' sessions.
    pub fn starting_at_upgrade(mut self, scenarios: Vec<bool>) -> Self {
        self.start_at_upgrade = scenarios;
        self
    }

    /// The same behind a front: which backend a dial names is of no account.
    pub fn behind_front(mut self) -> Self {
        self.front = true;
        self
    }

    /// The same, going on from sessions that another driver had brought to their ends.
    pub(super) fn resume(&mut self, funnels: Funnels) {
        self.funnels = funnels;
    }

    /// Sessions that this boot accepted, folded or not.
    pub(super) fn accepted_on(&self, boot: BootIndex) -> u64 {
        let told = self.sessions.values().filter(|s| s.accepted.as_ref().is_some_and(|a| a.boot == boot)).count();
        self.folded_on(boot) + told as u64
    }

    /// When this boot last accepted a session.
    pub(super) fn last_accepted_us(&self, boot: BootIndex) -> u64 {
        self.last_accepted_us.get(&boot).copied().unwrap_or(0)
    }

    /// The number of a boot, if it has one.
    pub(super) fn boot_of(&self, boot_id: &str) -> Option<BootIndex> {
        self.boots.get(boot_id).copied()
    }

    /// The number of a boot; new ones get the next. Beyond a bound all are one, whose counters nobody ever sees.
    pub fn boot(&mut self, boot_id: &str) -> BootIndex {
        if let Some(index) = self.boots.get(boot_id) {
            return *index;
        }
        let next = self.boots.len();
        if next >= MAX_BOOTS {
            return MAX_BOOTS;
        }
        self.boots.insert(boot_id.to_owned(), next);
        next
    }

    /// A step of a session.
    pub fn apply(&mut self, source: SourceId, entry: LedgerEntry) {
        let (index, at_us) = (entry.index, entry.at_us);
        self.tally.see(source, &entry, self.sessions.get(&index));
        if let LedgerEvent::Scheduled { scenario, protocol, end: planned, client_ref } = entry.event {
            if self.sessions.contains_key(&index) || self.by_ref.contains_key(&client_ref) {
                return self.complain(index, "was scheduled twice");
            }
            self.by_ref.insert(client_ref.clone(), index);
            let session = Session {
                source,
                scenario,
                protocol,
                planned,
                client_ref,
                attempted: None,
                retrying: false,
                accepted: None,
                forced: None,
                raced: false,
                deaf: None,
                over: None,
                untold_from_us: None,
                record: None,
                agreed_us: None,
                lives_on: false,
                dial_cut: false,
                told: false,
                starts_at_upgrade: self.start_at_upgrade.get(usize::from(scenario)).copied().unwrap_or(false),
            };
            self.funnels.enter(scenario, Standing::of(&session, expect_of(&self.expect, scenario)));
            self.sessions.insert(index, session);
            return;
        }
        let Some(session) = self.sessions.get(&index) else { return self.complain(index, "was not scheduled") };
        let over = session.over.is_some();
        match entry.event {
            LedgerEvent::Scheduled { .. } => {}
            // A goodbye that was under way when its backend was killed: it ended before, and in order.
            LedgerEvent::Ended { finish: finish @ (Finish::Goodbye(_) | Finish::ByServer(_)) }
                if over && session.end_kind() == Some(EndKind::KillBackend) =>
            {
                self.over(index, at_us, How::Finished(finish));
                self.change(index, |session| session.told = true);
            }
            // The kill of its backend or worker closed it; the driver's own view of that comes later.
            event if over && session.closed_from_outside(&self.killed) => {
                if matches!(event, LedgerEvent::Ended { .. } | LedgerEvent::Failed { .. }) {
                    self.change(index, |session| session.told = true);
                }
            }
            _ if over => self.complain(index, "went on after its end"),
            LedgerEvent::Attempted { backend, .. } => self.attempted(index, backend, at_us),
            LedgerEvent::Retried { cause } if session.dialling() => self.retried(index, cause, at_us),
            LedgerEvent::Retried { .. } => self.complain(index, "was retried without a dial"),
            LedgerEvent::Accepted { session_id, backend_id, boot_id } => self.accepted(index, session_id, &backend_id, &boot_id, at_us),
            LedgerEvent::Deaf { until_us } => self.change(index, |session| {
                let (from_us, to_us) = session.deaf.unwrap_or((at_us, until_us));
                session.deaf = Some((from_us, to_us.max(until_us)));
            }),
            LedgerEvent::Raced => self.change(index, |session| session.raced = true),
            LedgerEvent::Forced { kind } => {
                self.change(index, |session| session.forced = session.forced.or(Some((kind, at_us))));
            }
            LedgerEvent::Ended { finish } if session.accepted.is_some() => {
                self.over(index, at_us, How::Finished(finish));
                self.change(index, |session| session.told = true);
            }
            LedgerEvent::Failed { cause } if session.accepted.is_none() => self.over(index, at_us, How::Failed(cause)),
            LedgerEvent::Ended { .. } => self.complain(index, "ended without acceptance"),
            LedgerEvent::Failed { .. } => self.complain(index, "failed to start after acceptance"),
        }
    }

    fn attempted(&mut self, index: PlanIndex, backend: Option<usize>, at_us: u64) {
        let attempt = Attempt { backend: backend.filter(|_| !self.front), at_us };
        self.first_attempt_us.entry(attempt.backend).or_insert(at_us);
        let Some(session) = self.sessions.get(&index) else { return };
        if session.accepted.is_some() {
            let stray = Session { attempted: Some(attempt), accepted: None, record: None, forced: None, ..session.clone() };
            self.strays.keep(stray, FailureCause::Protocol, at_us);
            return self.complain(index, "was dialled after its acceptance");
        }
        if session.dialling() {
            // The backend may have counted both.
            self.leave_dial(index, FailureCause::Protocol, at_us);
            self.complain(index, "was dialled again without word of the first dial");
        }
        self.change(index, |session| {
            session.attempted = Some(attempt);
            session.retrying = false;
        });
    }

    fn retried(&mut self, index: PlanIndex, cause: FailureCause, at_us: u64) {
        let Some(attempt) = self.sessions.get(&index).and_then(|session| session.attempted) else { return };
        self.retries.count(cause, attempt.backend);
        self.leave_dial(index, cause, at_us);
    }

    /// The session goes on without this dial, which is over like one that failed.
    fn leave_dial(&mut self, index: PlanIndex, cause: FailureCause, at_us: u64) {
        let Some(session) = self.sessions.get(&index) else { return };
        let (backend, dial) = (session.backend(), session.clone());
        self.ended_at(backend, at_us);
        self.strays.keep(dial, cause, at_us);
        self.change(index, |session| {
            session.retrying = true;
            session.record = None;
            session.dial_cut = false;
        });
    }

    fn accepted(&mut self, index: PlanIndex, session_id: String, backend_id: &str, boot_id: &str, at_us: u64) {
        let boot = self.boot(boot_id);
        let Some(session) = self.sessions.get(&index) else { return };
        let Some(attempt) = session.attempted.filter(|_| session.dialling()) else {
            return self.complain(index, "was accepted twice or before it was attempted");
        };
        if session.record.is_some_and(|record| record.name != name_hash(boot, &session_id)) {
            // The front had dialled before, and that dial's end is told already.
            let dial = session.clone();
            self.strays.keep(dial, FailureCause::Reset, at_us);
            self.change(index, |session| session.record = None);
        }
        let backend = attempt.backend.or_else(|| self.ids.find(backend_id));
        if attempt.backend.is_none() {
            self.ids.accepted(backend_id);
        }
        let unplaced = backend.is_none().then(|| backend_id.to_owned());
        self.last_accepted_us.insert(boot, at_us);
        self.by_id.insert((boot, session_id.clone()), index);
        self.change(index, |session| session.accepted = Some(Acceptance { at_us, session_id, boot, backend, unplaced }));
        // News of a session of a killed process that was under way.
        if let Some(&killed_us) = self.killed.get(&boot) {
            self.over(index, killed_us.max(at_us), How::Finished(Finish::Forced(EndKind::KillBackend)));
        }
    }

    /// A snapshot of this backend bore this name.
    pub fn learn(&mut self, backend: usize, backend_id: &str) {
        if !self.ids.learn(backend, backend_id) {
            return;
        }
        let found = self.ids.find(backend_id);
        let waits = |a: &&mut Acceptance| a.unplaced.as_deref() == Some(backend_id);
        for accepted in self.sessions.values_mut().filter_map(|s| s.accepted.as_mut()).filter(waits) {
            accepted.backend = found;
            accepted.unplaced = accepted.unplaced.take().filter(|_| found.is_none());
        }
    }

    fn ended_at(&mut self, backend: Option<usize>, at_us: u64) {
        let last = self.last_end_us.entry(backend).or_default();
        *last = (*last).max(at_us);
    }

    fn over(&mut self, index: PlanIndex, at_us: u64, how: How) {
        let Some(session) = self.sessions.get(&index) else { return };
        let forced_us = match (session.forced, how) {
            (Some((kind, forced_us)), How::Finished(Finish::Forced(finish))) if kind == finish => Some(forced_us),
            _ => None,
        };
        if session.attempted.is_some() {
            self.ended_at(session.backend(), at_us);
        }
        self.change(index, |session| session.over = Some(Over { at_us: forced_us.unwrap_or(at_us), how }));
    }

    /// Whatever changes how a session counts goes through here.
    fn change(&mut self, index: PlanIndex, step: impl FnOnce(&mut Session)) {
        let Some(session) = self.sessions.get_mut(&index) else { return };
        let expect = expect_of(&self.expect, session.scenario);
        self.funnels.leave(session.scenario, Standing::of(session, expect));
        step(session);
        self.funnels.enter(session.scenario, Standing::of(session, expect));
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
            self.change(index, |session| {
                session.untold_from_us = Some(loss.known_to_us.get(&session.source.shard).copied().unwrap_or(loss.at_us));
                session.dial_cut = loss.planned && session.accepted.is_none();
                session.told = true;
            });
            self.over(index, loss.at_us, how);
        }
        self.losses.push(loss);
    }

    /// A backend process was killed by the plan: whatever it held ends here. How the driver sees the connections break comes later and
    /// says nothing new.
    pub fn backend_killed(&mut self, backend: usize, boot: BootIndex, at_us: u64) {
        self.killed.insert(boot, at_us);
        let dialled = |s: &Session| s.dialling() && s.may_be_at(backend);
        let dialling: Vec<PlanIndex> = self.sessions.iter().filter(|(_, s)| dialled(s)).map(|(index, _)| *index).collect();
        for index in dialling {
            self.change(index, |session| session.dial_cut = true);
        }
        let on_boot = |s: &Session| s.over.is_none() && s.accepted.as_ref().is_some_and(|a| a.boot == boot);
        let live: Vec<PlanIndex> = self.sessions.iter().filter(|(_, s)| on_boot(s)).map(|(index, _)| *index).collect();
        for index in live {
            self.over(index, at_us, How::Finished(Finish::Forced(EndKind::KillBackend)));
        }
    }

    /// Removes a reconciled session; totals keep it.
    pub(super) fn fold(&mut self, index: PlanIndex) {
        let Some((session, over_us)) = self.take_out(index) else { return };
        if session.accepted.is_none() && session.in_doubt() {
            return self.fold_doubt(&session);
        }
        if let Some(accepted) = session.accepted {
            *self.folded.entry(accepted.boot).or_default() += 1;
            let hash = name_hash(accepted.boot, &accepted.session_id);
            self.folded_names.insert(hash, over_us);
            if session.record.is_none() {
                self.folded_unrecorded.insert(hash, over_us);
            }
            self.by_id.remove(&(accepted.boot, accepted.session_id));
        }
    }

    /// Removes a session that the driver alone called accepted, and that the backend need never have had.
    pub(super) fn fold_unheard(&mut self, index: PlanIndex) {
        let Some((session, over_us)) = self.take_out(index) else { return };
        *self.doubts.entry(session.backend()).or_default() += 1;
        if let Some(accepted) = session.accepted {
            self.folded_unrecorded.insert(name_hash(accepted.boot, &accepted.session_id), over_us);
            self.by_id.remove(&(accepted.boot, accepted.session_id));
        }
    }

    fn take_out(&mut self, index: PlanIndex) -> Option<(Session, u64)> {
        let session = self.sessions.remove(&index)?;
        self.by_ref.remove(&session.client_ref);
        let over_us = session.over.map_or(0, |over| over.at_us);
        if self.front {
            self.folded_refs.insert(ref_hash(&session.client_ref), over_us);
            if let Some(boot) = session.counted_by() {
                self.folded_refs.insert(name_hash(boot, &session.client_ref), over_us);
            }
        }
        Some((session, over_us))
    }

    /// A dial of which nobody will tell any more: its backend may have counted it, and did when its log says so.
    fn fold_doubt(&mut self, dial: &Session) {
        if let Some(record) = dial.record {
            *self.folded.entry(record.boot).or_default() += 1;
            self.folded_names.insert(record.name, record.at_us);
            self.doubts_counted += 1;
        } else {
            *self.doubts.entry(dial.backend()).or_default() += 1;
        }
    }

    /// Folds the dials that sessions left behind before this time.
    pub(super) fn fold_strays(&mut self, before_us: u64) {
        for dial in self.strays.take_before(before_us) {
            self.fold_doubt(&dial);
        }
    }

    /// Folded dials in doubt without a record that may have been counted by this backend.
    pub(super) fn doubts_at(&self, backend: usize) -> u64 {
        [Some(backend), None].iter().filter_map(|at| self.doubts.get(at).copied()).sum()
    }

    /// All folded dials in doubt.
    pub(super) fn doubts_folded(&self) -> u64 {
        self.doubts_counted + self.doubts.values().sum::<u64>()
    }

    /// A session is to be folded whose backend said how it ended.
    pub(super) fn tell(&mut self, boot: BootIndex, outcome: Outcome) {
        *self.told.entry((boot, outcome)).or_default() += 1;
    }

    /// How many folded ones this boot said to have ended so.
    pub(super) fn told_on(&self, boot: BootIndex, outcome: Outcome) -> u64 {
        self.told.get(&(boot, outcome)).copied().unwrap_or(0)
    }

    /// When the plan killed processes.
    pub(super) fn kills_us(&self) -> Vec<u64> {
        self.killed.values().copied().collect()
    }

    /// The plan killed this process.
    pub(super) fn was_killed(&self, boot: BootIndex) -> bool {
        self.killed.contains_key(&boot)
    }

    /// Accepted on this boot and folded.
    pub(super) fn folded_on(&self, boot: BootIndex) -> u64 {
        self.folded.get(&boot).copied().unwrap_or(0)
    }

    /// When the last session that was, or may have been, with this backend ended.
    pub(super) fn last_end_us(&self, backend: usize) -> u64 {
        [Some(backend), None].iter().filter_map(|at| self.last_end_us.get(at).copied()).max().unwrap_or(0)
    }

    /// When the first session was dialled that may have gone to this backend.
    pub(super) fn first_attempt_us(&self, backend: usize) -> Option<u64> {
        [Some(backend), None].iter().filter_map(|at| self.first_attempt_us.get(at).copied()).min()
    }

    /// The same; without a backend: of all.
    pub(super) fn last_end_of(&self, backend: Option<usize>) -> u64 {
        backend.map_or_else(|| self.last_end_us.values().copied().max().unwrap_or(0), |backend| self.last_end_us(backend))
    }

    /// When the first session was dialled that may have gone to this backend; without one: to any.
    pub(super) fn first_attempt_of(&self, backend: Option<usize>) -> Option<u64> {
        backend.map_or_else(|| self.first_attempt_us.values().copied().min(), |backend| self.first_attempt_us(backend))
    }

    /// A session without a word of its end is to be folded: its window is over by then.
    pub(super) fn window_over(&mut self, backend: usize, at_us: u64) {
        let last = self.windows_us.entry(backend).or_default();
        *last = at_us.max(*last);
    }

    /// The last such window of this backend.
    pub(super) fn last_window_us(&self, backend: usize) -> u64 {
        self.windows_us.get(&backend).copied().unwrap_or(0)
    }

    /// Sessions that are with this backend, or may be, and are not over.
    pub(super) fn open_towards(&self, backend: usize) -> bool {
        self.sessions.values().any(|s| s.over.is_none() && s.may_be_at(backend))
    }

    /// Dials that came to nothing and were made again.
    pub fn retries(&self) -> &Retries {
        &self.retries
    }

    /// A shard of the driver stood still.
    pub(super) fn stood_still(&mut self, source: SourceId, from_us: u64, to_us: u64) {
        self.standstills.entry(source).or_default().push(from_us, to_us);
    }

    /// When a shard of the driver stood still.
    pub(super) fn standstills(&self, source: SourceId) -> &Standstills {
        self.standstills.get(&source).unwrap_or(&NONE)
    }

    /// A worker took untold news with it.
    pub fn losses(&self) -> &[WorkerLoss] {
        &self.losses
    }

    /// How far the sessions came.
    pub fn funnels(&self) -> &Funnels {
        &self.funnels
    }

    /// Steps that make no sense: faults of the harness itself, the first few.
    pub fn irregular(&self) -> &[String] {
        &self.irregular
    }

    fn complain(&mut self, index: PlanIndex, what: &str) {
        if self.irregular.len() < 20 {
            self.irregular.push(format!("session {index} {what}"));
        }
    }
}

fn expect_of(expect: &[Option<Expect>], scenario: u16) -> Option<Expect> {
    expect.get(usize::from(scenario)).copied().flatten()
}

/// As [`name_hash`], of what the driver calls a session.
pub(super) fn ref_hash(client_ref: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    client_ref.hash(&mut hasher);
    hasher.finish()
}

/// Sixteen bytes a session instead of its name; two of a million sessions share one with a chance of 1 in 30 million.
pub(super) fn name_hash(boot: BootIndex, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (boot, name).hash(&mut hasher);
    hasher.finish()
}
