//! Frames of HTTP/2, written by hand, and gRPC in them.

use std::net::SocketAddr;

use proto::frame::ClientEvent;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{DRIP, Row, row};
use crate::common::client::{Client, Form, end, start};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const SESSION: &str = "/voiceagent.v1.VoiceAgent/Session";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

pub const ROWS: &[Row] = &[
    row!("settings-flood", "closed", |g| flood(g.plain(), &hello(), |_| frame(SETTINGS, 0, 0, &[])).await),
    row!("h2-ping-flood", "closed", |g| flood(g.plain(), &hello(), |_| frame(PING, 0, 0, &[1; 8])).await),
    row!("h2-ping-flood-unread", "closed", |g| {
        let pings = frame(PING, 0, 0, &[1; 8]).repeat(100);
        // Below what is a flood, so that it is the lack of a reader that ends it.
        let mut stream = TcpStream::connect(g.plain()).await.unwrap();
        socket2::SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
        let ask = [hello(), request(1, REFLECTION, END_HEADERS), frame(DATA, 0, 1, &listing())].concat();
        stream.write_all(&ask).await.unwrap();
        let more = frame(DATA, 0, 1, &listing()).repeat(200);
        while stream.write_all(&more).await.is_ok() && stream.write_all(&pings).await.is_ok() {
            tokio::time::sleep(DRIP).await;
        }
        "closed".to_owned()
    }),
    row!("priority-flood", "closed", |g| flood(g.plain(), &hello(), |n| frame(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 9])).await),
    row!("unknown-frames-flood", "closed", |g| flood(g.plain(), &hello(), |_| frame(200, 0, 0, &[])).await),
    row!("empty-data-flood", "closed", |g| {
        flood(g.plain(), &[hello(), request(1, SESSION, END_HEADERS)].concat(), |_| frame(DATA, 0, 1, &[])).await
    }),
    row!("rapid-reset", "closed", |g| {
        flood(g.plain(), &hello(), |n| [request(2 * n + 1, SESSION, END_HEADERS), frame(RESET, 0, 2 * n + 1, &[0, 0, 0, 8])].concat()).await
    }),
    row!("continuation-flood", "GOAWAY 11", |g| {
        let one = frame(CONTINUATION, 0, 1, &[]);
        heard(g.plain(), &[hello(), request(1, SESSION, 0), one.repeat(2_000)].concat()).await
    }),
    row!("continuation-drip", "closed", |g| {
        let first = [hello(), request(1, SESSION, 0)].concat();
        goodbye(&super::drip(g.plain(), &first, &frame(CONTINUATION, 0, 1, b"a")).await, false)
    }),
    row!("frame-drip-h2", "closed", |g| {
        let mut first = [hello(), request(1, SESSION, END_HEADERS)].concat();
        first.extend([0, 0x40, 0, DATA, 0, 0, 0, 0, 1]);
        goodbye(&super::drip(g.plain(), &first, &[0]).await, false)
    }),
    row!("first-frame-drip", "closed", |g| {
        let first = [PREFACE, &[0, 0x30, 0, SETTINGS, 0, 0, 0, 0, 0]].concat();
        goodbye(&super::drip(g.plain(), &first, &[0, 3, 0, 0, 0, 100]).await, false)
    }),
    row!("headers-too-large", "grpc refused, served on", |g| {
        // Eight names of 4 KiB, over the limit of 16 KiB.
        let mut block = head(SESSION);
        for _ in 0..8 {
            block.extend([0, 1, b'a', 127, 0x81, 0x1f]);
            block.extend([b'b'; 4096]);
        }
        let mut bytes = hello();
        let mut parts = block.chunks(16_000).enumerate().peekable();
        while let Some((n, part)) = parts.next() {
            let flags = if parts.peek().is_none() { END_HEADERS } else { 0 };
            bytes.extend(frame(if n == 0 { HEADERS } else { CONTINUATION }, flags, 1, part));
        }
        served_on(g.plain(), &bytes).await
    }),
    row!("hpack-bomb", "GOAWAY 11", |g| {
        // One long header that is remembered, then named again and again by one byte each.
        let mut block = head(SESSION);
        block.extend([0x40, 1, b'a', 127, 0x81, 0x17]);
        block.extend([b'b'; 3072]);
        block.extend([0xbe; 8_000]);
        heard(g.plain(), &[hello(), frame(HEADERS, END_HEADERS, 1, &block)].concat()).await
    }),
    row!("hpack-noise", "GOAWAY 1", |g| heard(g.plain(), &[hello(), frame(HEADERS, END_HEADERS, 1, &[0xff; 40])].concat()).await),
    row!("frame-too-long", "GOAWAY 6", |g| heard(g.plain(), &[hello(), vec![0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]].concat()).await),
    row!("data-before-headers", "GOAWAY 1", |g| heard(g.plain(), &[hello(), frame(DATA, 0, 1, b"a")].concat()).await),
    row!("settings-of-5-bytes", "GOAWAY 1", |g| heard(g.plain(), &[hello(), frame(SETTINGS, 0, 0, &[0; 5])].concat()).await),
    row!("window-overflow", "GOAWAY 3", |g| {
        heard(g.plain(), &[hello(), frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])].concat()).await
    }),
    row!("window-update-of-0", "GOAWAY 1", |g| heard(g.plain(), &[hello(), frame(WINDOW_UPDATE, 0, 0, &[0; 4])].concat()).await),
    row!("stream-of-even-number", "GOAWAY 1", |g| heard(g.plain(), &[hello(), request(2, SESSION, END_HEADERS)].concat()).await),
    row!("too-many-streams", "REFUSED_STREAM, served on", |g| {
        let many: Vec<u8> = (0..400).flat_map(|n| request(2 * n + 1, SESSION, END_HEADERS)).collect();
        let heard = first_words(g.plain(), &[hello(), many].concat(), |frames| {
            frames.iter().filter(|f| f.0 == RESET && f.3 == [0, 0, 0, 7]).count() >= 400 - 256
        })
        .await;
        assert!(!heard.iter().any(|f| f.0 == GOAWAY), "the connection goes on");
        "REFUSED_STREAM, served on".to_owned()
    }),
    row!("window-of-0", "given up with its last words", |g| {
        // Nothing may be answered, so that all that is said to the session lies.
        let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        let message = |event| crate::common::client::grpc_message(&event).to_vec();
        let bytes = [
            PREFACE.to_vec(),
            settings,
            request(1, SESSION, END_HEADERS),
            frame(DATA, 0, 1, &message(start("hostile"))),
            frame(DATA, END_STREAM, 1, &message(ClientEvent::BargeIn { response: None, heard_ms: 0 })),
        ];
        first_words(g.plain(), &bytes.concat(), |frames| frames.iter().any(|f| f.0 == RESET)).await;
        "given up with its last words".to_owned()
    }),
    row!("window-of-0-unary", "bounded by the streams of a connection", |g| {
        let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
        let mut bytes = [PREFACE.to_vec(), settings].concat();
        for n in 0..200 {
            bytes.extend(request(2 * n + 1, REFLECTION, END_HEADERS));
            bytes.extend(frame(DATA, 0, 2 * n + 1, &listing()));
        }
        first_words(g.plain(), &bytes, |frames| frames.iter().filter(|f| f.0 == DATA).count() >= 200).await;
        "bounded by the streams of a connection".to_owned()
    }),
    row!("request-drip", "answered without it", |g| {
        // A health check whose one message never comes whole, on a connection that lives.
        let mut bytes = [hello(), request(1, HEALTH, END_HEADERS)].concat();
        bytes.extend(frame(DATA, 0, 1, &[0, 0, 0, 1, 0]));
        first_words(g.plain(), &bytes, |frames| frames.iter().any(|f| f.0 == HEADERS && f.2 == 1)).await;
        "answered without it".to_owned()
    }),
    row!("grpc-message-of-4-gib", "grpc-status 11", |g| raw_grpc(g.plain(), None, &[0, 255, 255, 255, 255]).await),
    row!("grpc-compressed", "grpc-status 3", |g| raw_grpc(g.plain(), None, &[1, 0, 0, 0, 1, 0]).await),
    row!("grpc-noise", "grpc-status 3", |g| raw_grpc(g.plain(), None, &[&[0, 0, 0, 0, 20][..], &[0xff; 20]].concat()).await),
    row!("grpc-noise-in-session", "grpc-status 3", |g| {
        raw_grpc(g.plain(), Some(start("hostile")), &[&[0, 0, 0, 0, 20][..], &[0xff; 20]].concat()).await
    }),
    row!("grpc-message-drip", "grpc-status 9", |g| raw_grpc(g.plain(), None, &[0, 0, 0, 16, 0, 1, 2]).await),
    row!("grpc-idle-session", "grpc-status 4", |g| raw_grpc(g.plain(), Some(start("hostile")), &[0, 0, 0, 16, 0, 1, 2]).await),
    row!("grpc-nested", "grpc-status 3", |g| {
        // Groups in groups, deeper than any message is.
        let nested = vec![0x0b; 10_000];
        let mut bytes = vec![0, 0, 0, (nested.len() >> 8) as u8, nested.len() as u8];
        bytes.extend(nested);
        raw_grpc(g.plain(), None, &bytes).await
    }),
    row!("end-without-start", "grpc-status 9", |g| raw_grpc(g.plain(), None, &crate::common::client::grpc_message(&end())).await),
];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn hello() -> Vec<u8> {
    [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat()
}

/// The headers of a call, as literals.
fn head(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, path.len() as u8];
    block.extend(path.as_bytes());
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    block
}

