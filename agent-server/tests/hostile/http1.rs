//! Requests of HTTP/1.1.

use super::{Row, drip, row, say, told};

const UPGRADE: &str = "GET /voiceagent.v1 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ";

pub const ROWS: &[Row] = &[
    row!("head-drip", "closed", |g| told(&drip(g.plain(), b"GET /voiceagent.v1 HTTP/1.1\r\nX: ", b"a").await)),
    row!("head-too-long", "HTTP 431, closed", |g| {
        told(&say(g.plain(), format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(64 * 1024)).as_bytes()).await)
    }),
    row!("target-too-long", "HTTP 431, closed", |g| {
        told(&say(g.plain(), format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000)).as_bytes()).await)
    }),
    row!("headers-too-many", "HTTP 431, closed", |g| {
        told(&say(g.plain(), format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1_000)).as_bytes()).await)
    }),
    row!("header-without-colon", "HTTP 400, closed", |g| told(&say(g.plain(), b"GET / HTTP/1.1\r\nHost a\r\n\r\n").await)),
    row!("length-and-chunks", "HTTP 405, closed", |g| {
        let head = b"POST /voiceagent.v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /voiceagent.v1 HTTP/1.1\r\n\r\n";
        told(&say(g.plain(), head).await)
    }),
    row!("body-drip", "HTTP 405, closed", |g| {
        told(&drip(g.plain(), b"POST /voiceagent.v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n", b"a").await)
    }),
    row!("body-without-end", "HTTP 405, closed", |g| {
        let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x1_0000));
        let head = "POST /voiceagent.v1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        told(&say(g.plain(), (head + &chunk.repeat(512)).as_bytes()).await)
    }),
    row!("requests-in-a-row", "HTTP 426, closed", |g| {
        let heard = say(g.plain(), "GET /voiceagent.v1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(10_000).as_bytes()).await;
        assert_eq!(String::from_utf8_lossy(&heard).matches("HTTP/1.1").count(), 1, "one answer a connection");
        told(&heard)
    }),
    row!("wrong-path", "HTTP 404, closed", |g| told(&say(g.plain(), b"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n").await)),
    row!("wrong-key", "HTTP 400, closed", |g| told(&say(g.plain(), format!("{UPGRADE}short\r\n\r\n").as_bytes()).await)),
    row!("compression-offered", "HTTP 101 without it", |g| {
        let request =
            format!("{UPGRADE}dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n");
        let heard = String::from_utf8_lossy(&say(g.plain(), request.as_bytes()).await).to_ascii_lowercase();
        assert!(heard.starts_with("http/1.1 101"), "{heard}");
        if heard.contains("sec-websocket-extensions") { "HTTP 101 with it" } else { "HTTP 101 without it" }.to_owned()
    }),
];
