//! The timeline of faults: begins each when its time has come, ends it when it is over, and writes down what came of it.
//!
//! What sessions suffer the shards make by themselves (they have the plan, and the time) and tell of it: here it is written down alone.

mod cgroup;
mod churn;
mod network;
mod process;
mod storm;

use std::{collections::BTreeMap, sync::Arc};

use proto::time::Micros;

pub(super) use self::process::{UnderWay, killed};
use self::storm::Storm;
use super::{controller::Run, poller::unix_now};
use crate::{
    engine::event::StormStep,
    ledger::Weather,
    plan::{Dialect, Fault, FaultKind, Maker, Plan, ScenarioPlan},
    report::summary::FaultRow,
};

/// Storms of which shards may still tell; an older one keeps its figures.
const OPEN_STORMS: usize = 8;

/// Something to do at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    at: Micros,
    /// Ends come before begins of the same moment.
    begins: bool,
    /// Index into the faults.
    fault: usize,
}

/// What came of the begin of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Begun {
    /// It is under way, or was made; it struck so many connections or processes, where that is known.
    Made(Option<u64>),
    /// It could not be made here, and why. Never silent: the row says it, and so does the log.
    Skipped(String),
}

/// All faults of a run, as the controller sees them.
#[derive(Debug)]
pub(super) struct Timeline {
    faults: Vec<Fault>,
    steps: std::collections::VecDeque<Step>,
    rows: Vec<FaultRow>,
    /// Whose figures may still change.
    storms: BTreeMap<u16, Storm>,
    /// Under way, and what callers hear may be their doing: when they began, unix microseconds.
    upsets: BTreeMap<u16, (Fault, u64, Weather)>,
}

impl Timeline {
    /// Of the plan's faults, in their order.
    pub(super) fn new(faults: &[Fault], scenarios: &[Arc<ScenarioPlan>]) -> Self {
        let begin = |(fault, one): (usize, &Fault)| Step { at: one.at, begins: true, fault };
        let end = |(fault, one): (usize, &Fault)| Step { at: one.ends_at(), begins: false, fault };
        let lasting = faults.iter().enumerate().filter(|(_, fault)| !fault.duration.is_zero());
        let mut steps: Vec<Step> = faults.iter().enumerate().map(begin).chain(lasting.map(end)).collect();
        steps.sort_unstable();
        let rows = faults.iter().map(|fault| FaultRow::planned(fault, scenarios)).collect();
        Self { rows, faults: faults.to_vec(), steps: steps.into(), storms: BTreeMap::new(), upsets: BTreeMap::new() }
    }

    /// Run time of the next step.
    pub(super) fn next_at(&self) -> Option<Micros> {
        self.steps.front().map(|step| step.at)
    }

    /// The fault that begins or ends now, if its time has come.
    pub(super) fn due(&mut self, now: Micros) -> Option<(Fault, bool)> {
        let step = self.steps.front().copied().filter(|step| step.at <= now)?;
        self.steps.pop_front();
        self.faults.get(step.fault).map(|fault| (fault.clone(), step.begins))
    }

    /// What came of a begin, at this run time.
    pub(super) fn began(&mut self, fault: u16, now: Micros, begun: Begun) {
        let Some(row) = self.rows.get_mut(usize::from(fault)) else { return };
        match begun {
            // A shard may have told what it struck before.
            Begun::Made(struck) => {
                row.began_s.get_or_insert(now.0 as f64 / 1e6);
                row.struck = struck.map(|n| n + row.struck.unwrap_or(0)).or(row.struck);
            }
            Begun::Skipped(why) => {
                tracing::warn!("fault {} ({}) is skipped: {why}", fault, row.kind.name());
                row.skipped = Some(why);
                self.steps.retain(|step| step.fault != usize::from(fault));
            }
        }
    }

    /// The fault is over at this run time, unless something else had put an end to it.
    pub(super) fn ended(&mut self, fault: u16, now: Micros) {
        if let Some(row) = self.rows.get_mut(usize::from(fault)) {
            row.ended_s.get_or_insert(now.0 as f64 / 1e6);
        }
    }

    /// A shard struck so many of its sessions.
    pub(super) fn struck(&mut self, fault: u16, sessions: u64) {
        if let Some(row) = self.rows.get_mut(usize::from(fault)) {
            // A shard is in time where the controller may be late, or over before it looks.
            row.began_s.get_or_insert(row.planned_s);
            row.struck = Some(row.struck.unwrap_or(0) + sessions);
        }
    }

    /// A kill was made, or found that this backend was dead already.
    pub(super) fn killed(&mut self, fault: u16, backend: usize, lived: bool) {
        self.struck(fault, u64::from(lived));
        if !lived && let Some(row) = self.rows.get_mut(usize::from(fault)) {
            let before = row.without.take().map(|before| format!("{before}; ")).unwrap_or_default();
            row.without = Some(format!("{before}backend {backend}, which was dead already"));
        }
    }

