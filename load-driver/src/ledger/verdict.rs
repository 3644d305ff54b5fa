//! The end of the proof: a last look at every boot, what is wrong by name, and the numbers beside it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ages::GhostAges,
    boot::Boot,
    convergence::ConvergenceRow,
    drift::DriftRow,
    finding::{DefectName, Finding, Names},
    funnel::Funnels,
    keeper::Ledger,
    look::{self, Last, beyond_losses, ghost_sessions, look},
    naming::name,
    races, reconcile, refused,
    retries::RetriedRow,
    session::Session,
    totals, unseen,
};
use crate::plan::EndKind;

/// What the proof came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// Every watched backend's counters agree with the ledger.
    Agree,
    /// They do not.
    Disagree,
    /// Nothing wrong was seen, but some backend could not be checked: no pass.
    Unverified,
    /// No backend has counters to read: nothing was claimed.
    NotWatched,
}

/// Sessions, and dials that sessions left behind, that the backend may or may not have counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InDoubt {
    /// All.
    pub total: u64,
    /// The backend's log or registry shows them.
    pub counted: u64,
    /// The first few, by the driver's name.
    pub client_refs: Vec<String>,
    /// Sessions of killed workers of which only the backend tells.
    pub untold: u64,
}

/// How exactly a boot could be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Every end by its session's name.
    Sessions,
    /// The end log overflowed: names where known, totals for the rest.
    PartOfSessions,
    /// No end log: totals only.
    Totals,
}

/// How much the proof is worth, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Every end was checked by its session's name.
    Exact,
    /// Sums were checked: what cancels out in them is not seen.
    Totals,
    /// Sums that hold sessions of others as well: what is within their variation is not seen.
    WithOtherTraffic,
}

impl Confidence {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Exact => "exact, by every session's name",
            Self::Totals => "totals, in which faults of opposite sign cancel out",
            Self::WithOtherTraffic => "totals that hold sessions of others too",
        }
    }
}

/// One backend process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendVerdict {
    /// Index into the fleet.
    pub backend: usize,
    /// Stable name.
    pub backend_id: String,
    /// The process.
    pub boot_id: String,
    /// How it was checked.
    pub proof: Proof,
    /// Samples of it.
    pub samples: u64,
    /// Polls of the target that failed.
    pub gaps: u64,
    /// Longest time in which nobody saw its counters, microseconds.
    pub longest_pause_us: u64,
    /// Killed by the plan, so what it counted is written off.
    pub killed: bool,
    /// Accepted by it, as the driver knows.
    pub accepted: u64,
    /// As it counted, less what it had counted before the run.
    pub started: u64,
    /// As it counted at the last look.
    pub active: i64,
    /// As the ledger knows for that moment.
    pub live: u64,
}

/// The reconciliation of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// In one word.
    pub judgement: Judgement,
    /// What is wrong; empty on a clean run.
    pub findings: Vec<Finding>,
    /// How far the sessions came.
    pub funnels: Funnels,
    /// Neither counted nor not.
    pub in_doubt: InDoubt,
    /// Dials that came to nothing and were made again, by cause and backend.
    pub retried: Vec<RetriedRow>,
    /// By kind of end and protocol.
    pub convergence: Vec<ConvergenceRow>,
    /// How far each count was off over time.
    pub drift: Vec<DriftRow>,
    /// How old the ghosts got that are known by name.
    pub ghost_ages: GhostAges,
    /// By target and process.
    pub backends: Vec<BackendVerdict>,
    /// How much it is worth, for the weakest of the backends; none when nothing was checked.
    pub confidence: Option<Confidence>,
    /// What the sources of counters cannot show.
    pub cannot_see: Vec<String>,
    /// What a reader must know to judge the proof.
    pub notes: Vec<String>,
    /// Steps that make no sense: faults of the harness itself.
    pub irregular: Vec<String>,
}

impl Verdict {
    /// The finding of this name.
    pub fn finding(&self, name: DefectName) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.name == name)
    }
}

pub(super) fn reach(ledger: &mut Ledger) -> Verdict {
    let mut last = Last { all_timeouts: true, ..Last::default() };
    let indices: Vec<_> = ledger.boots.keys().copied().collect();
    for index in indices {
        if let Some(boot) = ledger.boots.get_mut(&index) {
            let current = ledger.watches.get(boot.backend).and_then(|w| w.boots.last()) == Some(&index);
            // What was odd to the end and can be looked at no more was real; the last look of a living boot judges the rest itself.
            if boot.killed_us.is_some() || !current {
                reconcile::end_odd_run(boot, false, &mut ledger.faults);
            }
        }
        if let Some(boot) = ledger.boots.get(&index) {
            look(ledger, boot, &mut last);
        }
    }
    look::unanswered(ledger, &mut last);
    beyond_losses(ledger, &mut last);
    refused::judge(ledger, &mut last);
    totals::conclude(ledger, &mut last);
    let ghosts = ghost_sessions(ledger);
    let shown: BTreeSet<_> = ghosts.iter().map(|session| session.client_ref.clone()).collect();
    let ghosts: Vec<_> = ghosts.into_iter().filter_map(reconcile::row).collect();
    for end in ghosts {
        ledger.convergence.count(end, |row| row.ghosts += 1);
    }
    close_kills(ledger, &shown);
    let in_doubt = in_doubt(ledger);
    ledger.sweep(true);
    // The row of a session that no backend need ever have had is not owed a detection.
    let doubted = |s: &Session| s.agreed_us.is_none() && look::in_doubt(ledger, s);
    let doubted: BTreeSet<_> = ledger.book.sessions.iter().filter(|(_, s)| doubted(s)).map(|(index, _)| *index).collect();
    for (index, session) in &ledger.book.sessions {
        let written_off = session.accepted.as_ref().is_some_and(|a| ledger.book.was_killed(a.boot));
        let boot = session.accepted.as_ref().and_then(|a| ledger.boots.get(&a.boot));
        let count = if boot.is_some_and(Boot::complete_log) { reconcile::count_killed } else { reconcile::count_unnamed };
        if written_off || !doubted.contains(index) {
            count(session, &mut ledger.convergence);
        }
        // Those of a killed backend were told when its successor agreed.
        if let (Some(end), Some(agreed_us), Some(over)) = (reconcile::row(session), session.agreed_us, session.over)
            && end.kind != EndKind::KillBackend
        {
            ledger.convergence.detected(end, over.at_us, agreed_us);
        }
    }
    races::conclude(&mut ledger.faults, &mut last);
    unseen::judge(ledger, &mut last);
    let findings = name(ledger, &last);
    conclude(ledger, last, findings, in_doubt)
}

