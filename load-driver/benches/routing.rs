//! What a decision costs: a grant and its end, with a report now and then, for every policy and size of fleet.
//!
//! `cargo bench -p load-driver --bench routing`. Every backend keeps some sessions open, the oldest ends when a new one begins, and each tenth
//! session brings a report, as if a fleet of any size reported ten times as rarely as sessions come. The throughput is sessions per second.

use std::{collections::VecDeque, hint::black_box, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use load_driver::routing::{ALL, Grant, Made, Report, Router, RouterConfig};
use proto::time::Micros;

const SESSIONS_EACH: usize = 20;
const SESSIONS_PER_REPORT: u64 = 10;

struct Fleet {
    router: Router,
    open: VecDeque<Grant>,
    sessions: u64,
    backends: usize,
}

impl Fleet {
    fn new(policy: Made, backends: usize) -> Self {
        let staleness = Duration::from_secs(30);
        let config = RouterConfig { policy, backends, balancers: 1, share: false, staleness, error_penalty: 1.0, seed: 1 };
        let mut fleet = Self { router: Router::new(config), open: VecDeque::new(), sessions: 0, backends };
        (0..backends).for_each(|backend| fleet.report(backend));
        while fleet.open.len() < SESSIONS_EACH * backends {
            fleet.grant();
        }
        fleet
    }

    /// Ten microseconds a session.
    fn now(&self) -> Micros {
        Micros(self.sessions * 10)
    }

    fn report(&mut self, backend: usize) {
        // Loads that differ, and change.
        let load = ((backend as u64 * 7_919 + self.sessions / 1_000) % 1_000) as f64 / 1_000.0;
        let report = Report {
            at: self.now(),
            utilization: load,
            qps: 2.0,
            active: Some(SESSIONS_EACH as f64),
            rate: Some(4.0 * (1.0 - load)),
            effective_capacity: Some(SESSIONS_EACH as f64 + 40.0 * (1.0 - load)),
            max_sessions: Some(SESSIONS_EACH as f64 * 10.0),
            ..Report::default()
        };
        self.router.report(backend, report, self.now());
    }

    fn grant(&mut self) {
        self.sessions += 1;
        if let Some(grant) = self.router.grant(self.sessions, None, self.now()) {
            self.open.push_back(grant);
        }
    }

    fn session(&mut self) {
        self.grant();
        if let Some(oldest) = self.open.pop_front() {
            self.router.ended(black_box(oldest));
        }
        if self.sessions.is_multiple_of(SESSIONS_PER_REPORT) {
            self.report((self.sessions / SESSIONS_PER_REPORT) as usize % self.backends);
        }
    }
}

fn sessions(criterion: &mut Criterion) {
    for backends in [10, 1_000, 10_000] {
        let mut group = criterion.benchmark_group(format!("session/{backends}_backends"));
        group.throughput(Throughput::Elements(1)).sample_size(20);
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for made in ALL {
            let mut fleet = Fleet::new(*made, backends);
            group.bench_function(made.name, |bencher| bencher.iter(|| fleet.session()));
        }
        group.finish();
    }
}

criterion_group!(benches, sessions);
criterion_main!(benches);