    /// It is made, but for this.
    fn without(&mut self, fault: u16, what: String) {
        if let Some(row) = self.rows.get_mut(usize::from(fault)) {
            tracing::warn!("fault {} ({}) is made without {what}", fault, row.kind.name());
            row.without = Some(what);
        }
    }

    /// A shard tells what became of sessions that a storm cut. Of storms long past nobody does.
    pub(super) fn storm(&mut self, fault: u16, steps: &[(u64, StormStep)]) {
        if self.storms.len() >= OPEN_STORMS && !self.storms.contains_key(&fault) {
            self.fold_storm();
        }
        self.storms.entry(fault).or_default().add(steps);
    }

    fn fold_storm(&mut self) {
        if let Some((fault, storm)) = self.storms.pop_first()
            && let Some(row) = self.rows.get_mut(usize::from(fault))
        {
            row.figures = storm.figures();
        }
    }

    /// Those that are under way: at the end of a run they are ended, whatever their time.
    pub(super) fn under_way(&self) -> Vec<Fault> {
        let open = |fault: &&Fault| {
            let row = self.rows.get(usize::from(fault.number));
            row.is_some_and(|row| row.began_s.is_some() && row.ended_s.is_none() && !fault.duration.is_zero())
        };
        self.faults.iter().filter(open).cloned().collect()
    }

    /// Nothing begins any more.
    pub(super) fn forget(&mut self) {
        self.steps.clear();
    }

    /// For the results.
    pub(super) fn rows(&self) -> Vec<FaultRow> {
        let mut rows = self.rows.clone();
        for (fault, storm) in &self.storms {
            if let Some(row) = rows.get_mut(usize::from(*fault)) {
                row.figures = storm.figures();
            }
        }
        rows
    }
}

impl Run {
    /// Begins and ends what is due.
    pub(super) async fn fault(&mut self) {
        while let Some((fault, begins)) = self.timeline.due(self.clock.now()) {
            if begins {
                // Before it is made: nothing that follows from it can be older.
                let from_us = unix_now(&self.clock);
                let begun = match fault.kind.name().maker() {
                    Maker::Shards => self.struck_by_shards(&fault),
                    Maker::Relay | Maker::Namespace => network::begin(self, &fault),
                    Maker::Controller => process::begin(self, &fault),
                };
                if let Begun::Made(_) = begun {
                    self.upset(&fault, from_us);
                }
                self.timeline.began(fault.number, self.clock.now(), begun);
            } else {
                self.end_fault(&fault).await;
            }
        }
    }

    /// What callers hear from now on, and how soon hang-ups are noticed, may be the fault's doing: of whom it strikes. No word of a session can come between
    /// the fault and this.
    fn upset(&mut self, fault: &Fault, from_us: u64) {
        let weather = match fault.kind {
            FaultKind::Stop | FaultKind::Cpu { .. } => Some(Weather::Lost),
            kind => network::weather(kind),
        };
        let Some(weather) = weather else { return };
        self.timeline.upsets.insert(fault.number, (fault.clone(), from_us, weather));
        self.tell_of_strikes();
    }

    /// Whom the faults under way have struck by now: to be told before any word of a caller, or of a backend, that may come of it. Who was not struck has no
    /// excuse.
    pub(super) fn tell_of_strikes(&mut self) {
        let upsets = std::mem::take(&mut self.timeline.upsets);
        for (number, (fault, from_us, weather)) in &upsets {
            if let Some(scenario) = fault.target.scenario {
                self.voice.disturb_worker(scenario, *number, *from_us);
                continue;
            }
            let relayed = match (&self.set.ground.relay, fault.kind.name().maker()) {
                (Some(relay), Maker::Relay) => Some(relay.struck(*number)),
                // Everything that comes to the backend, and goes from it, is struck.
                _ => None,
            };
            // The relay stands before the front, and any member may be behind it.
            let is_struck = |index: &usize| relayed.as_ref().is_none_or(|struck| struck.contains(if self.set.front { &0 } else { index }));
            let struck: Vec<usize> = network::struck(self, fault).into_iter().filter(is_struck).collect();
            for backend in struck {
                self.voice.disturb(backend, *number, *from_us, *weather);
                if network::weather(fault.kind).is_some() {
                    self.ledger.network_fault(backend, *number, *from_us, *weather);
                }
            }
        }
        self.timeline.upsets = upsets;
    }

    /// The shards strike by themselves; nobody may have to be struck.
    fn struck_by_shards(&mut self, fault: &Fault) -> Begun {
        let plan = &self.job.prepared.plan;
        if plan.scenarios.iter().all(|scenario| scenario.lanes.is_empty() || !fault.concerns(scenario)) {
            return Begun::Skipped("no session goes there".to_owned());
        }
        if let Some(what) = without_deadline(plan, fault) {
            self.timeline.without(fault.number, what);
        }
        Begun::Made(Some(0))
    }

