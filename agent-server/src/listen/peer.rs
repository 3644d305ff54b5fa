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

use super::frames::{Flood, Frames};
use crate::runtime::{clock::Clock, wire::Wire};

/// The other end of a connection. A connection that hears nothing from it within a ping and its deadline gives it up as silent. So it does where
/// the peer takes nothing of what is written to it for the idle timeout, or does not come to the end of an HTTP/2 frame that it began: bytes that
/// trickle keep nobody alive. That limit is the longer one, for there are slow readers and narrow links. That is our own rule, not the HTTP/2 library's: with a peer that stopped reading, the library's close waits for a write that
/// never comes.
#[derive(Debug)]
pub struct Peer {
    clock: Clock,
    patience: Duration,
    heard: AtomicU64,
    /// Since when a write waits; [`NEVER`] when none does.
    blocked: AtomicU64,
    /// Since when a frame is unfinished; [`NEVER`] when none is.
    unfinished: AtomicU64,
    silent: AtomicBool,
}

const NEVER: u64 = u64::MAX;

impl Peer {
    /// Heard just now. With `patience` for what it takes, and for frames of which a part has come.
    pub fn new(clock: Clock, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            clock,
            patience,
            heard: AtomicU64::new(clock.now().0),
            blocked: AtomicU64::new(NEVER),
            unfinished: AtomicU64::new(NEVER),
            silent: AtomicBool::new(false),
        })
    }

    /// When bytes last came.
    pub fn heard(&self) -> Micros {
        Micros(self.heard.load(Relaxed))
    }

    /// Gives the peer up when for `limit` nothing came, or its patience is over; else the moment to look again.
    pub fn check(&self, limit: Duration) -> Result<Micros, Silent> {
        let since = self.blocked.load(Relaxed).min(self.unfinished.load(Relaxed));
        let until = (self.heard() + limit).min(if since == NEVER { Micros::NEVER } else { Micros(since) + self.patience });
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
    /// Where HTTP/2 is spoken.
    frames: Option<Box<Frames>>,
}

/// What carries it. The one in TLS is boxed: the other must not pay for its size.
#[derive(Debug)]
pub enum Io {
    /// As it comes.
    Plain(Wire),
    /// In TLS.
    Tls(Box<TlsStream<Wire>>),
}

impl Heard {
    /// Watches `io`.
    pub const fn new(io: Io, peer: Arc<Peer>) -> Self {
        Self { io, peer, frames: None }
    }

    /// Watches frames of HTTP/2 as well, on a connection of so many streams at most.
    #[must_use]
    pub fn with_frames(self, max_streams: u32) -> Self {
        let now = self.peer.clock.now();
        self.peer.unfinished.store(now.0, Relaxed);
        Self { frames: Some(Box::new(Frames::new(now, max_streams))), ..self }
    }

    /// Notes what came.
    fn note(&mut self, bytes: &[u8]) -> io::Result<()> {
        let now = self.peer.clock.now();
        self.peer.heard.store(now.0, Relaxed);
        let Some(frames) = &mut self.frames else { return Ok(()) };
        let read = frames.read(bytes, now);
        self.peer.unfinished.store(frames.unfinished().map_or(NEVER, |since| since.0), Relaxed);
        read.map_err(|Flood| io::Error::other("a flood of frames that carry nothing, or of resets"))
    }

    /// Notes whether the peer takes what is written.
    fn wrote<T>(&self, write: Poll<T>) -> Poll<T> {
        let blocked = self.peer.blocked.load(Relaxed);
        match &write {
            Poll::Pending if blocked == NEVER => self.peer.blocked.store(self.peer.clock.now().0, Relaxed),
            Poll::Ready(_) if blocked != NEVER => self.peer.blocked.store(NEVER, Relaxed),
            _ => {}
        }
        write
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
        match buf.filled().get(before..) {
            Some(came) if !came.is_empty() => self.note(came).map_or_else(|flood| Poll::Ready(Err(flood)), |()| read),
            _ => read,
        }
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let write = match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        };
        self.wrote(write)
    }

    /// See [`crate::runtime::flat`].
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            // What TLS holds of what was written.
            Io::Tls(io) => {
                let flush = Pin::new(io).poll_flush(cx);
                self.wrote(flush)
            }
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
