//! Times in which the network between the driver and a backend was impaired on purpose.
//!
//! What one side does then reaches the other late, or by its keepalive only. That is not held against the backend: such time counts, as the
//! time in which nobody saw its counters does, neither towards a detection window nor against an end that it counted before the driver knew.
//! It is never forgiven for good: windows go on when the network does, so that a ghost is one all the same, only later.

use std::collections::VecDeque;

/// Those that are kept; older ones concern sessions long reconciled.
const MAX: usize = 1_024;

/// What the ledger is told of a fault of the network. It is of no account which sessions it struck: that nobody here can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Everything comes, but up to so much later, microseconds.
    Late(u64),
    /// Nothing need come before it is over.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Disturbance {
    fault: u16,
    from_us: u64,
    /// The far future while it lasts.
    to_us: u64,
    weather: Weather,
}

/// Of one backend.
#[derive(Debug, Clone, Default)]
pub struct Disturbances(VecDeque<Disturbance>);

impl Disturbances {
    /// A fault begins.
    pub fn begin(&mut self, fault: u16, from_us: u64, weather: Weather) {
        if self.0.len() >= MAX
            && let Some(over) = self.0.iter().position(|one| one.to_us != u64::MAX)
        {
            self.0.remove(over);
        }
        self.0.push_back(Disturbance { fault, from_us, to_us: u64::MAX, weather });
    }

    /// It is over, and so is what follows from it, at this time (which may be to come).
    pub fn end(&mut self, fault: u16, to_us: u64) {
        for one in self.0.iter_mut().filter(|one| one.fault == fault && one.to_us == u64::MAX) {
            one.to_us = to_us.max(one.from_us);
        }
    }

    /// What the faults within this span do.
    pub fn weathers(&self, from_us: u64, to_us: u64) -> impl Iterator<Item = Weather> {
        self.over(from_us, to_us).map(|one| one.weather)
    }

    /// This one goes on.
    pub fn lasts(&self, fault: u16) -> bool {
        self.0.iter().any(|one| one.fault == fault && one.to_us == u64::MAX)
    }

    /// There was one within this span.
    pub fn within(&self, from_us: u64, to_us: u64) -> bool {
        self.over(from_us, to_us).next().is_some()
    }

    /// By how much what was done in this span may be heard of later, at most; none where some of it need not come at all.
    pub(super) fn lateness_us(&self, from_us: u64, to_us: u64) -> Option<u64> {
        self.over(from_us, to_us).try_fold(0, |most: u64, one| match one.weather {
            Weather::Late(by_us) => Some(most.saturating_add(by_us)),
            Weather::Lost => None,
        })
    }

    fn over(&self, from_us: u64, to_us: u64) -> impl Iterator<Item = &Disturbance> {
        self.0.iter().filter(move |one| one.from_us < to_us && from_us < one.to_us)
    }

    /// How much of a span counts for nothing: `pauses`, in order and apart from each other, and these.
    pub fn unseen_us(&self, pauses: impl Iterator<Item = (u64, u64)>, from_us: u64, to_us: u64) -> u64 {
        // Whoever asks may have an end that was counted before it was made.
        if from_us >= to_us {
            return 0;
        }
        let clipped = |from: u64, to: u64| (from.max(from_us), to.min(to_us));
        let some = |span: &(u64, u64)| span.0 < span.1;
        let pauses = pauses.map(|(from, to)| clipped(from, to)).filter(some);
        if !self.within(from_us, to_us) {
            return pauses.map(|(from, to)| to - from).sum();
        }
        let mut late = 0_u64;
        let mut spans: Vec<(u64, u64)> = pauses.collect();
        for one in self.over(from_us, to_us) {
            let (from, to) = clipped(one.from_us, one.to_us);
            match one.weather {
                Weather::Lost => spans.push((from, to)),
                Weather::Late(by_us) => late = late.saturating_add(by_us.min(to - from)),
            }
        }
        let sum = united(spans).into_iter().map(|(from, to)| to - from).sum();
        late.saturating_add(sum).min(to_us.saturating_sub(from_us))
    }
}

/// The same time, in order and in spans apart from each other.
pub(super) fn united(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(spans.len());
    for (from, to) in spans {
        match out.last_mut() {
            Some((_, reached)) if from <= *reached => *reached = to.max(*reached),
            _ => out.push((from, to)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_time_counts_once_however_many_reasons_it_has() {
        let mut all = Disturbances::default();
        all.begin(0, 100, Weather::Lost);
        all.end(0, 200);
        all.begin(1, 150, Weather::Lost);
        let pauses = || [(120, 180), (300, 310)].into_iter();
        assert_eq!(all.unseen_us(pauses(), 0, 90), 0);
        assert_eq!(all.unseen_us(pauses(), 0, 1_000), 900, "the second goes on");
        all.end(1, 250);
        assert_eq!(all.unseen_us(pauses(), 0, 1_000), 150 + 10);
        assert_eq!(all.unseen_us(pauses(), 240, 1_000), 10 + 10);
        assert_eq!(all.unseen_us(pauses(), 400, 1_000), 0);
        assert!(all.within(240, 1_000) && !all.within(250, 1_000));
    }

    #[test]
    fn what_only_comes_late_widens_by_its_lateness_however_long_it_lasts() {
        let mut all = Disturbances::default();
        all.begin(0, 100, Weather::Late(30));
        assert_eq!(all.unseen_us([].into_iter(), 0, 10_000), 30);
        assert_eq!((all.lateness_us(0, 100), all.lateness_us(0, 101)), (Some(0), Some(30)));
        assert_eq!(all.unseen_us([].into_iter(), 90, 110), 10);
        all.begin(1, 5_000, Weather::Late(20));
        assert_eq!(all.unseen_us([].into_iter(), 0, 10_000), 50);
        assert_eq!(all.unseen_us([].into_iter(), 0, 4_000), 30);
        assert_eq!(all.unseen_us([].into_iter(), 4_000, 3_000), 0, "the other way round");
    }

    #[test]
    fn the_oldest_that_are_over_are_forgotten_first() {
        let mut all = Disturbances::default();
        all.begin(0, 0, Weather::Lost);
        for number in 1..=MAX as u16 {
            all.begin(number, u64::from(number), Weather::Lost);
            all.end(number, u64::from(number) + 1);
        }
        assert_eq!(all.0.len(), MAX);
        assert!(all.0.iter().any(|one| one.fault == 0), "it goes on");
    }
}
