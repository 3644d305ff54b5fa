//! The admin port.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Row, drip, row, say, told};
use crate::common::within;

pub const ROWS: &[Row] = &[
    row!("admin-silence", "closed", |g| told(&say(g.server.admin, b"").await)),
    row!("admin-head-drip", "closed", |g| told(&drip(g.server.admin, b"GET /snapshot HTTP/1.1\r\nX: ", b"a").await)),
    row!("admin-head-too-long", "HTTP 431, closed", |g| {
        told(&say(g.server.admin, format!("GET /snapshot HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(64 * 1024)).as_bytes()).await)
    }),
    row!("admin-body-without-end", "HTTP 401, closed", |g| {
        let head = "POST /drain HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        told(&say(g.server.admin, (head + &format!("10000\r\n{}\r\n", "a".repeat(0x1_0000)).repeat(256)).as_bytes()).await)
    }),
    row!("admin-without-token", "HTTP 401, closed", |g| {
        for path in ["/snapshot", "/sessions", "/ends", "/metrics", "/nothing", "//snapshot", "/healthz/../snapshot", "/SNAPSHOT"] {
            assert_eq!(told(&say(g.server.admin, get(path, "").as_bytes()).await), "HTTP 401, closed", "{path}");
        }
        told(&say(g.server.admin, b"POST /drain HTTP/1.1\r\nHost: a\r\n\r\n").await)
    }),
    row!("admin-wrong-token", "HTTP 401, closed", |g| {
        for wrong in ["Bearer hunter", "Bearer hunter22", "Basic hunter2", "hunter2", "Bearer"] {
            assert_eq!(
                told(&say(g.server.admin, get("/snapshot", &format!("Authorization: {wrong}\r\n")).as_bytes()).await),
                "HTTP 401, closed"
            );
        }
        told(&say(g.server.admin, get("/snapshot", "X-Api-Key: \r\n").as_bytes()).await)
    }),
    row!("admin-token-in-query", "HTTP 401, closed", |g| told(
        &say(g.server.admin, get("/snapshot?token=hunter2&key=hunter2", "").as_bytes()).await
    )),
    row!("admin-from-a-web-page", "HTTP 403, closed", |g| {
        let request = "POST /drain HTTP/1.1\r\nHost: a\r\nOrigin: https://evil.example\r\nAuthorization: Bearer hunter2\r\n\r\n";
        let got = told(&say(g.server.admin, request.as_bytes()).await);
        assert!(!g.server.snapshot().draining, "it drains");
        got
    }),
    row!("admin-unread", "closed", |g| {
        let mut stream = TcpStream::connect(g.server.admin).await.unwrap();
        socket2::SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
        let asked = get("/metrics", "Authorization: Bearer hunter2\r\n").replace("Connection: close\r\n", "").repeat(100);
        while stream.write_all(asked.as_bytes()).await.is_ok() {}
        "closed".to_owned()
    }),
    row!("admin-hoard", "served again in its turn", |g| {
        // As many as the port serves at once, and some more, all silent.
        let mut hoard = Vec::new();
        for _ in 0..300 {
            hoard.push(TcpStream::connect(g.server.admin).await.unwrap());
        }
        let served = within("an answer", health(g.server.admin)).await;
        assert!(served.starts_with("HTTP/1.1 200"), "{served}");
        "served again in its turn".to_owned()
    }),
    row!("defects-by-the-network", "nothing is switched on", |g| {
        let bearer = "Authorization: Bearer hunter2\r\n";
        let defects = "ghost=1,double_decrement=1";
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            for path in [
                "/defect",
                "/defects",
                "/fault",
                "/faults",
                "/config",
                "/settings",
                "/admin/defect",
                "/snapshot",
                "/ends",
                "/sessions",
                "/metrics",
                "/healthz",
            ] {
                let query = format!("?defect={defects}&defects={defects}&fault=vad_drop&AGENT_SERVER_DEFECT={defects}");
                let headers =
                    format!("X-Defect: {defects}\r\nDefect: {defects}\r\nX-Fault: vad_drop\r\nAGENT_SERVER_DEFECT: {defects}\r\n");
                let body = format!("defect={defects}");
                let request = format!(
                    "{method} {path}{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{bearer}{headers}Content-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                for port in [g.server.admin, g.plain()] {
                    say(port, request.as_bytes()).await;
                }
            }
        }
        // Sessions that ask for them by the names that a start has.
        for path in ["/voiceagent.v1?defect=ghost%3D1&fault=vad_drop", "/v1/realtime?model=m&defect=ghost%3D1&fault=silent_session"] {
            let headers = [("x-defect", "ghost=1"), ("x-fault", "silent_session"), ("agent-server-defect", "ghost=1")];
            let open = crate::common::foreign::Foreign::open(g.plain(), path, &headers).await;
            drop(open);
        }
        let s = g.server.snapshot();
        assert!(s.defects.is_empty() && s.faults.is_empty() && !s.draining, "{s:?}");
        "nothing is switched on".to_owned()
    }),
];

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

async fn health(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut heard = String::new();
    let _ = stream.read_to_string(&mut heard).await;
    heard
}
