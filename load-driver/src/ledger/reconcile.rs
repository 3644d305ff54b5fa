//! Judges each sample of a boot against the book at that time, and each session against the boot's end log.
//!
//! A sample was cut somewhere between asked and answered. *Sure* sessions were live all that time, *possible* ones may have been at
//! some moment of it. Whatever lies between is the time that news takes and proves nothing.

use std::collections::BTreeMap;

use proto::ids::PlanIndex;

use super::{
    book::Book,
    boot::{Boot, Known, OddRun, Reading, RecordFaults, Watch},
    by_outcome,
    config::LedgerConfig,
    convergence::{Convergence, MadeEnd},
    drift::Off,
    entry::Finish,
    finding::Names,
    others,
    races::{self, Races},
    recent::HORIZON_US,
    session::{How, Over, Record, Session},
    standstill::Standstills,
    truth,
    wrong_outcome::{self, Judged},
};
use crate::plan::EndKind;

/// A session that its backend was seen to go on with must be over and counted by then.
const AFTERLIFE_US: u64 = 60_000_000;

/// What was found while running.
#[derive(Debug, Default)]
pub struct Faults {
    /// From the end logs.
    pub records: RecordFaults,
    /// Snapshots that contradict themselves, or the samples before and after.
    pub torn: u64,
    /// Of those: not labelled exact.
    pub torn_open: u64,
    /// The first of them, in words.
    pub torn_example: Option<String>,
    /// Snapshots with a gauge below zero.
    pub negative: u64,
    /// The lowest gauge.
    pub lowest: i64,
    /// Snapshots with more sessions than the cap.
    pub over_cap: u64,
    /// Snapshots whose gauges do not add up, but no more than the other findings explain.
    pub uneven: u64,
    /// Snapshots in which live sessions were missing.
    pub short_samples: u64,
    /// Most that were missing.
    pub short_most: u64,
    /// Missing for a while, and no end record explains it.
    pub short_unexplained: u64,
    /// Accepted, and not in `started` for a while; or never.
    pub unadded: u64,
    /// Too many for a while although their windows were over, and no end record explains it.
    pub excess_unexplained: u64,
    /// Ends counted after their window.
    pub late: Names,
    /// The latest, beyond its end, microseconds.
    pub latest_us: u64,
    /// How those sessions had ended.
    pub(super) late_kinds: BTreeMap<String, u64>,
    /// Counted as ended long before they were.
    pub early: Names,
    /// Counted as timed out although the driver cut them, which stood still itself.
    pub overtaken: u64,
    /// Counted under another outcome.
    pub wrong: Names,
    /// Expected and counted outcome, how often.
    pub wrong_pairs: BTreeMap<String, u64>,
    /// Counted as if the backend had ended them in the moment of the driver's cut.
    pub(super) races: Races,
    /// Folded sessions that were dialled at one backend and counted by another.
    pub astray: u64,
    /// Numbers that only grow fell in a living process.
    pub resets: u64,
    /// The first of them, in words.
    pub reset_example: Option<String>,
}

/// How many sessions a sample may show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Live all the time.
    pub sure: u64,
    /// Live at some moment.
    pub possible: u64,
    /// Of the possible: ended, within the window.
    pub pending: u64,
    /// Of the possible: ended and in the end log, so recently that the cut may have missed it.
    pub fading: u64,
    /// Of the pending: in doubt, so that no end record need come.
    pub doubtful: u64,
    /// Ended so recently that the cut may have missed it, not accepted before the driver asked, and counted all the same.
    pub unaccepted: u64,
    /// Ended beyond their window and without an end record (when there is a log): ghosts, or late.
    pub overdue: u64,
    /// Live, and long since written down as ended: in none of the above.
    pub early: u64,
    /// Surely in `started`.
    pub accepted: u64,
    /// Of those: by the backend's own word.
    pub told: u64,
    /// At most in `started`.
    pub attempted: u64,
    /// A killed worker may have had more sessions than it told of.
    pub untold: bool,
}

