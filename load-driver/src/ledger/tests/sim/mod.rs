//! Backends in virtual time, one of them with every defect, a front if wanted, and a driver that tells the ledger what it did.

mod script;
mod server;
mod sums;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proto::frame::Outcome;

use self::server::Server;
pub(super) use self::sums::Lie;
use crate::{
    counters::{CounterSample, Counts, Shows, TotalsSample},
    ledger::{BackendConfig, Finish, Ledger, LedgerConfig, LedgerEntry, LedgerEvent, SourceId, TotalsConfig, Verdict, Windows},
    plan::EndKind,
};

pub(super) const T0: u64 = 1_700_000_000_000_000;
pub(super) const MS: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    Ghost,
    DoubleDecrement,
    DecrementOnReject,
    LateDecrement,
    TornSnapshot,
    ForgetOnTimeout,
    WrongOutcome,
    NeverAdded,
    Resurrect,
}

/// How a simulated session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Ends(EndKind),
    ServerTimeout,
    Breaks,
    Rejected,
    /// Never told of acceptance; the backend counted it if so.
    StartTimeout {
        counted: bool,
    },
    /// UNAVAILABLE: the backend's word that it drains, or the front's own, which may say so of a session that a backend has counted.
    Unavailable {
        counted: bool,
    },
}

/// What happens before a session gets to its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detour {
    None,
    /// Another backend refuses it.
    Refused,
    /// The dial to another backend breaks; that one counted it if so.
    Broken {
        counted: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) start_ms: u64,
    pub(super) life_ms: u64,
    pub(super) fate: Fate,
    pub(super) worker: u32,
    pub(super) shard: u32,
    /// 0 to 999: news under way.
    pub(super) delay_ms: u64,
    /// How long the backend takes to notice an abrupt end.
    pub(super) notice_ms: u64,
    /// Of no account with one backend.
    pub(super) detour: Detour,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "what varies on its own from test to test")]
pub(super) struct World {
    pub(super) specs: Vec<Spec>,
    pub(super) defect: Option<(Defect, f64)>,
    pub(super) log: bool,
    pub(super) registry: bool,
    /// The log keeps so many ends.
    pub(super) ring: usize,
    pub(super) fresh: bool,
    pub(super) kill_worker: Option<(u32, u64)>,
    /// Time of the kill, and whether a new process comes 500 ms later.
    pub(super) kill_backend: Option<(u64, bool)>,
    /// Polls fail in this time.
    pub(super) blind: Option<(u64, u64)>,
    /// The backend stands still in this time.
    pub(super) stopped: Option<(u64, u64)>,
    /// Others' sessions that live all the time.
    pub(super) others: u64,
    /// So many backends; sessions go to each in turn. Kills strike the first.
    pub(super) backends: usize,
    /// A balancer of somebody else's stands before them, and dials again by itself.
    pub(super) front: bool,
    /// Index of the one with the defect.
    pub(super) struck: usize,
    /// The names of the backends by index; the default tells them apart.
    pub(super) ids: fn(usize) -> String,
    /// The counters are read as sums that hold these.
    pub(super) sums: Option<Shows>,
    /// Of its sums.
    pub(super) lie: Option<Lie>,
    /// Sessions of other clients that come and go on the first backend.
    pub(super) guests: usize,
    /// What a look is turned into before the driver has it.
    pub(super) disguise: Option<fn(&mut CounterSample)>,
}

impl World {
    pub(super) fn of(specs: Vec<Spec>) -> Self {
        Self {
            specs,
            defect: None,
            log: true,
            registry: true,
            ring: usize::MAX,
            fresh: true,
            kill_worker: None,
            kill_backend: None,
            blind: None,
            stopped: None,
            others: 0,
            backends: 1,
            front: false,
            struck: 0,
            ids: |backend| format!("b{backend}"),
            sums: None,
            guests: 0,
            disguise: None,
            lie: None,
        }
    }

    /// Three backends, the second with the defect.
    pub(super) fn of_three(specs: Vec<Spec>, front: bool) -> Self {
        Self { backends: 3, front, struck: 1, fresh: !front, ..Self::of(specs) }
    }
}

type Step = (u64, SourceId, LedgerEntry);

#[derive(Debug, Clone, Copy)]
enum Op {
    Start(Whose),
    End(Whose, Outcome),
    /// A late decrement.
    Count(Whose, Outcome),
    Reject(usize),
    Boot(u32),
}

