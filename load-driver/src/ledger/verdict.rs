//! The end of the proof: a last look at every boot, then what is wrong by name, each root once with what follows from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    book::{Funnel, Session},
    boot::Boot,
    convergence::ConvergenceRow,
    entry::FailureCause,
    finding::{DefectName, Finding, Names},
    keeper::Ledger,
    reconcile,
};

/// Exit code of a run whose counters disagree with the ledger.
pub const EXIT_DISAGREE: u8 = 98;

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

/// Sessions that the backend may or may not have counted.
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

/// One backend process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendVerdict {
    /// Index into the targets.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// In one word.
    pub judgement: Judgement,
    /// What is wrong; empty on a clean run.
    pub findings: Vec<Finding>,
    /// Over all scenarios.
    pub funnel: Funnel,
    /// By number of the scenario.
    pub scenarios: BTreeMap<u16, Funnel>,
    /// Failures and breaks by cause.
    pub causes: Vec<(FailureCause, u64)>,
    /// Neither counted nor not.
    pub in_doubt: InDoubt,
    /// By kind of end and protocol.
    pub convergence: Vec<ConvergenceRow>,
    /// By target and process.
    pub backends: Vec<BackendVerdict>,
    /// What a reader must know to judge the proof.
    pub notes: Vec<String>,
    /// Steps that make no sense: faults of the harness itself.
    pub irregular: Vec<String>,
}

impl Verdict {
    /// 98 unless everything agrees (or nothing was watched).
    pub fn exit_code(&self) -> Option<u8> {
        matches!(self.judgement, Judgement::Disagree | Judgement::Unverified).then_some(EXIT_DISAGREE)
    }

    /// The finding of this name.
    pub fn finding(&self, name: DefectName) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.name == name)
    }
}

/// Sums over the last looks.
#[derive(Debug, Default)]
struct Last {
    ghosts: u64,
    ghost_names: Names,
    /// Every ghost is known by name and ended by a timeout.
    all_timeouts: bool,
    by_kind: BTreeMap<String, u64>,
    short: u64,
    lost: u64,
    added: u64,
    log_mismatch: u64,
    rejected: u64,
    unverified: Vec<String>,
    backends: Vec<BackendVerdict>,
    notes: Vec<String>,
}

pub(super) fn reach(ledger: &mut Ledger) -> Verdict {
    let mut last = Last { all_timeouts: true, ..Last::default() };
    let indices: Vec<_> = ledger.boots.keys().copied().collect();
    for index in indices {
        if let Some(boot) = ledger.boots.get_mut(&index) {
            let current = ledger.watches.get(boot.backend).and_then(|w| w.boots.last()) == Some(&index);
            // What was odd to the end and can be looked at no more was real; the last look of a living boot judges the rest itself.
            if boot.killed_us.is_some() || !current {
                boot.odd.samples += 1;
                reconcile::end_odd_run(boot, &mut ledger.faults);
            }
        }
        if let Some(boot) = ledger.boots.get(&index) {
            look(ledger, boot, &mut last);
        }
    }
    unseen(ledger, &mut last);
    let ghosts: Vec<_> = ghost_sessions(ledger).into_iter().filter_map(|s| reconcile::row(s)).collect();
    for (kind, protocol) in ghosts {
        ledger.convergence.count(kind, protocol, |row| row.ghosts += 1);
    }
    close_kills(ledger);
    let in_doubt = in_doubt(ledger);
    ledger.sweep(true);
    for session in ledger.book.sessions.values() {
        reconcile::count_killed(session, &mut ledger.convergence);
    }
    let findings = name(ledger, &last);
    conclude(ledger, last, findings, in_doubt)
}