impl Bounds {
    /// Those that have not ended, as far as anybody knows.
    pub fn live(&self) -> u64 {
        self.possible - self.pending - self.fading
    }
}

/// How long the backend may take for this session's end.
pub fn window_us(session: &Session, config: &LedgerConfig) -> u64 {
    if session.lives_on {
        return AFTERLIFE_US;
    }
    session.ending().and_then(|(_, kind)| kind).map_or(config.windows.longest(), |kind| config.windows.of(kind))
}

/// The session was over for longer than its window when this was read.
pub(super) fn is_due(session: &Session, at: &Reading, watch: &Watch, config: &LedgerConfig) -> bool {
    session.over.is_some_and(|over| watch.watched_us(over.at_us, at.asked_us) > window_us(session, config))
}

/// By this moment the backend surely counts, or has counted, the session.
///
/// An acceptance that the wire only implies is the driver's own word, given when the start was sent; whether the start came, nobody has said. It
/// holds for a session that lived on for the grace in a calm network: by then the start has come, or the connection is broken. It holds as well when
/// the backend ended the session in order. Any other is in doubt like a dial without an answer, until the backend tells of its end.
pub fn surely_counted(session: &Session, watch: &Watch, config: &LedgerConfig, by_us: u64) -> bool {
    let Some(accepted) = session.accepted.as_ref().filter(|accepted| accepted.at_us <= by_us) else { return false };
    if !config.implies_acceptance(session.scenario) {
        return true;
    }
    let answered = |over: Over| matches!(over.how, How::Finished(Finish::Goodbye(_) | Finish::ByServer(_))) && over.at_us <= by_us;
    session.over.is_some_and(answered) || watch.watched_us(accepted.at_us, session.lives_until_us().min(by_us)) >= config.grace_us
}

/// Bounds of one boot between two moments of the driver's clock. `captured_us` is the backend's.
pub fn bounds(book: &Book, boot: &Boot, watch: &Watch, config: &LedgerConfig, at: &Reading) -> Bounds {
    let (asked, answered) = (at.asked_us, at.answered_us);
    // On the backend's clock the cut is no older than this. A backend that stalls after it dates it late.
    let cut_from_us = at.captured_us.saturating_sub(answered.saturating_sub(asked));
    let mut b = Bounds {
        accepted: book.folded_on(boot.index),
        told: book.folded_on(boot.index),
        attempted: book.folded_on(boot.index),
        ..Bounds::default()
    };
    for session in book.dials() {
        let Some(attempt) = session.attempted else { continue };
        let counted = surely_counted(session, watch, config, asked);
        match &session.accepted {
            Some(accepted) if accepted.boot != boot.index => continue,
            Some(_) if counted => {
                b.accepted += 1;
                b.told += u64::from(!config.implies_acceptance(session.scenario));
                let done = session.record.is_some_and(|r| r.at_us <= answered.saturating_add(config.grace_us));
                let heard = !session.was_deaf(answered, config.grace_us);
                if !done && heard && session.lives_until_us().saturating_sub(config.grace_us) > answered {
                    b.sure += 1;
                }
            }
            None if !session.may_be_at(boot.backend) || !session.in_doubt() => continue,
            // It was with another one.
            None if session.record.is_some_and(|record| record.boot != boot.index) => continue,
            Some(_) | None => {}
        }
        if attempt.at_us > answered {
            continue;
        }
        b.attempted += 1;
        if let Some(record) = session.record.filter(|r| r.boot == boot.index && r.server_at_us <= at.captured_us) {
            // An end is written down a little before or after it is counted, and a cut is dated after it was made.
            if record.server_at_us.saturating_add(config.grace_us) > cut_from_us {
                b.possible += 1;
                b.fading += 1;
                b.unaccepted += u64::from(!counted);
            } else {
                // Nobody told us that it was accepted; that it ended tells.
                b.accepted += u64::from(!counted);
                let heard_us = session.heard_from_us(record.at_us, config.grace_us);
                let lives = session.lives_until_us().saturating_sub(config.grace_us) > answered;
                b.early += u64::from(lives && watch.watched_us(heard_us, asked) > config.early_us);
            }
            continue;
        }
        match session.ending() {
            Some((end_us, _)) if end_us < asked => {
                if watch.watched_us(end_us, asked) <= window_us(session, config) {
                    b.possible += 1;
                    b.pending += 1;
                    b.doubtful += u64::from(!counted);
                } else if counted && boot.complete_log() {
                    // Without a record, or with one that came after this sample.
                    b.overdue += 1;
                }
            }
            _ => b.possible += 1,
        }
    }
    b.attempted += book.doubts_at(boot.backend);
    let known = |ended_us: &&u64| ended_us.saturating_add(config.grace_us) <= cut_from_us;
    b.accepted += boot.untold.values().filter(known).count() as u64;
    b.unaccepted += boot.untold.values().filter(|ended_us| **ended_us <= at.captured_us && !known(ended_us)).count() as u64;
    b.attempted += boot.untold.len() as u64;
    b.untold = book.losses().iter().any(|loss| {
        let from = loss.known_to_us.values().copied().min().unwrap_or(loss.at_us);
        from < answered && watch.watched_us(loss.at_us, asked) <= config.windows.of(EndKind::KillWorker)
    });
    b
}