/// A session as a backend knows it.
#[derive(Debug, Clone, Copy)]
struct Whose {
    index: usize,
    /// It went on elsewhere.
    detour: bool,
    /// Of another client.
    guest: bool,
}

impl Whose {
    fn id(self) -> String {
        let kind = match (self.detour, self.guest) {
            (true, _) => "d",
            (false, true) => "g",
            (false, false) => "s",
        };
        format!("{kind}{}", self.index)
    }

    fn reference(self) -> String {
        if self.guest { format!("guest-{}", self.index) } else { reference(self.index) }
    }
}

/// When, which backend, what.
type Work = (u64, usize, Op);

pub(super) struct Ran {
    pub(super) verdict: Verdict,
    pub(super) strikes: u64,
    pub(super) settled_after_ms: u64,
    /// Goodbyes that the driver told of.
    pub(super) goodbyes: u64,
    /// Retries that the driver told of.
    pub(super) retries: u64,
    pub(super) samples: Vec<crate::ledger::ConvergenceSample>,
    /// What the first backend had by then.
    pub(super) truth: Counts,
}

pub(super) fn reference(index: usize) -> String {
    format!("run-{index}")
}

fn boot_id(backend: usize, boot: u32) -> String {
    if backend == 0 { format!("boot-{boot}") } else { format!("backend-{backend}-boot-{boot}") }
}

fn at(ms: u64) -> u64 {
    T0 + ms * MS
}

impl World {
    pub(super) fn run(&self) -> Ran {
        let (steps, ops) = self.script();
        let mut config = LedgerConfig::new("run", T0, vec![BackendConfig { watched: true, fresh: self.fresh }; self.backends]);
        if let Some(shows) = &self.sums {
            config.backends.iter_mut().for_each(|backend| backend.watched = false);
            let one =
                |backend| TotalsConfig { name: format!("backend {backend}"), backend: Some(backend), age_us: 0, shows: shows.clone() };
            config.totals = (0..self.backends).map(one).collect();
        }
        config.front = self.front;
        config.windows = Windows::default().with(EndKind::HalfOpen, 4_000 * MS);
        config.settle_us = 8_000 * MS;
        let mut ledger = Ledger::new(config);
        let sources: BTreeSet<SourceId> = (0..3).flat_map(|worker| (0..2).map(move |shard| SourceId { worker, shard })).collect();
        for source in &sources {
            ledger.open(*source, T0);
        }
        let mut servers: Vec<Server> = (0..self.backends).map(|backend| Server { backend, boot: 1, ..Server::default() }).collect();
        let (mut ops, mut told) = (VecDeque::from(ops), BTreeMap::<SourceId, usize>::new());
        let last = steps.iter().map(|(at, _, _)| *at).chain(ops.iter().map(|(at, _, _)| *at)).max().unwrap_or(T0).max(at(1));
        if self.sums.is_some() {
            for backend in 0..self.backends {
                self.poll(&mut ledger, backend, &mut servers, &mut ops, (at(0) - 300 * MS, false));
            }
        }
        let (mut worker_lost, mut backend_killed, mut goodbyes, mut retries) = (false, false, 0, 0);
        for tick in 0..4_000 {
            // Every 50 ms the world moves on, every 100 ms shards tell, every 250 ms the counters are read.
            let now = at(tick * 50);
            if let Some((ms, _)) = self.kill_backend.filter(|(ms, _)| !backend_killed && at(*ms) <= now) {
                backend_killed = true;
                ledger.backend_killed(0, "boot-1", at(ms));
            }
            self.serve_until(&mut servers, &mut ops, now);
            if tick % 2 == 0 && now <= last + 200 * MS {
                for source in sources.iter().filter(|s| !(worker_lost && self.kill_worker.is_some_and(|(w, _)| w == s.worker))) {
                    // A doomed worker tells nothing in its last moments.
                    let doomed = self.kill_worker.filter(|(w, _)| *w == source.worker).map_or(u64::MAX, |(_, ms)| at(ms) - 130 * MS);
                    let to = now.min(doomed);
                    let mine: Vec<&LedgerEntry> = steps.iter().filter(|(at, s, _)| s == source && *at < to).map(|(_, _, e)| e).collect();
                    let from = told.insert(*source, mine.len()).unwrap_or(0);
                    let goodbye = |e: &&&LedgerEntry| matches!(e.event, LedgerEvent::Ended { finish: Finish::Goodbye(_) });
                    goodbyes += mine[from..].iter().filter(goodbye).count() as u64;
                    retries += mine[from..].iter().filter(|e| matches!(e.event, LedgerEvent::Retried { .. })).count() as u64;
                    ledger.entries(*source, mine[from..].iter().map(|e| (*e).clone()).collect(), to);
                }
            }
            if let Some((worker, ms)) = self.kill_worker.filter(|(_, ms)| !worker_lost && at(*ms) <= now) {
                worker_lost = true;
                ledger.worker_lost(worker, at(ms), true);
            }
            let over = now > last + 200 * MS;
            if over {
                for source in &sources {
                    ledger.source_done(*source);
                }
                ledger.names_are_asked(now);
            }
            if tick % 5 == 0 {
                let names = over || ledger.wants_names(now);
                // One after the other: a poll serves what happens until it is over.
                for backend in 0..self.backends {
                    self.poll(&mut ledger, backend, &mut servers, &mut ops, (now + backend as u64 * 16 * MS, names));
                }
            }
            if ledger.settled(now) {
                let verdict = ledger.verdict();
                let settled_after_ms = now.saturating_sub(last) / MS;
                let strikes = servers.iter().map(|server| server.strikes).sum();
                let samples = ledger.drain_convergence().0;
                let all = Shows { started: true, ended: true, outcomes: Outcome::ALL.to_vec(), rejected: true, ..Shows::default() };
                let truth = self.sums_of(&servers[0], servers[0].active, &all);
                return Ran { verdict, strikes, settled_after_ms, goodbyes, retries, samples, truth };
            }
        }
        panic!("the ledger never settled: {:#?}", ledger.live());
    }

