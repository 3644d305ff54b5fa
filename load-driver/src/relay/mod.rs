//! A relay between the driver and the backends, on a thread of its own, that can be told to impair what goes through it.
//!
//! Each target gets an address here. A connection that comes to it is one to the backend, byte for byte: the end of one direction is passed on as such, a reset as a
//! reset, and a receiver that takes nothing makes the sender wait. What a fault does to the bytes, [`lane`] says; it is pure.
//!
//! It is plain TCP, so that TLS goes through it untouched. Who dials is told of a backend that refuses as well as a relay can: the kernel has
//! taken the connection before the backend is asked, so the dial that finds out is reset, and then the address refuses until somebody listens at the backend again. Of
//! a backend that the run itself kills it is told before.

mod door;
pub mod lane;
mod pump;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    net::SocketAddr,
    os::fd::AsFd,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use parking_lot::Mutex;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::{
    runtime::Builder,
    sync::{oneshot, watch},
    task::{JoinSet, LocalSet},
    time::timeout,
};

use self::{
    door::{Door, Gate},
    lane::Active,
    pump::Shared,
};
use crate::plan::{Fault, FaultKind};

/// Read in one step.
const SCRATCH: usize = 64 * 1024;

/// A door that is not shut by then is shut when the relay's thread gets to it.
const SHUT: Duration = Duration::from_secs(1);

/// How a relay works.
#[derive(Debug)]
pub struct RelayOptions {
    /// Of the choice of whom a fault strikes.
    pub seed: u64,
    /// A backend that has not taken a connection by then has none.
    pub connect_timeout: Duration,
    /// The backends are in this network namespace; the addresses of the relay are where it was started.
    pub namespace: Option<File>,
}

/// What a connection is told.
#[derive(Debug, Clone, Default, PartialEq)]
struct Orders {
    /// Faults that it is struck by.
    faults: Vec<Active>,
    /// It is to be reset.
    cut: bool,
}

impl Orders {
    fn impaired(&self) -> bool {
        !self.faults.is_empty()
    }

    fn vanishes(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::Blackhole)
    }
}

/// A fault under way.
#[derive(Debug)]
struct Lasting {
    fault: Fault,
    active: Active,
    /// Connections that came during it and are struck.
    later: u64,
    /// Whose connections were struck so far.
    backends: BTreeSet<usize>,
}

#[derive(Debug)]
struct Open {
    backend: usize,
    orders: watch::Sender<Orders>,
}

/// Connections and faults.
#[derive(Debug)]
struct Hub {
    seed: u64,
    clock: Clock,
    lasting: Vec<Lasting>,
    open: BTreeMap<u64, Open>,
    next: u64,
}

fn strikes(fault: &Fault, seed: u64, number: u64, backend: usize) -> bool {
    fault.target.backend.is_none_or(|one| one == backend) && fault.strikes(seed, number)
}

impl Hub {
    /// A connection came: its number, and what it is told.
    fn enter(&mut self, backend: usize) -> (u64, watch::Receiver<Orders>) {
        let number = self.next;
        self.next += 1;
        let mut orders = Orders::default();
        for lasting in &mut self.lasting {
            if strikes(&lasting.fault, self.seed, number, backend) {
                lasting.later += 1;
                lasting.backends.insert(backend);
                orders.faults.push(lasting.active);
            }
        }
        let (orders, receiver) = watch::channel(orders);
        self.open.insert(number, Open { backend, orders });
        (number, receiver)
    }

    fn begin(&mut self, fault: &Fault) -> u64 {
        let active = Active { number: fault.number, kind: fault.kind, since: self.clock.now() };
        let mut struck = 0;
        let mut backends = BTreeSet::new();
        for (number, open) in &self.open {
            if !strikes(fault, self.seed, *number, open.backend) {
                continue;
            }
            struck += 1;
            backends.insert(open.backend);
            open.orders.send_modify(|orders| match fault.kind {
                FaultKind::Reset => orders.cut = true,
                _ => orders.faults.push(active),
            });
        }
        if fault.kind != FaultKind::Reset {
            self.lasting.push(Lasting { fault: fault.clone(), active, later: 0, backends });
        }
        struck
    }

    fn end(&mut self, number: u16) -> u64 {
        let Some(at) = self.lasting.iter().position(|lasting| lasting.fault.number == number) else { return 0 };
        let over = self.lasting.remove(at);
        for open in self.open.values() {
            open.orders.send_if_modified(|orders| {
                let before = orders.faults.len();
                orders.faults.retain(|active| active.number != number);
                let struck = orders.faults.len() < before;
                // What was lost cannot be made good.
                orders.cut |= struck && over.fault.kind == FaultKind::Blackhole;
                struck
            });
        }
        over.later
    }
}

