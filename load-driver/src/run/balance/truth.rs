//! Who has which sessions, by the driver's own count: accepted and not over.
//!
//! What a counter says is held against it with room for news under way: a session that is being dialled, or ended a moment ago, may be
//! counted or not.

use std::{collections::HashMap, time::Duration};

use agent_server::admin::wire::SnapshotJson;
use proto::{frame::Outcome, ids::PlanIndex, time::Micros};

use super::{Setup, member::Member};
use crate::{
    balance::{Book, BookConfig, Decision, Sight, Trouble},
    ledger::{FailureCause, Finish, LedgerEvent, funnel::cause_name, merge::WorkerLoss},
    plan::{EndKind, Expect},
};

/// A session that is not over.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "facts that come to be one by one, not states of one machine")]
struct Stage {
    worker: u32,
    scenario: u16,
    /// The plan ends it by the kill of its backend.
    to_be_killed: bool,
    backend: Option<usize>,
    dialling: bool,
    accepted: bool,
    /// The plan cut it: what is seen of it from then on says nothing new.
    cut: bool,
    over: bool,
}

/// A session is on a backend that is none of ours.
#[derive(Debug)]
pub(super) struct Unknown(pub(super) String);

/// Sessions and backends as of one moment. Times only go forward.
#[derive(Debug)]
pub(super) struct Truth {
    book: Book,
    members: Vec<Member>,
    sessions: HashMap<PlanIndex, Stage>,
    /// Dialled to a balancer that has not said whom it picked.
    unplaced: u64,
    expect: Vec<Option<Expect>>,
    pinned: Vec<bool>,
    start_us: u64,
}

impl Truth {
    pub(super) fn new(setup: Setup) -> Self {
        let Setup { book, joins, expect, pinned, start_us } = setup;
        let member = |joins: &Micros| Member::new(start_us.saturating_add(joins.0));
        let members = joins.iter().map(member).collect();
        Self { members, book: Book::new(book), sessions: HashMap::new(), unplaced: 0, expect, pinned, start_us }
    }

    /// What was written so far; a new one begins.
    pub(super) fn take_book(&mut self) -> Book {
        std::mem::replace(&mut self.book, Book::new(BookConfig::default()))
    }

    pub(super) fn asked(&mut self, backend: usize, look: u64, at_us: u64) {
        if let Some(member) = self.members.get_mut(backend) {
            member.asked(look, at_us, self.unplaced);
        }
    }

    pub(super) fn answered(&mut self, backend: usize, snapshot: &SnapshotJson, at_us: u64) {
        if self.members.get_mut(backend).is_some_and(|member| member.answered(snapshot)) {
            self.see(at_us);
        }
    }

    pub(super) fn settled(&mut self, backend: usize, look: u64, counted: i64) {
        if let Some(member) = self.members.get_mut(backend) {
            member.settled(look, counted);
        }
    }

    fn see(&mut self, at_us: u64) {
        let fleet: Vec<Sight> = self.members.iter().map(|member| member.sight(at_us)).collect();
        self.book.see(self.run_time(at_us), &fleet);
    }

    fn run_time(&self, at_us: u64) -> Micros {
        Micros(at_us.saturating_sub(self.start_us))
    }

    /// A step of a session.
    pub(super) fn step(&mut self, worker: u32, index: PlanIndex, at_us: u64, event: &LedgerEvent) -> Result<(), Unknown> {
        if let LedgerEvent::Scheduled { scenario, end, .. } = event {
            let to_be_killed = *end == EndKind::KillBackend;
            let (scenario, backend) = (*scenario, None);
            let stage = Stage { worker, scenario, to_be_killed, backend, dialling: false, accepted: false, cut: false, over: false };
            self.sessions.insert(index, stage);
            return Ok(());
        }
        let Some(mut stage) = self.sessions.remove(&index) else { return Ok(()) };
        match event {
            LedgerEvent::Scheduled { .. } | LedgerEvent::Deaf { .. } | LedgerEvent::Raced => {}
            LedgerEvent::Attempted { backend, report_age_us } => {
                self.undial(&mut stage);
                let pinned = self.pinned.get(usize::from(stage.scenario)).copied().unwrap_or(false);
                if let Some(backend) = (*backend).filter(|_| !pinned) {
                    self.decide(backend, at_us, *report_age_us);
                }
                self.dial(&mut stage, *backend);
            }
            LedgerEvent::Retried { cause } => {
                self.undial(&mut stage);
                self.book.trouble(Trouble::Retried, &cause_name(*cause));
            }
            LedgerEvent::Accepted { backend_id, .. } => self.accepted(&mut stage, backend_id, at_us)?,
            LedgerEvent::Forced { kind } => {
                // A goodbye is no cut: what goes wrong with it is a loss.
                stage.cut |= *kind != EndKind::Graceful;
                self.over(&mut stage, at_us);
            }
            LedgerEvent::Ended { finish } => {
                let expect = self.expect.get(usize::from(stage.scenario)).copied().flatten();
                if let Some(cause) = lost_by(*finish, expect).filter(|_| !stage.cut) {
                    self.book.trouble(Trouble::Dropped, &cause);
                }
                self.over(&mut stage, at_us);
                return Ok(());
            }
            LedgerEvent::Failed { cause } => {
                self.undial(&mut stage);
                if *cause != FailureCause::Aborted && !stage.cut {
                    self.book.trouble(Trouble::Rejected, &cause_name(*cause));
                }
                return Ok(());
            }
        }
        self.sessions.insert(index, stage);
        Ok(())
    }

