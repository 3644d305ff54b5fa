//! The first bytes of a connection: whether it is TLS where it should be, and which HTTP comes in it.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt},
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

use super::peer::Io;
use crate::{
    dialect,
    runtime::wire::{Parked, Wire},
};

/// How an HTTP/2 connection begins, and no HTTP/1.1 request does.
const HTTP2: &[u8; 4] = b"PRI ";
/// How a TLS connection begins: a record of its handshake.
const TLS_HANDSHAKE: u8 = 22;
/// What a plain request hears from the TLS port.
const PLAIN_ON_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 53\r\nconnection: close\r\n\r\n\
    this port speaks TLS: take wss:// or https:// for it\n";

/// Takes a connection over, and finds out whether it speaks HTTP/2. None when it is over already.
pub(super) async fn open(stream: Parked, tls: Option<TlsAcceptor>) -> Option<(Io, bool)> {
    let mut stream = match stream.resume() {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!("failed to take over a connection: {error}");
            return None;
        }
    };
    let Some(tls) = tls else {
        return match sniff(&mut stream).await.ok()?? {
            First::Tls => {
                tracing::debug!("connection closed: a TLS handshake came on the plain port");
                dialect::close_gently(stream).await;
                None
            }
            First::Http2 => Some((Io::Plain(stream), true)),
            First::Http1 => Some((Io::Plain(stream), false)),
        };
    };
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(0) | Err(_) => return None,
        Ok(_) if first[0] == TLS_HANDSHAKE => {}
        Ok(_) => {
            tracing::debug!("connection closed: it is plain, and this port speaks TLS");
            refuse_plain(stream).await;
            return None;
        }
    }
    let mut stream = match tls.accept(stream).into_fallible().await {
        Ok(stream) => stream,
        Err((error, stream)) => {
            tracing::debug!("TLS handshake failed: {error}");
            // The client has been told why, and shall read it.
            dialect::close_gently(stream).await;
            return None;
        }
    };
    // What was agreed on is what the client could speak; what it speaks is in its first bytes, which come whole in their record.
    let first = match stream.fill_buf().await {
        Ok([]) => return None,
        Ok(first) => first,
        Err(error) => {
            tracing::debug!("TLS connection ended before a word: {error}");
            return None;
        }
    };
    let http2 = first.starts_with(HTTP2);
    Some((Io::Tls(Box::new(stream)), http2))
}

/// Tells a client that forgot TLS so, in the only words that it may understand.
async fn refuse_plain(mut stream: Wire) {
    if stream.write_all(PLAIN_ON_TLS).await.is_ok() {
        dialect::close_gently(stream).await;
    }
}

enum First {
    Http1,
    Http2,
    Tls,
}

/// None when the peer left without a word.
async fn sniff(stream: &mut Wire) -> io::Result<Option<First>> {
    let mut first = [0; HTTP2.len()];
    loop {
        match stream.peek(&mut first).await? {
            0 => return Ok(None),
            _ if first[0] == TLS_HANDSHAKE => return Ok(Some(First::Tls)),
            n if first[..n] != HTTP2[..n] => return Ok(Some(First::Http1)),
            n if n == HTTP2.len() => return Ok(Some(First::Http2)),
            // Too few bytes to tell, and the socket stays readable: look again a little later.
            _ => sleep(Duration::from_millis(5)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_says_its_length() {
        let text = std::str::from_utf8(PLAIN_ON_TLS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
