//! A run of a seed, its events, and what must hold at every look and at the end.

use std::{net::IpAddr, rc::Rc, time::Duration};

use load_driver::ledger::{Judgement, LedgerEvent, Verdict, Weather};
use turmoil::{Builder, Sim};

use super::{
    backend::{self, SharedHost, T0, boot_id},
    draw::{Draw, What},
    driver::{self, Driver, SharedDriver},
    net::Network,
};

/// Virtual time in which a run must be over.
const LONGEST: Duration = Duration::from_mins(3);
/// Between two looks into the backends.
const LOOK: Duration = Duration::from_millis(20);
/// What packets take at most once they take no longer than usual.
const STEADY: Duration = Duration::from_millis(5);
const DRIVER: &str = "driver";

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    pub verdict: Verdict,
    /// Of everything that happened.
    #[expect(dead_code, reason = "whoever replays a seed sees it")]
    pub digest: u64,
    pub sessions: usize,
    /// Virtual time.
    pub took: Duration,
    /// Connections dialled, segments, resets.
    pub counts: [u64; 3],
    /// Of the defects, by the backends themselves, those that were killed included.
    pub strikes: u64,
    /// Of those, in processes that are there in the end: nobody can see the counters of one that was killed.
    pub seen: u64,
}

struct World<'a> {
    sim: Sim<'a>,
    draw: Draw,
    network: Network,
    hosts: Vec<SharedHost>,
    addresses: Vec<IpAddr>,
    driver: SharedDriver,
    /// Counters are expected to be right.
    honest: bool,
    strikes: u64,
    /// A process was killed before anybody had read its counters: of it nothing can be proven.
    unseen: bool,
    /// Of each backend: the fault of the network that goes on, by its number, and whether it loses for good what is sent.
    weather: Vec<Option<(u16, bool)>>,
    faults: u16,
}

/// Runs a seed. An error is what was wrong.
pub fn run(draw: &Draw, honest: bool) -> Result<Ran, String> {
    let mut world = World::new(draw.clone(), honest);
    let mut events = draw.events.iter();
    let mut next = events.next();
    let mut look_at = Duration::ZERO;
    loop {
        while let Some(event) = next.filter(|event| event.at <= world.sim.elapsed()) {
            world.befall(event.backend, event.what);
            next = events.next();
        }
        let over = world.sim.step().map_err(|error| format!("the simulation failed: {error}"))?;
        if world.sim.elapsed() >= look_at {
            world.look()?;
            look_at = world.sim.elapsed() + LOOK;
        }
        if over {
            return world.end();
        }
    }
}

