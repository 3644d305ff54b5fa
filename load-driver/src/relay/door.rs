//! An address of the relay: it takes connections while somebody listens at the backend, and refuses them while nobody does.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Entered, Hub,
    pump::{self, Shared},
};

/// Connections that may wait to be taken.
const BACKLOG: i32 = 4_096;
/// How often a backend that refused is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// After an error of the listener itself: there may be descriptors again.
const BREATH: Duration = Duration::from_millis(20);

/// A port that stays this relay's while nobody listens on it.
#[derive(Debug)]
pub(super) struct Door {
    address: SocketAddr,
    _held: Socket,
}

impl Door {
    pub(super) fn new() -> io::Result<Self> {
        let held = socket()?;
        held.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = held.local_addr()?.as_socket().ok_or_else(|| io::Error::other("a socket without an address"))?;
        Ok(Self { address, _held: held })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn listen(&self) -> io::Result<StdListener> {
        let socket = socket()?;
        socket.set_nonblocking(true)?;
        socket.bind(&self.address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    }
}

fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    Ok(socket)
}

/// Whether a door is to be shut, and whether it is.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) shut: watch::Sender<bool>,
    pub(super) closed: watch::Sender<bool>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { shut: watch::Sender::new(false), closed: watch::Sender::new(false) }
    }
}

/// Which backend a door leads to.
pub(super) struct At {
    pub(super) backend: usize,
    pub(super) upstream: SocketAddr,
    /// The port can be closed and opened again: this thread is where the port is.
    pub(super) reopens: bool,
    pub(super) hub: Arc<Mutex<Hub>>,
    pub(super) shared: Rc<Shared>,
    pub(super) gate: Arc<Gate>,
}

/// Takes connections until it is dropped, and what it took with it.
pub(super) async fn serve(door: Door, first: StdListener, at: At) {
    let mut connections = JoinSet::new();
    let mut listener = Some(first);
    loop {
        let opened = match listener.take() {
            Some(listener) => Ok(listener),
            None => door.listen(),
        };
        match opened.and_then(TcpListener::from_std) {
            Ok(listener) => {
                at.gate.closed.send_replace(false);
                accept(&listener, &at, &mut connections).await;
            }
            Err(error) => {
                tracing::error!("the relay cannot listen at {}: {error}", door.address);
                sleep(BREATH).await;
                continue;
            }
        }
        // The listener is closed: who dials is refused, as the backend refuses.
        at.gate.closed.send_replace(true);
        if at.gate.shut.subscribe().wait_for(|shut| !shut).await.is_err() {
            return;
        }
        while !matches!(timeout(at.shared.connect_timeout, TcpStream::connect(at.upstream)).await, Ok(Ok(_))) {
            sleep(LOOK).await;
        }
    }
}

/// Until the backend refuses.
async fn accept(listener: &TcpListener, at: &At, connections: &mut JoinSet<()>) {
    let refused = Rc::new(Notify::new());
    let mut shut = at.gate.shut.subscribe();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = refused.notified(), if at.reopens => return,
            _ = shut.wait_for(|shut| *shut) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (number, orders) = at.hub.lock().enter(at.backend);
                let entered = Entered { hub: Arc::clone(&at.hub), number };
                let connection = pump::connection(Rc::clone(&at.shared), number, stream, at.upstream, orders, Rc::clone(&refused));
                connections.spawn_local(async move {
                    let _entered = entered;
                    connection.await;
                });
            }
            Err(error) => {
                tracing::error!("the relay cannot take a connection: {error}");
                sleep(BREATH).await;
            }
        }
    }
}
