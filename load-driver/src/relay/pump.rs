//! One connection through the relay: what comes from one side goes to the other, by way of a lane for each direction.

use std::{
    cell::{Cell, RefCell},
    io,
    net::{Shutdown, SocketAddr},
    pin::pin,
    rc::Rc,
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use socket2::SockRef;
use tokio::{
    io::Interest,
    net::TcpStream,
    sync::{Notify, watch},
    time::{sleep_until, timeout},
};

use super::{
    Orders,
    lane::{Due, Lane},
};

/// Of the kernel's buffers on either side: what a slow reader leaves lying must stay with the sender, not here.
const SOCKET_BUFFER: usize = 64 * 1024;

/// What all connections of a relay share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) connect_timeout: Duration,
    /// What was read and is not written yet, within one step; nothing waits in it.
    pub(super) scratch: RefCell<Vec<u8>>,
}

/// How a direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// In order.
    Fin,
    /// The connection is to be reset on both sides.
    Rst,
    /// The receiver is gone; the other direction tells.
    Broken,
}

/// One accepted connection from beginning to end. `refused` is told when nobody listens at the backend.
pub(super) async fn connection(
    shared: Rc<Shared>,
    number: u64,
    driver: TcpStream,
    upstream: SocketAddr,
    orders: watch::Receiver<Orders>,
    refused: Rc<Notify>,
) {
    prepare(&driver);
    let vanishes = orders.borrow().vanishes();
    if vanishes {
        // The dial itself is swallowed: the backend never hears of it.
        let alone = Direction::new(&shared, number, &driver, &driver, orders);
        alone.pump(&Cell::new(false), &Cell::new(false)).await;
        return reset(&driver);
    }
    let backend = match timeout(shared.connect_timeout, TcpStream::connect(upstream)).await {
        Ok(Ok(backend)) => backend,
        other => {
            if let Ok(Err(error)) = other {
                tracing::debug!("connection {number} to {upstream}: {error}");
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    refused.notify_one();
                }
            }
            return reset(&driver);
        }
    };
    prepare(&backend);
    let (driver_gone, backend_gone) = (Cell::new(false), Cell::new(false));
    let up = Direction::new(&shared, number * 2, &driver, &backend, orders.clone());
    let down = Direction::new(&shared, number * 2 + 1, &backend, &driver, orders);
    let mut up = pin!(up.pump(&driver_gone, &backend_gone));
    let mut down = pin!(down.pump(&backend_gone, &driver_gone));
    let (first, of_up) = tokio::select! {
        ended = &mut up => (ended, true),
        ended = &mut down => (ended, false),
    };
    let second = match first {
        Ended::Rst => Ended::Rst,
        Ended::Fin | Ended::Broken if of_up => down.await,
        Ended::Fin | Ended::Broken => up.await,
    };
    if [first, second] != [Ended::Fin; 2] {
        reset(&driver);
        reset(&backend);
    }
}

/// A socket that cannot be set is as good as it is.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
}

/// The close that follows is a reset. Failure means that the socket is dead already.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// One direction.
struct Direction<'a> {
    shared: &'a Shared,
    from: &'a TcpStream,
    to: &'a TcpStream,
    orders: watch::Receiver<Orders>,
    lane: Lane,
    /// More may come.
    reads: bool,
    /// The orders have not been read yet.
    news: bool,
}

/// What to wait for.
enum Wait {
    /// The sender, or a new order.
    Sender,
    /// The receiver takes nothing just now.
    Receiver,
    /// What waits may pass then.
    Until(std::time::Instant),
}

impl<'a> Direction<'a> {
    fn new(shared: &'a Shared, seed: u64, from: &'a TcpStream, to: &'a TcpStream, orders: watch::Receiver<Orders>) -> Self {
        Self { shared, from, to, orders, lane: Lane::new(seed), reads: true, news: true }
    }

