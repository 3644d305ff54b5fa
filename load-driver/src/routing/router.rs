//! Balancers: who gets the next session, and what follows from it.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use proto::time::Micros;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Backend, Made, Policy, Report, Table};

/// How much the startup time of one session moves the average.
const LATENCY_STEP: f64 = 0.2;
/// Seconds: a startup that took no time is still a startup.
const LATENCY_MIN: f64 = 1e-6;
/// Keeps the balancers' draws apart from those of the plan, which has the same seed.
const SEED_MARK: u64 = 0x726f_7574_696e_6700;

/// How balancers work.
#[derive(Debug, Clone, Copy)]
pub struct RouterConfig {
    /// What picks.
    pub policy: Made,
    /// Backends.
    pub backends: usize,
    /// Balancers that know nothing of each other's grants.
    pub balancers: usize,
    /// They divide what backends can take by their number.
    pub share: bool,
    /// A report older than this says nothing any more.
    pub staleness: Duration,
    /// What an error costs in weighted round robin, as a multiple of its share of requests.
    pub error_penalty: f64,
    /// Of everything random.
    pub seed: u64,
}

/// A backend for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Which.
    pub backend: usize,
    /// Whose table it was picked from.
    pub balancer: usize,
    /// When: tells whether a report shows the session.
    pub at: Micros,
    /// Age of the report that it rests on; none without one.
    pub report_age: Option<Duration>,
}

/// One or more balancers in front of the same backends. Times only go forward.
#[derive(Debug)]
pub struct Router {
    balancers: Vec<Balancer>,
    staleness: Duration,
    /// Latest time heard of.
    now: Micros,
    /// When the report that counts came, of each backend.
    came: Vec<Option<Micros>>,
    /// The same, oldest first.
    fresh: BTreeSet<(Micros, usize)>,
    /// Reports made before this say nothing new, of each backend.
    horizon: Vec<Micros>,
}

#[derive(Debug)]
struct Balancer {
    table: Table,
    policy: Box<dyn Policy>,
    rng: ChaCha8Rng,
    /// Times of the grants that no report shows and whose sessions have not ended, of each backend, in order.
    debits: Vec<VecDeque<Micros>>,
}

impl Balancer {
    fn new(config: &RouterConfig, number: usize, share: f64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed ^ SEED_MARK);
        rng.set_stream(number as u64);
        let mut balancer = Self {
            table: Table::new(config.backends, share),
            policy: (config.policy.make)(config),
            rng,
            debits: vec![VecDeque::new(); config.backends],
        };
        for backend in 0..config.backends {
            balancer.update(backend, |_| ());
        }
        balancer
    }

    fn update(&mut self, backend: usize, change: impl FnOnce(&mut Backend)) {
        self.table.update(backend, self.policy.as_ref(), change);
    }

    /// What the policy says.
    fn pick(&mut self, not: Option<usize>) -> Option<usize> {
        if not.is_some() {
            self.table.mask(not);
        }
        let picked = self.policy.pick(&self.table, &mut self.rng);
        if not.is_some() {
            self.table.mask(None);
        }
        picked
    }

    fn report(&mut self, backend: usize, report: Report) {
        let debits = &mut self.debits[backend];
        while debits.front().is_some_and(|granted| *granted < report.at) {
            debits.pop_front();
        }
        let granted = debits.len() as u32;
        self.update(backend, |known| {
            known.report = Some(report);
            known.granted = granted;
        });
    }

    /// A session is gone, and with it its debit, if no report took that already.
    fn close(&mut self, grant: Grant) {
        let Some(debits) = self.debits.get_mut(grant.backend) else { return };
        if let Ok(index) = debits.binary_search(&grant.at) {
            debits.remove(index);
        }
        let granted = debits.len() as u32;
        self.update(grant.backend, |known| {
            known.granted = granted;
            known.open = known.open.saturating_sub(1);
        });
    }
}

impl Router {
    /// Nothing is known; every backend is up.
    pub fn new(config: RouterConfig) -> Self {
        let balancers = config.balancers.max(1);
        let share = if config.share { 1.0 / balancers as f64 } else { 1.0 };
        Self {
            balancers: (0..balancers).map(|number| Balancer::new(&config, number, share)).collect(),
            staleness: config.staleness,
            now: Micros::ZERO,
            came: vec![None; config.backends],
            fresh: BTreeSet::new(),
            horizon: vec![Micros::ZERO; config.backends],
        }
    }

