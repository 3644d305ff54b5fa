//! The last look at every boot: what its counters still say after windows and settling time.

use std::collections::BTreeMap;

use agent_server::admin::wire::SessionJson;

use super::{
    boot::{Boot, Reading, Watch},
    by_outcome,
    finding::Names,
    keeper::Ledger,
    others,
    races::FEW,
    reconcile,
    session::Session,
    verdict::{BackendVerdict, Confidence, Proof},
};
use crate::plan::EndKind;

/// Sums over the last looks.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) ghosts: u64,
    pub(super) ghost_names: Names,
    /// Every ghost is known by name and ended by a timeout, or may have,
    pub(super) all_timeouts: bool,
    /// and at least one of them did.
    pub(super) any_timeout: bool,
    pub(super) by_kind: BTreeMap<String, u64>,
    /// Over for longer than their windows when their processes went, though not for the settling time.
    pub(super) cut_short: Names,
    pub(super) short: u64,
    pub(super) lost: u64,
    pub(super) added: u64,
    /// Under references of ours, more than killed workers can have begun untold.
    pub(super) strangers: u64,
    /// Sums say so, which may hold others' sessions.
    pub(super) added_in_sums: bool,
    pub(super) log_mismatch: u64,
    /// Ends that are in the counters or in the log only.
    pub(super) unlike_log: u64,
    pub(super) rejected: u64,
    pub(super) unverified: Vec<String>,
    pub(super) backends: Vec<BackendVerdict>,
    pub(super) notes: Vec<String>,
    /// By sums: ends that were counted beyond all sessions.
    pub(super) doubles: u64,
    /// By sums: sessions counted under an outcome that they cannot have had, and how that shows.
    pub(super) wrong: u64,
    pub(super) wrong_words: Vec<String>,
    /// By sums: what the numbers that only grow are off by, and how that shows.
    pub(super) miscounted: Vec<(u64, String)>,
    /// What a reader must know of ghosts.
    pub(super) ghost_caveats: Vec<String>,
    /// What the sources cannot show.
    pub(super) cannot_see: Vec<String>,
    /// Sessions that were accepted by the process whose counters are read as another backend's.
    pub(super) astray: u64,
    /// The least of all backends.
    pub(super) confidence: Option<Confidence>,
}

/// The backend may or may not have counted it, and has told of no end.
pub(super) fn in_doubt(ledger: &Ledger, session: &Session) -> bool {
    let Some(over) = session.over else { return session.in_doubt() };
    let boot = session.accepted.as_ref().and_then(|accepted| ledger.boots.get(&accepted.boot));
    let watch = boot.and_then(|boot| ledger.watches.get(boot.backend));
    session.in_doubt() || watch.is_some_and(|watch| !reconcile::surely_counted(session, watch, &ledger.config, over.at_us))
}

/// Sessions that ended, and are in no complete log at the last look, though their windows are over: still counted, if the counters say so.
pub(super) fn ghost_sessions(ledger: &Ledger) -> Vec<&Session> {
    let of_boot = |s: &Session| {
        let boot = ledger.boots.get(&s.accepted.as_ref()?.boot)?;
        let (end_us, _) = s.ending()?;
        let at_us = boot.last.as_ref()?.asked_us;
        let named = boot.complete_log() && s.record.is_none() && end_us < at_us && !in_doubt(ledger, s);
        Some(named && overdue_us(ledger, boot, s, end_us)? > 0)
    };
    ledger.book.sessions.values().filter(|s| of_boot(s) == Some(true)).collect()
}

/// For how long its window had been over at the last look.
fn overdue_us(ledger: &Ledger, boot: &Boot, session: &Session, end_us: u64) -> Option<u64> {
    let watched_us = ledger.watches.get(boot.backend)?.watched_us(end_us, boot.last.as_ref()?.asked_us);
    Some(watched_us.saturating_sub(reconcile::window_us(session, &ledger.config)))
}