    fn serve_until(&self, servers: &mut [Server], ops: &mut VecDeque<Work>, now: u64) {
        while ops.front().is_some_and(|(at, _, _)| *at <= now) {
            let mut later = Vec::new();
            if let Some((at_us, backend, op)) = ops.pop_front() {
                // A process takes along what it had yet to count.
                if matches!(op, Op::Boot(_)) {
                    ops.retain(|(_, of, op)| *of != backend || !matches!(op, Op::Count(..)));
                }
                self.apply(&mut servers[backend], at_us, op, &mut later);
            }
            for work in later {
                let place = ops.partition_point(|other| other.0 <= work.0);
                ops.insert(place, work);
            }
        }
    }

    /// A look at this time, with or without names.
    fn poll(&self, ledger: &mut Ledger, backend: usize, servers: &mut [Server], ops: &mut VecDeque<Work>, (now, names): (u64, bool)) {
        let within = |span: Option<(u64, u64)>| span.is_some_and(|(from, to)| (at(from)..at(to)).contains(&now));
        let dead = backend == 0 && self.kill_backend.is_some_and(|(ms, back)| now + 20 * MS >= at(ms) && (!back || now < at(ms + 500)));
        if within(self.blind) || dead {
            return match self.sums {
                None => ledger.gap(backend, now, "refused"),
                Some(_) => ledger.totals_gap(backend, now, "refused"),
            };
        }
        if within(self.stopped) {
            return;
        }
        // The cut lies within the poll. Ends go on after it: before its time is taken, and before the log is read.
        let cut = now + 7 * MS;
        self.serve_until(servers, ops, cut);
        let mut sample = self.sample(&mut servers[backend], now, cut + 3 * MS, now + 19 * MS);
        if let Some(shows) = &self.sums {
            // Not of one instant.
            let active = servers[backend].active + self.others as i64;
            self.serve_until(servers, ops, cut + 8 * MS);
            let honest = self.sums_of(&servers[backend], active, shows);
            let counts = self.lied(&mut servers[backend], honest, now.saturating_sub(T0) / MS);
            return ledger.totals(TotalsSample { source: backend, asked_at_us: now, answered_at_us: now + 19 * MS, counts });
        }
        self.serve_until(servers, ops, cut + 8 * MS);
        let (ends, next_end) = self.ends(&mut servers[backend]);
        sample.ends = self.log.then_some(ends);
        sample.snapshot.next_end = next_end;
        sample.sessions = sample.sessions.filter(|_| names);
        if let Some(disguise) = self.disguise {
            disguise(&mut sample);
        }
        ledger.sample(sample);
    }
}