    /// What a fault changed is as before, even when the run ends within it.
    pub(super) async fn end_faults(&mut self) {
        for fault in self.timeline.under_way() {
            self.end_fault(&fault).await;
        }
        self.timeline.forget();
    }

    async fn end_fault(&mut self, fault: &Fault) {
        self.tell_of_strikes();
        self.timeline.upsets.remove(&fault.number);
        match fault.kind.name().maker() {
            // They do that by themselves.
            Maker::Shards => {}
            Maker::Relay | Maker::Namespace => network::end(self, fault),
            Maker::Controller => process::end(self, fault).await,
        }
        let to_us = self.ledger.calm_at(unix_now(&self.clock), network::loses_for_good(fault));
        self.voice.calm(fault.number, to_us);
        self.timeline.ended(fault.number, self.clock.now());
    }
}

/// Dialects in which no session can ask for the deadline that is to race.
fn without_deadline(plan: &Plan, fault: &Fault) -> Option<String> {
    let concerned = plan.scenarios.iter().filter(|scenario| fault.kind == FaultKind::Race && fault.concerns(scenario));
    let mut names: Vec<&str> =
        concerned.map(|scenario| scenario.service.dialect).filter(|dialect| !dialect.asks_for_deadlines()).map(Dialect::name).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| format!("a deadline over {}, whose sessions cannot ask for one", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{FaultKind, FaultTarget};

    fn fault(number: u16, at_s: u64, lasts_s: u64) -> Fault {
        Fault {
            number,
            at: Micros(at_s * 1_000_000),
            duration: Duration::from_secs(lasts_s),
            kind: FaultKind::Stall,
            target: FaultTarget::default(),
            fraction: 1.0,
        }
    }

    #[test]
    fn steps_come_in_order_of_time_and_none_is_forgotten() {
        let mut timeline = Timeline::new(&[fault(0, 1, 5), fault(1, 6, 0), fault(2, 2, 1)], &[]);
        let mut seen = Vec::new();
        for second in 0..8 {
            while let Some((fault, begins)) = timeline.due(Micros(second * 1_000_000)) {
                seen.push((second, fault.number, begins));
                if begins {
                    timeline.began(fault.number, Micros(second * 1_000_000), Begun::Made(Some(3)));
                } else {
                    timeline.ended(fault.number, Micros(second * 1_000_000));
                }
            }
            assert_eq!(timeline.under_way().len(), [0, 1, 2, 1, 1, 1, 0, 0][second as usize], "{second}");
        }
        assert_eq!(seen, [(1, 0, true), (2, 2, true), (3, 2, false), (6, 0, false), (6, 1, true)]);
        assert_eq!((timeline.next_at(), timeline.rows()[0].struck), (None, Some(3)));
    }

    #[test]
    fn what_a_shard_struck_was_made_whoever_tells_first() {
        let mut timeline = Timeline::new(&[fault(0, 1, 0), fault(1, 2, 0)], &[]);
        timeline.struck(0, 3);
        timeline.began(0, Micros(1_500_000), Begun::Made(Some(0)));
        timeline.struck(0, 4);
        timeline.struck(1, 5);
        let rows: Vec<_> = timeline.rows().iter().map(|row| (row.began_s, row.struck)).collect();
        assert_eq!(rows, [(Some(1.0), Some(7)), (Some(2.0), Some(5))]);
    }

    #[test]
    fn a_kill_that_finds_its_target_dead_struck_nobody_and_says_so() {
        let mut timeline = Timeline::new(&[fault(0, 1, 0), fault(1, 2, 0)], &[]);
        // Kill and row have their time in the same moment: either may come first.
        timeline.killed(0, 2, true);
        for number in [0, 1] {
            timeline.began(number, Micros(2_000_000), Begun::Made(Some(0)));
        }
        timeline.killed(1, 2, false);
        let rows = timeline.rows();
        assert_eq!((rows[0].struck, rows[0].not_made()), (Some(1), None));
        assert_eq!(rows[1].struck, Some(0));
        assert_eq!(rows[1].not_made().as_deref(), Some("struck nobody: made without backend 2, which was dead already"));
        timeline.killed(0, 1, false);
        timeline.killed(0, 0, false);
        let all = timeline.rows()[0].not_made();
        assert_eq!(all.as_deref(), Some("made without backend 1, which was dead already; backend 0, which was dead already"));
    }

    #[test]
    fn what_is_skipped_says_why_and_does_not_end() {
        let mut timeline = Timeline::new(&[fault(0, 1, 5)], &[]);
        assert!(timeline.due(Micros(999_999)).is_none());
        let (one, begins) = timeline.due(Micros(1_000_000)).unwrap();
        assert!(begins);
        timeline.began(one.number, one.at, Begun::Skipped("needs root".into()));
        assert_eq!(timeline.next_at(), None);
        assert_eq!(timeline.rows()[0].skipped.as_deref(), Some("needs root"));
        assert_eq!(timeline.under_way(), []);
    }
}
