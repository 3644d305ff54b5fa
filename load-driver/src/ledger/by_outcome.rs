//! What a backend's counters say of how its sessions ended, held against its own log and against what it told the driver.

use std::collections::VecDeque;

use agent_server::admin::wire::{EndRecord, SnapshotJson};
use proto::frame::Outcome;

use super::{
    book::Book,
    boot::{Boot, Reading},
    config::LedgerConfig,
    entry::Finish,
    others::{MAX_RECENT, span_us, surely_cut_us},
    persistent::Persistent,
    session::{How, Session},
};

/// Every outcome, and whatever else is counted.
const KINDS: usize = Outcome::ALL.len() + 1;

fn place(name: &str) -> usize {
    Outcome::ALL.iter().position(|outcome| outcome.name() == name).unwrap_or(KINDS - 1)
}

/// Ends by outcome.
pub(super) type ByOutcome = [u64; KINDS];

fn sorted<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> ByOutcome {
    let mut all = [0_u64; KINDS];
    for (name, n) in counts {
        let place = &mut all[place(name)];
        *place = place.saturating_add(n);
    }
    all
}

/// What the end log of one process told.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// Counted before the run; none when that is not known.
    base: Option<ByOutcome>,
    /// Ends about the time of the first look: its numbers may have them or not.
    about: u64,
    /// Ends that every cut to come has counted.
    old: ByOutcome,
    /// The others: time by the backend's clock, and how.
    recent: VecDeque<(u64, usize)>,
    /// The last look had not all that was logged before it; it may yet.
    waits: bool,
    /// Counted under an outcome that the log does not tell of.
    wrong: Persistent,
    /// In the counters or in the log, and not in both.
    unlike: Persistent,
}

impl Logged {
    /// Of a process that began in the run.
    pub(super) fn fresh() -> Self {
        Self { base: Some([0; KINDS]), ..Self::default() }
    }

    /// Of one that has a past. `untouched`: the run has had nothing to do with it yet.
    pub(super) fn after(first: &SnapshotJson, ends: Option<&[EndRecord]>, untouched: bool, config: &LedgerConfig) -> Self {
        let near = |end: &&EndRecord| end.seq < first.next_end && end.at_us.saturating_add(config.grace_us) > first.captured_at_us;
        let about = ends.unwrap_or_default().iter().filter(near).count() as u64;
        let base = untouched.then(|| sorted(first.ended.iter().map(|(name, n)| (name.as_str(), *n))));
        Self { base, about, ..Self::default() }
    }

    /// An end is told of.
    pub(super) fn record(&mut self, end: &EndRecord, base_us: u64, config: &LedgerConfig) {
        // Ours began after that look.
        let others = base_us > 0 && !config.is_ours(&end.client_ref);
        self.about += u64::from(others && end.at_us <= base_us.saturating_add(config.grace_us));
        if self.recent.len() >= MAX_RECENT
            && let Some((_, kind)) = self.recent.pop_front()
        {
            self.old[kind] += 1;
        }
        self.recent.push_back((end.at_us, place(&end.outcome)));
    }

    /// Counted under a wrong outcome by the log; in the counters or in the log only.
    pub(super) fn off(&self) -> (u64, u64) {
        (self.wrong.most, self.unlike.most)
    }

    /// The last look showed nothing of that, and no end that it should have had is missing.
    pub(super) fn agrees(&self) -> bool {
        self.wrong.recent.is_empty() && self.unlike.recent.is_empty() && !self.waits
    }
}

/// Takes a reading in that is judged now.
pub(super) fn judge(boot: &mut Boot, at: &Reading, config: &LedgerConfig) {
    let cut_us = surely_cut_us(at, config);
    let (whole, logged) = (boot.complete_log() && !boot.reset, &mut boot.logged);
    logged.recent.retain(|(at_us, kind)| {
        let old = *at_us <= cut_us;
        logged.old[*kind] += u64::from(old);
        !old
    });
    let Some(base) = logged.base.filter(|_| whole) else { return };
    let mut most = logged.old;
    logged.recent.iter().for_each(|(_, kind)| most[*kind] += 1);
    let now = sorted(at.ended.iter().map(|(name, n)| (name.as_str(), *n)));
    let logged_by = cut_us.saturating_add(config.grace_us);
    let mut due = logged.old;
    logged.recent.iter().filter(|(at_us, _)| *at_us <= logged_by).for_each(|(_, kind)| due[*kind] += 1);
    let missing: u64 = (0..KINDS).map(|kind| due[kind].saturating_sub(now[kind].saturating_sub(base[kind]))).sum();
    logged.waits = missing > logged.about;
    // By outcome: more and fewer than logged, and their sums.
    let (mut more, mut fewer, mut all, mut least) = (0, 0, 0_u64, 0_u64);
    for kind in 0..KINDS {
        let grown = now[kind].saturating_sub(base[kind]);
        more += grown.saturating_sub(most[kind]);
        fewer += logged.old[kind].saturating_sub(grown);
        (all, least) = (all.saturating_add(grown), least + logged.old[kind]);
    }
    let unknown = all.saturating_sub(most.iter().sum());
    let uncounted = least.saturating_sub(all);
    let span_us = span_us(config);
    let wrong = (more - unknown.min(more)).max(fewer - uncounted.min(fewer));
    logged.wrong.push(at.answered_us, wrong.saturating_sub(logged.about), span_us);
    logged.unlike.push(at.answered_us, unknown.max(uncounted).saturating_sub(logged.about), span_us);
}

/// How the backend itself said that this one ended.
pub(super) fn told(session: &Session, config: &LedgerConfig) -> Option<Outcome> {
    match session.over?.how {
        How::Finished(Finish::Goodbye(Outcome::Completed)) if config.goodbye_may_be_late(session.scenario) => None,
        How::Finished(Finish::Goodbye(outcome) | Finish::ByServer(outcome)) => Some(outcome),
        How::Finished(_) | How::Failed(_) => None,
    }
}

/// Ends that the backend told the driver of, and that its numbers by outcome have not; each by its outcome. For want of a log that names them.
pub(super) fn untold(
    boot: &Boot,
    book: &Book,
    at: &Reading,
    config: &LedgerConfig,
    over: impl Fn(&Session) -> bool,
) -> Vec<(&'static str, u64)> {
    let Some(base) = boot.logged.base.filter(|_| !boot.reset) else { return Vec::new() };
    let now = sorted(at.ended.iter().map(|(name, n)| (name.as_str(), *n)));
    let missing = |outcome: Outcome| {
        let here = |s: &&Session| s.accepted.as_ref().is_some_and(|a| a.boot == boot.index) && told(s, config) == Some(outcome) && over(s);
        let due = book.told_on(boot.index, outcome) + book.sessions.values().filter(here).count() as u64;
        let kind = place(outcome.name());
        due.saturating_sub(now[kind].saturating_sub(base[kind]))
    };
    Outcome::ALL.into_iter().map(|outcome| (outcome.name(), missing(outcome))).filter(|(_, n)| *n > 0).collect()
}