/// Sessions that ended, are in no complete log, and whose boot lives: still counted, if the counters say so.
fn ghost_sessions(ledger: &Ledger) -> Vec<&Session> {
    let of_boot = |s: &Session| {
        let boot = ledger.boots.get(&s.accepted.as_ref()?.boot)?;
        let (end_us, _) = s.ending()?;
        let at_us = boot.last.as_ref()?.asked_us;
        let watched_us = ledger.watches.get(boot.backend)?.watched_us(end_us, at_us);
        // A boot that is gone cannot take its ghosts back any more; it had the settling time as well.
        let gone = boot.killed_us.is_some() || boot.replaced;
        let patience = reconcile::window_us(s, &ledger.config) + if gone { ledger.config.settle_us } else { 0 };
        Some(boot.complete_log() && s.record.is_none() && end_us < at_us && watched_us > patience)
    };
    ledger.book.sessions.values().filter(|s| of_boot(s) == Some(true)).collect()
}

/// The last look at one boot.
fn look(ledger: &Ledger, boot: &Boot, out: &mut Last) {
    let Some(watch) = ledger.watches.get(boot.backend) else { return };
    let label = format!("backend {} ({}, boot {})", boot.backend, boot.backend_id, boot.boot_id);
    let proof = match (boot.has_log, boot.complete_log()) {
        (_, true) => Proof::Sessions,
        (true, false) => Proof::PartOfSessions,
        (false, false) => Proof::Totals,
    };
    let Some(at) = &boot.last else {
        out.unverified.push(format!("{label}: no sample of it is consistent in itself"));
        return;
    };
    let b = ledger.bounds(boot, at);
    let extra = boot.extras.len() as i64;
    let missing: Vec<&Session> =
        ghost_sessions(ledger).into_iter().filter(|s| s.accepted.as_ref().is_some_and(|a| a.boot == boot.index)).collect();
    out.rejected += at.rejected.saturating_sub(boot.base.rejected);
    out.backends.push(BackendVerdict {
        backend: boot.backend,
        backend_id: boot.backend_id.clone(),
        boot_id: boot.boot_id.clone(),
        proof,
        samples: boot.samples,
        gaps: watch.gaps,
        longest_pause_us: watch.longest_pause_us,
        killed: boot.killed_us.is_some(),
        accepted: b.accepted,
        started: at.started.saturating_sub(boot.base.started.1),
        active: at.active.0,
        live: b.possible - b.pending,
    });
    match proof {
        Proof::Sessions => {}
        Proof::PartOfSessions => {
            out.notes
                .push(format!("{label}: {} end records were lost before they were read, so totals stand in for them", boot.records_lost));
        }
        Proof::Totals => out.notes.push(format!("{label}: it lists no ends, so only totals were checked")),
    }
    if boot.killed_us.is_some() || boot.replaced {
        if boot.replaced {
            out.unverified.push(format!("{label}: it was replaced by another process on its own, and its last counts cannot be checked"));
        }
        missing.iter().for_each(|s| out.ghost(s));
        out.ghosts += missing.len() as u64;
        return;
    }
    if at.asked_us < ledger.book.last_end_us(boot.backend) {
        out.unverified.push(format!("{label}: no answer after its last session ended{}", reason(watch.last_gap.as_ref())));
        return;
    }
    let never_added = (boot.base.started.0 + b.accepted).saturating_sub(at.started);
    let foreign = reconcile::foreign_live(boot, &b, at);
    let (least, most) = (at.active.0 + extra, at.active.1 + extra + never_added as i64);
    let ghosts = (least - (b.possible + foreign) as i64).max(0) as u64;
    let pending = (least - ghosts as i64 - (b.possible - b.pending + foreign) as i64).max(0);
    if pending > 0 && ghosts == 0 {
        out.unverified.push(format!("{label}: it still counts {pending} ended sessions, and their detection windows were not over"));
    }
    out.ghosts += ghosts;
    out.short += (b.sure as i64 - most).max(0) as u64;
    out.lost += never_added;
    if boot.ours_alone && !b.untold && (ledger.book.losses().is_empty() || boot.complete_log()) {
        out.added += at.started.saturating_sub(boot.base.started.1 + b.attempted);
    }
    out.log_mismatch += (missing.len() as u64).saturating_sub(ghosts + never_added);
    if boot.base.active > 0 {
        out.notes.push(format!("{label}: it had {} sessions of others before the run; the bounds are wider by so many", boot.base.active));
    }
    if ghosts > 0 {
        name_ghosts(ledger, boot, at.sessions.as_deref(), &missing, ghosts, out);
    }
}

