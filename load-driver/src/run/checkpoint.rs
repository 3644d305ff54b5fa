//! `checkpoint.json`: the summary so far, and what another driver needs to go on should this one be killed.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::FutureExt;
use proto::time::Micros;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::{Job, controller::Run, finish};
use crate::{
    engine::{EngineEvent, IntervalReport, wire},
    ledger::{BackendStand, Carried, Class, SumsStand},
    plan::Resumed,
    profile::Profile,
    report::{
        Exit, Reporters, build, hlog,
        json::write_whole,
        results::CHECKPOINT,
        summary::{CountersSection, CountersStatus, SegmentRow},
    },
};

/// Of [`State`]: one more with every change.
pub(super) const FORMAT: u32 = 3;
/// Runs of this length have checkpoints without being asked.
const LONG: Duration = Duration::from_mins(3);
const EVERY: Duration = Duration::from_mins(1);

/// What the next driver goes on from. It stands in the checkpoint beside the summary, as `resume`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) format: u32,
    /// Run time of the whole run at the checkpoint.
    pub(super) at: Micros,
    /// Of each driver process so far.
    pub(super) run_ids: Vec<String>,
    /// The resolved profile as JSON text: a tree would sort its scenarios. Secrets are masked.
    pub(super) profile: String,
    /// The run was to be compared with this one.
    pub(super) baseline: Option<PathBuf>,
    /// Flags of embedded backends.
    pub(super) defects: Vec<String>,
    pub(super) faults: Vec<String>,
    /// Histograms and counters: an interval as workers send it, in base64.
    pub(super) totals: String,
    pub(super) carried: Carried,
    pub(super) stands: Vec<BackendStand>,
    pub(super) sums: Vec<SumsStand>,
    /// Names and lengths of the files of the latency log: what is longer was written after the checkpoint.
    pub(super) logs: Vec<(String, u64)>,
    /// Why the run may not pass, besides what the summary shows.
    pub(super) reasons: Vec<Exit>,
    pub(super) irregular: Vec<String>,
}

impl State {
    /// The totals.
    pub(super) fn totals(&self) -> Result<IntervalReport, String> {
        let bytes = proto::base64::decode(&self.totals).ok_or("its totals are no base64")?;
        match wire::read_event(&mut bytes.as_slice()) {
            Ok(Some(EngineEvent::Interval(report))) => Ok(report),
            Ok(_) => Err("its totals are none".to_owned()),
            Err(error) => Err(format!("its totals cannot be read: {error}")),
        }
    }
}