fn request(stream: u32, path: &str, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, stream, &head(path))
}

/// Asks reflection for the file of a symbol, the longest answer that there is.
fn listing() -> Vec<u8> {
    let symbol = b"voiceagent.v1.VoiceAgent";
    let mut message = vec![0x22, symbol.len() as u8];
    message.extend(symbol);
    let mut bytes = vec![0, 0, 0, 0, message.len() as u8];
    bytes.extend(message);
    bytes
}

/// Says `first`, then what `again` makes of 0, 1, 2 and so on, and reads what comes, until the server closes.
async fn flood(address: SocketAddr, first: &[u8], again: impl Fn(u32) -> Vec<u8>) -> String {
    const BATCH: u32 = 200;
    // Far more than any bound here, and still an end.
    const MOST: u32 = 2_000_000;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    write.write_all(first).await.unwrap();
    let pouring = async {
        let mut n = 0;
        while n < MOST {
            let batch: Vec<u8> = (n..n + BATCH).flat_map(&again).collect();
            if write.write_all(&batch).await.is_err() {
                std::future::pending::<()>().await;
            }
            n += BATCH;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = super::to_the_end(&mut read) => "closed".to_owned(),
        () = pouring => format!("{MOST} taken"),
    }
}

type Frame = (u8, u8, u32, Vec<u8>);

fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut all = Vec::new();
    while let [a, b, c, kind, flags, s, t, u, v, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some(payload) = rest.get(..length) else { break };
        all.push((*kind, *flags, u32::from_be_bytes([*s, *t, *u, *v]), payload.to_vec()));
        bytes = &rest[length..];
    }
    all
}

