//! The controller's loop: listens to shards, workers, pollers, the clock and the user, and keeps the books.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use proto::time::Micros;
use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until},
};

use super::{
    Job, Outcome, RunError,
    balance::Balancing,
    checkpoint::{self, Checkpoints},
    ending::STOP_GRACE,
    faults::{Timeline, UnderWay},
    finish,
    kills::Kill,
    leftover::Leftover,
    poller::{Look, Poller, unix_now},
    progress::{self, Now},
    signals::Signals,
    targets::TargetSet,
    workers::{Worker, WorkerNews},
};
use crate::{
    balance::Balance,
    engine::{EngineEvent, EngineHandle, IntervalReport},
    leak::LeakBook,
    ledger::{Ledger, LiveView, SourceId, funnel::cause_name},
    record::{Counter, Measurements, Metric, Registry, Second, ShardRecorder, histogram},
    report::{Event, Exit, Reporters, RunInfo, Stage},
    system::{ProcessTrack, Sampler},
    threshold::Monitor,
    voice::VoiceBook,
};

/// Sinks that fail cost their file, not the run; but a run whose results are lost has not passed. True when one failed.
#[must_use]
pub(super) fn complain(errors: &[crate::report::SinkError]) -> bool {
    for error in errors {
        tracing::error!("{error}");
    }
    !errors.is_empty()
}

/// Cost of a process, from what it says of itself.
#[derive(Debug, Default, Clone)]
pub(super) struct Usage {
    pub(super) track: ProcessTrack,
    pub(super) frames: u64,
    pub(super) sessions_peak: u64,
    /// At the last look.
    pub(super) now: Size,
    /// Live sessions of each of its shards.
    active: BTreeMap<usize, u64>,
    boot: Option<Boot>,
    /// CPU time and frames of processes that were replaced.
    before: (u64, u64),
}

/// What a backend says of its size.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Size {
    pub(super) rss_bytes: u64,
    pub(super) active: u64,
    /// Tasks that serve sessions.
    pub(super) tasks: u64,
}

/// One process of a backend: what it had used and moved at the first and the last look.
#[derive(Debug, Clone)]
struct Boot {
    id: String,
    first: (u64, u64),
    last: (u64, u64),
}

impl Usage {
    /// The process that was looked at last.
    pub(super) fn boot_id(&self) -> &str {
        self.boot.as_ref().map_or("", |boot| &boot.id)
    }

    /// CPU time and frames of this run: since the first look at each process, all processes together.
    fn since_first(&mut self, boot_id: &str, cpu_us: u64, frames: u64) -> (u64, u64) {
        let now = (cpu_us, frames);
        if let Some(old) = self.boot.take_if(|boot| boot.id != boot_id) {
            self.before.0 += old.last.0 - old.first.0;
            self.before.1 += old.last.1 - old.first.1;
            // A process that was started in the run is used by it from its birth.
            self.boot = Some(Boot { id: boot_id.to_owned(), first: (0, 0), last: now });
        }
        let boot = self.boot.get_or_insert_with(|| Boot { id: boot_id.to_owned(), first: now, last: now });
        boot.last = (now.0.max(boot.last.0), now.1.max(boot.last.1));
        (self.before.0 + boot.last.0 - boot.first.0, self.before.1 + boot.last.1 - boot.first.1)
    }
}