/// Takes its connection from the list when it is over.
struct Entered {
    hub: Arc<Mutex<Hub>>,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.hub.lock().open.remove(&self.number);
    }
}

/// A running relay. Dropping it resets what still goes through it.
#[derive(Debug)]
pub struct Relay {
    addresses: Vec<SocketAddr>,
    hub: Arc<Mutex<Hub>>,
    gates: Vec<Arc<Gate>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// In front of these backends, on free loopback ports in the same order.
    pub fn start(backends: &[SocketAddr], options: RelayOptions) -> io::Result<Self> {
        let clock = Clock::start();
        let hub = Arc::new(Mutex::new(Hub { seed: options.seed, clock, lasting: Vec::new(), open: BTreeMap::new(), next: 0 }));
        let doors = backends.iter().map(|_| Door::new()).collect::<io::Result<Vec<_>>>()?;
        let addresses = doors.iter().map(Door::address).collect();
        // Made here: in another namespace they would be there.
        let first = doors.iter().map(Door::listen).collect::<io::Result<Vec<_>>>()?;
        let gates: Vec<Arc<Gate>> = doors.iter().map(|_| Arc::new(Gate::new())).collect();
        let work: Vec<_> = doors.into_iter().zip(first).zip(backends.iter().copied()).zip(gates.clone()).collect();
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let (theirs, own) = (Arc::clone(&hub), clock);
        let life = move || {
            let runtime = match enter(options.namespace.as_ref()).and_then(|()| Builder::new_current_thread().enable_all().build()) {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            // Whoever starts it waits for this.
            let _ = ready.send(Ok(()));
            let shared = Shared { clock: own, connect_timeout: options.connect_timeout, scratch: RefCell::new(vec![0; SCRATCH]) };
            let reopens = options.namespace.is_none();
            let serve = async move {
                let shared = std::rc::Rc::new(shared);
                let mut tasks = JoinSet::new();
                for (backend, (((door, listener), upstream), gate)) in work.into_iter().enumerate() {
                    let at = door::At { backend, upstream, reopens, hub: Arc::clone(&theirs), shared: std::rc::Rc::clone(&shared), gate };
                    tasks.spawn_local(door::serve(door, listener, at));
                }
                // The other end is dropped, or the whole relay.
                let _ = stopped.await;
            };
            LocalSet::new().block_on(&runtime, serve);
        };
        let thread = thread::Builder::new().name("relay".to_owned()).spawn(life)?;
        let mut relay = Self { addresses, hub, gates, stop: Some(stop), thread: Some(thread) };
        match started.recv() {
            Ok(Ok(())) => Ok(relay),
            Ok(Err(error)) => {
                relay.join();
                Err(error)
            }
            Err(_) => Err(io::Error::other("the relay's thread ended before it began")),
        }
    }

    /// Where each backend is reached through it.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Begins a fault. Gives back how many connections it struck; those that come later are struck by the same share.
    pub fn begin(&self, fault: &Fault) -> u64 {
        self.hub.lock().begin(fault)
    }

    /// Ends a fault. Gives back how many connections it struck after its begin.
    pub fn end(&self, number: u16) -> u64 {
        self.hub.lock().end(number)
    }

    /// The backends of which a fault under way has struck a connection by now.
    pub fn struck(&self, number: u16) -> BTreeSet<usize> {
        let hub = self.hub.lock();
        hub.lasting.iter().find(|lasting| lasting.fault.number == number).map(|lasting| lasting.backends.clone()).unwrap_or_default()
    }

    /// From here on who dials this backend is refused, until [`Self::open`]: it is about to be killed. What stands is left alone.
    pub async fn shut(&self, backend: usize) {
        let Some(gate) = self.gates.get(backend) else { return };
        gate.shut.send_replace(true);
        let mut closed = gate.closed.subscribe();
        if timeout(SHUT, closed.wait_for(|closed| *closed)).await.is_err() {
            tracing::error!("the relay was slow to refuse connections to backend {backend}");
        }
    }

    /// The backend listens again.
    pub fn open(&self, backend: usize) {
        if let Some(gate) = self.gates.get(backend) {
            gate.shut.send_replace(false);
        }
    }

    /// Connections that go through it now.
    pub fn connections(&self) -> usize {
        self.hub.lock().open.len()
    }

    fn join(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.join();
    }
}

/// This thread, and nobody else, dials in the namespace from here on.
fn enter(namespace: Option<&File>) -> io::Result<()> {
    match namespace {
        None => Ok(()),
        Some(file) => Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?),
    }
}
