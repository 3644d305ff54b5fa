//! The timeline of faults: begins each when its time has come, ends it when it is over, and writes down what came of it.
//!
//! What the shards are to strike by themselves (they have the plan) is not made yet: it is skipped, and says so.

mod cgroup;
mod churn;
mod network;
mod process;

use proto::time::Micros;

pub(super) use self::process::UnderWay;
use super::controller::Run;
use crate::{
    plan::{Fault, Maker},
    report::summary::FaultRow,
};

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
}

impl Timeline {
    /// Of the plan's faults, in their order.
    pub(super) fn new(faults: &[Fault]) -> Self {
        let begin = |(fault, one): (usize, &Fault)| Step { at: one.at, begins: true, fault };
        let end = |(fault, one): (usize, &Fault)| Step { at: one.ends_at(), begins: false, fault };
        let lasting = faults.iter().enumerate().filter(|(_, fault)| !fault.duration.is_zero());
        let mut steps: Vec<Step> = faults.iter().enumerate().map(begin).chain(lasting.map(end)).collect();
        steps.sort_unstable();
        Self { rows: faults.iter().map(FaultRow::planned).collect(), faults: faults.to_vec(), steps: steps.into() }
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
            Begun::Made(struck) => (row.began_s, row.struck) = (Some(now.0 as f64 / 1e6), struck),
            Begun::Skipped(why) => {
                tracing::warn!("fault {} ({}) is skipped: {why}", fault, row.kind.name());
                row.skipped = Some(why);
                self.steps.retain(|step| step.fault != usize::from(fault));
            }
        }
    }

    /// The fault is over at this run time.
    pub(super) fn ended(&mut self, fault: u16, now: Micros) {
        if let Some(row) = self.rows.get_mut(usize::from(fault)) {
            row.ended_s = Some(now.0 as f64 / 1e6);
        }
    }

    /// A shard struck so many of its sessions.
    pub(super) fn struck(&mut self, fault: u16, sessions: u64) {
        if let Some(row) = self.rows.get_mut(usize::from(fault)) {
            row.struck = Some(row.struck.unwrap_or(0) + sessions);
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
        self.rows.clone()
    }
}

impl Run {
    /// Begins and ends what is due.
    pub(super) async fn fault(&mut self) {
        while let Some((fault, begins)) = self.timeline.due(self.clock.now()) {
            if begins {
                let begun = match fault.kind.name().maker() {
                    Maker::Shards => Begun::Skipped(format!("`{}` is not made yet", fault.kind.name().name())),
                    Maker::Relay | Maker::Namespace => network::begin(self, &fault),
                    Maker::Controller => process::begin(self, &fault),
                };
                self.timeline.began(fault.number, self.clock.now(), begun);
            } else {
                self.end_fault(&fault).await;
            }
        }
    }

    /// What a fault changed is as before, even when the run ends within it.
    pub(super) async fn end_faults(&mut self) {
        for fault in self.timeline.under_way() {
            self.end_fault(&fault).await;
        }
        self.timeline.forget();
    }

    async fn end_fault(&mut self, fault: &Fault) {
        match fault.kind.name().maker() {
            Maker::Shards => {}
            Maker::Relay | Maker::Namespace => network::end(self, fault),
            Maker::Controller => process::end(self, fault).await,
        }
        self.timeline.ended(fault.number, self.clock.now());
    }
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
        let mut timeline = Timeline::new(&[fault(0, 1, 5), fault(1, 6, 0), fault(2, 2, 1)]);
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
    fn what_is_skipped_says_why_and_does_not_end() {
        let mut timeline = Timeline::new(&[fault(0, 1, 5)]);
        assert!(timeline.due(Micros(999_999)).is_none());
        let (one, begins) = timeline.due(Micros(1_000_000)).unwrap();
        assert!(begins);
        timeline.began(one.number, one.at, Begun::Skipped("needs root".into()));
        assert_eq!(timeline.next_at(), None);
        assert_eq!(timeline.rows()[0].skipped.as_deref(), Some("needs root"));
        assert_eq!(timeline.under_way(), []);
    }
}
