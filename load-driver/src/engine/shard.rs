//! The thread of a shard: one current-thread runtime, one tick, one task a session that only reads.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::HashMap,
    future::poll_fn,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use agent_server::runtime::{clock::Clock, ticker::Ticker};
use proto::frame::ServerEvent;
use tokio::{
    sync::mpsc::{Sender, error::TrySendError},
    task::LocalSet,
};

use super::{
    EngineEvent, EngineOptions,
    control::{Control, Order},
    core::{Core, Departure, Flow, Ticket, Ways},
    routes::Routes,
    targets::Targets,
};
use crate::{
    ledger::FailureCause,
    plan::{Plan, Protocol},
    profile::secrets_of,
    transport::{self, CLOSE_BOUND, Connector, Inbound, Net, Reasons, Received},
};

/// How long the silence of a finished shard lasts between two looks at its orders.
const IDLE: Duration = Duration::from_millis(10);

/// What a shard is started with.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) shard: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) options: EngineOptions,
    pub(super) net: Net,
    pub(super) targets: Arc<Targets>,
    pub(super) routes: Option<Arc<Routes>>,
    pub(super) clock: Clock,
    pub(super) control: Arc<Control>,
    pub(super) events: Sender<EngineEvent>,
}

/// Runs the shard to its end; what goes wrong in it is told, never swallowed.
pub(super) fn run(start: Start) {
    let events = start.events.clone();
    let shard = start.shard;
    let message = match catch_unwind(AssertUnwindSafe(|| enter(start))) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => format!("shard {shard} failed: {error}"),
        Err(panic) => format!("shard {shard} panicked: {}", text(panic.as_ref())),
    };
    // When nobody listens any more there is nobody to tell.
    let _ = events.blocking_send(EngineEvent::Fatal { message });
}

fn text(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown cause")
}

fn enter(start: Start) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, drive(start))
}

/// What the tasks of a shard share.
struct Shard {
    core: RefCell<Core>,
    net: Net,
    connectors: RefCell<HashMap<Protocol, Rc<dyn Connector>>>,
    reasons: Reasons,
    panicked: Cell<bool>,
}

pub(super) async fn drive(start: Start) -> io::Result<()> {
    let Start { shard, plan, options, net, targets, routes, clock, control, events } = start;
    let transport = options.transport;
    let reasons = Reasons::without(targets.given().iter().flat_map(|target| secrets_of(target)).collect());
    let shared = Rc::new(Shard {
        core: RefCell::new(Core::new(shard, plan, options, Ways { targets, routes, reasons: reasons.clone() }, clock)),
        net,
        connectors: RefCell::default(),
        reasons,
        panicked: Cell::new(false),
    });
    let mut ticker = Ticker::new(&clock)?;
    loop {
        ticker.tick().await?;
        if shared.panicked.get() {
            return Err(io::Error::other("a session's task panicked"));
        }
        let mut core = shared.core.borrow_mut();
        match control.order() {
            Order::Run => {}
            Order::Stop(deadline) => core.stop(deadline),
            Order::Abort | Order::Release => core.abort(),
        }
        core.enforce();
        core.tick();
        while let Some(departure) = core.depart() {
            let ticket = departure.ticket;
            let connector = shared.connector(departure.protocol, transport);
            let task = tokio::task::spawn_local(session(Rc::clone(&shared), Rc::clone(&core.tasks), departure, connector));
            core.attach(ticket, task.abort_handle());
        }
        if tell(&mut core, &shared.reasons, &events).is_err() {
            // The controller is gone: nobody wants the rest.
            core.abort();
        }
        if core.finished() {
            break;
        }
    }
    let core = &shared.core;
    settle(core, clock).await;
    send_all(core, &shared.reasons, &events, shard).await;
    while control.order() != Order::Release && !events.is_closed() {
        tokio::time::sleep(IDLE).await;
    }
    core.borrow_mut().release_held();
    Ok(())
}

impl Shard {
    fn connector(&self, protocol: Protocol, options: transport::TransportOptions) -> Rc<dyn Connector> {
        let mut connectors = self.connectors.borrow_mut();
        let connector = || transport::connector(protocol, self.net.clone(), options, self.reasons.clone());
        Rc::clone(connectors.entry(protocol).or_insert_with(|| connector().into()))
    }
}