impl World<'_> {
    fn new(draw: Draw, honest: bool) -> Self {
        let mut sim = Builder::new()
            .rng_seed(draw.seed)
            .tick_duration(draw.tick)
            .min_message_latency(draw.latency.0)
            .max_message_latency(draw.latency.1.max(draw.latency.0))
            .simulation_duration(LONGEST)
            .tcp_capacity(1024)
            .build();
        let network = Network::new(draw.seed, draw.short);
        let config = backend::config(&draw.server);
        let hosts: Vec<SharedHost> = (0..draw.backends).map(|_| SharedHost::default()).collect();
        for (index, host) in hosts.iter().enumerate() {
            let (host, network, config, tick) = (Rc::clone(host), network.clone(), config.clone(), draw.tick);
            sim.host(name(index), move || backend::run(index, Rc::clone(&host), network.clone(), tick, config.clone()));
        }
        let addresses: Vec<IpAddr> = (0..draw.backends).map(|index| sim.lookup(name(index))).collect();
        let plan = driver::plan(&draw);
        let driver = Driver::new(&draw, &plan);
        sim.client(DRIVER, driver::run(draw.clone(), plan, Rc::clone(&driver), network.clone(), addresses.clone()));
        let weather = vec![None; hosts.len()];
        Self { sim, draw, network, hosts, addresses, driver, honest, strikes: 0, unseen: false, weather, faults: 0 }
    }

    fn befall(&mut self, index: usize, what: What) {
        let (sim, backend, address) = (&mut self.sim, name(index), self.addresses[index]);
        let backend = backend.as_str();
        self.network.trace((sim.elapsed(), index, what));
        // As the driver does it: first the book, then the fault.
        let at_us = T0 + sim.elapsed().as_micros() as u64;
        if let Some((number, lost)) = self.weather[index].take() {
            self.driver.borrow_mut().ledger.network_calm(index, number, at_us, lost);
        }
        if let Some((weather, lost)) = weather(what) {
            self.faults += 1;
            self.weather[index] = Some((self.faults, lost));
            self.driver.borrow_mut().ledger.network_fault(index, self.faults, at_us, weather);
        }
        match what {
            What::Hold => sim.hold(DRIVER, backend),
            What::Release => sim.release(DRIVER, backend),
            What::Partition => {
                sim.partition(DRIVER, backend);
                self.network.state().cut.insert(address);
            }
            What::PartitionTowards => {
                sim.partition_oneway(DRIVER, backend);
                self.network.state().cut.insert(address);
            }
            What::PartitionFrom => {
                sim.partition_oneway(backend, DRIVER);
                self.network.state().cut.insert(address);
            }
            What::Repair => {
                sim.repair(DRIVER, backend);
                self.network.state().cut.remove(&address);
            }
            What::Slow(ms) => {
                let slow = Duration::from_millis(ms).max(self.draw.latency.0);
                sim.set_link_max_message_latency(DRIVER, backend, slow);
            }
            What::Steady => sim.set_link_max_message_latency(DRIVER, backend, STEADY.max(self.draw.latency.0)),
            What::Kill | What::PowerOff => {
                let boot = boot_id(index, self.hosts[index].borrow().boots);
                let mut driver = self.driver.borrow_mut();
                self.unseen |= !driver.seen.contains(&boot);
                driver.ledger.backend_killed(index, &boot, at_us);
                drop(driver);
                if what == What::PowerOff {
                    sim.partition(DRIVER, backend);
                    self.network.state().cut.insert(address);
                }
                self.count_strikes(index);
                self.hosts[index].borrow_mut().process = None;
                self.sim.crash(backend);
                self.network.state().down.insert(address);
            }
            What::Start => {
                sim.repair(DRIVER, backend);
                sim.bounce(backend);
                let mut state = self.network.state();
                state.cut.remove(&address);
                state.down.remove(&address);
            }
            What::Drain => {
                if let Some(process) = &self.hosts[index].borrow().process {
                    process.shared.drain_asked.cancel();
                }
            }
        }
    }

    fn count_strikes(&mut self, index: usize) {
        if let Some(process) = &self.hosts[index].borrow().process {
            self.strikes += process.shared.defects.strikes().values().sum::<u64>();
        }
    }

    /// What holds at every moment.
    fn look(&self) -> Result<(), String> {
        if !self.honest {
            return Ok(());
        }
        for (index, host) in self.hosts.iter().enumerate() {
            if let Some(process) = &host.borrow().process {
                process.check().map_err(|wrong| format!("backend {index} at {:?}: {wrong}", self.sim.elapsed()))?;
            }
        }
        Ok(())
    }

    /// What holds in the end.
    fn end(mut self) -> Result<Ran, String> {
        let before = self.strikes;
        for index in 0..self.hosts.len() {
            self.count_strikes(index);
        }
        let seen = self.strikes - before;
        let mut driver = self.driver.borrow_mut();
        let verdict = driver.verdict.take().ok_or("the driver is over and has no verdict")?;
        for (index, events) in &driver.sessions {
            ended_once(events).map_err(|wrong| format!("session {index} {wrong}: {events:?}"))?;
        }
        if !verdict.irregular.is_empty() {
            return Err(format!("irregular: {:?}", verdict.irregular));
        }
        if self.honest {
            // Of a process that counted nothing it is not proven that it should have, where its sessions were accepted by the driver's word alone.
            let nothing =
                |host: &SharedHost| host.borrow().process.as_ref().is_some_and(|process| process.shared.sessions.snapshot().started == 0);
            let unproven = self.unseen || verdict.in_doubt.total > 0 && self.hosts.iter().any(nothing);
            let proven = verdict.judgement == Judgement::Agree || (verdict.judgement == Judgement::Unverified && unproven);
            if !proven {
                let blamed: Vec<_> = driver.sessions.iter().filter(|(_, events)| is_blamed(&verdict, events)).collect();
                return Err(format!("a false alarm: {:?} {:#?} {:?}\n{blamed:#?}", verdict.judgement, verdict.findings, verdict.notes));
            }
            for (index, host) in self.hosts.iter().enumerate() {
                let Some(process) = &host.borrow().process else { continue };
                let cut = process.check()?;
                let (live, streams, listed) = (process.live(), process.streams(), process.shared.sessions.listed());
                if (cut.active, live, streams, listed) != (0, 0, 0, 0) {
                    return Err(format!("backend {index} holds {live} sessions, {streams} streams, lists {listed}: {cut:?}"));
                }
            }
        }
        let (digest, counts) = (self.network.digest(), self.network.state().counts);
        let sessions = driver.sessions.len();
        Ok(Ran { verdict, digest, sessions, took: self.sim.elapsed(), counts, strikes: self.strikes, seen })
    }
}

fn name(backend: usize) -> String {
    format!("backend-{backend}")
}

/// What the driver, who makes the fault, tells the ledger of it, and whether what is sent is lost for good.
fn weather(what: What) -> Option<(Weather, bool)> {
    match what {
        What::Hold => Some((Weather::Lost, false)),
        What::Partition | What::PartitionTowards | What::PartitionFrom => Some((Weather::Lost, true)),
        What::Slow(ms) => Some((Weather::Late(2 * 1_000 * ms), false)),
        What::Release | What::Repair | What::Steady | What::Kill | What::PowerOff | What::Start | What::Drain => None,
    }
}

/// One of the findings names the session.
fn is_blamed(verdict: &Verdict, events: &[(u64, LedgerEvent)]) -> bool {
    let ids: Vec<&String> = verdict.findings.iter().flat_map(|finding| &finding.session_ids).collect();
    events.iter().any(|(_, event)| match event {
        LedgerEvent::Scheduled { client_ref, .. } => ids.contains(&client_ref),
        LedgerEvent::Accepted { session_id, .. } => ids.contains(&session_id),
        _ => false,
    })
}

/// Every caller ends once, in order.
fn ended_once(events: &[(u64, LedgerEvent)]) -> Result<(), &'static str> {
    if !matches!(events.first(), Some((_, LedgerEvent::Scheduled { .. }))) {
        return Err("began before it was scheduled");
    }
    let count = |is: fn(&LedgerEvent) -> bool| events.iter().filter(|(_, event)| is(event)).count();
    let accepted = count(|event| matches!(event, LedgerEvent::Accepted { .. }));
    if count(|event| matches!(event, LedgerEvent::Ended { .. } | LedgerEvent::Failed { .. })) != 1 {
        return Err("did not end once");
    }
    match events.last().map(|(_, event)| event) {
        Some(LedgerEvent::Ended { .. }) if accepted == 1 => Ok(()),
        Some(LedgerEvent::Failed { .. }) if accepted == 0 => Ok(()),
        _ => Err("did not end as it lived"),
    }
}