fn name_ghosts(
    ledger: &Ledger,
    boot: &Boot,
    registry: Option<&[agent_server::admin::wire::SessionJson]>,
    missing: &[&Session],
    ghosts: u64,
    out: &mut Last,
) {
    if missing.len() as u64 >= ghosts {
        missing.iter().take(ghosts as usize).for_each(|s| out.ghost(s));
        return;
    }
    missing.iter().for_each(|s| out.ghost(s));
    let mut left = ghosts - missing.len() as u64;
    let named = |session_id: &str| missing.iter().any(|s| s.name() == session_id);
    for row in registry.unwrap_or_default().iter().filter(|row| ledger.config.is_ours(&row.client_ref) && !named(&row.session_id)) {
        let session = ledger.book.find(boot.index, &row.client_ref, &row.session_id).and_then(|index| ledger.book.sessions.get(&index));
        if left == 0 || session.is_some_and(|s| s.ending().is_none()) {
            continue;
        }
        left -= 1;
        match session {
            Some(session) if session.accepted.is_some() => out.ghost(session),
            _ => {
                out.all_timeouts = false;
                out.ghost_names.push(&row.session_id);
            }
        }
    }
    out.all_timeouts &= left == 0;
}

impl Last {
    fn ghost(&mut self, session: &Session) {
        self.all_timeouts &= session.timed_out();
        self.ghost_names.push(session.name());
        let kind = session.ending().and_then(|(_, kind)| kind).map_or("a broken connection", crate::plan::EndKind::name);
        *self.by_kind.entry(kind.to_owned()).or_default() += 1;
    }
}

fn reason(gap: Option<&(u64, String)>) -> String {
    gap.map_or_else(String::new, |(_, reason)| format!(" (last failed poll: {reason})"))
}

/// Watched targets that never answered, and boots that only sessions told of.
fn unseen(ledger: &Ledger, out: &mut Last) {
    for (backend, config) in ledger.config.backends.iter().enumerate().filter(|(_, b)| b.watched) {
        let Some(watch) = ledger.watches.get(backend) else { continue };
        let killed = ledger.kills.iter().any(|kill| kill.backend == backend);
        if watch.boots.is_empty() && !killed {
            let used = if ledger.book.first_attempt_us(backend).is_some() { "" } else { ", though no session went there" };
            out.unverified.push(format!("backend {backend}: its counters never answered{used}{}", reason(watch.last_gap.as_ref())));
        }
        let strangers = ledger.book.sessions.values().filter(|s| {
            s.attempted.is_some_and(|(b, _)| b == backend)
                && s.accepted
                    .as_ref()
                    .is_some_and(|a| !ledger.boots.contains_key(&a.boot) && !ledger.kills.iter().any(|k| k.boot == a.boot))
        });
        let strangers = strangers.count();
        if strangers > 0 && !watch.boots.is_empty() {
            out.unverified
                .push(format!("backend {backend}: {strangers} sessions were accepted by a process whose counters were never seen"));
        }
        if watch.gaps > 0 {
            let shared = if config.fresh { "" } else { " (not started by this run)" };
            out.notes.push(format!(
                "backend {backend}{shared}: {} polls of its counters failed{}",
                watch.gaps,
                reason(watch.last_gap.as_ref())
            ));
        }
    }
}

