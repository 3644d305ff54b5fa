//! A TCP stream that can be taken away from whatever codec runs over it: to reset it, to finish it, to let it go silent.

use std::{
    cell::{Cell, RefCell},
    io,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use agent_server::runtime::wire::Wire;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::{How, Net, Remains};

/// A socket shared by its codec and its killer. Reports no vectored writes, so that h2 copies small frames together.
#[derive(Debug, Clone)]
pub(super) struct Socket(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: RefCell<Option<Wire>>,
    /// A reset is told once, to whichever of read and write comes first; the other sees an end.
    reset: Cell<bool>,
}

impl Socket {
    /// Connects; the caller bounds the time.
    pub(super) async fn connect(net: &Net, address: SocketAddr) -> io::Result<Self> {
        let stream = net.connect(address).await?;
        Ok(Self(Rc::new(Shared { stream: RefCell::new(Some(stream)), reset: Cell::new(false) })))
    }

    /// The peer reset the connection, whatever the codec over it made of that.
    pub(super) fn was_reset(&self) -> bool {
        self.0.reset.get()
    }

    fn watch<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(&result, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset) {
            self.0.reset.set(true);
        }
        result
    }

    /// Ends the connection under its codec's feet; `Done` and `Cancel` leave the socket to the codec.
    pub(super) fn kill(&self, how: How) -> Remains {
        if matches!(how, How::Done | How::Cancel) {
            return Remains::Nothing;
        }
        let Some(stream) = self.0.stream.borrow_mut().take() else { return Remains::Nothing };
        match how {
            How::Done | How::Cancel => Remains::Nothing,
            How::Fin => finish(stream),
            How::Rst | How::Race => {
                stream.reset();
                Remains::Nothing
            }
            // Out of the reactor: what still arrives must cost nothing.
            How::Silent => stream.park().map_or(Remains::Nothing, Remains::Held),
        }
    }
}

/// FIN now. Reads on until the peer's FIN, because closing a socket with unread data sends a reset instead.
fn finish(mut stream: Wire) -> Remains {
    if stream.finish().is_err() {
        return Remains::Nothing;
    }
    Remains::Closing(Box::pin(async move {
        let mut sink = [0; 4096];
        while matches!(stream.read(&mut sink).await, Ok(n) if n > 0) {}
    }))
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was taken away")
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let result = match self.0.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_read(cx, buf),
            None => Poll::Ready(Err(gone())),
        };
        self.watch(result)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = match self.0.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_write(cx, buf),
            None => Poll::Ready(Err(gone())),
        };
        self.watch(result)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.stream.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
