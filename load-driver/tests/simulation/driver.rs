//! The driver on its host: the engine's own shard and transports, the sources of counters, the ledger.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use load_driver::{
    counters::{AgentServerSource, CounterSample, CounterSource, Observation},
    engine::{Engine, EngineEvent, EngineOptions, Targets},
    ledger::{BackendConfig, Ledger, LedgerConfig, LedgerEvent, SourceId, Verdict, Windows},
    plan::{EndKind, Plan},
    profile::{Source, open_text},
    transport::{Net, TransportOptions},
};
use proto::time::Micros;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::{
    backend::{ADMIN, SESSIONS, T0, clock},
    draw::Draw,
    net::Network,
};

const SOURCE: SourceId = SourceId { worker: 0, shard: 0 };
const RUN: &str = "cafe0001";
/// For the first look at a backend, and every later one.
const LOOK: Duration = Duration::from_secs(2);

/// What came of the run, for those who look on.
#[derive(Debug)]
pub struct Driver {
    pub ledger: Ledger,
    pub sessions: BTreeMap<u64, Vec<(u64, LedgerEvent)>>,
    /// All sessions are over, as the engine says.
    pub over: bool,
    pub verdict: Option<Verdict>,
    /// Processes whose counters were read.
    pub seen: BTreeSet<String>,
}

pub type SharedDriver = Rc<RefCell<Driver>>;

pub fn plan(draw: &Draw) -> Arc<Plan> {
    let loaded = open_text(&Source::File("simulation.yaml".into()), "simulation.yaml", &draw.profile, &[]);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}\n{}", draw.profile));
    Arc::new(Plan::build(&loaded.profile, RUN).expect("a plan"))
}

impl Driver {
    pub fn new(draw: &Draw, plan: &Plan) -> SharedDriver {
        let backends = vec![BackendConfig { watched: true, fresh: true }; draw.backends];
        // What a backend notices late: a loss by its pings, everything else as late as the network lets it.
        let window = (draw.keepalive * 2 + draw.outage * 2 + draw.latency.1 * 4 + Duration::from_secs(3)).as_micros() as u64;
        let mut windows = Windows::default();
        for kind in EndKind::ALL {
            windows = windows.with(kind, window);
        }
        let config = LedgerConfig {
            windows,
            start_at_upgrade: plan.scenarios.iter().map(|scenario| scenario.service.dialect.starts_at_upgrade()).collect(),
            // The driver learns of a loss that it does not cause when it says something, or at the planned end.
            early_us: (draw.longest_session + draw.outage * 2).as_micros() as u64,
            grace_us: (draw.outage + draw.latency.1 * 4 + Duration::from_secs(2)).as_micros() as u64,
            dialects: plan.scenarios.iter().map(|scenario| scenario.service.dialect).collect(),
            settle_us: 3_000_000,
            poll_interval_us: draw.poll.as_micros() as u64,
            ..LedgerConfig::new(RUN, T0, backends)
        };
        Rc::new(RefCell::new(Self {
            ledger: Ledger::new(config),
            sessions: BTreeMap::new(),
            over: false,
            verdict: None,
            seen: BTreeSet::new(),
        }))
    }

    fn hear(&mut self, event: EngineEvent, network: &Network) {
        match event {
            EngineEvent::Ledger { entries, complete_to_us, .. } => {
                for entry in &entries {
                    network.trace(format!("{entry:?}"));
                    self.sessions.entry(entry.index.0).or_default().push((entry.at_us - T0, entry.event.clone()));
                }
                self.ledger.entries(SOURCE, entries, complete_to_us);
            }
            EngineEvent::Done { .. } => {
                self.over = true;
                self.ledger.source_done(SOURCE);
            }
            EngineEvent::Fatal { message } => panic!("{message}"),
            EngineEvent::Ready
            | EngineEvent::Interval(_)
            | EngineEvent::Said { .. }
            | EngineEvent::Struck { .. }
            | EngineEvent::Storm { .. }
            | EngineEvent::StoodStill { .. }
            | EngineEvent::Voice(_) => {}
        }
    }

    fn look(&mut self, (backend, at_us, look): Look, network: &Network) {
        match look {
            Ok(sample) => {
                let cut = &sample.snapshot;
                network.trace((backend, sample.asked_at_us, sample.answered_at_us, cut.started, cut.active, cut.next_end));
                self.seen.insert(cut.boot_id.clone());
                self.ledger.sample(sample);
            }
            Err(why) => {
                network.trace((backend, at_us, why.as_str()));
                self.ledger.gap(backend, at_us, why);
            }
        }
    }
}

type Look = (usize, u64, Result<CounterSample, String>);

/// The driver's program, to the verdict.
pub async fn run(draw: Draw, plan: Arc<Plan>, driver: SharedDriver, network: Network, hosts: Vec<IpAddr>) -> turmoil::Result {
    let clock = clock(draw.tick);
    let net = Net::Simulated(Arc::new(network.clone()));
    let (looks_in, mut looks) = mpsc::channel(64);
    driver.borrow_mut().ledger.open(SOURCE, clock.unix_us(Micros::ZERO));
    for (backend, host) in hosts.iter().enumerate() {
        let admin = SocketAddr::new(*host, ADMIN);
        let mut source = AgentServerSource::new(backend, admin, clock, LOOK).over(net.clone());
        let out = looks_in.clone();
        let mut ticks = interval(draw.poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::task::spawn_local(async move {
            loop {
                ticks.tick().await;
                let look = match source.poll(true).await {
                    Ok(Observation::Snapshot(sample)) => Ok(*sample),
                    Ok(Observation::Totals(sums)) => panic!("sums of a backend that names its sessions: {sums:?}"),
                    Err(error) => Err(error.to_string()),
                };
                if out.send((backend, clock.unix_us(clock.now()), look)).await.is_err() {
                    return;
                }
            }
        });
    }
    let names: Vec<String> = hosts.iter().map(|host| format!("{host}:{SESSIONS}")).collect();
    let targets = Arc::new(Targets::resolve(&names).expect("addresses"));
    let options = EngineOptions {
        transport: TransportOptions { connections: 1, connect_timeout: Duration::from_secs(3), ..TransportOptions::default() },
        ..EngineOptions::default()
    };
    let (events_in, mut events) = mpsc::channel(64);
    tokio::task::spawn_local(Engine::simulate(plan, options, net, targets, clock, events_in));
    loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => driver.borrow_mut().hear(event, &network),
            Some(look) = looks.recv() => {
                let mut driver = driver.borrow_mut();
                driver.look(look, &network);
                if driver.over && driver.ledger.settled(clock.unix_us(clock.now())) {
                    let verdict = driver.ledger.verdict();
                    driver.verdict = Some(verdict);
                    return Ok(());
                }
            }
        }
    }
}