    /// A backend for a session of number `session` (which decides the balancer), but not `not` (where it was refused before). None when no
    /// backend may be picked.
    pub fn grant(&mut self, session: u64, not: Option<usize>, now: Micros) -> Option<Grant> {
        let at = self.advance(now);
        let number = (session % self.balancers.len() as u64) as usize;
        let balancer = &mut self.balancers[number];
        // Whatever a policy says, the rest holds for every backend of the table alone.
        let backend = balancer.pick(not).filter(|backend| Some(*backend) != not && balancer.table.eligible(*backend))?;
        let report_age = balancer.table.backend(backend).report.map(|report| at.since(report.at));
        balancer.debits[backend].push_back(at);
        balancer.update(backend, |known| {
            known.granted += 1;
            known.open += 1;
        });
        Some(Grant { backend, balancer: number, at, report_age })
    }

    /// Every balancer hears a report, at `now`. Grants at or after `report.at` stay debited: a report of the same microsecond may or may not
    /// count them, and to count twice for an interval is the smaller evil. Reports older than the last one, and those of a backend
    /// that is down, are not heard.
    pub fn report(&mut self, backend: usize, report: Report, now: Micros) {
        let now = self.advance(now);
        // Nobody reports from the future; a clock that says so would hold grants back for ever.
        let report = Report { at: report.at.min(now), ..report.cleaned() };
        if !self.up(backend) || report.at < self.horizon[backend] {
            return;
        }
        self.horizon[backend] = report.at;
        if let Some(before) = self.came[backend].replace(now) {
            self.fresh.remove(&(before, backend));
        }
        self.fresh.insert((now, backend));
        for balancer in &mut self.balancers {
            balancer.report(backend, report);
        }
    }

    /// A backend can or cannot be reached. What one has said and how fast it was is forgotten when it goes: another process may come back.
    pub fn set_up(&mut self, backend: usize, up: bool) {
        if self.up(backend) == up || backend >= self.came.len() {
            return;
        }
        if !up {
            self.horizon[backend] = self.now;
            if let Some(came) = self.came[backend].take() {
                self.fresh.remove(&(came, backend));
            }
        }
        for balancer in &mut self.balancers {
            balancer.table.set_up(backend, up);
            if !up {
                balancer.update(backend, |known| {
                    known.report = None;
                    known.latency = 0.0;
                });
            }
        }
    }

    /// The session of a grant was accepted, so long after the balancer sent it there.
    pub fn accepted(&mut self, grant: Grant, startup: Duration) {
        let Some(balancer) = self.balancers.get_mut(grant.balancer) else { return };
        let seconds = startup.as_secs_f64().max(LATENCY_MIN);
        balancer.update(grant.backend, |known| {
            known.latency = if known.latency > 0.0 { known.latency + LATENCY_STEP * (seconds - known.latency) } else { seconds };
        });
    }

    /// The session of a grant came to nothing: its debit is returned.
    pub fn failed(&mut self, grant: Grant) {
        if let Some(balancer) = self.balancers.get_mut(grant.balancer) {
            balancer.close(grant);
        }
    }

    /// The accepted session of a grant is over. A debit that is still there goes with it: the next report will not show the session either,
    /// and where no report ever comes, debits are as many as open sessions.
    pub fn ended(&mut self, grant: Grant) {
        self.failed(grant);
    }

    /// What balancer number `balancer` knows of the backends.
    pub fn knows(&self, balancer: usize) -> Option<&Table> {
        self.balancers.get(balancer).map(|balancer| &balancer.table)
    }

    fn up(&self, backend: usize) -> bool {
        self.balancers.first().is_some_and(|balancer| balancer.table.up(backend))
    }

    /// Goes on to `now` and forgets what is stale by then.
    fn advance(&mut self, now: Micros) -> Micros {
        self.now = self.now.max(now);
        while let Some(&(came, backend)) = self.fresh.first()
            && self.now.since(came) > self.staleness
        {
            self.fresh.pop_first();
            self.came[backend] = None;
            for balancer in &mut self.balancers {
                balancer.update(backend, |known| known.report = None);
            }
        }
        self.now
    }

    #[cfg(test)]
    pub(super) fn table(&self, balancer: usize) -> &Table {
        &self.balancers[balancer].table
    }

    /// What the policy itself says, unchecked.
    #[cfg(test)]
    pub(super) fn choose(&mut self, balancer: usize, not: Option<usize>) -> Option<usize> {
        self.balancers[balancer].pick(not)
    }
}
