//! Whether the other end of a connection still lives, by what was read from it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use proto::time::Micros;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use crate::runtime::{clock::Clock, wire::Wire};

/// The other end of a connection. A connection that hears nothing from it within a ping and its deadline gives it up as silent. That is our
/// own rule, not the HTTP/2 library's: with a peer that stopped reading, the library's close waits for a write that never comes.
#[derive(Debug)]
pub struct Peer {
    clock: Clock,
    heard: AtomicU64,
    silent: AtomicBool,
}

impl Peer {
    /// Heard just now.
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, heard: AtomicU64::new(clock.now().0), silent: AtomicBool::new(false) })
    }

    /// When bytes last came.
    pub fn heard(&self) -> Micros {
        Micros(self.heard.load(Relaxed))
    }

    /// Gives the peer up when nothing came for `limit`; else the moment to look again.
    pub fn check(&self, limit: Duration) -> Result<Micros, Silent> {
        let until = self.heard() + limit;
        if self.clock.now() < until {
            return Ok(until);
        }
        self.silent.store(true, Relaxed);
        Err(Silent)
    }

    /// It was given up.
    pub fn is_silent(&self) -> bool {
        self.silent.load(Relaxed)
    }
}

/// The peer was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silent;

/// A connection that notes when it hears from its peer, and writes flat.
#[derive(Debug)]
pub struct Heard {
    io: Io,
    peer: Arc<Peer>,
}

/// What carries it. The one in TLS is boxed: the other must not pay for its size.
#[derive(Debug)]
pub(super) enum Io {
    Plain(Wire),
    Tls(Box<TlsStream<Wire>>),
}

impl Heard {
    /// Watches `io`.
    pub(super) const fn new(io: Io, peer: Arc<Peer>) -> Self {
        Self { io, peer }
    }
}

impl AsyncRead for Heard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => match Pin::new(io).poll_read(cx, buf) {
                // Without TLS's own goodbye. Sessions have one of theirs, and are lost without it, over TLS as over TCP.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => read,
            },
        };
        if buf.filled().len() > before {
            self.peer.heard.store(self.peer.clock.now().0, Relaxed);
        }
        read
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    /// See [`crate::runtime::flat`].
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_connection_does_not_pay_for_tls() {
        assert!(size_of::<Io>() <= size_of::<tokio::net::TcpStream>() + size_of::<usize>());
    }
}
