//! The controller's loop: listens to shards, workers, pollers, the clock and the user, and keeps the books.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use proto::time::Micros;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{self, Receiver, Sender},
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until},
};

use super::{
    Job, RunError, finish,
    kills::{self, Kill, Victim},
    poller::{Look, Poller, unix_now},
    progress::{self, Now},
    reporters, shards,
    targets::{self, TargetSet},
    workers::{Worker, WorkerNews},
};
use crate::{
    engine::{Engine, EngineEvent, EngineHandle, EngineOptions, IntervalReport, worker::WorkerCommand},
    ledger::{BackendConfig, Ledger, LedgerConfig, LiveView, SourceId, Windows},
    plan::{EndKind, Plan},
    profile::Target,
    record::{Measurements, Metric, Registry, ScenarioLabel, Second, ShardRecorder, histogram},
    report::{Event, Exit, Reporters, RunInfo, Stage},
    system::{ProcessTrack, Sampler},
    threshold::Monitor,
};

/// Events of shards that may wait for the controller.
const EVENTS: usize = 1_024;
/// Between the word to start and the start of the run, so that it reaches every worker in time.
const LEAD: Duration = Duration::from_millis(50);
/// A worker that has not built its plan by then never will.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// After Ctrl-C sessions get so long to say goodbye.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// A killed backend stays dead so long, as long as a supervisor might need.
const DEAD: Duration = Duration::from_millis(500);
/// So many sessions fail, and none comes to be, within this time: the target is given up.
const HOPELESS: (u64, Duration) = (20, Duration::from_secs(5));

/// Sets a run up, lives through it, and tells what came of it.
pub(super) async fn conduct(job: Job) -> Result<Exit, RunError> {
    let fault = |what: &str, e: &dyn std::fmt::Display| RunError::new(Exit::InternalFault, format!("failed to {what}: {e}"));
    let mut reporters = reporters(&job.out).map_err(|e| fault("open the files of the run", &e))?;
    let signals = Signals::new().map_err(|e| fault("listen for signals", &e))?;
    let set = targets::ready(&job, Clock::start()).await?;
    let run = begin(&job, set, signals).await.map_err(|e| fault("start the run", &e))?;
    complain(reporters.emit(Event::Started(&run.info)));
    run.live(&mut reporters).await
}

