//! One run in virtual time: what happens next, until nothing does.

use std::{cmp::Reverse, collections::BinaryHeap};

use proto::time::Micros;

use super::{
    Simulated,
    backend::Backend,
    crowd::Tally,
    queue::{Event, Queue},
    session::{Life, ONE_WAY, Session},
    setup::Setup,
    timer::{Happening, Timers},
    truth::Truth,
};
use crate::{
    balance::{Book, BookConfig, Sight},
    profile::ReportSource,
    routing::{Made, Report, Router, RouterConfig},
};

/// Before the first try to reach a backend again; doubled up to the longest.
const PAUSES: (u64, u64) = (100_000, 1_000_000);
/// A report is taken for that much older than it is: sessions on their way are not in it. As a driver does.
const GUARD: u64 = 20_000;
/// Utilization is a mean of so long, or of one look where looks are further apart.
const TRAIL: u64 = 1_000_000;

/// A run.
pub(super) struct Run<'a> {
    pub(super) setup: &'a Setup,
    pub(super) now: u64,
    pub(super) queue: Queue,
    pub(super) timers: Timers,
    pub(super) arrivals: Arrivals,
    pub(super) sessions: Vec<Session>,
    pub(super) free: Vec<u32>,
    pub(super) backends: Vec<Backend>,
    pub(super) truth: Truth,
    pub(super) router: Router,
    pub(super) book: Book,
    pub(super) tally: Tally,
    /// Scenarios whose worker is dead.
    pub(super) dead: Vec<bool>,
    /// Backends that came up and were not heard since.
    news: Vec<bool>,
    sights: Vec<Sight>,
}

/// The first sessions of all lanes, in order of time.
pub(super) struct Arrivals {
    heads: BinaryHeap<Reverse<(u64, u16)>>,
    /// Next lane of each scenario.
    next: Vec<u32>,
}

impl Arrivals {
    fn new(setup: &Setup) -> Self {
        let scenarios = &setup.plan.scenarios;
        let heads = scenarios.iter().filter_map(|scenario| Some(Reverse((scenario.lanes.first()?.start.0, scenario.number)))).collect();
        Self { heads, next: vec![0; scenarios.len()] }
    }

    fn next_at(&self) -> Option<u64> {
        self.heads.peek().map(|head| head.0.0)
    }