/// A run under way.
pub(super) struct Run {
    pub(super) job: Job,
    pub(super) info: RunInfo,
    pub(super) clock: Clock,
    pub(super) set: TargetSet,
    pub(super) ledger: Ledger,
    pub(super) balancing: Box<Balancing>,
    pub(super) voice: VoiceBook,
    pub(super) registry: Registry,
    pub(super) monitor: Monitor,
    pub(super) driver: Usage,
    pub(super) backends: BTreeMap<usize, Usage>,
    pub(super) workers_lost: u64,
    pub(super) checkpoints: Checkpoints,
    /// Tasks of each shard, by worker, as told last.
    pub(super) tasks: BTreeMap<(u32, usize), u64>,
    /// Whether anything grows.
    pub(super) leaks: LeakBook,
    /// What became of the sessions of a killed driver.
    pub(super) leftover: Leftover,
    /// Once it is known.
    pub(super) balance: Option<Balance>,
    /// What was said with the first failure of each cause.
    pub(super) said: BTreeMap<String, String>,
    pub(super) stopped_early: Option<String>,
    pub(super) reasons: Vec<Exit>,
    pub(super) engine: Option<EngineHandle>,
    pub(super) workers: BTreeMap<u32, Worker>,
    /// Which worker runs a scenario.
    pub(super) worker_of: BTreeMap<u16, u32>,
    /// Workers that have begun: they said something.
    pub(super) heard: BTreeSet<u32>,
    pub(super) kills: Vec<Kill>,
    /// What goes wrong on purpose.
    pub(super) timeline: Timeline,
    pub(super) under_way: UnderWay,
    /// Backends that were told to drain, and are expected to end by themselves.
    pub(super) draining: BTreeSet<usize>,
    /// Killed backends and when they are started again, in that order.
    pub(super) dead: VecDeque<(usize, Instant)>,
    /// Backends that ended although nobody killed them.
    pub(super) fallen: BTreeSet<usize>,
    pub(super) open: BTreeSet<SourceId>,
    pub(super) events: Receiver<EngineEvent>,
    pub(super) news: Receiver<WorkerNews>,
    pub(super) poller: Poller,
    pub(super) signals: Signals,
    pub(super) sampler: Option<Sampler>,
    pub(super) before: LiveView,
    pub(super) last_lag_p99_ms: Option<f64>,
    pub(super) convergence: ShardRecorder,
}

pub(super) fn take_look(look: Look, ledger: &mut Ledger, usage: &mut BTreeMap<usize, Usage>, clock: &Clock) {
    match look {
        Look::Sample(sample) => {
            let snapshot = &sample.snapshot;
            let at = clock.at_unix_us(sample.answered_at_us);
            let cost = usage.entry(sample.backend).or_default();
            let (cpu_us, frames) = cost.since_first(&snapshot.boot_id, snapshot.cpu_us, snapshot.frames_in + snapshot.frames_out);
            cost.track.add(at, crate::system::Usage { cpu_us, rss_bytes: snapshot.rss_bytes });
            cost.frames = frames;
            cost.now = Size { rss_bytes: snapshot.rss_bytes, active: snapshot.active.max(0) as u64, tasks: snapshot.live_tasks };
            cost.sessions_peak = cost.sessions_peak.max(snapshot.active.max(0) as u64);
            ledger.sample(*sample);
        }
        Look::Gap { backend, at_us, reason } => ledger.gap(backend, at_us, reason),
        Look::Totals(sample) => ledger.totals(*sample),
        Look::Blind { source, at_us, reason } => ledger.totals_gap(source, at_us, reason),
    }
}

/// Something that the controller reacts to.
enum Happening {
    Event(Option<EngineEvent>),
    News(Option<WorkerNews>),
    Look(Option<Look>),
    Kill,
    Revive,
    Fault,
    Second,
    Signal,
}

impl Run {
    /// From the first session to the verdict.
    pub(super) async fn live(mut self, reporters: &mut Reporters) -> Result<Outcome, RunError> {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.open.is_empty() {
            let happening = self.next(&mut seconds).await;
            self.react(happening, reporters).await;
        }
        let over_at = self.clock.now();
        self.end_faults().await;
        self.forget_kills();
        self.poller.want_names(true);
        self.ledger.names_are_asked(unix_now(&self.clock));
        self.drain_poller();
        while !self.ledger.settled(unix_now(&self.clock)) && !self.gave_up() && !self.all_fallen(over_at) {
            let happening = self.next(&mut seconds).await;
            self.react(happening, reporters).await;
        }
        // Silent sockets were kept until the backends had found them.
        self.close_engines();
        Box::pin(finish::conclude(self, over_at, reporters)).await
    }

