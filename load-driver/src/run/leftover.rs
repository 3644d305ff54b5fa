//! The sessions of a killed driver: their connections broke with it, and the backends must count their ends. That is waited for before the
//! next segment takes its base, so that it neither calls them ghosts nor takes real ghosts among them for somebody else's sessions.

use std::time::Duration;

use agent_server::{admin::wire::SnapshotJson, runtime::clock::Clock};
use tokio::time::{Instant, sleep};

use super::{
    Job,
    former::Former,
    poller::{self, Look, Watched, Whose},
    targets::TargetSet,
};
use crate::{
    counters::CounterSample,
    ledger::{BackendStand, DefectName, Finding},
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
    /// Sessions that were begun after the last checkpoint, at most.
    pub(super) unseen: u64,
}

impl Leftover {
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
    let deadline = Instant::now() + counters.half_open_window.0.max(counters.window.0) + counters.settle.0;
    let sources = set.sources.len();
    for n in 0..sources {
        let Some(Watched { whose: Whose::Backend(index), source }) = set.sources.get_mut(n) else { continue };
        let index = *index;
        let last = loop {
            let look = poller::look(&mut **source, Whose::Backend(index), true, clock).await;
            let over = Instant::now() >= deadline;
            if over || matches!(&look, Look::Sample(sample) if Left::of(former, sample).none()) {
                break look;
            }
            sleep(PAUSE).await;
        };
        judge(former, &last, &mut out);
        set.looks.retain(|look| !matches!(look, Look::Sample(sample) if sample.backend == index));
        set.looks.push(last);
    }
    if sources == 0 {
        out.notes.push("the backends have no counters, so nothing is known of the sessions that the killed driver had".to_owned());
    }
    out
}

/// Embedded backends died with their driver.
fn dead(former: &Former, out: &mut Leftover) {
    out.notes.push(
        "the backends were processes of the killed driver and died with it: fresh ones were started, and what the old ones counted after the last checkpoint is not known"
            .to_owned(),
    );
    for stand in &former.state.stands {
        overdue(stand, "died with the driver", out);
    }
}

/// What the last checkpoint suspected, and nobody can look at any more.
fn overdue(stand: &BackendStand, what: &str, out: &mut Leftover) {
    if stand.overdue > 0 {
        let text = format!("backend {} {what} while it still counted {} ended sessions beyond their windows", stand.backend, stand.overdue);
        out.find(DefectName::Unverified, stand.overdue, text, Vec::new());
    }
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
            let text = format!("backend {backend} did not tell whether the sessions of the killed driver are over: {reason}");
            return out.find(DefectName::Unverified, 1, text, Vec::new());
        }
        Look::Totals(_) | Look::Blind { .. } => return,
    };
    let (at, backend) = (&sample.snapshot, sample.backend);
    let stand = former.state.stands.iter().find(|stand| stand.backend == backend);
    let same = stand.filter(|stand| stand.boot_id == at.boot_id);
    if let (Some(stand), None) = (stand, same) {
        out.notes
            .push(format!("backend {backend} was started anew since the last checkpoint: what it had counted until then is not known"));
        overdue(stand, "was started anew", out);
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
    let Some(stand) = same else { return };
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
