//! The sessions of a killed driver: their connections broke with it, and the backends must count their ends. That is waited for before the
//! next segment takes its base, so that it neither calls them ghosts nor takes real ghosts among them for somebody else's sessions.

use std::time::Duration;

use agent_server::{admin::wire::SnapshotJson, runtime::clock::Clock};
use proto::frame::Outcome;
use tokio::time::{Instant, sleep};

use super::{
    Job,
    former::Former,
    poller::{self, Look, Watched},
    targets::TargetSet,
};
use crate::{
    counters::{CounterSample, Counts},
    ledger::{DefectName, Finding, SumsStand, TotalsConfig},
    report::summary::FindingRow,
};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// What became of the sessions that the killed driver had.
#[derive(Debug, Clone, Default)]
pub(super) struct Leftover {
    /// For the verdict.
    pub(super) findings: Vec<FindingRow>,
    /// What could not be proven.
    pub(super) notes: Vec<String>,
    /// Sessions that were begun after the last checkpoint, at most, as far as backends told.
    unseen: u64,
    /// Not all of them did.
    untold: bool,
}

impl Leftover {
    /// Sessions that were begun after the last checkpoint, at most; none where that is not known.
    pub(super) fn unseen(&self) -> Option<u64> {
        (!self.untold).then_some(self.unseen)
    }

    fn find(&mut self, name: DefectName, size: u64, evidence: String, ids: Vec<String>) {
        let mut row = super::finish::finding(&Finding::new(name, size, evidence));
        row.session_ids = ids.into_iter().take(20).collect();
        self.findings.push(row);
    }
}

/// Waits until the backends have counted the ends, for as long as the slowest kind of end may take.
pub(super) async fn wait(job: &Job, set: &mut TargetSet, clock: Clock) -> Leftover {
    let mut out = Leftover::default();
    let Some(former) = job.former.as_deref() else { return out };
    if !set.backends.is_empty() {
        dead(former, &mut out);
        return out;
    }
    let counters = &job.prepared.profile.counters;
    let patience = counters.half_open_window.0.max(counters.window.0) + counters.settle.0 + counters.max_age.0;
    let deadline = Instant::now() + patience;
    // The first looks may show sessions of the killed driver: they are no base.
    set.looks.clear();
    for Watched { whose, source } in &mut set.sources {
        let last = loop {
            let look = poller::look(&mut **source, *whose, true, clock).await;
            if Instant::now() >= deadline || is_over(former, &look) {
                break look;
            }
            sleep(PAUSE).await;
        };
        judge(former, &last, &set.totals, &mut out);
        set.looks.push(last);
    }
    out.untold |= set.sources.is_empty() || !set.unwatched.is_empty();
    if set.sources.is_empty() {
        out.notes.push("the backends have no counters, so nothing is known of the sessions that the killed driver had".to_owned());
    }
    out
}

/// Embedded backends died with their driver.
fn dead(former: &Former, out: &mut Leftover) {
    out.untold = true;
    out.notes.push(
        "the backends were processes of the killed driver and died with it: fresh ones were started, and what the old ones counted after the last checkpoint is not known"
            .to_owned(),
    );
    for stand in &former.state.stands {
        overdue(&format!("backend {}", stand.backend), stand.overdue, "died with the driver", out);
    }
    for stand in &former.state.sums {
        overdue(&stand.name, stand.overdue, "died with the driver", out);
    }
}

/// What the last checkpoint suspected, and nobody can look at any more.
fn overdue(who: &str, overdue: u64, what: &str, out: &mut Leftover) {
    if overdue > 0 {
        let text = format!("{who} {what} while it still counted {overdue} ended sessions beyond their windows");
        out.find(DefectName::Unverified, overdue, text, Vec::new());
    }
}

/// Nothing of the killed driver is there any more, as far as this look can tell.
fn is_over(former: &Former, look: &Look) -> bool {
    match look {
        Look::Sample(sample) => Left::of(former, sample).none(),
        Look::Totals(sample) => are_over(sums_stand(former, sample.source), &sample.counts),
        Look::Gap { .. } | Look::Blind { .. } => false,
    }
}