/// Kills after which no new process came: the backend's absence is its agreement.
fn close_kills(ledger: &mut Ledger) {
    for kill in std::mem::take(&mut ledger.kills) {
        if let Some(gone_us) = kill.gone_us {
            ledger.kill_converged(kill.boot, gone_us);
        }
    }
    let killed = |s: &Session| s.accepted.as_ref().and_then(|a| ledger.boots.get(&a.boot)).is_some_and(|boot| boot.killed_us.is_some());
    let left: Vec<_> = ledger.book.sessions.values().filter(|s| s.record.is_none() && killed(s)).filter_map(reconcile::row).collect();
    for (kind, protocol) in left {
        ledger.convergence.count(kind, protocol, |row| row.written_off += 1);
    }
}

fn in_doubt(ledger: &Ledger) -> InDoubt {
    let mut names = Names::default();
    let mut counted = 0;
    for session in ledger.book.sessions.values().filter(|s| s.over.is_some() && s.in_doubt()) {
        names.push(&session.client_ref);
        let listed = || {
            ledger.boots.values().filter_map(|b| b.last.as_ref()?.sessions.as_ref()).flatten().any(|r| r.client_ref == session.client_ref)
        };
        counted += u64::from(session.record.is_some() || listed());
    }
    let untold = ledger.boots.values().map(|boot| boot.untold.len() as u64).sum();
    InDoubt { total: names.total, counted, client_refs: names.listed, untold }
}

/// Every root once; what follows from it is not a finding of its own.
fn name(ledger: &Ledger, last: &Last) -> Vec<Finding> {
    let (faults, records) = (&ledger.faults, &ledger.faults.records);
    let mut out = subtracted_too_often(ledger, last);
    if last.ghosts > 0 {
        let timeouts = last.all_timeouts && last.ghost_names.total == last.ghosts;
        let name = if timeouts { DefectName::ForgetOnTimeout } else { DefectName::Ghost };
        let kinds: Vec<String> = last.by_kind.iter().map(|(kind, n)| format!("{n} by {kind}")).collect();
        let by = if kinds.is_empty() { String::new() } else { format!(" (ended {})", kinds.join(", ")) };
        let what = if timeouts { "all of them ended by a timeout" } else { "the backend looks fuller than it is, for ever" };
        let text = format!("{} sessions ended, their windows are over, and the backend still counts them{by}: {what}", last.ghosts);
        out.push(Finding::new(name, last.ghosts, text).with_ids(&last.ghost_names));
    }
    let by_totals = if last.ghosts == 0 { faults.excess_unexplained } else { 0 };
    if faults.late.total > 0 {
        let text =
            format!("{} ends were counted after their window, the latest {} ms after the end", faults.late.total, faults.latest_us / 1_000);
        out.push(Finding::new(DefectName::LateDecrement, faults.late.total, text).with_ids(&faults.late));
    } else if by_totals > 0 {
        let text = format!("up to {by_totals} sessions were counted as live after their windows, and no longer at the end");
        out.push(Finding::new(DefectName::LateDecrement, by_totals, text));
    }
    if faults.torn > 0 {
        let example = faults.torn_example.as_deref().unwrap_or_default();
        let text = format!("{} snapshots labelled exact are no cut at one moment, the first at {example}", faults.torn);
        out.push(Finding::new(DefectName::TornSnapshot, faults.torn, text));
    }
    if faults.wrong.total > 0 {
        let pairs: Vec<String> = faults.wrong_pairs.iter().map(|(pair, n)| format!("{pair} ({n})")).collect();
        let text = format!("{} ends were counted under a wrong outcome: {}", faults.wrong.total, pairs.join(", "));
        out.push(Finding::new(DefectName::WrongOutcome, faults.wrong.total, text).with_ids(&faults.wrong));
    }
    let unknown = records.unknown.total.max(last.added);
    if unknown > 0 {
        let text = format!("the backend counted {unknown} sessions that this run never had, and nobody else talks to it");
        out.push(Finding::new(DefectName::UnknownSessions, unknown, text).with_ids(&records.unknown));
    }
    if last.log_mismatch > 0 {
        let text = format!("{} sessions ended and are not counted any more, but the end log does not tell of them", last.log_mismatch);
        out.push(Finding::new(DefectName::EndLogMismatch, last.log_mismatch, text));
    }
    if !last.unverified.is_empty() {
        out.push(Finding::new(DefectName::Unverified, last.unverified.len() as u64, last.unverified.join("; ")));
    }
    out
}