/// Judges one sample. Gives how far its count is off as well, but for one that contradicts itself.
pub(super) fn judge(
    book: &Book,
    boot: &mut Boot,
    watch: &Watch,
    config: &LedgerConfig,
    at: Reading,
    faults: &mut Faults,
) -> (Bounds, Option<Off>) {
    let b = bounds(book, boot, watch, config, &at);
    boot.tell_reset(&at, faults);
    let returned = boot.returned.total();
    // At most: those whose record came a little later are in the sample already, or not.
    let extra = boot.extras_before(at.answered_us.saturating_add(config.grace_us));
    if let Some(why) = contradiction(&at, boot, extra + b.overdue + returned, faults) {
        torn(faults, boot, &why);
        faults.torn_open += u64::from(!at.exact);
        // What it says of the sessions means nothing either; the next one is compared with the last good one, or a later torn one would hide.
        if let Some(last) = &mut boot.last
            && at.runs_backwards(last)
        {
            boot.fell_from = Some((last.started, last.ended_sum()));
            *last = at;
        }
        return (b, None);
    }
    if !at.exact {
        boot.open = (boot.open.0 + 1, boot.open.1.max(at.open()));
    }
    if at.lowest < 0 {
        faults.negative += 1;
        faults.lowest = faults.lowest.min(at.lowest);
    }
    by_outcome::judge(boot, &at, config);
    let never_added = never_added(boot, &b, &at);
    // What was subtracted, and is not in `started`, was not added, though it was never accepted.
    let unadded = if boot.reset { 0 } else { (boot.base.started.0 + b.accepted + b.unaccepted).saturating_sub(at.started) };
    let short = (b.sure as i64 - extra as i64 - unadded as i64 - at.active.1).max(0) as u64;
    let missing = (b.sure as i64 - at.active.1).max(0) as u64;
    if missing > 0 {
        faults.short_samples += 1;
        faults.short_most = faults.short_most.max(missing);
    }
    let foreign = others::judge(boot, book, &b, &at, config);
    let allowed = b.possible + b.overdue + foreign + returned;
    let subtracted = boot.extras_before(at.asked_us.saturating_sub(config.grace_us));
    let excess = if b.untold { 0 } else { (at.active.0 + subtracted as i64 - allowed as i64).max(0) as u64 };
    let added = at.started.saturating_sub(boot.base.started.1 + b.attempted + returned);
    let added = if b.untold || !boot.ours_alone || boot.reset { 0 } else { added };
    if short + excess + never_added + added > 0 {
        let was = boot.odd;
        let exact = at.exact && (was.exact || was.samples == 0);
        let unadded = if boot.reset || !at.exact { 0 } else { (boot.base.started.0 + b.told).saturating_sub(at.started) };
        boot.odd = OddRun {
            samples: was.samples + 1,
            short: was.short.max(short),
            excess: was.excess.max(excess),
            unadded: was.unadded.max(unadded),
            exact,
        };
    } else {
        end_odd_run(boot, b.sure == b.possible, faults);
    }
    let named = Off { over: b.overdue + boot.returned_at(&at), under: subtracted + never_added + b.early };
    let off = truth::off(boot, watch, config, &at, (&b, foreign, named));
    boot.known = Known { bounds: b, returned: boot.returned_at(&at), never_added, added };
    boot.last = Some(at);
    (b, Some(off))
}