fn sums_stand(former: &Former, source: usize) -> Option<&SumsStand> {
    former.state.sums.iter().find(|stand| stand.source == source)
}

/// Numbers that need no further look.
fn are_over(stand: Option<&SumsStand>, now: &Counts) -> bool {
    let Some(stand) = stand else { return now.active <= 0 };
    let all_told = stand.since(|counts| counts.started, now).is_none_or(|started| started >= stand.accepted);
    let all_counted = refusals_short(stand, now) == 0 && outcomes_short(stand, now) == 0;
    !stand.is_of(now) || beyond(stand, now) == 0 && now.active >= stand.floor && all_told && all_counted
}

/// Refusals of the run that are not counted.
fn refusals_short(stand: &SumsStand, now: &Counts) -> u64 {
    stand.since(|counts| counts.rejected, now).map_or(0, |has| stand.refused.saturating_sub(has))
}

/// Ends that are not counted as what they can only have been, beyond those that are not counted at all.
fn outcomes_short(stand: &SumsStand, now: &Counts) -> u64 {
    let of = |outcome: Outcome| stand.since(|counts| counts.outcomes.get(&outcome).copied(), now);
    let short = |(outcome, must): (&Outcome, &u64)| of(*outcome).map_or(0, |has| must.saturating_sub(has));
    let short: u64 = stand.must.iter().map(short).sum();
    let ended = stand.since(|counts| counts.ended, now).unwrap_or_else(|| Outcome::ALL.into_iter().filter_map(of).sum());
    short.saturating_sub(stand.accepted.saturating_sub(ended))
}

/// Live sessions that were not there before the run.
fn beyond(stand: &SumsStand, now: &Counts) -> u64 {
    u64::try_from(now.active.saturating_sub(stand.base_active)).unwrap_or(0)
}

/// What a look shows of the killed driver's sessions.
struct Left {
    /// By name; none where sessions are not listed.
    named: Option<Vec<String>>,
    /// Live ones that nobody else's names account for.
    counted: u64,
}

impl Left {
    fn of(former: &Former, sample: &CounterSample) -> Self {
        let theirs = |client_ref: &str| {
            let mut ids = former.state.run_ids.iter();
            ids.any(|id| client_ref.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with('-')))
        };
        let at: &SnapshotJson = &sample.snapshot;
        let stand = former.state.stands.iter().find(|stand| stand.backend == sample.backend && stand.boot_id == at.boot_id);
        let named = sample
            .sessions
            .as_ref()
            .map(|rows| rows.iter().filter(|row| theirs(&row.client_ref)).map(|row| row.session_id.clone()).collect::<Vec<_>>());
        let strangers = match (&sample.sessions, &named) {
            (Some(rows), Some(named)) => (rows.len() - named.len()) as u64,
            _ => stand.map_or(0, |stand| stand.base_active),
        };
        let least = if at.exact { at.active } else { at.active_interval.0 };
        Self { named, counted: u64::try_from(least).unwrap_or(0).saturating_sub(strangers) }
    }

    fn none(&self) -> bool {
        self.counted == 0 && self.named.as_ref().is_none_or(Vec::is_empty)
    }
}

