//! The TLS port: it serves what the plain port serves, and counts the same.

mod common;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::Command,
    sync::Arc,
};

use common::{
    Server,
    client::{Client, Form, Got, Rude, Way, end},
    http_whole,
    tls::{Authority, trusting},
    within,
};
use proto::frame::{Outcome, ServerEvent};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsConnector, rustls::ClientConfig};

/// A server with a certificate of its own, and where that is.
struct SelfSigned {
    server: Server,
    cert: PathBuf,
    _dir: tempfile::TempDir,
}

impl SelfSigned {
    fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cert = dir.path().join("cert.pem");
        let own = format!("--tls-self-signed={}", cert.display());
        let server = Server::start(&[&["--tls-listen=127.0.0.1:0", own.as_str()], flags].concat());
        Self { server, cert, _dir: dir }
    }

    fn address(&self) -> SocketAddr {
        self.server.tls_address.unwrap()
    }

    /// The way of a client that offers the protocol of its form, as clients do.
    fn way(&self, form: Form) -> Way {
        let protocols: &[&str] = if form == Form::Grpc { &["h2"] } else { &["http/1.1"] };
        Way::tls(self.address(), trusting(&self.cert, protocols))
    }
}

#[tokio::test]
async fn sessions_of_each_form_complete_over_tls_whatever_the_client_offers() {
    let tls = SelfSigned::start(&[]);
    let mut ended = 0;
    for form in Form::ALL {
        for protocols in [&["h2", "http/1.1"][..], &[]] {
            let mut client = Client::started(Way::tls(tls.address(), trusting(&tls.cert, protocols)), form).await;
            client.speak().await;
            while !matches!(client.next().await, Got::Event(ServerEvent::ResponseEnd { .. })) {}
            client.send(end()).await;
            let (events, close) = client.rest().await;
            assert!(
                matches!(events.last(), Some(ServerEvent::Ended(ended)) if ended.outcome == Outcome::Completed),
                "{form:?}: {events:?}"
            );
            assert_eq!(close, Some(if form == Form::Grpc { 0 } else { 1000 }), "{form:?}");
            ended += 1;
        }
    }
    assert_eq!(Server::start(&[]).tls_address, None);
    // The plain port is there as well.
    let mut plain = Client::started(tls.server.address, Form::Binary).await;
    plain.send(end()).await;
    plain.rest().await;
    tls.server.expect_ends(&[("completed", ended + 1)]).await;
}

#[tokio::test]
async fn every_rude_end_over_tls_is_counted_once() {
    let tls = SelfSigned::start(&[]);
    let mut kept = Vec::new();
    let mut expected = 0;
    for how in [Rude::Cancel, Rude::Eof, Rude::Fin, Rude::Rst] {
        for form in Form::ALL {
            let mut client = Client::started(tls.way(form), form).await;
            client.speak().await;
            kept.push(client.leave(how).await);
            expected += 1;
            tls.server.expect_ends(&[("cancelled", expected)]).await;
        }
    }
}

#[tokio::test]
async fn a_half_open_peer_over_tls_is_found_and_timed_out() {
    let tls = SelfSigned::start(&["--keepalive-interval=300ms", "--keepalive-timeout=200ms"]);
    let mut kept = Vec::new();
    for form in [Form::Grpc, Form::Binary] {
        for speaks in [false, true] {
            let mut client = Client::started(tls.way(form), form).await;
            if speaks {
                client.speak().await;
            }
            kept.push(client.leave(Rude::HalfOpen).await);
        }
    }
    let snapshot = tls.server.expect_ends(&[("timed_out", 4)]).await;
    assert_eq!(snapshot.late_ends, 0);
}

#[tokio::test]
async fn the_drain_reaches_sessions_over_tls() {
    let mut tls = SelfSigned::start(&["--drain-timeout=300ms"]);
    let mut clients = Vec::new();
    for form in Form::ALL {
        clients.push(Client::started(tls.way(form), form).await);
    }
    tls.server.signal(Signal::TERM);
    for client in &mut clients {
        let (events, close) = client.rest().await;
        assert!(matches!(events.last(), Some(ServerEvent::Ended(ended)) if ended.outcome == Outcome::Drained), "{events:?}");
        assert!(matches!(close, Some(14 | 1001)), "{close:?}");
    }
    assert_eq!(tls.server.exit_code().await, Some(0));
}

/// Everything that comes until the server closes; the test fails when it does not.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server does not close");
    }
    answer
}