/// Sessions of this run that are over, that were in doubt, and that this one lists as live: it did count them.
pub(super) fn doubtful_rows<'a>(ledger: &'a Ledger, boot: &Boot, at: &Reading) -> Vec<&'a Session> {
    let rows = at.sessions.iter().flatten().filter(|row| ledger.config.is_ours(&row.client_ref));
    let session = |row: &SessionJson| ledger.book.get(ledger.book.find(boot.index, boot.backend, &row.client_ref, &row.session_id)?);
    rows.filter_map(session).filter(|s| s.over.is_some() && s.record.is_none() && in_doubt(ledger, s)).collect()
}

/// Of those: over for longer than the window. They are no strangers' sessions.
fn stale(ledger: &Ledger, boot: &Boot, at: &Reading) -> u64 {
    let Some(watch) = ledger.watches.get(boot.backend) else { return 0 };
    doubtful_rows(ledger, boot, at).into_iter().filter(|s| reconcile::is_due(s, at, watch, &ledger.config)).count() as u64
}

/// What its own numbers say of each other, in whatever the run had to do with them.
fn of_itself(ledger: &Ledger, boot: &Boot, (label, proof): (&str, Proof), out: &mut Last) {
    match proof {
        Proof::Sessions => {}
        Proof::PartOfSessions => {
            out.notes
                .push(format!("{label}: {} end records were lost before they were read, so totals stand in for them", boot.records_lost));
        }
        Proof::Totals => out.notes.push(format!("{label}: it lists no ends, so only totals were checked")),
    }
    if boot.renamed > 0 {
        out.unverified.push(format!("{label}: {} of its snapshots bore another backend id than its first one", boot.renamed));
    }
    let accepted = ledger.book.accepted_on(boot.index);
    // A front dials again when a dial breaks, and that is seldom.
    if boot.twice > FEW && boot.twice.saturating_mul(10) > accepted {
        out.unverified.push(format!(
            "{label}: {} of the {accepted} sessions that it accepted ended twice there, under two names: it counted them twice, or the front dialled it again by itself",
            boot.twice
        ));
    }
    unlike_log(boot, label, out);
    if boot.open.0 > 0 {
        let (n, widest) = boot.open;
        out.notes.push(format!(
            "{label}: {n} of its {} snapshots were not exact, and left its count open by up to {widest} sessions",
            boot.samples
        ));
    }
}

/// Its counters beside its own end log.
pub(super) fn unlike_log(boot: &Boot, label: &str, out: &mut Last) {
    let (wrong, unlike) = boot.logged.off();
    if wrong > 0 {
        out.wrong += wrong;
        out.wrong_words.push(format!("{label}: its counters have {wrong} ends under other outcomes than its end log"));
    }
    out.unlike_log += unlike;
}

/// Ends that it told the driver of and has under no such outcome, beyond those that are missing for a known reason.
fn untold(ledger: &Ledger, boot: &Boot, (at, watch): (&Reading, &Watch), known: u64, (label, out): (&str, &mut Last)) {
    let due = |s: &Session| reconcile::is_due(s, at, watch, &ledger.config);
    let untold = by_outcome::untold(boot, &ledger.book, at, &ledger.config, due);
    let all: u64 = untold.iter().map(|(_, n)| n).sum();
    let wrong = all.saturating_sub(known);
    if wrong > 0 {
        let words: Vec<_> = untold.iter().map(|(outcome, n)| format!("{n} as {outcome}")).collect();
        out.wrong += wrong;
        out.wrong_words.push(format!("{label}: ends that it told of are not in its counters, {}", words.join(", ")));
    }
}