/// When checkpoints are due.
#[derive(Debug)]
pub(super) struct Checkpoints {
    every: Option<Duration>,
    next: Micros,
    /// On its way to the disk, on a thread of its own: a disk that is busy takes seconds, and the run must not wait for it.
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl Checkpoints {
    /// As the profile wants them, for a run of this length.
    pub(super) fn of(profile: &Profile, stops_at: Micros) -> Self {
        let every = match profile.driver.checkpoint {
            Some(span) => Some(span.0).filter(|span| !span.is_zero()),
            None => (stops_at - Micros::ZERO >= LONG).then_some(EVERY),
        };
        Self { every, next: Micros::ZERO, writing: None }
    }

    /// One is due; the first is at once, so that even a driver that is killed early leaves something to go on from. As long as the last one is not
    /// written, the next one waits.
    fn due(&mut self, now: Micros) -> bool {
        let Some(every) = self.every.filter(|_| now >= self.next) else { return false };
        if let Some(writing) = &mut self.writing {
            let Some(written) = writing.now_or_never() else { return false };
            self.writing = None;
            complain(written);
        }
        self.next = now + every;
        true
    }

    fn write(&mut self, path: PathBuf, contents: Vec<u8>) {
        self.writing = Some(spawn_blocking(move || write_whole(&path, &contents)));
    }

    /// None is under way any more.
    pub(super) async fn finish(&mut self) {
        if let Some(writing) = self.writing.take() {
            complain(writing.await);
        }
    }
}

/// That it cannot be written costs the checkpoint, not the run, and is said.
fn complain(written: Result<io::Result<()>, JoinError>) {
    if let Err(error) = written.map_err(io::Error::other).flatten() {
        tracing::error!("failed to write {CHECKPOINT}: {error}");
    }
}

/// Writes one when it is due.
pub(super) fn take(run: &mut Run, reporters: &mut Reporters) {
    let now = run.clock.now();
    if run.open.is_empty() || !run.checkpoints.due(now) {
        return;
    }
    // All that is in the totals is in the log as well.
    let closed = run.registry.finish();
    run.seconds_closed(&closed, reporters);
    match contents(run, now) {
        Ok(contents) => run.checkpoints.write(run.job.out.join(CHECKPOINT), contents),
        Err(error) => tracing::error!("failed to make {CHECKPOINT}: {error}"),
    }
}

fn contents(run: &Run, now: Micros) -> io::Result<Vec<u8>> {
    let at = run.job.from() + (now - Micros::ZERO);
    let proven = run.ledger.proven();
    let status = match proven.as_slice() {
        [] => CountersStatus::NotChecked,
        some if some.iter().all(|finding| finding.class == Class::Unverified) => CountersStatus::Unverified,
        _ => CountersStatus::Disagree,
    };
    let basis = "the run is not over: whether ends that the backends have not counted yet are late, or ghosts, cannot be told before";
    let counters = CountersSection {
        status,
        basis: basis.to_owned(),
        findings: proven.iter().map(finish::finding).collect(),
        drift: run.ledger.drift(),
        ghost_ages: run.ledger.ghost_ages(),
        ..CountersSection::default()
    };
    let (funnels, carried) = (run.ledger.funnels().clone(), run.ledger.carried());
    let irregular = run.ledger.nonsense().to_vec();
    let voice = run.voice.clone().close(super::poller::unix_now(&run.clock));
    let rows = run.ledger.convergence();
    let mut known = finish::known(run, now, (&funnels, counters, voice), &rows, irregular.clone());
    let (so_far, planned) = (at.0 as f64 / 1e6, run.info.planned_s);
    known.stopped_early = Some(format!("the last checkpoint is of {so_far:.0} s of {planned:.0} s; what came after it is missing"));
    let segments = known.segments.clone();
    let mut reasons = run.reasons.clone();
    reasons.extend(run.job.former.iter().flat_map(|former| former.state.reasons.iter().copied()));
    reasons.push(Exit::Interrupted);
    let mut summary = build::summary(&run.registry, &funnels, known, &reasons);
    summary.unfinished = true;
    let mut totals = Vec::new();
    wire::write_event(&mut totals, EngineEvent::Interval(run.registry.totals())).map_err(io::Error::other)?;
    let state = State {
        format: FORMAT,
        at,
        run_ids: segments.iter().map(|segment| segment.run_id.clone()).collect(),
        profile: serde_json::to_string(&run.job.prepared.profile)?,
        baseline: run.job.args.baseline.clone(),
        defects: run.job.args.defects.clone(),
        faults: run.job.args.faults.clone(),
        totals: proto::base64::encode(&totals),
        carried,
        stands: run.ledger.stands(),
        sums: run.ledger.sums_stands(),
        logs: logs(&run.job.out)?,
        reasons: reasons.iter().copied().filter(|reason| *reason != Exit::Interrupted).collect(),
        irregular,
    };
    let mut value = serde_json::to_value(&summary)?;
    value["resume"] = serde_json::to_value(&state)?;
    Ok(serde_json::to_vec(&value)?)
}

fn logs(folder: &Path) -> io::Result<Vec<(String, u64)>> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(hlog::parts(folder)?.iter().map(|(path, bytes)| (name(path), *bytes)).collect())
}

impl Job {
    /// Run time that drivers before this one have used up.
    pub(super) fn from(&self) -> Micros {
        self.former.as_ref().map_or(Micros::ZERO, |former| former.state.at)
    }

    /// Where the plan goes on.
    pub(super) fn resumed(&self) -> Option<Resumed> {
        self.former.as_ref().map(|former| Resumed { from: former.state.at, segment: former.state.run_ids.len() as u32 })
    }

    /// The part of the run that this driver makes, up to this time of its own.
    pub(super) fn segment(&self, started_at_us: u64, to: Micros) -> SegmentRow {
        let (from, number) = self.resumed().map_or((Micros::ZERO, 0), |at| (at.from, at.segment));
        SegmentRow {
            number,
            run_id: self.run_id.clone(),
            started_at_us,
            from_s: from.0 as f64 / 1e6,
            to_s: (from.0 + to.0) as f64 / 1e6,
            ..SegmentRow::default()
        }
    }
}