fn judge(former: &Former, look: &Look, totals: &[TotalsConfig], out: &mut Leftover) {
    let sample = match look {
        Look::Sample(sample) => sample,
        Look::Gap { backend, reason, .. } => {
            out.untold = true;
            let text = format!("backend {backend} did not tell whether the sessions of the killed driver are over: {reason}");
            return out.find(DefectName::Unverified, 1, text, Vec::new());
        }
        Look::Totals(sample) => {
            let name = totals.get(sample.source).map_or("the counters", |source| source.name.as_str());
            return judge_sums(sums_stand(former, sample.source), name, &sample.counts, out);
        }
        Look::Blind { reason, .. } => {
            out.untold = true;
            let text = format!("the counters did not tell whether the sessions of the killed driver are over: {reason}");
            return out.find(DefectName::Unverified, 1, text, Vec::new());
        }
    };
    let (at, backend) = (&sample.snapshot, sample.backend);
    let stand = former.state.stands.iter().find(|stand| stand.backend == backend);
    let same = stand.filter(|stand| stand.boot_id == at.boot_id);
    if let (Some(stand), None) = (stand, same) {
        out.notes
            .push(format!("backend {backend} was started anew since the last checkpoint: what it had counted until then is not known"));
        overdue(&format!("backend {backend}"), stand.overdue, "was started anew", out);
    }
    let left = Left::of(former, sample);
    let named = left.named.as_ref().map_or(0, |named| named.len() as u64);
    let size = named.max(left.counted);
    if size > 0 && (left.named.is_some() || same.is_some_and(|stand| stand.ours_alone || stand.base_active == 0)) {
        let text = format!("backend {backend} still counts {size} sessions of the driver that was killed, beyond every window");
        out.find(DefectName::Ghost, size, text, left.named.unwrap_or_default());
    } else if size > 0 {
        let text = format!("backend {backend} counts {size} sessions more than before the run, and does not tell whose they are");
        out.find(DefectName::Unverified, size, text, Vec::new());
    }
    let Some(stand) = same else {
        out.untold = true;
        if stand.is_none() {
            out.notes.push(unknown(&format!("backend {backend}")));
        }
        return;
    };
    late(&format!("backend {backend}"), stand.overdue.saturating_sub(size), out);
    let refusals = stand.refused.saturating_sub(at.rejected.saturating_sub(stand.base_rejected));
    if refusals > 0 {
        let text = format!("backend {backend} refused {refusals} dials of the killed driver more than are in `rejected`");
        out.find(DefectName::Miscounted, refusals, text, Vec::new());
    }
    let started = at.started.saturating_sub(stand.base_started);
    if started < stand.accepted {
        let missing = stand.accepted - started;
        let text = format!("backend {backend} accepted {missing} sessions of the killed driver and never added them to its count");
        out.find(DefectName::Lost, missing, text, Vec::new());
    }
    let unseen = started.saturating_sub(stand.accepted);
    out.unseen += unseen;
    if unseen > 0 {
        let whose = if stand.ours_alone { "" } else { ", other clients' among them" };
        out.notes.push(format!(
            "backend {backend} counted {unseen} sessions between the last checkpoint and the end of its driver{whose}: of each it is only known that none is live"
        ));
    }
}

/// Nothing to hold what is counted now against.
fn unknown(who: &str) -> String {
    format!(
        "{who}: the last checkpoint does not tell what it had counted before the run, so how many sessions it counted until the end of its driver is not known"
    )
}

/// What the last checkpoint suspected, and is over now: those were counted for too long.
fn late(who: &str, size: u64, out: &mut Leftover) {
    if size > 0 {
        let text = format!(
            "{who} still counted {size} sessions at the last checkpoint that had been over for longer than their windows, and counts them no more"
        );
        out.find(DefectName::LateDecrement, size, text, Vec::new());
    }
}