/// Sessions that were accepted and are not in `started`.
pub(super) fn never_added(boot: &Boot, b: &Bounds, at: &Reading) -> u64 {
    if boot.reset { 0 } else { (boot.base.started.0 + b.accepted).saturating_sub(at.started) }
}

/// A row of odd samples is over. One alone, labelled exact, was no cut when the next sample proves the count right (`healed`: its bounds
/// leave no slack); anything else was real while it lasted.
pub fn end_odd_run(boot: &mut Boot, healed: bool, faults: &mut Faults) {
    let run = std::mem::take(&mut boot.odd);
    if run.samples == 0 {
        return;
    }
    if healed && run.samples == 1 && run.exact && boot.complete_log() {
        torn(faults, boot, "it contradicts what the sessions did and the samples before and after it");
    } else {
        // Without the log a goodbye that the driver was slow to see looks the same as a live session forgotten; what lasts shows at the end.
        if boot.complete_log() {
            faults.short_unexplained = faults.short_unexplained.max(run.short);
        }
        faults.unadded = faults.unadded.max(run.unadded);
        faults.excess_unexplained = faults.excess_unexplained.max(run.excess);
    }
}

fn torn(faults: &mut Faults, boot: &Boot, why: &str) {
    faults.torn += 1;
    if faults.torn_example.is_none() {
        faults.torn_example = Some(format!("backend {} ({}): {why}", boot.backend, boot.backend_id));
    }
}

/// How a snapshot contradicts itself or its predecessor, unless known faults of that size explain it.
fn contradiction(at: &Reading, boot: &Boot, explained: u64, faults: &mut Faults) -> Option<String> {
    if !at.exact {
        return contradiction_of_open(at, boot, explained);
    }
    let (active, ended) = (at.active.0, at.ended_sum());
    let uneven = i128::from(at.started) - i128::from(active) - i128::from(ended);
    let phases = i128::from(at.phases) - i128::from(active);
    if uneven.unsigned_abs() > u128::from(explained) {
        return Some(format!("started {} is not active {active} plus ended {ended}", at.started));
    }
    if phases.unsigned_abs() > u128::from(explained) {
        return Some(format!("its phases sum to {}, active is {active}", at.phases));
    }
    if uneven != 0 || phases != 0 {
        faults.uneven += 1;
    }
    if boot.last.as_ref().is_some_and(|last| at.runs_backwards(last)) {
        return Some("a counter that only grows is lower than before".to_owned());
    }
    if at.max.is_some_and(|max| active > i64::try_from(max).unwrap_or(i64::MAX)) {
        faults.over_cap += 1;
    }
    None
}

