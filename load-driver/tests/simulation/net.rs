//! The simulated network: turmoil's, with what it lacks laid over it: resets, short writes, dials that time out, and a trace.
//!
//! Each write of ours is one segment of turmoil's, with a first byte that says what it is: data, or a reset. So a reset is subject to the same
//! delays and partitions as everything else.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
};

use agent_server::runtime::wire::{self, Listen, Wire};
use bytes::{Buf, Bytes};
use load_driver::transport::{self, Dialling};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

use super::backend::ADMIN;

const DATA: u8 = 0;
const RESET: u8 = 1;
/// Bytes of a segment.
const SEGMENT: usize = 16 * 1024;

/// What the whole network knows.
#[derive(Debug)]
pub struct State {
    rng: ChaCha8Rng,
    /// Share of writes that are cut short.
    short: f64,
    /// Hosts that no packet reaches.
    pub cut: BTreeSet<IpAddr>,
    /// Hosts without a process.
    pub down: BTreeSet<IpAddr>,
    /// Connections dialled, segments, resets.
    pub counts: [u64; 3],
    trace: DefaultHasher,
    /// `SIM_TRACE` is set: what is traced is printed as well.
    shown: bool,
}

/// A handle on it.
#[derive(Debug, Clone)]
pub struct Network(Arc<Mutex<State>>);

impl Network {
    pub fn new(seed: u64, short: f64) -> Self {
        let (cut, down, trace) = (BTreeSet::new(), BTreeSet::new(), DefaultHasher::new());
        Self(Arc::new(Mutex::new(State {
            rng: ChaCha8Rng::seed_from_u64(seed),
            short,
            cut,
            down,
            counts: [0; 3],
            trace,
            shown: std::env::var_os("SIM_TRACE").is_some(),
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test has failed")
    }

    /// Adds to what two runs of a seed must have in common.
    pub fn trace(&self, what: impl Hash + Debug) {
        let mut state = self.state();
        what.hash(&mut state.trace);
        if state.shown {
            println!("{what:?}");
        }
    }

    /// All that was traced.
    pub fn digest(&self) -> u64 {
        self.state().trace.finish()
    }

    fn segment(&self, stream: &TcpStream, sent: bool, kind: u8, length: usize) {
        let now = turmoil::sim_elapsed().map_or(0, |at| at.as_micros());
        let ends = (stream.local_addr().ok(), stream.peer_addr().ok());
        // Counters hold the cost of the real process, whose digits vary.
        let length = if is_admin(stream) { 0 } else { length };
        self.trace((now, ends, sent, kind, length));
        self.state().counts[if kind == RESET { 2 } else { 1 }] += u64::from(sent);
    }

    fn lay(&self, stream: TcpStream) -> Wire {
        Wire::Simulated(Box::new(Line {
            stream,
            network: self.clone(),
            read: Bytes::new(),
            scratch: vec![0; SEGMENT + 1].into(),
            over: None,
            finished: false,
        }))
    }
}

impl transport::Simulated for Network {
    fn connect(&self, address: SocketAddr) -> Dialling {
        let network = self.clone();
        Box::pin(async move {
            network.state().counts[0] += 1;
            if network.state().cut.contains(&address.ip()) {
                // Whoever dials gives up.
                return std::future::pending().await;
            }
            if network.state().down.contains(&address.ip()) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            match TcpStream::connect(address).await {
                Ok(stream) => Ok(network.lay(stream)),
                // turmoil tells of a lost SYN at once.
                Err(_) if network.state().cut.contains(&address.ip()) => std::future::pending().await,
                Err(error) => Err(error),
            }
        })
    }
}

fn is_admin(stream: &TcpStream) -> bool {
    [stream.local_addr(), stream.peer_addr()].into_iter().flatten().any(|end| end.port() == ADMIN)
}

/// A port of a host.
pub struct Port(TcpListener, Network);

impl Port {
    pub async fn bind(port: u16, network: Network) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(("0.0.0.0", port)).await?, network))
    }
}

impl Listen for Port {
    async fn accept(&self) -> io::Result<(Wire, IpAddr)> {
        let (stream, from) = self.0.accept().await?;
        Ok((self.1.lay(stream), from.ip()))
    }
}

/// One end of a connection.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    network: Network,
    /// Came, and was not taken.
    read: Bytes,
    scratch: Box<[u8]>,
    /// Nothing more comes: the end, or a reset.
    over: Option<bool>,
    finished: bool,
}

impl Line {
    /// Ready when there are bytes, or there will be none: then `Ok` with none, or the reset.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.over {
                _ if self.read.has_remaining() => return Poll::Ready(Ok(())),
                Some(false) => return Poll::Ready(Ok(())),
                Some(true) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {}
            }
            let mut buf = ReadBuf::new(&mut self.scratch);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
            let segment = buf.filled();
            self.network.segment(&self.stream, false, segment.first().copied().unwrap_or(2), segment.len());
            match segment.split_first() {
                None => self.over = Some(false),
                Some((&RESET, _)) => self.over = Some(true),
                Some((_, data)) => self.read = Bytes::copy_from_slice(data),
            }
        }
    }

    fn is_reset(&self) -> bool {
        self.over == Some(true)
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_fill(cx))?;
        let n = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_reset() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let n = {
            let state = &mut *self.network.state();
            let whole = buf.len().min(SEGMENT);
            let may = whole > 1 && !is_admin(&self.stream);
            if may && state.rng.random_bool(state.short) { state.rng.random_range(1..whole) } else { whole }
        };
        let mut segment = Vec::with_capacity(n + 1);
        segment.push(DATA);
        segment.extend_from_slice(&buf[..n]);
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &segment))?;
        assert_eq!(written, segment.len(), "turmoil takes a segment whole");
        self.network.segment(&self.stream, true, DATA, n);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(wire::Simulated::finish(&mut *self))
    }
}

impl wire::Simulated for Line {
    fn poll_peek(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        ready!(self.poll_fill(cx))?;
        let n = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read[..n]);
        Poll::Ready(Ok(n))
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.is_reset() || std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match Pin::new(&mut self.stream).poll_shutdown(&mut cx) {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }

    fn reset(mut self: Box<Self>) {
        // Without room for it the end of the stream says it.
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if !self.finished && matches!(Pin::new(&mut self.stream).poll_write(&mut cx, &[RESET]), Poll::Ready(Ok(_))) {
            self.network.segment(&self.stream, true, RESET, 0);
        }
    }
}
