//! A balancer of the test's own: each connection goes to the next backend.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Ends, with every connection, when it is dropped.
pub struct Front {
    pub address: SocketAddr,
    stopped: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    listener: Option<thread::JoinHandle<()>>,
}

impl Front {
    /// Before these, in turn. A connection that says nothing (a look whether anybody listens) costs no turn.
    pub fn before(backends: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("bound");
        let (stopped, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let turn = Arc::new(Mutex::new(backends.into_iter().cycle()));
        let (over, all) = (Arc::clone(&stopped), Arc::clone(&open));
        let accept = move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let mut kept = all.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(client.try_clone().expect("cloned"));
                drop(kept);
                let (turn, all) = (Arc::clone(&turn), Arc::clone(&all));
                thread::spawn(move || {
                    if !matches!(client.peek(&mut [0]), Ok(1..)) {
                        return;
                    }
                    let next = turn.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(Ok(backend)) = next.map(TcpStream::connect) else { return };
                    all.lock().unwrap_or_else(PoisonError::into_inner).push(backend.try_clone().expect("cloned"));
                    join(client, backend);
                });
            }
        };
        Self { address, stopped, open, listener: Some(thread::spawn(accept)) }
    }
}

/// Carries both directions until one is over, then ends both.
fn join(client: TcpStream, backend: TcpStream) {
    let (from_backend, to_client) = (backend.try_clone().expect("cloned"), client.try_clone().expect("cloned"));
    let answers = thread::spawn(move || carry(from_backend, to_client));
    carry(client, backend);
    answers.join().ok();
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    io::copy(&mut from, &mut to).ok();
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            stream.shutdown(Shutdown::Both).ok();
        }
        // Wakes it up.
        TcpStream::connect(self.address).ok();
        if let Some(listener) = self.listener.take() {
            listener.join().ok();
        }
    }
}