/// The same of one that is not exact: whatever its interval, its sums lie in it, and what only grows does.
fn contradiction_of_open(at: &Reading, boot: &Boot, explained: u64) -> Option<String> {
    let (least, most) = at.active;
    if least > most {
        return Some(format!("its interval {least}..{most} is empty"));
    }
    let outside = |n: i128, slack: u128| {
        let slack = i128::try_from(slack).unwrap_or(i128::MAX);
        n < i128::from(least) - slack || n > i128::from(most) + slack
    };
    let ended = at.ended_sum();
    if outside(i128::from(at.started) - i128::from(ended), u128::from(explained)) {
        return Some(format!("started {} less ended {ended} is not within its interval {least}..{most}", at.started));
    }
    let last = boot.last.as_ref()?;
    if at.runs_backwards(last) {
        return Some("a counter that only grows is lower than before".to_owned());
    }
    // The phases are of another moment of the same look.
    let moved = u128::from(at.started.saturating_sub(last.started)) + u128::from(ended.saturating_sub(last.ended_sum()));
    outside(i128::from(at.phases), moved + u128::from(explained))
        .then(|| format!("its phases sum to {}, which is not within its interval {least}..{most}", at.phases))
}

/// The session is in sums.
pub type InSums<'a> = dyn Fn(&Session) -> bool + 'a;