/// Kills after which no new process came: the backend's absence is its agreement. `ghosts` are not written off: they were seen.
fn close_kills(ledger: &mut Ledger, ghosts: &BTreeSet<String>) {
    for kill in std::mem::take(&mut ledger.kills) {
        if let Some(gone_us) = kill.gone_us {
            ledger.kill_converged(kill.boot, gone_us);
        }
    }
    let killed = |s: &Session| s.accepted.as_ref().and_then(|a| ledger.boots.get(&a.boot)).is_some_and(|boot| boot.killed_us.is_some());
    let left: Vec<_> = ledger
        .book
        .sessions
        .values()
        .filter(|s| s.record.is_none() && s.agreed_us.is_none() && killed(s) && !ghosts.contains(&s.client_ref))
        .filter_map(reconcile::row)
        .collect();
    for end in left {
        ledger.convergence.count(end, |row| row.written_off += 1);
    }
}

fn in_doubt(ledger: &Ledger) -> InDoubt {
    let mut names = Names::default();
    let mut counted = 0;
    for session in ledger.book.dials().filter(|s| s.over.is_some() && (s.in_doubt() || s.record.is_none() && look::in_doubt(ledger, s))) {
        names.push(&session.client_ref);
        let listed = || {
            ledger.boots.values().filter_map(|b| b.last.as_ref()?.sessions.as_ref()).flatten().any(|r| r.client_ref == session.client_ref)
        };
        counted += u64::from(session.record.is_some() || listed());
    }
    let untold = ledger.boots.values().map(|boot| boot.untold.len() as u64 - boot.redialled).sum();
    let (folded, told) = (ledger.book.doubts_folded(), ledger.book.doubts_counted);
    InDoubt { total: names.total + folded, counted: counted + told, client_refs: names.listed, untold }
}

fn conclude(ledger: &Ledger, mut last: Last, findings: Vec<Finding>, in_doubt: InDoubt) -> Verdict {
    let faults = &ledger.faults;
    if faults.over_cap > 0 {
        last.notes.push(format!("{} snapshots showed more live sessions than the cap", faults.over_cap));
    }
    if faults.overtaken > 0 {
        last.notes.push(format!(
            "{} sessions that the driver cut were counted as timed out: it stood still itself then, so nobody knows which came first",
            faults.overtaken
        ));
    }
    let forgotten = ledger.book.folded_names.forgotten();
    if forgotten > 0 {
        last.notes.push(format!(
            "the names of {forgotten} sessions that ended more than half an hour before were forgotten: a second decrement of one of them would show as an unknown session or as a snapshot that does not add up"
        ));
    }
    if in_doubt.total > 0 {
        last.notes.push(format!(
            "{} sessions are in doubt: they were dialled, and whether the backend counted them was never said; it did for {}",
            in_doubt.total, in_doubt.counted
        ));
    }
    let twice: u64 = ledger.boots.values().map(|boot| boot.twice).sum();
    let redialled = ledger.boots.values().map(|boot| boot.redialled).sum::<u64>() - twice;
    if twice > 0 {
        last.notes.push(format!(
            "{twice} sessions were counted a second time by the backend that had them: the front dialled again by itself, or they were counted twice"
        ));
    }
    if redialled > 0 {
        last.notes.push(format!("{redialled} sessions were counted by a second backend too: the front dialled again by itself"));
    }
    let stays = |f: &Finding| matches!(f.name, DefectName::Ghost | DefectName::ForgetOnTimeout | DefectName::LateDecrement);
    if ledger.config.front && findings.iter().any(stays) {
        last.notes.push("a front that holds the connection of a session that is over makes its backend count it as well".to_owned());
    }
    let mut irregular = ledger.book.irregular().to_vec();
    if ledger.irregular() > 0 {
        irregular.push(format!("{} steps came out of order of time", ledger.irregular()));
    }
    let watched = ledger.config.backends.iter().any(|backend| backend.watched) || !ledger.totals.is_empty();
    let judgement = match findings.as_slice() {
        [] if !watched => Judgement::NotWatched,
        [] => Judgement::Agree,
        [only] if only.name == DefectName::Unverified => Judgement::Unverified,
        _ => Judgement::Disagree,
    };
    Verdict {
        judgement,
        findings,
        funnels: ledger.funnels().clone(),
        in_doubt,
        retried: ledger.retried(),
        convergence: ledger.convergence.rows(),
        drift: ledger.drift(),
        ghost_ages: ledger.ghost_ages(),
        backends: last.backends,
        confidence: last.confidence,
        cannot_see: last.cannot_see,
        notes: last.notes,
        irregular,
    }
}