#[tokio::test]
async fn the_wrong_protocol_on_either_port_is_closed_and_not_left_hanging() {
    let tls = SelfSigned::start(&["--start-timeout=500ms"]);
    let (head, body) = http_whole(tls.address(), "GET", "/voiceagent.v1", "");
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("wss://"), "{head}\n{body}");
    // HTTP/2 without TLS, and no protocol at all.
    exchange(tls.address(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    exchange(tls.address(), &[22, 3, 1, 0, 5, 9, 9, 9, 9, 9]);
    // A handshake that never comes, and one that stops, cost no more than the time to start.
    assert_eq!(exchange(tls.address(), b""), b"");
    assert_eq!(exchange(tls.address(), &[22, 3, 1, 2, 0]), b"");
    // TLS on the plain port.
    let stream = tokio::net::TcpStream::connect(tls.server.address).await.unwrap();
    let connector = TlsConnector::from(trusting(&tls.cert, &[]));
    within("the handshake fails", connector.connect(tls.server.address.ip().into(), stream)).await.unwrap_err();
    tls.server.expect_ends(&[]).await;
}

async fn shake(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> std::io::Result<()> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = name.to_owned().try_into().unwrap();
    let mut stream = within("the handshake", TlsConnector::from(config).connect(name, stream)).await?;
    // What the server thinks of our certificate, we learn with the first bytes.
    stream.write_all(b"GET /voiceagent.v1 HTTP/1.1\r\nHost: test\r\n\r\n").await?;
    let mut answer = [0; 12];
    within("an answer", stream.read_exact(&mut answer)).await?;
    assert_eq!(&answer, b"HTTP/1.1 426");
    Ok(())
}

#[tokio::test]
async fn a_certificate_of_ones_own_is_good_for_the_names_of_this_machine() {
    let tls = SelfSigned::start(&[]);
    for name in ["localhost", "127.0.0.1", "::1"] {
        shake(tls.address(), name, trusting(&tls.cert, &[])).await.unwrap();
    }
    let other = SelfSigned::start(&[]);
    for (name, cert) in [("elsewhere.example", &tls.cert), ("localhost", &other.cert)] {
        shake(tls.address(), name, trusting(cert, &[])).await.unwrap_err();
    }
    let pem = std::fs::read_to_string(&tls.cert).unwrap();
    assert!(pem.contains("BEGIN CERTIFICATE") && !pem.contains("KEY"), "{pem}");
}

#[tokio::test]
async fn certificates_from_files_serve_and_clients_may_have_to_show_one() {
    let authority = Authority::new();
    let flags = [authority.flag("tls-cert", "server.pem"), authority.flag("tls-key", "server.key"), "--tls-listen=127.0.0.1:0".to_owned()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&flags);
    shake(server.tls_address.unwrap(), "localhost", trusting(&authority.file("ca.pem"), &[])).await.unwrap();

    let client_ca = authority.flag("tls-client-ca", "ca.pem");
    let server = Server::start(&[&flags[..], &[client_ca.as_str()]].concat());
    let address = server.tls_address.unwrap();
    shake(address, "localhost", authority.known_client()).await.unwrap();
    shake(address, "localhost", trusting(&authority.file("ca.pem"), &[])).await.unwrap_err();
    let other = Authority::new();
    std::fs::copy(authority.file("ca.pem"), other.file("ca.pem")).unwrap();
    shake(address, "localhost", other.known_client()).await.unwrap_err();
}

#[test]
fn wrong_files_are_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    std::fs::write(authority.file("junk.pem"), "junk").unwrap();
    for (flags, complaint) in [
        ([authority.flag("tls-cert", "server.pem"), other.flag("tls-key", "server.key")], "does not belong to the certificate"),
        ([authority.flag("tls-cert", "none.pem"), authority.flag("tls-key", "server.key")], "none.pem"),
        ([authority.flag("tls-cert", "junk.pem"), authority.flag("tls-key", "server.key")], "holds no certificate"),
        ([authority.flag("tls-cert", "server.pem"), authority.flag("tls-key", "junk.pem")], "private key (PEM)"),
        ([authority.flag("tls-self-signed", "no/such/dir.pem"), "--shards=1".to_owned()], "failed to write the certificate"),
        ([authority.flag("tls-self-signed", "own.pem"), authority.flag("tls-client-ca", "none.pem")], "none.pem"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_agent-server"))
            .args(["serve", "--listen=127.0.0.1:0", "--tls-listen=127.0.0.1:0"])
            .args(&flags)
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {error}");
        assert!(error.contains(complaint) && !error.contains("panicked"), "{flags:?}: {error}");
    }
}
