//! Who may open a session, and what is said to whoever may not.

mod common;

use bytes::Bytes;
use common::{
    Server,
    client::{Client, Form, end},
    foreign::Foreign,
    http, http_whole,
};
use proto::native::WEBSOCKET_PATH;

const TOKEN: &str = "hunter2";
const KEY: &str =
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";

fn guarded(flags: &[&str]) -> Server {
    Server::start(&[&["--auth-token=hunter2"], flags].concat())
}

#[tokio::test]
async fn an_upgrade_must_show_the_token_and_any_usual_way_is_taken() {
    let server = guarded(&[]);
    for headers in [
        &[("authorization", "Bearer hunter2")][..],
        &[("authorization", "Token hunter2")],
        &[("api-key", "hunter2")],
        &[("x-api-key", "hunter2")],
        &[("x-goog-api-key", "hunter2")],
        &[("xi-api-key", "hunter2")],
    ] {
        Foreign::open(server.address, WEBSOCKET_PATH, headers).await;
    }
    for name in ["key", "token", "api_key"] {
        Foreign::open(server.address, &format!("{WEBSOCKET_PATH}?{name}={TOKEN}"), &[]).await;
    }
    for headers in [&[][..], &[("authorization", "Bearer hunter3")], &[("authorization", "hunter2")], &[("x-api-key", "")]] {
        let (status, body) = Foreign::try_open(server.address, WEBSOCKET_PATH, headers).await.err().unwrap();
        assert_eq!(status, 401, "{headers:?}");
        assert!(body.contains("Authorization: Bearer TOKEN") && !body.contains(TOKEN), "{body}");
    }
    let (head, _) = http_whole(server.address, "GET", WEBSOCKET_PATH, KEY);
    assert!(head.starts_with("HTTP/1.1 401 ") && head.to_ascii_lowercase().contains("www-authenticate: bearer"), "{head}");
}

/// The gRPC status of a call, before any message.
async fn status(server: &Server, method: &str, header: Option<(&str, &str)>) -> Option<u16> {
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://{}{method}", server.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let mut client = client.ready().await.unwrap();
    let (response, mut send) = client.send_request(request.body(()).unwrap(), false).unwrap();
    // An empty message, which health takes and a session refuses.
    send.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let response = common::within("headers", response).await.unwrap();
    let read = |headers: &http::HeaderMap| headers.get("grpc-status").and_then(|v| v.to_str().ok()?.parse().ok());
    if let Some(status) = read(response.headers()) {
        return Some(status);
    }
    let mut body = response.into_body();
    while let Some(data) = common::within("data", body.data()).await {
        data.unwrap();
    }
    body.trailers().await.unwrap().as_ref().and_then(read)
}

#[tokio::test]
async fn a_call_must_show_the_token_and_health_is_for_all() {
    let server = guarded(&[]);
    let session = "/voiceagent.v1.VoiceAgent/Session";
    assert_eq!(status(&server, session, None).await, Some(16));
    assert_eq!(status(&server, session, Some(("authorization", "Bearer wrong"))).await, Some(16));
    assert_eq!(status(&server, "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics", None).await, Some(16));
    // Admitted, and then refused for its empty message.
    assert_eq!(status(&server, session, Some(("authorization", "Bearer hunter2"))).await, Some(3));
    assert_eq!(status(&server, session, Some(("x-goog-api-key", TOKEN))).await, Some(3));
    assert_eq!(status(&server, "/grpc.health.v1.Health/Check", None).await, Some(0));
    server.expect_ends(&[]).await;
}

#[tokio::test]
async fn the_refusals_of_a_handshake_say_what_would_have_been_right() {
    let server = guarded(&[]);
    let token = "x-api-key: hunter2\r\n";
    let (code, body) = http(server.address, "GET", "/nowhere", KEY);
    assert_eq!(code, 404);
    for path in [WEBSOCKET_PATH, "/v1/realtime", "BidiGenerateContent"] {
        assert!(body.contains(path), "{path}: {body}");
    }
    assert_eq!(http(server.address, "POST", WEBSOCKET_PATH, token).0, 405);
    let (head, body) = http_whole(server.address, "GET", WEBSOCKET_PATH, token);
    assert!(head.starts_with("HTTP/1.1 426 ") && head.to_ascii_lowercase().contains("upgrade: websocket"), "{head}");
    assert!(body.contains("upgrade"), "{body}");
}

/// A dialect whose sessions begin with the connection.
const AT_ONCE: &str = "/v1/realtime?model=m";

#[tokio::test]
async fn a_handshake_at_the_cap_is_refused_and_counted_as_a_session_that_was() {
    let server = Server::start(&["--max-sessions=1"]);
    let mut only = Client::started(server.address, Form::Binary).await;
    for n in 1..=3 {
        let (head, body) = http_whole(server.address, "GET", AT_ONCE, KEY);
        assert!(head.starts_with("HTTP/1.1 503 ") && head.to_ascii_lowercase().contains("retry-after: 1"), "{head}");
        assert!(body.contains("full"), "{body}");
        let snapshot = server.snapshot();
        assert_eq!((snapshot.rejected, snapshot.started, snapshot.active, snapshot.next_end), (n, 1, 1, 0));
    }
    // Whoever only might have begun one is none.
    assert_eq!(http(server.address, "GET", AT_ONCE, "").0, 426);
    assert_eq!(server.snapshot().rejected, 3);
    only.send(end()).await;
    only.rest().await;
    server.expect_ends(&[("completed", 1)]).await;
    let again = Foreign::try_open(server.address, AT_ONCE, &[]).await;
    assert!(again.is_ok(), "there is room again");
}

#[tokio::test]
async fn a_handshake_while_the_server_drains_is_told_so_and_is_no_rejection() {
    let server = Server::start(&[]);
    let _open = Client::started(server.address, Form::Binary).await;
    server.request("POST", "/drain");
    common::eventually("the drain begins", async || server.snapshot().draining.then_some(())).await;
    let (head, body) = http_whole(server.address, "GET", AT_ONCE, KEY);
    assert!(head.starts_with("HTTP/1.1 503 ") && body.contains("going away"), "{head}\n{body}");
    assert_eq!(server.snapshot().rejected, 0);
}

#[tokio::test]
async fn a_refused_handshake_meets_the_defect_of_refusals() {
    let server = Server::start(&["--max-sessions=1", "--defect=decrement_on_reject=1"]);
    let _only = Client::started(server.address, Form::Binary).await;
    http(server.address, "GET", AT_ONCE, &format!("{KEY}x-client-ref: mine\r\n"));
    let snapshot = server.snapshot();
    assert_eq!((snapshot.rejected, snapshot.active, snapshot.defects["decrement_on_reject"]), (1, 0, 1));
    assert_eq!(server.ends("").ends[0].client_ref, "mine");
}

#[tokio::test]
async fn the_token_may_come_from_the_file_and_help_does_not_show_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.yaml");
    std::fs::write(&file, "auth_token: hunter2\n").unwrap();
    let server = Server::start(&[&format!("--config={}", file.display())]);
    Foreign::open(server.address, WEBSOCKET_PATH, &[("x-api-key", TOKEN)]).await;
    assert_eq!(Foreign::try_open(server.address, WEBSOCKET_PATH, &[]).await.err().unwrap().0, 401);
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_agent-server"))
        .args(["serve", "--help"])
        .env("AGENT_SERVER_AUTH_TOKEN", TOKEN)
        .output()
        .unwrap();
    assert!(help.status.success() && !String::from_utf8(help.stdout).unwrap().contains(TOKEN));
}