/// Checks the sessions that are over and counted as ended, and folds them once no sample that is still looked at can show them.
/// `last`: no sample will be looked at any more. Sessions that are in sums are left to those who look at them.
pub fn sweep(
    book: &mut Book,
    (boots, watches, in_sums): (&BTreeMap<usize, Boot>, &[Watch], &InSums<'_>),
    config: &LedgerConfig,
    last: bool,
    out: (&mut Faults, &mut Convergence),
) {
    let (faults, convergence) = out;
    let (mut done, mut unheard): (Vec<PlanIndex>, Vec<PlanIndex>) = Default::default();
    let mut windows = Vec::new();
    // The newest of all backends: one that has not answered for a whole horizon passes nothing anyway.
    let seen_us = boots.values().filter(|boot| boot.killed_us.is_none() && !boot.replaced).map(Boot::looked_at_from_us).max().unwrap_or(0);
    for (index, session) in &book.sessions {
        let Some(over) = session.over else { continue };
        let watched = match session.backend() {
            Some(backend) => config.backends.get(backend).is_some_and(|b| b.watched),
            None => session.attempted.is_some() && config.backends.iter().any(|b| b.watched),
        };
        let uncounted = session.accepted.is_none() && !session.in_doubt();
        if !watched && !uncounted && in_sums(session) {
            continue;
        }
        if !watched || uncounted {
            done.push(*index);
            continue;
        }
        // In doubt: the backend may yet tell, but not for ever.
        if session.accepted.is_none() {
            let told_us = over.at_us.max(session.record.map_or(0, |record| record.at_us));
            if !last && told_us.saturating_add(HORIZON_US) < seen_us {
                done.push(*index);
            }
            continue;
        }
        let boot = session.accepted.as_ref().and_then(|accepted| boots.get(&accepted.boot));
        let Some((boot, watch)) = boot.and_then(|boot| Some((boot, watches.get(boot.backend)?))) else { continue };
        if session.through_front() && session.backend() != Some(boot.backend) {
            // Nobody's, or claimed by two: the verdict tells.
            continue;
        }
        if !last && (session.end_kind() == Some(EndKind::KillBackend) || boot.killed_us.is_some() && session.record.is_none()) {
            // The driver may have more to tell of it.
            if session.told && session.record.is_none() && is_written_off(session, boot, watch, config) {
                count_killed(session, convergence);
                // Those of the kill itself were told when its successor agreed.
                if let (Some(end), None) = (row(session), session.agreed_us) {
                    convergence.count(end, |row| row.written_off += 1);
                }
                done.push(*index);
                continue;
            }
            if !session.told || session.record.is_none() {
                continue;
            }
        }
        // Nobody will look at a process again that another one has followed.
        let judged_to_us = if last || is_gone(boot, watch) { u64::MAX } else { boot.looked_at_from_us() };
        let quiet = |at_us: u64| at_us.saturating_add(2 * config.grace_us) < judged_to_us;
        if let Some(record) = session.record {
            if quiet(over.at_us.max(record.at_us)) {
                settle(session, (boot, watch, book.standstills(session.source)), config, faults, convergence);
                done.push(*index);
            }
        } else if !surely_counted(session, watch, config, over.at_us) {
            if !last && over.at_us.saturating_add(HORIZON_US) < seen_us {
                unheard.push(*index);
            }
        } else if !boot.complete_log()
            && boot.killed_us.is_none()
            && quiet(over.at_us)
            && watch.watched_us(over.at_us, judged_to_us) > window_us(session, config) + config.grace_us
        {
            windows.push((boot.backend, over.at_us + window_us(session, config)));
            count_unnamed(session, convergence);
            if let (Some(end), Some(agreed_us)) = (row(session), session.agreed_us) {
                convergence.detected(end, over.at_us, agreed_us);
            }
            done.push(*index);
        }
    }
    for (backend, at_us) in windows {
        book.window_over(backend, at_us);
    }
    for index in done {
        if let Some(session) = book.sessions.get(&index) {
            faults.astray += u64::from(is_astray(session, boots));
            let boot = session.accepted.as_ref().and_then(|accepted| boots.get(&accepted.boot));
            if let Some((boot, outcome)) = boot.zip(by_outcome::told(session, config))
                && watches.get(boot.backend).is_some_and(|watch| is_owed(session, boot, watch, config))
            {
                book.tell(boot.index, outcome);
            }
        }
        book.fold(index);
    }
    for index in unheard {
        book.fold_unheard(index);
    }
    if !last {
        book.fold_strays(seen_us.saturating_sub(HORIZON_US));
    }
}

/// It was dialled at one backend, or accepted under the id of one, and the counters of another have it.
pub(super) fn is_astray(session: &Session, boots: &BTreeMap<usize, Boot>) -> bool {
    let counted_by = session.accepted.as_ref().and_then(|accepted| boots.get(&accepted.boot)).map(|boot| boot.backend);
    session.backend().is_some_and(|at| counted_by.is_some_and(|by| by != at))
}

/// Another process has followed it, and its last sample is judged.
fn is_gone(boot: &Boot, watch: &Watch) -> bool {
    boot.waiting.is_none() && watch.boots.last() != Some(&boot.index)
}

/// Its process will have counted it by the last look that there is.
fn is_owed(session: &Session, boot: &Boot, watch: &Watch, config: &LedgerConfig) -> bool {
    boot.killed_us.is_none() && watch.boots.last() == Some(&boot.index)
        || boot.last.as_ref().is_some_and(|at| is_due(session, at, watch, config))
}

/// Nothing more comes of a session without a record whose process was killed: a successor agreed that it is gone, or it ended so shortly
/// before that the last look could not tell. What the last look did show beyond its window stays for the verdict.
fn is_written_off(session: &Session, boot: &Boot, watch: &Watch, config: &LedgerConfig) -> bool {
    let Some((end_us, _)) = session.ending() else { return false };
    if boot.killed_us.is_none() || !is_gone(boot, watch) {
        return false;
    }
    if session.end_kind() == Some(EndKind::KillBackend) && session.agreed_us.is_none() {
        return false;
    }
    // Where names are missing nobody can be held to a session that was about to be reconciled by number.
    let patience_us = window_us(session, config) + if boot.complete_log() { 0 } else { config.settle_us };
    !surely_counted(session, watch, config, end_us)
        || boot.last.as_ref().is_none_or(|last| end_us >= last.asked_us || watch.watched_us(end_us, last.asked_us) <= patience_us)
}

/// One more in its row of the table.
pub fn count_killed(session: &Session, convergence: &mut Convergence) {
    if let Some(end) = row(session) {
        convergence.count(end, |row| row.killed += 1);
    }
}

/// The same, of one whose end the backend has counted.
fn count_recorded(session: &Session, over: Over, record: Record, convergence: &mut Convergence) {
    count_killed(session, convergence);
    let from_us = if let Some((EndKind::Graceful, forced_us)) = session.forced { forced_us.min(over.at_us) } else { over.at_us };
    if let Some(end) = row(session) {
        convergence.detected(end, from_us, record.at_us);
        convergence.count(end, |row| row.false_capacity += u64::from(record.count - 1));
    }
}

/// One that is over, as it stands now: whether its end will be counted, only a later look tells.
pub(super) fn count_so_far(session: &Session, convergence: &mut Convergence) {
    match (session.over, session.record) {
        (Some(over), Some(record)) => count_recorded(session, over, record, convergence),
        (Some(_), None) => count_killed(session, convergence),
        (None, _) => {}
    }
}

/// The same, of one that is known by sums only.
pub(super) fn count_unnamed(session: &Session, convergence: &mut Convergence) {
    count_killed(session, convergence);
    if let Some(end) = row(session) {
        convergence.count(end, |row| row.sums = true);
    }
}

/// The row of a session that the driver ended.
pub fn row(session: &Session) -> Option<MadeEnd> {
    session.accepted.as_ref()?;
    let kind = match session.over?.how {
        How::Finished(Finish::Forced(kind)) => kind,
        How::Finished(Finish::Goodbye(_)) => EndKind::Graceful,
        _ => return None,
    };
    Some(MadeEnd { kind, protocol: session.protocol, scenario: session.scenario })
}

/// A session and its end record, side by side. `stood`: when the shard of the driver that ran it stood still.
pub fn settle(
    session: &Session,
    (boot, watch, stood): (&Boot, &Watch, &Standstills),
    config: &LedgerConfig,
    faults: &mut Faults,
    convergence: &mut Convergence,
) {
    let (Some(over), Some(record)) = (session.over, session.record) else { return };
    count_recorded(session, over, record, convergence);
    let took = watch.watched_us(over.at_us, record.at_us);
    if took > window_us(session, config) {
        faults.late.push(session.name());
        faults.latest_us = faults.latest_us.max(took);
        *faults.late_kinds.entry(ended_by(session)).or_default() += 1;
    }
    let heard_us = session.heard_from_us(record.at_us, config.grace_us);
    let early = watch.acted_us(stood.spans(), heard_us, session.lives_until_us()) > early_limit_us(session, over, config);
    if early {
        faults.early.push(session.name());
    }
    if record.count > 1 {
        return;
    }
    if matches!(over.how, How::Finished(Finish::Forced(_))) {
        faults.races.cut(boot.backend);
    }
    match wrong_outcome::judge(session, (boot, watch), stood, config) {
        Judged::Right => {}
        // It is told of by its time.
        Judged::Crossed(_) if early => {}
        Judged::Crossed(expected) => faults.races.crossed(boot.backend, session, expected.as_deref()),
        Judged::Overtaken => faults.overtaken += 1,
        Judged::Wrong(expected) => {
            faults.wrong.push(session.name());
            *faults.wrong_pairs.entry(races::pair(session, &expected)).or_default() += 1;
        }
    }
}

/// How it ended, and over what, in words.
fn ended_by(session: &Session) -> String {
    let kind = session.end_kind().map_or("a broken connection", EndKind::name);
    format!("{kind} over {}", session.protocol.name())
}

/// How long before the session's end its backend may have counted it as ended: for as long as news of that may be under way. A connection that breaks may take
/// longer to do so, and a front may hold one that its backend gave up.
fn early_limit_us(session: &Session, over: Over, config: &LedgerConfig) -> u64 {
    match over.how {
        How::Finished(Finish::Goodbye(_) | Finish::ByServer(_)) => config.grace_us,
        How::Finished(Finish::Forced(_)) if !session.through_front() => config.grace_us,
        How::Finished(Finish::Forced(_) | Finish::Lost(_)) | How::Failed(_) => config.early_us,
    }
}