/// Everything that makes the count of live sessions too low.
fn subtracted_too_often(ledger: &Ledger, last: &Last) -> Vec<Finding> {
    let (faults, records) = (&ledger.faults, &ledger.faults.records);
    let mut out = Vec::new();
    if records.doubles.total > 0 {
        let text = format!("{} ends were subtracted a second time for the same session", records.doubles.total);
        out.push(Finding::new(DefectName::DoubleDecrement, records.doubles.total, text).with_ids(&records.doubles));
    }
    if records.empties > 0 {
        let on_reject = records.empties <= last.rejected;
        let name = if on_reject { DefectName::DecrementOnReject } else { DefectName::FalseCapacity };
        let text = format!("{} ends were subtracted without a session, {} sessions were rejected", records.empties, last.rejected);
        out.push(Finding::new(name, records.empties, text));
    }
    if last.lost > 0 {
        let text = format!("{} sessions were accepted and never added to the backend's count", last.lost);
        out.push(Finding::new(DefectName::Lost, last.lost, text));
    }
    let early = faults.early.total;
    let short = last.short.max(faults.short_unexplained).max(early);
    if short > 0 {
        let text = format!("{short} live sessions were not counted: the backend looks emptier than it is");
        out.push(Finding::new(DefectName::FalseCapacity, short, text).with_ids(&faults.early));
    }
    if out.is_empty() && faults.negative > 0 {
        let text = format!("a gauge was below zero in {} snapshots, the lowest {}", faults.negative, faults.lowest);
        out.push(Finding::new(DefectName::Negative, faults.negative, text));
    }
    if let Some(root) = out.first_mut() {
        let mut follows = Vec::new();
        if faults.short_samples > 0 {
            follows.push(format!("{} snapshots showed up to {} live sessions too few", faults.short_samples, faults.short_most));
        }
        if faults.negative > 0 && root.name != DefectName::Negative {
            follows.push(format!("{} snapshots had a gauge below zero, the lowest {}", faults.negative, faults.lowest));
        }
        if faults.uneven > 0 {
            follows.push(format!("{} snapshots did not add up by as much", faults.uneven));
        }
        root.consequences = follows;
    }
    out
}

fn conclude(ledger: &Ledger, mut last: Last, findings: Vec<Finding>, in_doubt: InDoubt) -> Verdict {
    let faults = &ledger.faults;
    if faults.over_cap > 0 {
        last.notes.push(format!("{} snapshots showed more live sessions than the cap", faults.over_cap));
    }
    if in_doubt.total > 0 {
        last.notes.push(format!(
            "{} sessions are in doubt: they were dialled, and whether the backend counted them was never said; it did for {}",
            in_doubt.total, in_doubt.counted
        ));
    }
    let mut irregular = ledger.book.irregular().to_vec();
    if ledger.irregular() > 0 {
        irregular.push(format!("{} steps came out of order of time", ledger.irregular()));
    }
    if !ledger.book.funnel().adds_up() {
        irregular.push(format!("the funnel does not add up: {:?}", ledger.book.funnel()));
    }
    let watched = ledger.config.backends.iter().any(|backend| backend.watched);
    let judgement = match findings.as_slice() {
        [] if !watched => Judgement::NotWatched,
        [] => Judgement::Agree,
        [only] if only.name == DefectName::Unverified => Judgement::Unverified,
        _ => Judgement::Disagree,
    };
    Verdict {
        judgement,
        findings,
        funnel: ledger.book.funnel().clone(),
        scenarios: ledger.book.scenarios().clone(),
        causes: ledger.book.causes().iter().map(|(cause, n)| (*cause, *n)).collect(),
        in_doubt,
        convergence: ledger.convergence.rows(),
        backends: last.backends,
        notes: last.notes,
        irregular,
    }
}
