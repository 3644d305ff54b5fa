//! Frames of WebSocket, written by hand.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{DRIP, Row, row};
use crate::common::{client::start, within};

const UPGRADE: &[u8] =
    b"GET /voiceagent.v1 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const FIN: u8 = 0x80;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;

pub const ROWS: &[Row] = &[
    row!("unmasked-frame", "close 1002", |g| said(g.plain(), &[FIN | BINARY, 1, 0]).await),
    row!("frame-of-2-to-62", "close 1009", |g| said(g.plain(), &[&[FIN | BINARY, 0xff, 0x40][..], &[0; 11]].concat()).await),
    row!("message-without-end", "close 1009", |g| {
        said(g.plain(), &[frame(BINARY, &[0; 1024]), frame(CONTINUATION, &[0; 1024]).repeat(1_000)].concat()).await
    }),
    row!("empty-fragments", "close 1008", |g| poured(g.plain(), &frame(TEXT, b""), &frame(CONTINUATION, b"")).await),
    row!("frame-drip", "close 1008", |g| {
        let mut stream = upgraded(g.plain()).await;
        stream.write_all(&[FIN | BINARY, 0x80 | 0x7e, 0xf0, 0, 0, 0, 0, 0]).await.unwrap();
        let (mut read, mut write) = stream.split();
        let dripping = async {
            while write.write_all(&[0]).await.is_ok() {
                tokio::time::sleep(DRIP).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            heard = super::to_the_end(&mut read) => close_of(&heard),
            () = dripping => unreachable!("it never ends"),
        }
    }),
    row!("ping-flood-unread", "closed", |g| {
        let mut stream = upgraded(g.plain()).await;
        let pings = frame(FIN | PING, &[7; 125]).repeat(500);
        while stream.write_all(&pings).await.is_ok() {}
        "closed".to_owned()
    }),
    row!("ping-flood", "close 1008", |g| poured(g.plain(), b"", &frame(FIN | PING, b"a")).await),
    row!("compressed-frame", "close 1002", |g| said(g.plain(), &frame(FIN | 0x40 | BINARY, b"a")).await),
    row!("reserved-opcode", "close 1002", |g| said(g.plain(), &frame(FIN | 3, b"a")).await),
    row!("control-in-fragments", "close 1002", |g| said(g.plain(), &frame(PING, b"a")).await),
    row!("control-too-long", "close 1002", |g| said(g.plain(), &frame(FIN | PING, &[0; 200])).await),
    row!("continuation-of-nothing", "close 1002", |g| said(g.plain(), &frame(FIN | CONTINUATION, b"a")).await),
    row!("text-not-utf8", "close 1007", |g| said(g.plain(), &frame(FIN | TEXT, &[0xff, 0xfe])).await),
    row!("close-code-reserved", "close 1002", |g| said(g.plain(), &frame(FIN | CLOSE, &[3, 0xed])).await),
    row!("json-nested", "close 1007", |g| said(g.plain(), &frame(FIN | TEXT, "[".repeat(60_000).as_bytes())).await),
    row!("json-numbers", "close 1007", |g| {
        said(
            g.plain(),
            &frame(FIN | TEXT, format!("{{\"start\":{{\"inputFormat\":{{\"sampleRateHz\":{}}}}}}}", "9".repeat(50_000)).as_bytes()),
        )
        .await
    }),
    row!("protobuf-lengths", "close 1007", |g| said(g.plain(), &frame(FIN | BINARY, &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f])).await),
    row!("session-and-then-drip", "close 1008", |g| {
        let mut stream = upgraded(g.plain()).await;
        let message = proto::native::client_message(start("hostile")).unwrap();
        stream.write_all(&frame(FIN | BINARY, &prost::Message::encode_to_vec(&message))).await.unwrap();
        stream.write_all(&[FIN | BINARY, 0x80 | 0x7e, 0xf0, 0, 0, 0, 0, 0]).await.unwrap();
        let (mut read, mut write) = stream.split();
        let dripping = async {
            while write.write_all(&[0]).await.is_ok() {
                tokio::time::sleep(DRIP).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            heard = super::to_the_end(&mut read) => close_of(&heard),
            () = dripping => unreachable!("it never ends"),
        }
    }),
];

/// Masked, with a mask that changes nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        n @ 0..126 => bytes.push(0x80 | n as u8),
        n => bytes.extend([0x80 | 0x7e, (n >> 8) as u8, n as u8]),
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

async fn upgraded(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(UPGRADE).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within("the upgrade", stream.read_u8()).await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// The close code that these bytes get.
async fn said(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = upgraded(address).await;
    let _ = stream.write_all(bytes).await;
    close_of(&super::to_the_end(&mut stream).await)
}

/// The same again and again, and what comes is read.
async fn poured(address: SocketAddr, first: &[u8], again: &[u8]) -> String {
    let mut stream = upgraded(address).await;
    stream.write_all(first).await.unwrap();
    let (mut read, mut write) = stream.split();
    let again = again.repeat(1_000);
    let pouring = async {
        while write.write_all(&again).await.is_ok() {
            tokio::task::yield_now().await;
        }
        std::future::pending::<()>().await;
    };
    // The last words are what counts, and pongs may come by the million before them.
    let reading = async {
        let (mut last, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
        while let Ok(n @ 1..) = read.read(&mut buffer).await {
            last.extend_from_slice(&buffer[..n]);
            last.drain(..last.len().saturating_sub(512));
        }
        last
    };
    let last = tokio::select! {
        last = reading => last,
        () = pouring => unreachable!("it never ends"),
    };
    // Frames of the server are not masked: a close begins with its opcode and its length, and is the last.
    let close =
        (0..last.len().saturating_sub(3)).rev().find(|&at| last[at] == FIN | CLOSE && at + 2 + usize::from(last[at + 1]) == last.len());
    close.map_or_else(|| "closed".to_owned(), |at| close_of(&last[at..]))
}

/// Walks the server's frames to its close.
fn close_of(mut heard: &[u8]) -> String {
    while let [first, length, rest @ ..] = heard {
        let (length, rest) = match (length, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(*a) << 8 | usize::from(*b), rest),
            (length, rest) => (usize::from(*length), rest),
        };
        if *first == FIN | CLOSE {
            return format!("close {}", u16::from_be_bytes([rest[0], rest[1]]));
        }
        heard = rest.get(length..).unwrap_or_default();
    }
    "closed".to_owned()
}
