//! Who may ask the admin port, over what, and from where.

mod common;

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Command, Stdio},
    sync::Arc,
};

use common::{
    Server, http, http_whole,
    tls::{Authority, trusting},
    within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsConnector, rustls::ClientConfig};

const TOKEN: &str = "Authorization: Bearer hunter2\r\n";

#[test]
fn all_but_health_is_for_those_who_show_the_token() {
    let server = Server::start(&["--admin-token=hunter2"]);
    for path in ["/snapshot", "/sessions", "/ends", "/metrics"] {
        let (head, body) = http_whole(server.admin, "GET", path, "");
        assert!(head.starts_with("HTTP/1.1 401 ") && head.to_ascii_lowercase().contains("www-authenticate: bearer"), "{path}: {head}");
        assert!(body.contains("Bearer TOKEN") && !body.contains("hunter2"), "{body}");
        for shown in [TOKEN, "authorization: bearer hunter2\r\n", "x-api-key: hunter2\r\n"] {
            assert_eq!(http(server.admin, "GET", path, shown).0, 200, "{path}: {shown}");
        }
    }
    assert_eq!(http(server.admin, "GET", "/healthz", "").0, 200);
    assert_eq!(http(server.admin, "POST", "/healthz", "").0, 401, "health is asked, not told");
    assert_eq!(http(server.admin, "GET", "/nowhere", "").0, 401, "not even what there is");
    assert_eq!(http(server.admin, "POST", "/drain", "").0, 401);
    assert!(!server.snapshot().draining);
    assert_eq!(http(server.admin, "POST", "/drain", TOKEN).0, 202);
}

#[test]
fn tokens_come_from_files_and_the_environment_and_are_shown_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "hunter2\n").unwrap();
    let log = dir.path().join("log");
    let started = |flags: &[String], variables: &[(&str, &str)]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_agent-server"))
            .args(["serve", "--listen=127.0.0.1:0", "--stop-on-stdin-eof", "--log=trace"])
            .args(flags)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.contains("hunter2"), "{line}");
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let admin: SocketAddr = ready["admin"].as_str().unwrap().parse().unwrap();
        let codes = ["", TOKEN].map(|shown| http(admin, "GET", "/snapshot", shown).0);
        // A file or a variable is in no list of processes.
        let title = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
        let shown = String::from_utf8_lossy(&title).contains("hunter2");
        drop(child.stdin.take());
        child.wait().unwrap();
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(!said.contains("hunter2"), "{said}");
        assert_eq!(said.contains("list of processes"), shown, "it is said where it is so: {said}");
        codes
    };
    assert_eq!(started(&[format!("--admin-token-file={}", file.display())], &[]), [401, 200]);
    assert_eq!(started(&[], &[("AGENT_SERVER_ADMIN_TOKEN", "hunter2")]), [401, 200]);
    assert_eq!(started(&["--admin-token".to_owned(), "hunter2".to_owned()], &[]), [401, 200]);
    assert_eq!(started(&["--auth-token=hunter2".to_owned()], &[]), [200, 200], "that is the sessions'");
}

/// The head of an answer over TLS; none where there was none.
async fn ask(address: SocketAddr, config: Arc<ClientConfig>, path: &str) -> Option<String> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let mut stream = within("the handshake", TlsConnector::from(config).connect(name, stream)).await.ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes()).await.ok()?;
    let mut heard = Vec::new();
    let _ = within("the answer", stream.read_to_end(&mut heard)).await;
    Some(String::from_utf8_lossy(&heard).into_owned()).filter(|heard| !heard.is_empty())
}

#[tokio::test]
async fn the_admin_port_speaks_tls_with_the_same_certificate_and_asks_for_the_same() {
    let authority = Authority::new();
    let flags = [authority.flag("tls-cert", "server.pem"), authority.flag("tls-key", "server.key"), "--admin-tls".to_owned()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&flags);
    assert_eq!(server.tls_address, None, "no port of sessions speaks it");
    let stranger = trusting(&authority.file("ca.pem"), &["http/1.1"]);
    assert!(ask(server.admin, Arc::clone(&stranger), "/snapshot").await.unwrap().starts_with("HTTP/1.1 200"));
    let mut plain = tokio::net::TcpStream::connect(server.admin).await.unwrap();
    plain.write_all(b"GET /snapshot HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = within("the close", plain.read_to_end(&mut heard)).await;
    assert!(!heard.starts_with(b"HTTP/"), "it speaks nothing else");

    let client_ca = authority.flag("tls-client-ca", "ca.pem");
    let server = Server::start(&[&flags[..], &[client_ca.as_str(), "--tls-listen=127.0.0.1:0"]].concat());
    assert!(ask(server.admin, authority.known_client(), "/snapshot").await.unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(ask(server.admin, stranger, "/snapshot").await, None);
    assert!(server.tls_address.is_some());
}

#[tokio::test]
async fn a_certificate_of_ones_own_is_made_once_for_all_ports() {
    let dir = tempfile::tempdir().unwrap();
    let cert = dir.path().join("cert.pem");
    let own = format!("--tls-self-signed={}", cert.display());
    let server = Server::start(&["--tls-listen=127.0.0.1:0", "--admin-tls", &own]);
    for port in [server.admin, server.tls_address.unwrap()] {
        assert!(ask(port, trusting(&cert, &[]), "/voiceagent.v1").await.is_some(), "{port}");
    }
}

#[test]
fn the_admin_port_is_on_loopback_unless_it_is_told_or_guarded() {
    let any = "--listen=0.0.0.0:0";
    for (flags, ip) in [
        (&["--listen=127.0.0.1:0"][..], "127.0.0.1"),
        (&[any], "127.0.0.1"),
        (&[any, "--admin-token=hunter2"], "0.0.0.0"),
        (&[any, "--admin-listen=0.0.0.0:0"], "0.0.0.0"),
    ] {
        let server = Server::start_alone(flags);
        assert_eq!(server.admin.ip().to_string(), ip, "{flags:?}");
    }
}
