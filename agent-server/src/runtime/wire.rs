//! What carries a connection: TCP, or what a simulation lays instead. Everything above it is the same code either way.

use std::{
    fmt,
    future::poll_fn,
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

/// A connection of a simulated network.
pub trait Simulated: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {
    /// As [`TcpStream::poll_peek`].
    fn poll_peek(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>>;

    /// Ends our half: FIN.
    fn finish(&mut self) -> io::Result<()>;

    /// Ends both halves: RST.
    fn reset(self: Box<Self>);
}

/// A connection.
#[derive(Debug)]
pub enum Wire {
    /// Of this machine.
    Tcp(TcpStream),
    /// Of a simulation's.
    Simulated(Box<dyn Simulated>),
}

/// A connection that no runtime looks after: on its way to another thread, or silent.
#[derive(Debug)]
pub enum Parked {
    /// Of this machine.
    Tcp(std::net::TcpStream),
    /// Of a simulation's.
    Simulated(Box<dyn Simulated>),
}

impl Wire {
    /// The bytes that come next, without taking them; 0 at the end.
    pub async fn peek(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.peek(bytes).await,
            Self::Simulated(stream) => poll_fn(|cx| stream.poll_peek(cx, &mut ReadBuf::new(bytes))).await,
        }
    }

    /// FIN.
    pub fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(&*stream).shutdown(std::net::Shutdown::Write),
            Self::Simulated(stream) => stream.finish(),
        }
    }

    /// RST. What is dead already stays so.
    pub fn reset(self) {
        match self {
            // Makes the close that follows a reset.
            Self::Tcp(stream) => drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO))),
            Self::Simulated(stream) => stream.reset(),
        }
    }

    /// Takes it from its runtime: what still arrives costs nothing.
    pub fn park(self) -> io::Result<Parked> {
        Ok(match self {
            Self::Tcp(stream) => Parked::Tcp(stream.into_std()?),
            Self::Simulated(stream) => Parked::Simulated(stream),
        })
    }
}

impl Parked {
    /// Gives it to the runtime of this thread.
    pub fn resume(self) -> io::Result<Wire> {
        Ok(match self {
            Self::Tcp(stream) => Wire::Tcp(TcpStream::from_std(stream)?),
            Self::Simulated(stream) => Wire::Simulated(stream),
        })
    }

    /// The other side has closed, or reset, or its machine has given the connection up, whatever waits to be read. Of a simulation's nobody knows.
    pub fn peer_is_gone(&self) -> bool {
        let Self::Tcp(stream) = self else { return false };
        let mut asked = [PollFd::new(stream, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut asked, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// RST.
    pub fn reset(self) {
        match self {
            Self::Tcp(stream) => drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO))),
            Self::Simulated(stream) => stream.reset(),
        }
    }
}

/// A bound port.
pub trait Listen {
    /// The next connection, and where it is from.
    fn accept(&self) -> impl Future<Output = io::Result<(Wire, IpAddr)>> + Send;
}

impl Listen for TcpListener {
    async fn accept(&self) -> io::Result<(Wire, IpAddr)> {
        let (stream, from) = TcpListener::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok((Wire::Tcp(stream), from.ip()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Simulated(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Simulated(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Simulated(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Simulated(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
