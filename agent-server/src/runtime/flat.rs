//! A TCP stream that hides vectored writes, so that h2 copies small frames together instead of one `writev` a frame.

use tokio::net::TcpStream;

/// Reports no vectored writes. Implements tokio's `AsyncRead` and `AsyncWrite`.
#[derive(Debug)]
pub struct Flat(pub TcpStream);
