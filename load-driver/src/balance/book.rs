//! Collects what the quality of balance is computed from.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use proto::time::Micros;

use super::{
    Balance,
    herd::Herds,
    recovery::Recoveries,
    spread::{Moment, OverTime},
};
use crate::record::histogram;

/// What the figures are held against.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BookConfig {
    /// Backends.
    pub backends: usize,
    /// Utilization from which a backend is overloaded, for the record; NaN when there is none, or not one and the same.
    pub target: f64,
    /// Between reports: herding is counted in this window.
    pub report_interval: Duration,
    /// Events that balance must recover from: a scale-up, a kill.
    pub disturbances: Vec<Micros>,
}

/// The truth about one backend at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sight {
    /// Live sessions, as they are.
    pub sessions: f64,
    /// Live sessions, as its counter says.
    pub reported: f64,
    /// Hard cap.
    pub max_sessions: Option<f64>,
    /// Utilization of the last second or so; NaN when nobody knows it.
    pub utilization: f64,
    /// Sessions per second that it said it can take; for herding.
    pub rate: Option<f64>,
    /// It runs and is in the fleet.
    pub up: bool,
}

impl Sight {
    /// Whether it can be overloaded, as far as anybody can tell.
    fn tells(&self) -> bool {
        self.max_sessions.is_some() || self.utilization.is_finite()
    }

    fn share(&self) -> Option<f64> {
        self.max_sessions.map(|max| self.sessions / max.max(1.0))
    }
}

/// A session was given to a backend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// When.
    pub at: Micros,
    /// Whom.
    pub backend: usize,
    /// By the truth at that moment, its utilization was at the target or its sessions at the cap.
    pub overloaded: bool,
    /// And another backend was not.
    pub avoidable: bool,
    /// Age of the report that the decision rests on.
    pub report_age: Option<Duration>,
}

/// A session that did not go well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Never accepted.
    Rejected,
    /// Accepted, and lost.
    Dropped,
    /// Sent to another backend after a refusal.
    Retried,
}

/// What the last look showed: it holds until the next.
#[derive(Debug, Clone, Copy)]
struct Shown {
    at: Micros,
    sessions: Option<Moment>,
    shares: Option<Moment>,
    utilization: Option<Moment>,
    /// Sum of reported minus actual, and of how many.
    error: (f64, u64),
}

/// The book. A look costs as much as there are backends, all else costs the same however many there are.
#[derive(Debug)]
pub struct Book {
    target: f64,
    shown: Option<Shown>,
    sessions: OverTime,
    shares: OverTime,
    /// Every backend that was up at any look had a cap.
    capped: bool,
    utilization: OverTime,
    /// Reported minus actual times seconds, and backend-seconds.
    error: (f64, f64),
    error_range: (f64, f64),
    up: Vec<bool>,
    /// Whether a backend tells if it is overloaded.
    tells: Vec<bool>,
    assigned: Vec<u64>,
    judged: u64,
    overloaded: u64,
    avoidable: u64,
    herds: Herds,
    recoveries: Recoveries,
    report_age: Histogram<u64>,
    startup: Histogram<u64>,
    first_stream: Histogram<u64>,
    troubles: BTreeMap<Trouble, BTreeMap<String, u64>>,
    late_ends: u64,
}

impl Book {
    /// Empty.
    pub fn new(config: BookConfig) -> Self {
        let BookConfig { backends, target, report_interval, disturbances } = config;
        Self {
            target,
            shown: None,
            sessions: OverTime::default(),
            shares: OverTime::default(),
            capped: true,
            utilization: OverTime::default(),
            error: (0.0, 0.0),
            error_range: (0.0, 0.0),
            up: vec![false; backends],
            tells: vec![true; backends],
            assigned: vec![0; backends],
            judged: 0,
            overloaded: 0,
            avoidable: 0,
            herds: Herds::new(backends, report_interval),
            recoveries: Recoveries::new(disturbances),
            report_age: histogram::empty(),
            startup: histogram::empty(),
            first_stream: histogram::empty(),
            troubles: BTreeMap::new(),
            late_ends: 0,
        }
    }