    fn decide(&mut self, backend: usize, at_us: u64, report_age_us: Option<u64>) {
        let overloaded = self.members.get(backend).is_some_and(Member::overloaded);
        let avoidable = overloaded && self.members.iter().any(|member| member.up(at_us) && !member.overloaded());
        let report_age = report_age_us.map(Duration::from_micros);
        self.book.decide(Decision { at: self.run_time(at_us), backend, overloaded, avoidable, report_age });
    }

    fn dial(&mut self, stage: &mut Stage, backend: Option<usize>) {
        (stage.backend, stage.dialling, stage.cut) = (backend, true, false);
        if let Some(member) = backend.and_then(|backend| self.members.get_mut(backend)) {
            member.dialling += 1;
            member.dialled();
        } else {
            self.unplaced += 1;
            self.members.iter_mut().for_each(Member::dialled);
        }
    }

    fn undial(&mut self, stage: &mut Stage) {
        if !std::mem::take(&mut stage.dialling) {
            return;
        }
        match stage.backend.and_then(|backend| self.members.get_mut(backend)) {
            Some(member) => member.dialling = member.dialling.saturating_sub(1),
            None => self.unplaced = self.unplaced.saturating_sub(1),
        }
    }

    fn accepted(&mut self, stage: &mut Stage, backend_id: &str, at_us: u64) -> Result<(), Unknown> {
        self.undial(stage);
        if stage.backend.is_none() {
            // Behind a balancer the choice is known by what came of it.
            let backend = self.members.iter().position(|member| member.id == backend_id).ok_or_else(|| Unknown(backend_id.to_owned()))?;
            self.decide(backend, at_us, None);
            stage.backend = Some(backend);
        }
        stage.accepted = true;
        if let Some(member) = stage.backend.and_then(|backend| self.members.get_mut(backend)) {
            member.live += 1;
        }
        Ok(())
    }

    fn over(&mut self, stage: &mut Stage, at_us: u64) {
        if stage.accepted
            && !std::mem::replace(&mut stage.over, true)
            && let Some(member) = stage.backend.and_then(|backend| self.members.get_mut(backend))
        {
            member.ended(at_us);
        }
    }

    /// A worker process is gone, and every session that it ran.
    pub(super) fn worker_lost(&mut self, loss: &WorkerLoss, at_us: u64) {
        let mut hit: Vec<(PlanIndex, Stage)> = self.sessions.extract_if(|_, stage| stage.worker == loss.worker).collect();
        hit.sort_unstable_by_key(|(index, _)| *index);
        for (_, mut stage) in hit {
            self.undial(&mut stage);
            if !loss.planned && !stage.over {
                let what = if stage.accepted { Trouble::Dropped } else { Trouble::Rejected };
                self.book.trouble(what, &cause_name(FailureCause::WorkerLost));
            }
            self.over(&mut stage, at_us);
        }
    }

    /// The run kills a backend. Sessions that were to end so are not lost, the others are.
    pub(super) fn backend_killed(&mut self, backend: usize, at_us: u64) {
        let mut sessions = std::mem::take(&mut self.sessions);
        for stage in sessions.values_mut().filter(|stage| stage.backend == Some(backend)) {
            if stage.accepted && !stage.over && !stage.to_be_killed {
                self.book.trouble(Trouble::Dropped, EndKind::KillBackend.name());
            }
            self.over(stage, at_us);
            stage.cut = true;
        }
        self.sessions = sessions;
        if let Some(member) = self.members.get_mut(backend) {
            member.killed();
        }
        self.see(at_us);
    }
}

/// Why an accepted session that was not cut counts as lost, in the words of the funnel; none when it went as it was meant to.
fn lost_by(finish: Finish, expect: Option<Expect>) -> Option<String> {
    match finish {
        Finish::Goodbye(Outcome::Completed | Outcome::Drained)
        | Finish::ByServer(Outcome::Completed | Outcome::Drained)
        | Finish::Forced(_)
        | Finish::Lost(FailureCause::Aborted) => None,
        Finish::ByServer(Outcome::TimedOut) if expect == Some(Expect::TimedOut) => None,
        Finish::Lost(cause) => Some(cause_name(cause)),
        Finish::Goodbye(outcome) | Finish::ByServer(outcome) => Some(format!("ended_{}", outcome.name())),
    }
}
