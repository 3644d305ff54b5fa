//! The first bytes of a connection.

use tokio_rustls::TlsConnector;

use super::{Row, drip, row, say, told};
use crate::common::{tls::trusting, within};

/// A record of the handshake that says it is 512 bytes long.
const HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

pub const ROWS: &[Row] = &[
    row!("silence", "closed", |g| told(&say(g.plain(), b"").await)),
    row!("half-a-preface", "closed", |g| told(&say(g.plain(), b"PRI").await)),
    row!("preface-without-end", "closed", |g| super::http2::goodbye(&say(g.plain(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r").await, false)),
    row!("noise", "HTTP 400, closed", |g| told(&say(g.plain(), &[0x80, 0, 1, 255, 13, 10, 13, 10]).await)),
    row!("tls-on-plain", "closed", |g| told(&say(g.plain(), HELLO).await)),
    row!("tls-silence", "closed", |g| told(&say(g.tls(), b"").await)),
    row!("tls-drip", "closed", |g| told(&drip(g.tls(), HELLO, &[0]).await)),
    row!("tls-noise", "closed", |g| told(&say(g.tls(), &[22, 3, 1, 0, 5, 9, 9, 9, 9, 9]).await)),
    row!("tls-record-too-long", "TLS alert, closed", |g| alert(
        &say(g.tls(), &[[22, 3, 1, 255, 255].as_slice(), &[0; 70_000]].concat()).await
    )),
    row!("plain-on-tls", "HTTP 400, closed", |g| told(&say(g.tls(), b"GET / HTTP/1.1\r\n\r\n").await)),
    row!("no-client-certificate", "refused in the handshake", |g| {
        let stream = tokio::net::TcpStream::connect(g.tls()).await.unwrap();
        let config = trusting(&g.authority.file("ca.pem"), &[]);
        let shaken = TlsConnector::from(config).connect("localhost".try_into().unwrap(), stream).await;
        // With TLS 1.3 the client's half is done before the server has looked.
        let over = match shaken {
            Err(_) => true,
            Ok(mut stream) => within("the end", super::to_the_end(&mut stream)).await.is_empty(),
        };
        if over { "refused in the handshake" } else { "taken" }.to_owned()
    }),
];

/// A record of an alert, and nothing after it.
fn alert(heard: &[u8]) -> String {
    if heard.len() == 7 && heard[0] == 21 { "TLS alert, closed".to_owned() } else { told(heard) }
}