/// The last look at one boot.
pub(super) fn look(ledger: &Ledger, boot: &Boot, out: &mut Last) {
    let Some(watch) = ledger.watches.get(boot.backend) else { return };
    let label = format!("backend {} ({}, boot {})", boot.backend, boot.backend_id, boot.boot_id);
    let proof = match (boot.has_log, boot.complete_log()) {
        (_, true) => Proof::Sessions,
        (true, false) => Proof::PartOfSessions,
        (false, false) => Proof::Totals,
    };
    let Some(at) = &boot.last else {
        // Torn snapshots are a finding of their own; that nothing could be read from them follows.
        out.notes.push(format!("{label}: every one of its {} samples contradicts itself, so nothing more could be checked", boot.samples));
        return;
    };
    let b = ledger.bounds(boot, at);
    let missing: Vec<&Session> =
        ghost_sessions(ledger).into_iter().filter(|s| s.accepted.as_ref().is_some_and(|a| a.boot == boot.index)).collect();
    out.rejected += at.rejected.saturating_sub(boot.base.rejected.1);
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
        live: b.live(),
    });
    out.confidence(if proof == Proof::Sessions { Confidence::Exact } else { Confidence::Totals });
    of_itself(ledger, boot, (&label, proof), out);
    if boot.killed_us.is_some() || boot.replaced {
        let room = boot.known.bounds.possible + others::live(boot, &boot.known.bounds, at, &ledger.config).1;
        if proof != Proof::Sessions && at.open() > room {
            out.unverified.push(format!("{label}: its last snapshot is not exact, and leaves its count open by {} sessions", at.open()));
        }
        if boot.replaced {
            out.unverified.push(format!("{label}: it was replaced by another process on its own, and its last counts cannot be checked"));
        }
        return look_back(ledger, boot, (at, watch), (&label, proof), &missing, out);
    }
    if at.asked_us < ledger.book.last_end_us(boot.backend) {
        out.unverified.push(format!("{label}: no answer after its last session ended{}", reason(watch.last_gap.as_ref())));
        return;
    }
    let on_boot = |s: &Session| s.accepted.as_ref().is_some_and(|a| a.boot == boot.index);
    let doubted = ledger.book.sessions.values().filter(|s| on_boot(s) && s.over.is_some() && in_doubt(ledger, s)).count();
    if doubted > 0 && b.accepted == 0 && at.started <= boot.base.started.1 {
        out.unverified.push(format!(
            "{label}: none of its {doubted} sessions lived on or was counted, and nothing that it says tells that it had them"
        ));
    }
    let never_added = reconcile::never_added(boot, &b, at);
    let returned = boot.returned_at(at);
    let (foreign_least, foreign_most) = others::live(boot, &b, at, &ledger.config);
    let foreign = foreign_most.saturating_sub(others::unlisted(boot, at, &ledger.config)).saturating_sub(stale(ledger, boot, at));
    let (least, most) = (
        at.active.0 + boot.extras_before(at.asked_us.saturating_sub(ledger.config.grace_us)) as i64,
        at.active.1 + (boot.extras.len() as u64 + never_added) as i64,
    );
    let ghosts = (least - (b.possible + foreign + returned) as i64).max(0) as u64;
    // Those that are known by name, as many of them as the count has room for.
    let room = (most - (b.sure + foreign_least.min(foreign) + returned) as i64).max(0) as u64;
    let ghosts = ghosts.max(room.min((missing.len() as u64).saturating_sub(never_added)));
    unlisted(boot, at, (least, b.possible + boot.base.active + returned), (&label, out));
    if at.open() > foreign_most {
        out.unverified.push(format!("{label}: its last snapshot is not exact, and leaves its count open by {} sessions", at.open()));
    }
    let pending = (least - ghosts as i64 - (b.live() + foreign + returned) as i64).max(0);
    if pending > 0 && ghosts == 0 {
        out.unverified.push(format!("{label}: it still counts {pending} ended sessions, and their detection windows were not over"));
    }
    out.ghosts += ghosts;
    out.short += (b.sure as i64 - most).max(0) as u64;
    out.lost += never_added;
    if boot.ours_alone && !boot.reset && !b.untold && (ledger.book.losses().is_empty() || boot.complete_log()) {
        out.added += at.started.saturating_sub(boot.base.started.1 + b.attempted + boot.returned.total());
    }
    out.log_mismatch += (missing.len() as u64).saturating_sub(ghosts + never_added);
    if proof != Proof::Sessions && ledger.faults.wrong.total == 0 {
        untold(ledger, boot, (at, watch), ghosts + never_added, (&label, out));
    }
    if boot.base.active > 0 {
        out.confidence(Confidence::WithOtherTraffic);
        out.notes.push(format!("{label}: it had {} sessions of others before the run; the bounds are wider by so many", boot.base.active));
    }
    if ghosts > 0 {
        name_ghosts(ledger, boot, at.sessions.as_deref(), &missing, ghosts, out);
    }
}