/// What the server says to these bytes at its close.
async fn heard(address: SocketAddr, bytes: &[u8]) -> String {
    goodbye(&super::say(address, bytes).await, true)
}

pub(super) fn goodbye(heard: &[u8], told: bool) -> String {
    let last = frames(heard).into_iter().rev().find(|frame| frame.0 == GOAWAY);
    match last {
        Some((.., payload)) if told => format!("GOAWAY {}", payload[7]),
        _ => "closed".to_owned(),
    }
}

/// Reads until what came is as wanted. Pings are answered: this peer lives.
async fn first_words(address: SocketAddr, bytes: &[u8], wanted: impl Fn(&[Frame]) -> bool) -> Vec<Frame> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let bytes = bytes.to_vec();
    let (pong, mut pongs) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
    let writing = tokio::spawn(async move {
        let _ = write.write_all(&bytes).await;
        while let Some(ping) = pongs.recv().await {
            let _ = write.write_all(&frame(PING, 1, 0, &ping)).await;
        }
    });
    let (mut all, mut answered, mut buffer) = (Vec::new(), 0, vec![0; 64 * 1024]);
    loop {
        let n = read.read(&mut buffer).await.unwrap_or(0);
        assert!(n > 0, "the server closed: {:?}", frames(&all).last());
        all.extend_from_slice(&buffer[..n]);
        let came = frames(&all);
        let pings: Vec<_> = came.iter().filter(|f| f.0 == PING && f.1 == 0).collect();
        for ping in pings.iter().skip(answered) {
            let _ = pong.send(ping.3.clone());
        }
        answered = pings.len();
        if wanted(&came) {
            writing.abort();
            return came;
        }
    }
}

/// The stream is refused and its connection goes on: a ping is answered.
async fn served_on(address: SocketAddr, bytes: &[u8]) -> String {
    let bytes = [bytes, &frame(PING, 0, 0, b"goes on?")].concat();
    let came = first_words(address, &bytes, |frames| {
        let pong = frames.iter().any(|f| f.0 == PING && f.1 == 1 && f.3 == b"goes on?");
        pong && frames.iter().any(|f| f.2 == 1 && (f.0 == RESET || f.0 == HEADERS))
    })
    .await;
    assert!(!came.iter().any(|f| f.0 == GOAWAY || (f.0 == DATA && f.2 == 1)), "{came:?}");
    "grpc refused, served on".to_owned()
}

/// These bytes of a call's body, after a start if there is one; the status that they get.
async fn raw_grpc(address: SocketAddr, started: Option<ClientEvent>, bytes: &[u8]) -> String {
    let mut client = if started.is_some() { Client::started(address, Form::Grpc).await } else { Client::open(address, Form::Grpc).await };
    let Client::Grpc(grpc) = &mut client else { unreachable!("gRPC") };
    grpc.send_bytes(bytes);
    let (_, status) = client.rest().await;
    status.map_or_else(|| "closed".to_owned(), |status| format!("grpc-status {status}"))
}