    /// Scenario and position of the next lane that begins.
    fn pop(&mut self, setup: &Setup) -> Option<(u16, u32)> {
        let mut head = self.heads.peek_mut()?;
        let Reverse((_, scenario)) = *head;
        let next = self.next.get_mut(usize::from(scenario))?;
        let position = *next;
        *next += 1;
        match setup.plan.scenarios.get(usize::from(scenario)).and_then(|s| s.lanes.get(*next as usize)) {
            Some(lane) => *head = Reverse((lane.start.0, scenario)),
            None => {
                std::collections::binary_heap::PeekMut::pop(head);
            }
        }
        Some((scenario, position))
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(setup: &'a Setup, policy: Made) -> Self {
        let count = setup.backends.len();
        let trail = (TRAIL / setup.look).max(1) as usize;
        let routing = &setup.routing;
        let config = RouterConfig {
            policy,
            backends: count,
            balancers: routing.balancers.max(1) as usize,
            share: routing.share,
            staleness: routing.staleness.0,
            error_penalty: routing.error_penalty,
            seed: setup.plan.seed,
        };
        let book = BookConfig {
            backends: count,
            target: setup.target(),
            report_interval: routing.report_interval.0,
            disturbances: setup.disturbances(),
        };
        let mut run = Self {
            setup,
            now: 0,
            queue: Queue::new(setup.rate * 10.0),
            timers: Timers::default(),
            arrivals: Arrivals::new(setup),
            sessions: Vec::new(),
            free: Vec::new(),
            backends: setup.backends.iter().map(|model| Backend::new(model.clone(), trail)).collect(),
            truth: Truth::new(count),
            router: Router::new(config),
            book: Book::new(book),
            tally: Tally::default(),
            dead: vec![false; setup.plan.scenarios.len()],
            news: vec![true; count],
            sights: vec![Sight::default(); count],
        };
        run.open();
        run
    }

    fn open(&mut self) {
        for (at, joins) in self.setup.joins.iter().enumerate() {
            if *joins > 0 {
                self.backends[at].joined = false;
                self.router.set_up(at, false);
                self.timers.set(*joins, Happening::Try(at as u32, PAUSES.0));
            }
            self.truth.judge(at, &self.backends[at]);
        }
        for (at, backend, dead) in &self.setup.kills {
            self.timers.set(*at, Happening::Kill(*backend, *dead));
        }
        for (at, scenario) in &self.setup.worker_kills {
            self.timers.set(*at, Happening::KillWorker(*scenario));
        }
        for (number, (model, _)) in self.setup.models.iter().enumerate() {
            self.timers.set(model.look_every(), Happening::Look(number));
            if self.setup.routing.reports == ReportSource::OutOfBand {
                self.timers.set(0, Happening::Report(number));
            }
        }
        self.timers.set(0, Happening::See);
    }

    pub(super) fn run(mut self) -> Simulated {
        self.go();
        self.close()
    }

    /// Until every session is over.
    pub(super) fn go(&mut self) {
        loop {
            let timer = self.timers.next_at().unwrap_or(u64::MAX);
            let arrival = self.arrivals.next_at().unwrap_or(u64::MAX);
            let event = self.queue.next_at().unwrap_or(u64::MAX);
            if arrival == u64::MAX && event == u64::MAX {
                return;
            }
            if timer <= arrival && timer <= event {
                self.happen();
            } else if arrival <= event {
                self.now = self.now.max(arrival);
                if let Some((scenario, position)) = self.arrivals.pop(self.setup) {
                    self.arrive(scenario, position, 0, arrival);
                }
            } else if let Some(event) = self.queue.pop() {
                self.now = self.now.max(event.at);
                self.wake(event);
            }
        }
    }

    /// Puts the one event of a session.
    pub(super) fn rearm(&mut self, slot: u32) {
        if let Some(session) = self.sessions.get(slot as usize) {
            self.queue.push(Event { at: session.wake, slot, serial: session.serial });
        }
    }

    fn happen(&mut self) {
        let Some((at, what)) = self.timers.pop() else { return };
        self.now = self.now.max(at);
        self.tally.events += 1;
        let now = self.now;
        match what {
            Happening::Look(number) => {
                let Some((model, of)) = self.setup.models.get(number) else { return };
                for backend in of {
                    self.backends[*backend as usize].look(now);
                }
                self.timers.set(now + model.look_every(), Happening::Look(number));
            }
            Happening::Report(number) => self.report_all(number),
            Happening::Hear(reports) => {
                for (backend, boot, report) in reports {
                    let at = &self.backends[backend as usize];
                    if at.up && at.boot == boot {
                        self.router.report(backend as usize, report, Micros(now));
                    }
                }
            }
            Happening::See => {
                self.see();
                self.timers.set(now + self.setup.look, Happening::See);
            }
            Happening::Kill(backend, dead) => self.kill(backend, dead),
            Happening::Restart(backend) => {
                self.backends[backend as usize].restart(now);
                self.truth.judge(backend as usize, &self.backends[backend as usize]);
            }
            Happening::Down(backend) => {
                self.news[backend as usize] = true;
                self.router.set_up(backend as usize, false);
                self.timers.set(now + PAUSES.0, Happening::Try(backend, PAUSES.0));
            }
            Happening::Try(backend, pause) => self.reach_out(backend, pause),
            Happening::KillWorker(scenario) => self.kill_worker(scenario),
            Happening::LateEnd(backend, boot, speaking) => {
                let backend = &mut self.backends[backend as usize];
                if backend.boot == boot {
                    backend.uncount(speaking);
                }
            }
        }
    }

    /// All backends of a model report.
    fn report_all(&mut self, number: usize) {
        let Some((model, of)) = self.setup.models.get(number) else { return };
        let (now, lag) = (self.now, self.setup.routing.report_lag.0.as_micros() as u64);
        let mut late = Vec::new();
        for &at in of {
            let backend = &mut self.backends[at as usize];
            // One that balancers cannot see does not reach them.
            if !backend.up || !backend.joined || (self.news[at as usize] && now > 0) {
                continue;
            }
            let report = backend.report(now.saturating_sub(GUARD));
            if std::mem::take(&mut self.news[at as usize]) || lag == 0 {
                self.router.report(at as usize, report, Micros(now));
            } else {
                late.push((at, backend.boot, report));
            }
        }
        if !late.is_empty() {
            self.timers.set(now + lag, Happening::Hear(late));
        }
        let interval = self.setup.routing.report_interval.0.as_micros() as u64;
        self.timers.set(now + interval.max(model.report_every()), Happening::Report(number));
    }

    /// A balancer hears of a backend by a session of it.
    pub(super) fn hear_in_band(&mut self, backend: u32, before: Option<u64>) {
        if self.setup.routing.reports != ReportSource::InBand {
            return;
        }
        let (now, lag) = (self.now, self.setup.routing.report_lag.0.as_micros() as u64);
        let at = backend as usize;
        let boot = self.backends[at].boot;
        let made = now.saturating_sub(GUARD).min(before.map_or(u64::MAX, |before| before.saturating_sub(1)));
        let report = self.backends[at].report(made);
        if std::mem::take(&mut self.news[at]) || lag == 0 {
            self.router.report(at, report, Micros(now));
        } else {
            self.timers.set(now + lag, Happening::Hear(vec![(backend, boot, report)]));
        }
    }

    /// Balancers try to reach a backend.
    fn reach_out(&mut self, at: u32, pause: u64) {
        let backend = &mut self.backends[at as usize];
        if !backend.up {
            let next = (pause * 2).min(PAUSES.1);
            self.timers.set(self.now + next, Happening::Try(at, next));
            return;
        }
        backend.joined = true;
        self.truth.judge(at as usize, backend);
        self.router.set_up(at as usize, true);
        if self.setup.routing.reports == ReportSource::OutOfBand {
            // The first report says that it is up.
            let report: Report = backend.report(self.now.saturating_sub(GUARD));
            self.news[at as usize] = false;
            self.router.report(at as usize, report, Micros(self.now));
        }
    }

    fn see(&mut self) {
        let (now, look) = (self.now, self.setup.look);
        for (at, (backend, sight)) in self.backends.iter_mut().zip(&mut self.sights).enumerate() {
            backend.see(now, look);
            self.truth.judge(at, backend);
            *sight = Sight {
                sessions: f64::from(backend.live),
                reported: backend.counter as f64,
                max_sessions: backend.cap().map(|cap| cap as f64),
                utilization: backend.utilization,
                rate: Some(backend.rate()),
                up: backend.up && backend.joined,
            };
        }
        self.book.see(Micros(now), &self.sights);
    }

    fn kill(&mut self, at: u32, dead: u64) {
        if !self.backends[at as usize].up {
            return;
        }
        self.lose_all(at);
        let backend = &mut self.backends[at as usize];
        backend.kill();
        self.truth.judge(at as usize, backend);
        self.timers.set(self.now + dead.max(1), Happening::Restart(at));
        if backend.joined {
            self.timers.set(self.now + ONE_WAY, Happening::Down(at));
        }
    }

    pub(super) fn close(mut self) -> Simulated {
        self.see();
        // What is counted late is counted; what is not by then never is.
        while let Some((_, what)) = self.timers.pop() {
            if let Happening::LateEnd(backend, boot, speaking) = what {
                let backend = &mut self.backends[backend as usize];
                if backend.boot == boot {
                    backend.uncount(speaking);
                }
            }
        }
        debug_assert!(self.sessions.iter().all(|session| session.life == Life::Free));
        let ghosts: i64 = self.backends.iter().map(|backend| (backend.counter - i64::from(backend.live)).max(0)).sum();
        let most = self.backends.iter().map(|backend| backend.most).max().unwrap_or(0);
        let balance = self.book.close(Micros(self.now), ghosts.unsigned_abs());
        let Tally { arrived, accepted, finished, lost, refused, cut, events, most_open } = self.tally;
        Simulated {
            balance,
            sessions: arrived,
            accepted,
            finished,
            lost,
            refused,
            cut,
            most_open,
            most_on_one: most,
            events,
            ended_at: Micros(self.now),
        }
    }
}