/// What a process that is gone had counted wrongly by the last look at it went with it, and was wrong all the same.
fn look_back(
    ledger: &Ledger,
    boot: &Boot,
    (at, watch): (&Reading, &Watch),
    (label, proof): (&str, Proof),
    missing: &[&Session],
    out: &mut Last,
) {
    let known = &boot.known;
    let most = at.active.1.saturating_add((boot.extras.len() as u64 + known.never_added) as i64);
    // As many as the count has room for; what a number alone shows is in the samples that were odd to the end.
    let held = most.saturating_sub((known.bounds.sure + known.returned) as i64).max(0) as u64;
    let held = held.min((missing.len() as u64).saturating_sub(known.never_added));
    for session in missing.iter().take(held as usize) {
        let overdue_us = session.ending().and_then(|(end_us, _)| overdue_us(ledger, boot, session, end_us)).unwrap_or(0);
        // Whether the end of the others would have been counted yet, nobody can tell any more.
        if overdue_us > ledger.config.settle_us {
            out.ghosts += 1;
            out.ghost(session, ledger);
        } else {
            out.cut_short.push(session.name());
        }
    }
    out.lost += known.never_added;
    if ledger.book.losses().is_empty() || boot.complete_log() {
        out.added += known.added;
    }
    out.log_mismatch += (missing.len() as u64).saturating_sub(held + known.never_added);
    if proof != Proof::Sessions && ledger.faults.wrong.total == 0 {
        let stuck = at.active.1.saturating_sub((known.bounds.possible + known.returned) as i64).max(0) as u64;
        untold(ledger, boot, (at, watch), stuck.max(held) + known.never_added, (label, out));
    }
}

/// Where nobody else is to be told from ours by a list, sessions beyond ours and those before the run may be anyone's.
fn unlisted(boot: &Boot, at: &Reading, (least, allowed): (i64, u64), (label, out): (&str, &mut Last)) {
    if boot.ours_alone || at.sessions.is_some() {
        return;
    }
    out.confidence(Confidence::Totals);
    out.cannot_see.push(format!(
        "whose live sessions backend {} counts: it lists none, and one that came back, or was counted twice, looks like one of others",
        boot.backend
    ));
    let beyond = least.saturating_sub(allowed as i64);
    if beyond > 0 {
        out.unverified
            .push(format!("{label}: it counts {beyond} live sessions beyond those of this run, and lists none: they may be anyone's"));
    }
}

fn name_ghosts(ledger: &Ledger, boot: &Boot, registry: Option<&[SessionJson]>, missing: &[&Session], ghosts: u64, out: &mut Last) {
    if missing.len() as u64 >= ghosts {
        for session in missing.iter().take(ghosts as usize) {
            out.ghost(session, ledger);
        }
        return;
    }
    for session in missing {
        out.ghost(session, ledger);
    }
    let mut left = ghosts - missing.len() as u64;
    let named = |session_id: &str| missing.iter().any(|s| s.name() == session_id);
    let ghosts = |row: &&SessionJson| ledger.config.is_ours(&row.client_ref) && !named(&row.session_id) && !boot.is_returned(row);
    for row in registry.unwrap_or_default().iter().filter(ghosts) {
        let found = ledger.book.find(boot.index, boot.backend, &row.client_ref, &row.session_id);
        let session = found.and_then(|found| ledger.book.get(found));
        if left == 0 || session.is_some_and(|s| s.ending().is_none()) {
            continue;
        }
        left -= 1;
        match session {
            Some(session) if session.accepted.is_some() => out.ghost(session, ledger),
            _ => {
                out.all_timeouts = false;
                out.ghost_names.push(&row.session_id);
            }
        }
    }
    out.all_timeouts &= left == 0;
}