/// Sinks that fail cost their file, not the run.
pub(super) fn complain(errors: Vec<crate::report::SinkError>) {
    for error in errors {
        tracing::error!("{error}");
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Cost of a process, from what it says of itself.
#[derive(Debug, Default, Clone)]
pub(super) struct Usage {
    pub(super) track: ProcessTrack,
    pub(super) frames: u64,
    pub(super) sessions_peak: u64,
}

/// A run under way.
pub(super) struct Run {
    pub(super) job: Job,
    pub(super) info: RunInfo,
    pub(super) clock: Clock,
    pub(super) set: TargetSet,
    pub(super) ledger: Ledger,
    pub(super) registry: Registry,
    pub(super) monitor: Monitor,
    pub(super) driver: Usage,
    pub(super) backends: BTreeMap<usize, Usage>,
    pub(super) workers_lost: u64,
    pub(super) stopped_early: Option<String>,
    pub(super) reasons: Vec<Exit>,
    engine: Option<EngineHandle>,
    workers: BTreeMap<u32, Worker>,
    /// Which worker runs a scenario.
    worker_of: BTreeMap<u16, u32>,
    /// Workers that have begun: they said something.
    heard: BTreeSet<u32>,
    kills: Vec<Kill>,
    dead: Option<(usize, Instant)>,
    /// Backends that ended although nobody killed them.
    fallen: BTreeSet<usize>,
    open: BTreeSet<SourceId>,
    events: Receiver<EngineEvent>,
    news: Receiver<WorkerNews>,
    poller: Poller,
    signals: Signals,
    sampler: Option<Sampler>,
    before: LiveView,
    last_lag_p99_ms: Option<f64>,
    convergence: ShardRecorder,
}

async fn begin(job: &Job, mut set: TargetSet, signals: Signals) -> anyhow::Result<Run> {
    let prepared = &job.prepared;
    let (plan, profile) = (&prepared.plan, &prepared.profile);
    let options = finish::engine_options(profile, shards(prepared));
    let with_workers: Vec<u16> = plan.scenarios.iter().filter(|s| kills::needs_worker(s)).map(|s| s.number).collect();
    let (news_in, mut news) = mpsc::channel(EVENTS);
    let (mut workers, worker_of) = start_workers(job, &set, &with_workers, options, &news_in)?;
    drop(news_in);
    await_ready(&mut news, workers.len()).await?;
    let clock = Clock::with_epoch_unix_us(unix_now(&Clock::start()) + LEAD.as_micros() as u64);
    let start_us = clock.unix_us(Micros::ZERO);

    let mut ledger = Ledger::new(ledger_config(job, &set, start_us));
    let own = (0..options.shards).map(|shard| SourceId { worker: 0, shard: shard as u32 });
    let theirs = (1..=with_workers.len()).map(|worker| SourceId { worker: worker as u32, shard: 0 });
    let open: BTreeSet<SourceId> = own.chain(theirs).collect();
    for source in &open {
        ledger.open(*source, start_us);
    }
    let mut usage = BTreeMap::new();
    for look in std::mem::take(&mut set.looks) {
        take_look(look, &mut ledger, &mut usage, &clock);
    }

    for worker in workers.values_mut() {
        worker.tell(&WorkerCommand::Start { epoch_unix_us: start_us });
    }
    let labels: Vec<ScenarioLabel> = plan.scenarios.iter().map(|s| ScenarioLabel::from(&**s)).collect();
    let monitor = Monitor::new(prepared.thresholds.clone());
    let mut registry = Registry::new(start_us, labels);
    if let Some((window, metrics)) = monitor.windows() {
        registry.keep_recent(window, metrics);
    }
    let info = finish::run_info(job, &set, start_us);
    let poller = Poller::start(std::mem::take(&mut set.sources), profile.counters.interval.0, clock);
    let backends = profile.target.backends();

    sleep_until(clock.instant(Micros::ZERO).into()).await;
    let (events_in, events) = mpsc::channel(EVENTS);
    let engine = Engine::start(without(plan, &with_workers), options, set.targets.clone(), clock, events_in)?;
    Ok(Run {
        job: job.clone(),
        info,
        clock,
        ledger,
        registry,
        monitor,
        driver: Usage::default(),
        backends: usage,
        workers_lost: 0,
        stopped_early: None,
        reasons: Vec::new(),
        engine: Some(engine),
        workers,
        worker_of,
        heard: BTreeSet::new(),
        kills: kills::planned(plan, backends),
        dead: None,
        fallen: BTreeSet::new(),
        open,
        events,
        news,
        poller,
        signals,
        sampler: Sampler::new().inspect_err(|e| tracing::warn!("failed to read this process's cost: {e}")).ok(),
        before: LiveView::default(),
        last_lag_p99_ms: None,
        convergence: ShardRecorder::new(plan.scenarios.len()),
        set,
    })
}

/// The part of the plan that runs in this process.
fn without(plan: &Plan, scenarios: &[u16]) -> Plan {
    let mut plan = plan.clone();
    for scenario in plan.scenarios.iter_mut().filter(|s| scenarios.contains(&s.number)) {
        std::sync::Arc::make_mut(scenario).lanes.clear();
    }
    plan
}

fn ledger_config(job: &Job, set: &TargetSet, start_us: u64) -> LedgerConfig {
    let profile = &job.prepared.profile;
    let fresh = matches!(profile.target, Target::Embedded { .. });
    let watched: BTreeSet<usize> = set.sources.iter().map(|(index, _)| *index).collect();
    let backends = (0..set.targets.count()).map(|index| BackendConfig { watched: watched.contains(&index), fresh }).collect();
    let counters = &profile.counters;
    let mut windows = Windows::default();
    for kind in EndKind::ALL {
        let span = if kind == EndKind::HalfOpen { counters.half_open_window } else { counters.window };
        windows = windows.with(kind, span.micros());
    }
    LedgerConfig {
        windows,
        scenarios: job.prepared.plan.scenarios.iter().map(|scenario| scenario.expect).collect(),
        settle_us: counters.settle.micros(),
        poll_interval_us: counters.interval.micros(),
        ..LedgerConfig::new(job.run_id.clone(), start_us, backends)
    }
}

type Workers = (BTreeMap<u32, Worker>, BTreeMap<u16, u32>);

/// One worker for each scenario that a kill takes its process from.
fn start_workers(
    job: &Job,
    set: &TargetSet,
    scenarios: &[u16],
    options: EngineOptions,
    news: &Sender<WorkerNews>,
) -> anyhow::Result<Workers> {
    let program = std::env::current_exe()?;
    let (mut workers, mut worker_of) = (BTreeMap::new(), BTreeMap::new());
    for (n, scenario) in scenarios.iter().enumerate() {
        let number = n as u32 + 1;
        let work = crate::engine::worker::WorkerJob {
            profile: serde_json::to_string(&job.prepared.profile)?,
            run_id: job.run_id.clone(),
            worker: 0,
            workers: 1,
            scenarios: Some(vec![*scenario]),
            targets: set.targets.authorities(),
            options: EngineOptions { shards: 1, ..options },
        };
        workers.insert(number, Worker::start(number, &program, &work, news.clone())?);
        worker_of.insert(*scenario, number);
    }
    Ok((workers, worker_of))
}

/// Until every worker has its plan.
async fn await_ready(news: &mut Receiver<WorkerNews>, workers: usize) -> anyhow::Result<()> {
    for _ in 0..workers {
        match tokio::time::timeout(READY_TIMEOUT, news.recv()).await {
            Ok(Some(WorkerNews::Event { event: EngineEvent::Ready, .. })) => {}
            Ok(Some(WorkerNews::Event { worker, event: EngineEvent::Fatal { message } })) => anyhow::bail!("worker {worker}: {message}"),
            Ok(other) => anyhow::bail!("a worker said {other:?} before the run began"),
            Err(_) => anyhow::bail!("a worker had no plan after {READY_TIMEOUT:?}"),
        }
    }
    Ok(())
}

fn take_look(look: Look, ledger: &mut Ledger, usage: &mut BTreeMap<usize, Usage>, clock: &Clock) {
    match look {
        Look::Sample(sample) => {
            let snapshot = &sample.snapshot;
            let at = clock.at_unix_us(sample.answered_at_us);
            let cost = usage.entry(sample.backend).or_default();
            cost.track.add(at, crate::system::Usage { cpu_us: snapshot.cpu_us, rss_bytes: snapshot.rss_bytes });
            cost.frames = cost.frames.max(snapshot.frames_in + snapshot.frames_out);
            cost.sessions_peak = cost.sessions_peak.max(snapshot.active.max(0) as u64);
            ledger.sample(*sample);
        }
        Look::Gap { backend, at_us, reason } => ledger.gap(backend, at_us, reason),
    }
}

/// Something that the controller reacts to.
enum Happening {
    Event(Option<EngineEvent>),
    News(Option<WorkerNews>),
    Look(Option<Look>),
    Kill,
    Revive,
    Second,
    Signal,
}

impl Run {
    /// From the first session to the verdict.
    pub(super) async fn live(mut self, reporters: &mut Reporters) -> Result<Exit, RunError> {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.open.is_empty() {
            let happening = self.next(&mut seconds).await;
            self.react(happening, reporters).await;
        }
        let over_at = self.clock.now();
        self.poller.want_names();
        self.drain_poller();
        while !self.ledger.settled(unix_now(&self.clock)) && !self.gave_up() && !self.all_fallen(over_at) {
            let happening = self.next(&mut seconds).await;
            self.react(happening, reporters).await;
        }
        // Silent sockets were kept until the backends had found them.
        self.close_engines();
        finish::conclude(self, over_at, reporters).await
    }

    async fn next(&mut self, seconds: &mut Interval) -> Happening {
        let kill = self.kills.first().map(|kill| Instant::from_std(self.clock.instant(kill.at)));
        let revive = self.dead.map(|(_, at)| at);
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
            Happening::News(None) => {}
            Happening::Look(Some(look)) => self.look(look),
            Happening::Look(None) => {}
            Happening::Kill => self.kill(reporters).await,
            Happening::Revive => self.revive().await,
            Happening::Second => self.second(reporters),
            Happening::Signal => self.signalled(),
        }
    }

    fn look(&mut self, look: Look) {
        take_look(look, &mut self.ledger, &mut self.backends, &self.clock);
        self.take_convergence();
    }

    fn take_convergence(&mut self) {
        let (samples, dropped) = self.ledger.drain_convergence();
        if dropped > 0 {
            tracing::error!("{dropped} convergence samples were dropped");
        }
        for one in samples {
            self.convergence.record(one.scenario, &one.sample);
        }
    }

    fn event(&mut self, worker: u32, event: EngineEvent, reporters: &mut Reporters) {
        let source = |shard: usize| SourceId { worker, shard: shard as u32 };
        self.heard.insert(worker);
        match event {
            EngineEvent::Ledger { shard, entries, complete_to_us } => {
                self.ledger.entries(source(shard), entries, complete_to_us);
            }
            EngineEvent::Ready => {}
            EngineEvent::Interval(report) => self.interval(worker, report, reporters),
            EngineEvent::Done { shard } => {
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
            self.driver.frames += report.scenarios.iter().map(|s| finish::frames(&s.counts)).sum::<u64>();
        }
        report.shard = global_shard(worker, report.shard);
        let closed = self.registry.add(report);
        self.driver.sessions_peak = self.driver.sessions_peak.max(self.registry.gauges().0);
        self.seconds_closed(&closed, reporters);
    }

    pub(super) fn seconds_closed(&mut self, closed: &[Second], reporters: &mut Reporters) {
        for second in closed {
            let lag = second.latencies.get(&Metric::ScheduleLag).and_then(|(response, _)| histogram::quantile(response, 0.99));
            self.last_lag_p99_ms = lag.map(|us| us as f64 / 1_000.0);
            complain(reporters.emit(Event::Second(second)));
        }
    }

    /// A source will say no more than it has.
    fn lose(&mut self, worker: u32) {
        for source in self.open.iter().copied().filter(|s| s.worker == worker).collect::<Vec<_>>() {
            self.open.remove(&source);
            self.registry.shard_gone(global_shard(worker, source.shard as usize));
        }
        self.ledger.worker_lost(worker, unix_now(&self.clock), false);
    }

    /// Shards end with `Done`; that they are gone without it is a fault of this program.
    fn lose_own_engine(&mut self) {
        if self.open.iter().any(|source| source.worker == 0) {
            self.reasons.push(Exit::InternalFault);
            self.lose(0);
        }
    }

    fn worker_gone(&mut self, worker: u32, fault: Option<String>) {
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

    /// Makes the next planned kill.
    async fn kill(&mut self, reporters: &mut Reporters) {
        let kill = self.kills.remove(0);
        match kill.victim {
            Victim::Worker { scenario } => self.kill_worker(scenario, reporters).await,
            Victim::Backend { index } => self.kill_backend(index).await,
        }
    }

    async fn kill_worker(&mut self, scenario: u16, reporters: &mut Reporters) {
        let Some(number) = self.worker_of.get(&scenario).copied() else { return };
        let Some(mut worker) = self.workers.remove(&number) else { return };
        let at_us = unix_now(&self.clock);
        if let Err(error) = worker.kill() {
            tracing::error!("failed to kill worker {number}: {error}");
        }
        // What it said before it died is in the pipe still; only then is it known what it may have taken with it.
        while let Some(news) = self.news.recv().await {
            match news {
                WorkerNews::Event { worker, event } => self.event(worker, event, reporters),
                WorkerNews::Gone { worker, .. } if worker == number => break,
                WorkerNews::Gone { worker, fault } => self.worker_gone(worker, fault),
            }
        }
        worker.join();
        if !self.heard.contains(&number) {
            // A kill that found nobody proves nothing, and must not look as if it did.
            tracing::error!("worker {number} had not begun when it was to be killed: kill it later, or run less beside it");
            self.workers_lost += 1;
        }
        for source in self.open.iter().copied().filter(|s| s.worker == number).collect::<Vec<_>>() {
            self.open.remove(&source);
            self.registry.shard_gone(global_shard(number, source.shard as usize));
        }
        self.ledger.worker_lost(number, at_us, true);
    }

    async fn kill_backend(&mut self, index: usize) {
        let Some(backend) = self.set.backends.get_mut(index) else { return };
        self.ledger.backend_killed(index, &backend.boot_id, unix_now(&self.clock));
        if let Err(error) = backend.kill().await {
            tracing::error!("failed to kill backend {index}: {error}");
        }
        self.dead = Some((index, Instant::now() + DEAD));
    }

    async fn revive(&mut self) {
        let Some((index, _)) = self.dead.take() else { return };
        let Some(backend) = self.set.backends.get_mut(index) else { return };
        if let Err(error) = backend.restart().await {
            tracing::error!("{error}");
            self.reasons.push(Exit::TargetUnusable);
            self.stopped_early.get_or_insert(error.to_string());
            self.stop(STOP_GRACE);
        }
    }

    fn second(&mut self, reporters: &mut Reporters) {
        let now = self.clock.now();
        if let Some(sampler) = &mut self.sampler {
            self.driver.track.add(now, sampler.own());
        }
        self.find_fallen();
        let live = self.ledger.live();
        self.give_up_if_hopeless(now, &live);
        if self.stopped_early.is_none()
            && let Some(result) = self
                .monitor
                .tick(&Measurements { registry: &self.registry, funnels: self.ledger.funnels() }, now < self.job.prepared.plan.stops_at())
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
            Now { at: now, stage, live: &live, before: &self.before, gauges: self.registry.gauges(), lag_p99_ms, cpu_cores },
        );
        complain(reporters.emit(Event::Tick(&tick)));
        self.before = live;
    }

    /// An embedded backend that ends by itself takes its counters along: there is nothing to wait for after the run.
    fn find_fallen(&mut self) {
        let restarting = self.dead.map(|(index, _)| index);
        for backend in self.set.backends.iter_mut().filter(|b| Some(b.index) != restarting) {
            if let Some(status) = backend.ended()
                && self.fallen.insert(backend.index)
            {
                tracing::error!("backend {} ended by itself: {status}; see its log", backend.index);
            }
        }
    }

    /// Nothing but failures from the start: there is nothing to test.
    fn give_up_if_hopeless(&mut self, now: Micros, live: &LiveView) {
        let total = live.funnels.total();
        let (sessions, after) = HOPELESS;
        let failed = total.sessions_failed();
        if self.stopped_early.is_none() && total.established == 0 && failed >= sessions && now - Micros::ZERO >= after {
            self.stopped_early = Some(format!("{failed} sessions failed and none was accepted"));
            self.reasons.push(Exit::TargetUnusable);
            self.stop(Duration::ZERO);
        }
    }

    fn signalled(&mut self) {
        if self.reasons.contains(&Exit::Interrupted) {
            // The second time: at once.
            if let Some(engine) = &self.engine {
                engine.abort();
            }
            for worker in self.workers.values_mut() {
                worker.tell(&WorkerCommand::Abort);
            }
            self.reasons.push(Exit::Interrupted);
            return;
        }
        self.reasons.push(Exit::Interrupted);
        self.stopped_early.get_or_insert_with(|| "interrupted".to_owned());
        self.kills.clear();
        self.stop(STOP_GRACE);
    }

    /// Interrupted twice.
    fn gave_up(&self) -> bool {
        self.reasons.iter().filter(|reason| **reason == Exit::Interrupted).count() > 1
    }

    /// What is left to agree with has had its settling time.
    fn all_fallen(&self, over_at: Micros) -> bool {
        !self.fallen.is_empty() && self.clock.now() > over_at + self.job.prepared.profile.counters.settle.0
    }

    fn stop(&mut self, grace: Duration) {
        let deadline = self.clock.now() + grace;
        if let Some(engine) = &self.engine {
            engine.stop(deadline);
        }
        for worker in self.workers.values_mut() {
            worker.tell(&WorkerCommand::Stop { deadline });
        }
    }

    /// Looks that were taken before the names were asked for.
    fn drain_poller(&mut self) {
        while let Ok(look) = self.poller.looks.try_recv() {
            self.look(look);
        }
    }

    fn close_engines(&mut self) {
        // Both channels are closed first: nobody waits for a reader that waits for them.
        self.events.close();
        self.news.close();
        if let Some(engine) = self.engine.take() {
            engine.join();
        }
        for (_, worker) in std::mem::take(&mut self.workers) {
            worker.join();
        }
    }

    /// The convergence of the counters as an interval of a shard of its own.
    pub(super) fn convergence_report(&mut self, over_at: Micros) -> IntervalReport {
        self.take_convergence();
        let to_us = self.clock.unix_us(over_at);
        IntervalReport {
            shard: usize::MAX,
            from_us: to_us,
            to_us,
            active: 0,
            speaking: 0,
            warmup: false,
            scenarios: self.convergence.take(),
        }
    }
}

/// Unique over all processes.
fn global_shard(worker: u32, shard: usize) -> usize {
    worker as usize * 65_536 + shard
}
