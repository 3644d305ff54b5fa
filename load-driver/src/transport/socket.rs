//! A TCP stream that can be taken away from whatever codec runs over it: to reset it, to finish it, to let it go silent.

use std::{
    cell::RefCell,
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
pub(super) struct Socket(Rc<RefCell<Option<Wire>>>);

impl Socket {
    /// Connects; the caller bounds the time.
    pub(super) async fn connect(net: &Net, address: SocketAddr) -> io::Result<Self> {
        Ok(Self(Rc::new(RefCell::new(Some(net.connect(address).await?)))))
    }

    /// Ends the connection under its codec's feet; `Done` and `Cancel` leave the socket to the codec.
    pub(super) fn kill(&self, how: How) -> Remains {
        if matches!(how, How::Done | How::Cancel) {
            return Remains::Nothing;
        }
        let Some(stream) = self.0.borrow_mut().take() else { return Remains::Nothing };
        match how {
            How::Done | How::Cancel => Remains::Nothing,
            How::Fin => finish(stream),
            How::Rst => {
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
        match self.0.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_read(cx, buf),
            None => Poll::Ready(Err(gone())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.0.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_write(cx, buf),
            None => Poll::Ready(Err(gone())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.borrow_mut().as_mut() {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