    /// Until there is nothing more to pass. `gone`: the other direction found the sender, or this one the receiver, gone.
    async fn pump(mut self, sender_gone: &Cell<bool>, receiver_gone: &Cell<bool>) -> Ended {
        let mut readable = false;
        loop {
            if self.obey() {
                return Ended::Rst;
            }
            // Only now: what was sent after a fault had begun is struck by it.
            if std::mem::take(&mut readable) && self.read(sender_gone, receiver_gone) {
                return Ended::Broken;
            }
            let wait = match self.write(receiver_gone) {
                Ok(wait) => wait,
                Err(ended) => return ended,
            };
            let reads = self.reads && self.lane.has_room();
            // A sender that is reset is not heard of while nobody reads from it. Where a fault holds what it sent, the reset waits as well.
            let listens = self.reads && !reads && !self.orders.borrow().impaired();
            let (blocked, until) = match wait {
                Wait::Sender => (false, None),
                Wait::Receiver => (true, None),
                Wait::Until(at) => (false, Some(at)),
            };
            let asleep = async move {
                match until {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.orders.changed() => match changed {
                    Ok(()) => self.news = true,
                    // The relay is over.
                    Err(_) => return Ended::Rst,
                },
                _ = self.from.readable(), if reads => readable = true,
                _ = self.from.ready(Interest::ERROR), if listens => return Ended::Rst,
                _ = self.to.writable(), if blocked => {}
                () = asleep, if until.is_some() => {}
            }
        }
    }

    /// Takes new orders; true: to cut.
    fn obey(&mut self) -> bool {
        if !std::mem::take(&mut self.news) && !self.orders.has_changed().unwrap_or(false) {
            return false;
        }
        let orders = self.orders.borrow_and_update();
        if !orders.faults.is_empty() || !self.lane.is_clear() {
            self.lane.obey(self.shared.clock.now(), &orders.faults);
        }
        orders.cut
    }

    /// Passes what is due.
    fn write(&mut self, receiver_gone: &Cell<bool>) -> Result<Wait, Ended> {
        if self.lane.is_clear() {
            return Ok(Wait::Sender);
        }
        loop {
            let passed = match self.lane.due(self.shared.clock.now()) {
                Due::Nothing | Due::Held => return Ok(Wait::Sender),
                Due::At(at) => return Ok(Wait::Until(self.shared.clock.instant(at))),
                Due::Rst => return Err(Ended::Rst),
                Due::Fin => {
                    // A receiver that is gone needs no word of it.
                    let _ = SockRef::from(self.to).shutdown(Shutdown::Write);
                    return Err(Ended::Fin);
                }
                Due::Bytes(bytes) => self.to.try_write(bytes),
            };
            match passed {
                Ok(bytes) => self.lane.passed(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Wait::Receiver),
                Err(_) => {
                    receiver_gone.set(true);
                    return Err(Ended::Broken);
                }
            }
        }
    }

    /// Reads once, and passes it on at once where nothing is in the way. True: the receiver is gone.
    fn read(&mut self, sender_gone: &Cell<bool>, receiver_gone: &Cell<bool>) -> bool {
        let mut scratch = self.shared.scratch.borrow_mut();
        let read = self.from.try_read(&mut scratch);
        match read {
            Ok(0) => self.end(sender_gone.get()),
            Ok(bytes) => {
                let mut bytes = scratch.get(..bytes).unwrap_or_default();
                if self.lane.is_clear() {
                    match self.to.try_write(bytes) {
                        Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(_) => {
                            receiver_gone.set(true);
                            return true;
                        }
                    }
                }
                if !bytes.is_empty() {
                    self.lane.accept(self.shared.clock.now(), bytes);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.end(true),
        }
        false
    }

    fn end(&mut self, broken: bool) {
        self.reads = false;
        let now = self.shared.clock.now();
        if broken { self.lane.reset(now) } else { self.lane.finish(now) }
    }
}