    async fn next(&mut self, seconds: &mut Interval) -> Happening {
        let kill = self.kills.first().map(|kill| Instant::from_std(self.clock.instant(kill.at)));
        let fault = self.timeline.next_at().map(|at| Instant::from_std(self.clock.instant(at)));
        let revive = self.dead.front().map(|(_, at)| *at);
        let at = |at: Option<Instant>| async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.events.recv(), if !self.events.is_closed() || !self.events.is_empty() => Happening::Event(event),
            news = self.news.recv(), if !self.news.is_closed() || !self.news.is_empty() => Happening::News(news),
            // Targets without counters have no pollers: a closed channel is always ready, and would spin.
            look = self.poller.looks.recv(), if !self.poller.looks.is_closed() || !self.poller.looks.is_empty() => Happening::Look(look),
            () = at(kill) => Happening::Kill,
            () = at(revive) => Happening::Revive,
            () = at(fault) => Happening::Fault,
            _ = seconds.tick() => Happening::Second,
            () = self.signals.next() => Happening::Signal,
        }
    }

    async fn react(&mut self, happening: Happening, reporters: &mut Reporters) {
        match happening {
            Happening::Event(Some(event)) => self.event(0, event, reporters),
            Happening::Event(None) => self.lose_own_engine(),
            Happening::News(Some(WorkerNews::Event { worker, event })) => self.event(worker, event, reporters),
            Happening::News(Some(WorkerNews::Gone { worker, fault })) => self.worker_gone(worker, fault),
            Happening::Look(Some(look)) => self.look(look),
            Happening::News(None) | Happening::Look(None) => {}
            Happening::Kill => self.kill(reporters).await,
            Happening::Revive => self.revive().await,
            Happening::Fault => self.fault().await,
            Happening::Second => self.second(reporters),
            Happening::Signal => self.signalled(),
        }
    }

    /// Tells the sinks.
    pub(super) fn tell(&mut self, reporters: &mut Reporters, event: Event<'_>) {
        if complain(&reporters.emit(event)) {
            self.reasons.push(Exit::InternalFault);
        }
    }

    pub(super) fn look(&mut self, look: Look) {
        self.balancing.look(&look);
        self.tell_of_strikes();
        if let Look::Sample(sample) = &look {
            for index in self.voice.sample(sample) {
                self.ledger.lives_on(index);
            }
        }
        take_look(look, &mut self.ledger, &mut self.backends, &self.clock);
        self.take_convergence();
    }

    pub(super) fn take_convergence(&mut self) {
        let (samples, dropped) = self.ledger.drain_convergence();
        if dropped > 0 {
            tracing::error!("{dropped} convergence samples were dropped");
        }
        for one in samples {
            self.convergence.record(one.end.scenario, &one.sample);
        }
    }

    pub(super) fn event(&mut self, worker: u32, event: EngineEvent, reporters: &mut Reporters) {
        let source = |shard: usize| SourceId { worker, shard: shard as u32 };
        self.heard.insert(worker);
        match event {
            EngineEvent::Ledger { shard, entries, complete_to_us } => {
                self.tell_of_strikes();
                self.balancing.entries(source(shard), &entries, complete_to_us);
                self.voice.entries(&entries);
                self.ledger.entries(source(shard), entries, complete_to_us);
            }
            EngineEvent::Voice(news) => {
                self.tell_of_strikes();
                self.voice.news(news);
            }
            EngineEvent::Said { reasons } => {
                for (about, text) in reasons {
                    let name = about.map_or_else(|| Counter::ServerErrors.name().to_owned(), cause_name);
                    self.said.entry(name).or_insert(text);
                }
            }
            EngineEvent::Struck { fault, sessions } => self.timeline.struck(fault, sessions),
            EngineEvent::Storm { fault, steps } => self.timeline.storm(fault, &steps),
            EngineEvent::StoodStill { shard, from_us, to_us } => self.ledger.stood_still(source(shard), from_us, to_us),
            EngineEvent::Ready => {}
            EngineEvent::Interval(report) => self.interval(worker, report, reporters),
            EngineEvent::Done { shard } => {
                self.balancing.source_done(source(shard));
                self.ledger.source_done(source(shard));
                self.open.remove(&source(shard));
                self.registry.shard_gone(global_shard(worker, shard));
            }
            EngineEvent::Fatal { message } => {
                tracing::error!("an engine failed: {message}");
                self.reasons.push(Exit::InternalFault);
                self.stopped_early.get_or_insert(message);
                self.stop(Duration::ZERO);
                self.lose(worker);
            }
        }
    }

    fn interval(&mut self, worker: u32, mut report: IntervalReport, reporters: &mut Reporters) {
        if worker == 0 {
            let driver = &mut self.driver;
            driver.frames += report.scenarios.iter().map(|s| finish::frames(&s.counts)).sum::<u64>();
            // Sessions of workers take no memory of this process.
            driver.active.insert(report.shard, report.active);
            driver.sessions_peak = driver.sessions_peak.max(driver.active.values().sum());
        }
        self.tasks.insert((worker, report.shard), report.tasks);
        report.shard = global_shard(worker, report.shard);
        let closed = self.registry.add(report);
        self.seconds_closed(&closed, reporters);
    }

    pub(super) fn seconds_closed(&mut self, closed: &[Second], reporters: &mut Reporters) {
        for second in closed {
            let lag = second.latencies.get(&Metric::ScheduleLag).and_then(|(response, _)| histogram::quantile(response, 0.99));
            self.last_lag_p99_ms = lag.map(|us| us as f64 / 1_000.0);
            self.tell(reporters, Event::Second(second));
        }
    }

    /// A source will say no more than it has.
    fn lose(&mut self, worker: u32) {
        for source in self.open.iter().copied().filter(|s| s.worker == worker).collect::<Vec<_>>() {
            self.open.remove(&source);
            self.registry.shard_gone(global_shard(worker, source.shard as usize));
        }
        let at_us = unix_now(&self.clock);
        self.balancing.worker_lost(worker, at_us, false);
        self.ledger.worker_lost(worker, at_us, false);
    }

    /// Shards end with `Done`; that they are gone without it is a fault of this program.
    fn lose_own_engine(&mut self) {
        if self.open.iter().any(|source| source.worker == 0) {
            self.reasons.push(Exit::InternalFault);
            self.lose(0);
        }
    }

    pub(super) fn worker_gone(&mut self, worker: u32, fault: Option<String>) {
        self.workers.remove(&worker);
        if let Some(fault) = fault {
            tracing::error!("worker {worker}: {fault}");
        }
        // A planned kill has closed its sources already.
        if self.open.iter().any(|source| source.worker == worker) {
            tracing::error!("worker {worker} is gone before its sessions were over");
            self.workers_lost += 1;
            self.lose(worker);
        }
    }

    fn second(&mut self, reporters: &mut Reporters) {
        let now = self.clock.now();
        if let Some(sampler) = &mut self.sampler {
            self.driver.track.add(now, sampler.own());
        }
        if !self.open.is_empty() {
            self.watch_growth(now);
        }
        self.find_fallen();
        if !self.open.is_empty() {
            let now_us = unix_now(&self.clock);
            self.poller.want_names(self.voice.wants_names(now_us) || self.ledger.wants_names(now_us));
        }
        let live = self.ledger.live();
        self.give_up_if_hopeless(now, &live);
        if self.stopped_early.is_none()
            && let Some(result) = self.monitor.tick(
                &Measurements {
                    registry: &self.registry,
                    funnels: self.ledger.funnels(),
                    leaks: Some(&self.leaks),
                    drift: Some(self.ledger.drift_sum()),
                },
                now < self.job.prepared.plan.stops_at(),
            )
        {
            self.stopped_early = Some(format!("threshold {} {} failed", result.key, result.expression));
            self.stop(STOP_GRACE);
        }
        let plan = &self.job.prepared.plan;
        let stage = match () {
            () if self.open.is_empty() => Stage::Converging,
            () if now >= plan.stops_at() || self.stopped_early.is_some() => Stage::Stopping,
            () if (now - Micros::ZERO) < plan.warmup => Stage::Warmup,
            () => Stage::Running,
        };
        let (lag_p99_ms, cpu_cores) = (self.last_lag_p99_ms, self.driver.track.mean_cores());
        let tick = progress::tick(
            plan,
            Now {
                at: now,
                from: self.job.from(),
                stage,
                live: &live,
                before: &self.before,
                speaking: self.registry.gauges().1,
                lag_p99_ms,
                cpu_cores,
            },
        );
        self.tell(reporters, Event::Tick(&tick));
        self.before = live;
        checkpoint::take(self, reporters);
    }
}

/// Unique over all processes.
pub(super) fn global_shard(worker: u32, shard: usize) -> usize {
    worker as usize * 65_536 + shard
}
