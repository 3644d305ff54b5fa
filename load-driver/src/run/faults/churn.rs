//! Connections that never become sessions: a backend must neither count them nor keep anything of them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

/// Connections under way at once; what does not fit is not opened.
const AT_ONCE: usize = 256;
/// A connection that does not come about by then is given up.
const CONNECT: Duration = Duration::from_secs(1);

/// Opens connections until it is dropped.
#[derive(Debug)]
pub(super) struct Churn {
    made: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl Churn {
    /// So many a second.
    pub(super) fn start(address: SocketAddr, rate: f64) -> Self {
        let made = Arc::new(AtomicU64::new(0));
        let mut task = JoinSet::new();
        task.spawn(run(address, rate, Arc::clone(&made)));
        Self { made, _task: task }
    }

    /// Connections that came about.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

async fn run(address: SocketAddr, rate: f64, made: Arc<AtomicU64>) {
    let mut ticks = interval(Duration::from_secs_f64((1.0 / rate).clamp(1e-4, 3_600.0)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut open = JoinSet::new();
    let mut number = 0_u64;
    loop {
        ticks.tick().await;
        while open.try_join_next().is_some() {}
        if open.len() >= AT_ONCE {
            continue;
        }
        number += 1;
        let made = Arc::clone(&made);
        open.spawn(async move {
            // A backend that refuses is no fault of the churn.
            if let Ok(Ok(stream)) = timeout(CONNECT, TcpStream::connect(address)).await {
                made.fetch_add(1, Ordering::Relaxed);
                leave(stream, number).await;
            }
        });
    }
}

/// Four ways to go without ever having been a session.
async fn leave(mut stream: TcpStream, number: u64) {
    match number % 4 {
        0 => drop(stream),
        1 => {
            // A reset instead of an orderly end; where the socket refuses, it is an orderly one.
            let _ = stream.set_zero_linger();
        }
        2 => {
            // Half a request.
            let _ = stream.write_all(b"GET /v1/realtime HTTP/1.1\r\nHost: churn\r\n").await;
        }
        _ => {
            // The preface of HTTP/2, and settings, and nothing after them.
            let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
        }
    }
}