/// Without names: numbers against those of the last checkpoint. None of the run's sessions lives.
fn judge_sums(stand: Option<&SumsStand>, name: &str, now: &Counts, out: &mut Leftover) {
    let Some(stand) = stand else {
        out.untold = true;
        out.notes.push(unknown(name));
        if now.active != 0 {
            let text = format!("{name} counts {} sessions, and whether they were there before the run is not known", now.active);
            out.find(DefectName::Unverified, now.active.unsigned_abs(), text, Vec::new());
        }
        return;
    };
    if stand.fell(now) {
        let text = format!("{name}: a number that only grows fell since the last checkpoint, in one and the same process");
        out.untold = true;
        out.find(DefectName::CounterReset, 1, text, Vec::new());
        return overdue(name, stand.overdue, "fell", out);
    }
    if !stand.is_of(now) {
        out.untold = true;
        out.notes.push(format!("{name} was started anew since the last checkpoint: what it had counted until then is not known"));
        return overdue(name, stand.overdue, "was started anew", out);
    }
    let size = beyond(stand, now);
    if size > 0 && stand.other_traffic {
        let text = format!("{name} counts {size} sessions more than it ever had before the run, and does not tell whose they are");
        out.find(DefectName::Unverified, size, text, Vec::new());
    } else if size > 0 {
        let text = format!("{name} still counts {size} sessions of the driver that was killed, beyond every window");
        out.find(DefectName::Ghost, size, text, Vec::new());
    }
    if !stand.other_traffic {
        late(name, stand.overdue.saturating_sub(size), out);
    }
    too_few(stand, name, now, out);
    let refusals = refusals_short(stand, now);
    if refusals > 0 {
        let text = format!("{name} refused {refusals} dials of the killed driver more than are in `rejected`");
        out.find(DefectName::Miscounted, refusals, text, Vec::new());
    }
    let wrong = if stand.other_traffic { 0 } else { outcomes_short(stand, now) };
    if wrong > 0 {
        let text = format!("{name} counted {wrong} ends of the killed driver's sessions under a wrong outcome");
        out.find(DefectName::WrongOutcome, wrong, text, Vec::new());
    }
    let Some(started) = stand.since(|counts| counts.started, now) else {
        out.untold = true;
        out.notes.push(format!("{name} does not tell how many sessions began after the last checkpoint"));
        return;
    };
    if started < stand.accepted {
        let missing = stand.accepted - started;
        let text = format!("{name} accepted {missing} sessions of the killed driver and never added them to its count");
        out.find(DefectName::Lost, missing, text, Vec::new());
    }
    let unseen = started.saturating_sub(stand.accepted);
    out.unseen += unseen;
    if unseen > 0 {
        let whose = if stand.other_traffic { ", other clients' among them" } else { "" };
        out.notes.push(format!(
            "{name} counted {unseen} sessions between the last checkpoint and the end of its driver{whose}: of each it is only known that none is live"
        ));
    }
}