    /// A look at all backends, in the order of their index. What it shows holds until the next look.
    pub fn see(&mut self, at: Micros, fleet: &[Sight]) {
        self.hold_until(at);
        let up = || fleet.iter().filter(|sight| sight.up);
        let all_capped = up().all(|sight| sight.max_sessions.is_some());
        let sessions = Moment::of(up().map(|sight| sight.sessions));
        let shares = if all_capped { Moment::of(up().filter_map(Sight::share)) } else { None };
        let utilization = Moment::of(up().map(|sight| sight.utilization).filter(|u| u.is_finite()));
        self.capped &= all_capped;
        for (over_time, moment) in [(&mut self.sessions, sessions), (&mut self.shares, shares), (&mut self.utilization, utilization)] {
            if let Some(moment) = moment {
                over_time.see(&moment);
            }
        }
        let mut error = (0.0, 0);
        for wrong in up().map(|sight| sight.reported - sight.sessions).filter(|wrong| wrong.is_finite()) {
            error = (error.0 + wrong, error.1 + 1);
            self.error_range = (self.error_range.0.min(wrong), self.error_range.1.max(wrong));
        }
        self.herds.hear(at, fleet.iter().map(|sight| sight.rate));
        let first = self.shown.is_none();
        let mut joined = false;
        for (n, sight) in fleet.iter().enumerate().take(self.up.len()) {
            joined |= sight.up && !self.up[n] && !first;
            self.up[n] = sight.up;
            self.tells[n] = sight.tells();
        }
        if let Some(moment) = shares.or(sessions) {
            self.recoveries.look(at, moment.jain, moment.idle(), joined);
        }
        self.shown = Some(Shown { at, sessions, shares, utilization, error });
    }

    fn hold_until(&mut self, at: Micros) {
        let Some(shown) = self.shown else { return };
        let seconds = at.since(shown.at).as_secs_f64();
        for (over_time, moment) in
            [(&mut self.sessions, shown.sessions), (&mut self.shares, shown.shares), (&mut self.utilization, shown.utilization)]
        {
            if let Some(moment) = moment {
                over_time.hold(&moment, seconds);
            }
        }
        self.error.0 += shown.error.0 * seconds;
        self.error.1 += shown.error.1 as f64 * seconds;
    }

    /// A decision, in order of time.
    pub fn decide(&mut self, decision: Decision) {
        let Decision { at, backend, overloaded, avoidable, report_age } = decision;
        let (Some(assigned), Some(tells)) = (self.assigned.get_mut(backend), self.tells.get(backend)) else { return };
        *assigned += 1;
        if *tells {
            self.judged += 1;
            self.overloaded += u64::from(overloaded);
            self.avoidable += u64::from(overloaded && avoidable);
        }
        self.herds.grant(at, backend);
        if let Some(age) = report_age {
            record(&mut self.report_age, age);
        }
    }

    /// Something went wrong, by this cause (one of a closed list of short names).
    pub fn trouble(&mut self, what: Trouble, cause: &str) {
        let causes = self.troubles.entry(what).or_default();
        match causes.get_mut(cause) {
            Some(count) => *count += 1,
            None => _ = causes.insert(cause.to_owned(), 1),
        }
    }

    /// A session was accepted, so long after its scheduled arrival.
    pub fn startup(&mut self, took: Duration) {
        record(&mut self.startup, took);
    }

    /// A session's first stream of the agent came, so long after its scheduled arrival.
    pub fn first_stream(&mut self, took: Duration) {
        record(&mut self.first_stream, took);
    }

    /// An end was counted too late.
    pub fn late_end(&mut self) {
        self.late_ends += 1;
    }

    /// The figures. `at` is the end of the last look's time.
    pub fn close(mut self, at: Micros, ghosts_left: u64) -> Balance {
        self.hold_until(at);
        let share = |part: u64| (self.judged > 0).then(|| part as f64 / self.judged as f64);
        let (herd, herd_ratio) = self.herds.worst();
        let (recovery, unrecovered) = self.recoveries.close(at);
        let mut troubles = |what| self.troubles.remove(&what).unwrap_or_default();
        let (rejected, dropped, retried) = (troubles(Trouble::Rejected), troubles(Trouble::Dropped), troubles(Trouble::Retried));
        let mut balance = Balance {
            capped: self.capped,
            sessions: if self.capped { self.shares.spread() } else { self.sessions.spread() },
            utilization: self.utilization.spread(),
            target_utilization: Some(self.target).filter(|target| target.is_finite()),
            assignments: self.assigned.iter().sum(),
            overload_rate: share(self.overloaded),
            avoidable_rate: share(self.avoidable),
            herd,
            herd_ratio,
            report_age_p50_ms: quantile_ms(&self.report_age, 0.5),
            report_age_p99_ms: quantile_ms(&self.report_age, 0.99),
            rejected,
            dropped,
            retried,
            counter_error_mean: (self.error.1 > 0.0).then(|| self.error.0 / self.error.1),
            counter_error_max: (self.error.1 > 0.0).then_some(self.error_range.1),
            counter_error_min: (self.error.1 > 0.0).then_some(self.error_range.0),
            ghosts_left,
            late_ends: self.late_ends,
            recovery_s: recovery.map(|took| took.as_secs_f64()),
            unrecovered,
            assigned: self.assigned,
            ..Balance::default()
        };
        balance.set_startup(&self.startup);
        balance.set_first_stream(&self.first_stream);
        balance
    }
}

fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram::record(histogram, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
}

pub(super) fn quantile_ms(samples: &Histogram<u64>, q: f64) -> Option<f64> {
    histogram::quantile(samples, q).map(|us| us as f64 / 1_000.0)
}
