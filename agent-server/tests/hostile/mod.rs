//! Rows, the ground on which they are tried, and what must hold after each.

mod admin;
mod http1;
mod http2;
mod limits;
mod tcp;
mod websocket;

use std::{net::SocketAddr, pin::Pin, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

pub use self::{
    admin::ROWS as ADMIN, http1::ROWS as HTTP1, http2::ROWS as HTTP2, limits::ROWS as LIMITS, tcp::ROWS as TCP,
    websocket::ROWS as WEBSOCKET,
};
use crate::common::{
    PATIENCE, Server,
    client::{Client, Form, end},
    eventually,
    tls::Authority,
};

/// One hostile deed: what it is called, and what it must get.
#[derive(Clone, Copy)]
pub struct Row {
    pub id: &'static str,
    pub got: &'static str,
    pub deed: for<'a> fn(&'a Ground) -> Pin<Box<dyn Future<Output = String> + 'a>>,
}

macro_rules! row {
    ($id:literal, $got:literal, |$ground:ident| $deed:expr) => {
        $crate::hostile::Row { id: $id, got: $got, deed: |$ground| Box::pin(async move { $deed }) }
    };
}
pub(crate) use row;

/// A server with short bounds, on all of its ports.
pub struct Ground {
    pub server: Server,
    pub authority: Authority,
}

/// What the server's bounds are, and nothing here waits for much longer.
const BOUNDS: [&str; 6] = [
    "--start-timeout=600ms",
    "--keepalive-interval=500ms",
    "--keepalive-timeout=500ms",
    "--idle-timeout=2s",
    "--http2-max-streams=256",
    "--admin-token=hunter2",
];
/// Between bytes that trickle: they keep coming for as long as anybody reads them.
const DRIP: Duration = Duration::from_millis(40);
/// Resident memory after a deed, over that before the first. What is sent is hundreds of megabytes in all.
const GROWTH_MAX: u64 = 2;

impl Ground {
    fn new() -> Self {
        let authority = Authority::new();
        let tls = [
            authority.flag("tls-cert", "server.pem"),
            authority.flag("tls-key", "server.key"),
            authority.flag("tls-client-ca", "ca.pem"),
            "--tls-listen=127.0.0.1:0".to_owned(),
        ];
        let flags: Vec<&str> = BOUNDS.into_iter().chain(tls.iter().map(String::as_str)).collect();
        Self { server: Server::start(&flags), authority }
    }

    /// Where sessions come in.
    pub fn plain(&self) -> SocketAddr {
        self.server.address
    }

    /// Where they come in over TLS.
    pub fn tls(&self) -> SocketAddr {
        self.server.tls_address.expect("a TLS port")
    }
}

/// Tries each row, with a session before, meanwhile and after that nothing may disturb.
pub async fn hold(rows: &[Row]) {
    let ground = Ground::new();
    let server = &ground.server;
    let mut completed = 0;
    serves(server, &mut completed, "the first").await;
    let before = server.snapshot().rss_bytes;
    let mut wrong = Vec::new();
    for row in rows {
        let got = {
            let meanwhile = async {
                sleep(DRIP).await;
                serves(server, &mut completed, row.id).await;
            };
            let deed = timeout(PATIENCE, (row.deed)(&ground));
            futures_util::future::join(deed, meanwhile).await.0.unwrap_or_else(|_| "not bounded".to_owned())
        };
        if got != row.got {
            wrong.push((row.id, got.clone(), row.got));
        }
        serves(server, &mut completed, row.id).await;
        let after = server.snapshot().rss_bytes;
        println!("{}: {got}; {} KiB over {} KiB", row.id, after / 1024, before / 1024);
        assert!(after < before * GROWTH_MAX, "{}: {after} bytes over {before}", row.id);
    }
    assert!(wrong.is_empty(), "deed, what it got, what it must get: {wrong:#?}");
}

/// A session from its start to its end; and after it the counts are exact, and no session is left.
async fn serves(server: &Server, completed: &mut u64, when: &str) {
    let mut client = Client::started(server.address, Form::Binary).await;
    client.send(end()).await;
    let (_, close) = client.rest().await;
    assert_eq!(close, Some(1000), "{when}");
    *completed += 1;
    eventually(&format!("{when}: the counts are at rest and add up"), async || {
        let s = server.snapshot();
        let ended: u64 = s.ended.values().sum();
        assert!(s.exact && s.started == s.active as u64 + ended, "{when}: {s:?}");
        assert_eq!(s.ended["completed"], *completed, "{when}: {s:?}");
        let rest = s.active == 0 && s.live_tasks == 0 && s.phases.values().all(|n| *n == 0);
        rest.then_some(())
    })
    .await;
    let s = server.snapshot();
    assert!(s.defects.is_empty() && s.faults.is_empty(), "{when}: {s:?}");
}

/// Everything that the server says to these bytes, until it closes.
pub async fn say(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Whoever is refused early need not take it all.
    let _ = stream.write_all(bytes).await;
    to_the_end(&mut stream).await
}

/// What comes until the connection is over, whichever way.
pub async fn to_the_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut heard = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return heard,
            // Enough to tell what it is.
            Ok(n) if heard.len() < 1 << 20 => heard.extend_from_slice(&buffer[..n]),
            Ok(_) => {}
        }
    }
}

/// Says `first` at once and then `rest` without end, a byte at a time; what comes meanwhile, until the server closes.
pub async fn drip(address: SocketAddr, first: &[u8], rest: &[u8]) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let _ = write.write_all(first).await;
    let dripping = async {
        for byte in rest.iter().cycle() {
            sleep(DRIP).await;
            if write.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        heard = to_the_end(&mut read) => heard,
        () = dripping => unreachable!("it never ends"),
    }
}

/// What was heard, as the table has it.
pub fn told(heard: &[u8]) -> String {
    if heard.is_empty() {
        return "closed".to_owned();
    }
    let text = String::from_utf8_lossy(heard);
    match text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) {
        Some(status) => format!("HTTP {status}, closed"),
        None => format!("{} bytes: {:?}", heard.len(), &heard[..heard.len().min(40)]),
    }
}