/// Fewer are live than before the run, or more ended than ever began: some were subtracted twice, or never added.
fn too_few(stand: &SumsStand, name: &str, now: &Counts, out: &mut Leftover) {
    let began = stand.since(|counts| counts.started, now).map(|started| started.max(stand.accepted));
    let ended = stand.since(|counts| counts.ended, now);
    let doubles = match (began, ended) {
        // Those from before the run may have ended.
        (Some(began), Some(ended)) if !stand.other_traffic => {
            ended.saturating_sub(began).saturating_sub(u64::try_from(stand.base_active).unwrap_or(0))
        }
        _ => 0,
    };
    if doubles > 0 {
        let text =
            format!("{name} counted {doubles} ends beyond all sessions by the end of its driver: some were subtracted a second time");
        out.find(DefectName::DoubleDecrement, doubles, text, Vec::new());
    }
    let below = u64::try_from(stand.floor.saturating_sub(now.active)).unwrap_or(0);
    if below > doubles {
        let text = format!("{name} counts {} sessions, {below} fewer than before the run: it looks emptier than it is", now.active);
        out.find(DefectName::FalseCapacity, below - doubles, text, Vec::new());
    }
    let fewer = u64::try_from(stand.base_least.saturating_sub(now.active)).unwrap_or(0);
    if fewer > 0 && below == 0 && doubles == 0 && !stand.other_traffic {
        let text = format!(
            "{name} counts {fewer} sessions fewer than before the run: others' ended (`counters.other_traffic: true`), or ours were subtracted twice"
        );
        out.find(DefectName::Unverified, fewer, text, Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(active: i64, started: u64, ended: u64) -> Counts {
        Counts { active, started: Some(started), ended: Some(ended), boot: Some("b".to_owned()), ..Counts::default() }
    }

    /// Before the run `base` were live and ten had begun; then forty of the run's, of which `overdue` should have been over.
    fn stand(base: i64, other_traffic: bool, overdue: u64) -> SumsStand {
        SumsStand {
            source: 0,
            name: "all".to_owned(),
            other_traffic,
            base_active: base,
            base_least: base,
            floor: base.min(0),
            base: counts(base, 10, 10 - base.max(0).unsigned_abs()),
            reset: false,
            last: counts(base + 6, 50, 44 - base.max(0).unsigned_abs()),
            accepted: 40,
            must: std::collections::BTreeMap::from([(Outcome::Completed, 20)]),
            refused: 3,
            overdue,
        }
    }

    fn found(stand: Option<&SumsStand>, now: &Counts) -> Vec<(String, u64)> {
        let mut out = Leftover::default();
        judge_sums(stand, "all", now, &mut out);
        out.findings.into_iter().map(|row| (row.name, row.size)).collect()
    }

    #[test]
    fn what_a_kill_leaves_in_sums_is_held_against_both_sides() {
        use DefectName::*;
        for (base, others, overdue, now, expected) in [
            // As due, with sessions of which only the backend knows, and with one from before the run that ended.
            (0, false, 0, counts(0, 50, 50), &[][..]),
            (0, false, 0, counts(0, 62, 62), &[]),
            (2, true, 0, counts(0, 63, 63), &[]),
            (-5, false, 0, counts(-5, 50, 50), &[]),
            // Too many, too few.
            (0, false, 0, counts(3, 50, 47), &[(Ghost, 3)]),
            (0, true, 0, counts(3, 50, 47), &[(Unverified, 3)]),
            (0, false, 0, counts(-3, 50, 50), &[(FalseCapacity, 3)]),
            (2, true, 0, counts(-1, 50, 48), &[(FalseCapacity, 1)]),
            (-5, false, 0, counts(-8, 50, 50), &[(FalseCapacity, 3)]),
            (0, false, 0, counts(-3, 50, 53), &[(DoubleDecrement, 3)]),
            (0, false, 0, counts(0, 50, 53), &[(DoubleDecrement, 3)]),
            (4, false, 0, counts(3, 50, 47), &[(Unverified, 1)]),
            (0, false, 0, counts(0, 47, 47), &[(CounterReset, 1)]),
            (0, false, 0, Counts { boot: Some("c".to_owned()), ..counts(0, 2, 2) }, &[]),
            // What was over for too long at the checkpoint: still counted, or no more.
            (0, false, 3, counts(3, 50, 47), &[(Ghost, 3)]),
            (0, false, 3, counts(1, 50, 49), &[(Ghost, 1), (LateDecrement, 2)]),
            (0, false, 3, Counts { boot: Some("c".to_owned()), ..counts(0, 2, 2) }, &[(Unverified, 3)]),
        ] {
            let expected: Vec<(String, u64)> = expected.iter().map(|(name, size)| (name.name().to_owned(), *size)).collect();
            assert_eq!(found(Some(&stand(base, others, overdue)), &now), expected, "{base} {others} {overdue} {now:?}");
        }
    }

    #[test]
    fn what_a_killed_driver_knew_of_refusals_and_outcomes_is_held_against_them() {
        use DefectName::*;
        let now = |completed, failed, rejected| Counts {
            outcomes: std::collections::BTreeMap::from([(Outcome::Completed, completed), (Outcome::Failed, failed)]),
            rejected: Some(rejected),
            ..counts(0, 50, completed + failed + 10)
        };
        for (now, expected) in
            [(now(25, 15, 3), &[][..]), (now(20, 20, 9), &[]), (now(12, 28, 3), &[(WrongOutcome, 8)]), (now(25, 15, 1), &[(Miscounted, 2)])]
        {
            let expected: Vec<(String, u64)> = expected.iter().map(|(name, size)| (name.name().to_owned(), *size)).collect();
            assert_eq!(found(Some(&stand(0, false, 0)), &now), expected, "{now:?}");
            assert_eq!(are_over(Some(&stand(0, false, 0)), &now), expected.is_empty());
        }
    }

    #[test]
    fn without_a_stand_nothing_agrees_by_silence() {
        assert!(!are_over(None, &counts(4, 50, 46)));
        assert_eq!(found(None, &counts(4, 50, 46)), [("unverified".to_owned(), 4)]);
        assert!(are_over(None, &counts(0, 50, 50)));
        let mut out = Leftover::default();
        judge_sums(None, "all", &counts(0, 50, 50), &mut out);
        assert!(out.findings.is_empty() && out.notes[0].contains("not known"), "{out:?}");
    }
}
