//! The ledger's view of its counts over time: how far they are off, their ghosts, and who should be asked for names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    ages::GhostAges,
    book::BootIndex,
    boot::{Boot, Reading, Watch},
    config::LedgerConfig,
    drift::{DriftRow, Off},
    keeper::Ledger,
    reconcile::{self, Bounds},
    session::Session,
};

/// Lists of sessions are asked for no more often than this when counts hint at sessions that came back.
const LIST_EVERY_US: u64 = 2_000_000;

/// How far all counts together are off, as far as the looks have been judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DriftSum {
    /// Looks that could show a difference.
    pub looks: u64,
    /// Session-seconds of sessions that were over and counted.
    pub ghost_seconds: f64,
    /// Session-seconds of sessions that lived and were not counted.
    pub false_capacity_seconds: f64,
    /// The largest difference of any count, without its sign.
    pub most: u64,
}

impl Ledger {
    /// By source, in the order of the backends, then of the sources of sums. Who never gave a look that could be judged has no row.
    pub fn drift(&self) -> Vec<DriftRow> {
        let start_us = self.config.start_us;
        let backends = self.watches.iter().enumerate().map(|(n, watch)| watch.drift.row(format!("backend {n}"), start_us));
        let sums = self.totals.iter().map(|totals| totals.watch.drift.row(totals.config.name.clone(), start_us));
        backends.chain(sums).filter(|row| row.looks > 0).collect()
    }

    /// All of them, with those of a driver that was killed before.
    pub fn drift_sum(&self) -> DriftSum {
        let watches = self.watches.iter().chain(self.totals.iter().map(|totals| &totals.watch));
        watches.fold(self.drift_before, |mut sum, watch| {
            watch.drift.add_to(&mut sum);
            sum
        })
    }

    /// How old the ghosts got that are known by name.
    pub fn ghost_ages(&self) -> GhostAges {
        self.ghosts.ages()
    }

    /// The counts of a backend hint at sessions that came back, or it has such: its list of live ones should be asked for.
    pub fn wants_names(&self, now_us: u64) -> bool {
        let current = self.watches.iter().filter_map(|watch| self.boots.get(watch.boots.last()?));
        let hints = |boot: &Boot| boot.odd.samples > 0 || boot.returned.listed > 0;
        let due = |boot: &Boot| boot.returned.listed_us.saturating_add(LIST_EVERY_US) <= now_us;
        current.filter(|boot| boot.killed_us.is_none()).any(|boot| hints(boot) && due(boot))
    }

    /// Every look that is asked for from now on brings the list of live sessions, where the backend has one.
    pub fn names_are_asked(&mut self, now_us: u64) {
        self.names_from_us.get_or_insert(now_us);
    }

    /// A look was judged.
    pub(super) fn keep_drift(&mut self, boot: BootIndex, at_us: u64, off: Off, overdue: u64) {
        let Self { boots, watches, book, config, ghosts, .. } = self;
        let Some(state) = boots.get(&boot) else { return };
        let Some(watch) = watches.get_mut(state.backend) else { return };
        let pause_us = watch.pause_us(config);
        watch.drift.look(at_us, off, config.start_us, pause_us);
        let Some(at) = state.last.as_ref().filter(|_| overdue > 0 || ghosts.any(boot)) else { return };
        let since = |session| ghost_since_us(session, state, watch, config, at);
        let shown: BTreeMap<_, _> = book.sessions.iter().filter_map(|(index, session)| Some((*index, since(session)?))).collect();
        let counted_us = |index| book.sessions.get(&index).and_then(|session| session.record).map(|record| record.at_us);
        ghosts.look(boot, at.asked_us, &shown, counted_us);
    }

    /// Nobody will look at this process any more: what it counted went with it.
    pub(super) fn process_gone(&mut self, boot: BootIndex, at_us: u64) {
        self.ghosts.process_gone(boot, at_us);
        if let Some(watch) = self.boots.get(&boot).and_then(|state| self.watches.get_mut(state.backend)) {
            watch.drift.restart(at_us);
        }
    }
}

/// What a look proves of the count: by name, and beyond it what lasts for more than a look. Without names it must last for as long as the driver
/// may be slow to see an end.
pub(super) fn off(boot: &mut Boot, watch: &Watch, config: &LedgerConfig, at: &Reading, (b, foreign, named): (&Bounds, u64, Off)) -> Off {
    let span_us = if boot.complete_log() { 0 } else { config.early_us };
    // Who may have had untold sessions, or ended sessions of which the driver could not hear, proves nothing by its number.
    let unheard = !boot.complete_log() && watch.disturbances.within(at.asked_us, at.answered_us);
    let least = if b.untold { i64::MIN } else { at.active.0.saturating_sub((b.possible + b.early + foreign) as i64) };
    let most = if unheard { i64::MAX } else { at.active.1.saturating_sub((b.sure + b.early) as i64) };
    let Off { over, under } = named.beyond(least, most);
    boot.beyond.0.push(at.answered_us, over, span_us);
    boot.beyond.1.push(at.answered_us, under, span_us);
    named.and(Off { over: boot.beyond.0.lasting(span_us), under: boot.beyond.1.lasting(span_us) })
}

/// Since when a session is over that this reading still counts beyond its window, as far as that is known by name.
fn ghost_since_us(session: &Session, boot: &Boot, watch: &Watch, config: &LedgerConfig, at: &Reading) -> Option<u64> {
    let here = session.accepted.as_ref().is_some_and(|accepted| accepted.boot == boot.index) && boot.complete_log();
    let counted = session.record.is_some_and(|record| record.boot == boot.index && record.server_at_us <= at.captured_us);
    let (end_us, _) = session.ending().filter(|(end_us, _)| here && !counted && *end_us < at.asked_us)?;
    (watch.watched_us(end_us, at.asked_us) > reconcile::window_us(session, config)).then_some(end_us)
}