/// Sends what is due, as far as there is room: what does not fit stays where it is and goes with the next.
fn tell(core: &mut Core, reasons: &Reasons, events: &Sender<EngineEvent>) -> Result<(), ()> {
    if reasons.any() {
        match events.try_reserve() {
            Ok(place) => place.send(EngineEvent::Said { reasons: reasons.take() }),
            Err(TrySendError::Full(())) => return Ok(()),
            Err(TrySendError::Closed(())) => return Err(()),
        }
    }
    while core.news_due() {
        match events.try_reserve() {
            Ok(place) => {
                if let Some(event) = core.take_news() {
                    place.send(event);
                }
            }
            Err(TrySendError::Full(())) => return Ok(()),
            Err(TrySendError::Closed(())) => return Err(()),
        }
    }
    for (due, take) in [
        (core.voice_due(), Core::take_voice as fn(&mut Core) -> EngineEvent),
        (core.ledger_due(), Core::take_ledger),
        (core.interval_due(), Core::take_interval as fn(&mut Core) -> EngineEvent),
    ] {
        if due {
            match events.try_reserve() {
                Ok(place) => place.send(take(core)),
                Err(TrySendError::Full(())) => return Ok(()),
                Err(TrySendError::Closed(())) => return Err(()),
            }
        }
    }
    Ok(())
}

/// Lets the closes under way finish; each is bounded, and so is this.
async fn settle(core: &RefCell<Core>, clock: Clock) {
    let until = clock.now() + CLOSE_BOUND + IDLE;
    while Rc::strong_count(&core.borrow().tasks) > 1 && clock.now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
        core.borrow_mut().idle();
    }
}

async fn send_all(core: &RefCell<Core>, reasons: &Reasons, events: &Sender<EngineEvent>, shard: usize) {
    let said = reasons.any().then(|| EngineEvent::Said { reasons: reasons.take() });
    let news: Vec<EngineEvent> = std::iter::from_fn(|| core.borrow_mut().take_news()).collect();
    let last = {
        let mut core = core.borrow_mut();
        [core.take_voice(), core.take_interval(), core.take_ledger(), EngineEvent::Done { shard }]
    };
    for event in said.into_iter().chain(news).chain(last) {
        // A controller that is gone does not want them.
        let _ = events.send(event).await;
    }
}

/// Says so when a session's task unwinds: its slot would stay for ever, and the run would be wrong.
struct Watch {
    shard: Rc<Shard>,
    /// Counts the task among those that are not over.
    _alive: Rc<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shard.panicked.set(true);
        }
    }
}

/// The task of one session: connects, then hands what comes in to the caller.
async fn session(shard: Rc<Shard>, alive: Rc<()>, departure: Departure, connector: Rc<dyn Connector>) {
    let watch = Watch { shard: Rc::clone(&shard), _alive: alive };
    let (ticket, backend, service) = (departure.ticket, departure.dial.backend, Arc::clone(&departure.dial.service));
    let stream = match connector.open(departure.dial).await {
        Ok(stream) => stream,
        Err(cause) => return shard.core.borrow_mut().closed(ticket, cause),
    };
    let mut inbound = stream.inbound;
    let ears = departure.ears;
    let mut flow = shard.core.borrow_mut().connected(ticket, stream.link, stream.fresh);
    while flow == Flow::Continue {
        let received = poll_fn(|cx| {
            if ears.as_ref().is_some_and(|ears| ears.closed(cx)) {
                inbound.poll_unread(cx);
                return Poll::Pending;
            }
            inbound.poll_next(cx)
        })
        .await;
        let mut core = shard.core.borrow_mut();
        if let Received::Event(ServerEvent::Error(error)) = &received {
            let cause = match (error.fatal, core.is_accepted(ticket)) {
                (true, true) => Some(FailureCause::ServerError(error.code)),
                (true, false) => Some(FailureCause::of_refusal(error)),
                (false, _) => None,
            };
            shard.reasons.note(cause, &service.connection, || error.message.clone());
        }
        flow = match received {
            Received::Event(event) => core.event(ticket, event),
            Received::Report(report) => core.hear(ticket, backend, &report),
            Received::Closed(cause) => {
                core.closed(ticket, cause);
                Flow::Stop
            }
        };
    }
    if flow == Flow::Drain {
        // A peer that does not finish is what the bound is for.
        let _ = tokio::time::timeout(CLOSE_BOUND, drain(inbound, &shard, ticket, backend)).await;
    }
    drop(watch);
}

/// Reads to the end. The trailers may hold a report.
async fn drain(mut inbound: Box<dyn Inbound>, shard: &Shard, ticket: Ticket, backend: usize) {
    loop {
        match poll_fn(|cx| inbound.poll_next(cx)).await {
            Received::Event(_) => {}
            Received::Report(report) => {
                shard.core.borrow().hear(ticket, backend, &report);
            }
            Received::Closed(_) => return,
        }
    }
}