impl Last {
    /// No more than so much is to be trusted.
    pub(super) fn confidence(&mut self, one: Confidence) {
        self.confidence = self.confidence.max(Some(one));
    }

    fn ghost(&mut self, session: &Session, ledger: &Ledger) {
        let timed_out = session.timed_out();
        self.any_timeout |= timed_out;
        self.all_timeouts &= timed_out || may_have_timed_out(session, ledger);
        self.ghost_names.push(session.name());
        let kind = session.ending().and_then(|(_, kind)| kind).map_or("a broken connection", EndKind::name);
        *self.by_kind.entry(kind.to_owned()).or_default() += 1;
    }
}

/// Its deadline was near, or its network gone, when the driver saw it end otherwise: the backend may have ended it first.
fn may_have_timed_out(session: &Session, ledger: &Ledger) -> bool {
    let expected = ledger.config.expects_timeout(session.scenario);
    let watch = session.backend().and_then(|backend| ledger.watches.get(backend));
    let over_us = session.over.map(|over| over.at_us);
    // What the network held back is told when it is there again.
    let since_us = |at_us: u64| at_us.saturating_sub(ledger.config.grace_us);
    let cut_off = || watch.zip(over_us).is_some_and(|(watch, at_us)| watch.disturbances.within(since_us(at_us), at_us.saturating_add(1)));
    session.raced || expected || cut_off()
}

fn reason(gap: Option<&(u64, String)>) -> String {
    gap.map_or_else(String::new, |(_, reason)| format!(" (last failed poll: {reason})"))
}

/// Sessions under references of ours that only backends tell of: a killed worker may have begun some untold, as many as its pace allows.
pub(super) fn beyond_losses(ledger: &Ledger, out: &mut Last) {
    let counted = ledger.faults.records.untold.total;
    let losses = ledger.book.losses();
    let limits = || losses.iter().map(|loss| ledger.book.tally.untold(loss));
    let beyond = counted.saturating_sub(limits().flatten().fold(FEW, u64::saturating_add));
    if beyond > 0 && limits().any(|limit| limit.is_none()) {
        let what = "sessions of this run more than are known: a killed worker that never told of one may have had them";
        out.unverified.push(format!("the backends counted {counted} {what}"));
    } else {
        out.strangers += beyond;
    }
}

/// Watched targets that never answered, boots that only sessions told of, and sessions that nobody answers for.
pub(super) fn unanswered(ledger: &Ledger, out: &mut Last) {
    // Sums name no backend, and need none.
    let named = ledger.config.backends.iter().any(|backend| backend.watched);
    for fault in ledger.book.ids.faults().into_iter().filter(|_| named) {
        out.notes.push(fault.clone());
        out.unverified.push(fault);
    }
    let astray = ledger.book.sessions.values().filter(|s| reconcile::is_astray(s, &ledger.boots)).count() as u64 + ledger.faults.astray;
    out.astray = astray;
    if astray > 0 {
        let fault = if ledger.config.front {
            format!("{astray} sessions were accepted under the id of one backend and by a process of another")
        } else {
            format!(
                "{astray} sessions were dialled at one backend and accepted by the process whose counters are read as another's: do `address` and `admin` belong together?"
            )
        };
        out.notes.push(fault.clone());
        out.unverified.push(fault);
    }
    for (backend, config) in ledger.config.backends.iter().enumerate().filter(|(_, b)| b.watched) {
        let Some(watch) = ledger.watches.get(backend) else { continue };
        let killed = ledger.kills.iter().any(|kill| kill.backend == backend);
        if watch.boots.is_empty() && !killed {
            let used = if ledger.book.first_attempt_us(backend).is_some() { "" } else { ", though no session went there" };
            out.unverified.push(format!("backend {backend}: its counters never answered{used}{}", reason(watch.last_gap.as_ref())));
        }
        let strangers = ledger.book.sessions.values().filter(|s| {
            s.backend() == Some(backend)
                && s.accepted.as_ref().is_some_and(|a| !ledger.boots.contains_key(&a.boot) && !ledger.book.was_killed(a.boot))
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
