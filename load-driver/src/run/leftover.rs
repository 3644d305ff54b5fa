//! The sessions of a killed driver: their connections broke with it, and the backends must count their ends. That is waited for before the
//! next segment takes its base, so that it neither calls them ghosts nor takes real ghosts among them for somebody else's sessions.

use std::time::Duration;

use agent_server::{admin::wire::SnapshotJson, runtime::clock::Clock};
use tokio::time::{Instant, sleep};

use super::{
    Job,
    former::Former,
    poller::{self, Look, Watched},
    targets::TargetSet,
};
use crate::{
    counters::{CounterSample, Counts},
    ledger::{DefectName, Finding, SumsStand},
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
        judge(former, &last, &mut out);
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
        // Without a stand there is nothing to wait for.
        Look::Totals(sample) => former.state.sums.iter().find(|stand| stand.source == sample.source).is_none_or(|stand| {
            let all_told = told(stand, &sample.counts).is_none_or(|started| started >= stand.accepted);
            !stand.is_of(&sample.counts) || beyond(stand, &sample.counts) == 0 && all_told
        }),
        Look::Gap { .. } | Look::Blind { .. } => false,
    }
}

/// Live sessions that were not there before the run.
fn beyond(stand: &SumsStand, now: &Counts) -> u64 {
    u64::try_from(now.active.saturating_sub(stand.base_active)).unwrap_or(0)
}

/// Sessions that began since before the run, where that is told.
fn told(stand: &SumsStand, now: &Counts) -> Option<u64> {
    Some(now.started?.saturating_sub(stand.base_started?))
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

fn judge(former: &Former, look: &Look, out: &mut Leftover) {
    let sample = match look {
        Look::Sample(sample) => sample,
        Look::Gap { backend, reason, .. } => {
            out.untold = true;
            let text = format!("backend {backend} did not tell whether the sessions of the killed driver are over: {reason}");
            return out.find(DefectName::Unverified, 1, text, Vec::new());
        }
        Look::Totals(sample) => return judge_sums(former, sample.source, &sample.counts, out),
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
        return;
    };
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

/// Without names: numbers against those of the last checkpoint.
fn judge_sums(former: &Former, source: usize, now: &Counts, out: &mut Leftover) {
    let Some(stand) = former.state.sums.iter().find(|stand| stand.source == source) else {
        out.untold = true;
        return;
    };
    let name = &stand.name;
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
    let Some(started) = told(stand, now) else {
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
