//! Everything that a client can say wrong: it is told what, and no count is off by it.

mod common;

use common::{
    Server,
    client::{Client, Form, Rude, audio, end, start},
    http,
};
use proto::frame::{ClientEvent, ErrorCode, ServerEvent, SessionStart};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What a client does after its start was accepted, or instead of it.
type Deed = fn(&mut Client) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>;

struct Case {
    name: &'static str,
    started: bool,
    deed: Deed,
    code: ErrorCode,
    /// gRPC status and WebSocket close code of a fatal error; none when the session survives.
    close: Option<(u16, u16)>,
    forms: &'static [Form],
}

const PROTOBUF: &[Form] = &[Form::Grpc, Form::Binary];

fn cases() -> Vec<Case> {
    fn wrong_start(change: fn(&mut SessionStart)) -> ClientEvent {
        let ClientEvent::Start(mut s) = start("bad") else { unreachable!() };
        change(&mut s);
        ClientEvent::Start(s)
    }
    macro_rules! case {
        ($name:literal, $started:literal, |$c:ident| $deed:expr, $code:ident, $close:expr, $forms:expr) => {
            Case {
                name: $name,
                started: $started,
                deed: |$c| Box::pin(async move { $deed }),
                code: ErrorCode::$code,
                close: $close,
                forms: $forms,
            }
        };
    }
    vec![
        case!("garbage first", false, |c| c.send_raw(&[0xff; 20]).await, MalformedMessage, Some((3, 1007)), PROTOBUF),
        case!("garbage JSON first", false, |c| c.send_raw(b"{]").await, MalformedMessage, Some((3, 1007)), &[Form::Json]),
        case!("an unknown JSON key", false, |c| c.send_raw(b"{\"strat\":{}}").await, MalformedMessage, Some((3, 1007)), &[Form::Json]),
        case!("an empty message first", false, |c| c.send_raw(b"").await, MalformedMessage, Some((3, 1007)), PROTOBUF),
        case!("audio before the start", false, |c| c.send(audio(0, &[0; 640])).await, NotStarted, Some((9, 1008)), &Form::ALL),
        case!("end before the start", false, |c| c.send(end()).await, NotStarted, Some((9, 1008)), &Form::ALL),
        case!(
            "a wrong sample rate",
            false,
            |c| c.send_raw(&[0x0a, 0x06, 0x18, 0x01, 0x20, 0xc4, 0xd8, 0x02]).await,
            UnsupportedFormat,
            Some((3, 1008)),
            PROTOBUF
        ),
        case!(
            "a name that is too long",
            false,
            |c| c.send(wrong_start(|s| s.client_ref = "x".repeat(200))).await,
            InvalidArgument,
            Some((3, 1008)),
            &Form::ALL
        ),
        case!(
            "an oversize message first",
            false,
            |c| c.send(ClientEvent::Context { role: "user".into(), text: "x".repeat(70_000) }).await,
            MessageTooLarge,
            Some((11, 1009)),
            &Form::ALL
        ),
        case!("two starts", true, |c| c.send(start("again")).await, AlreadyStarted, Some((9, 1008)), &Form::ALL),
        case!("garbage later", true, |c| c.send_raw(&[0xff; 20]).await, MalformedMessage, Some((3, 1007)), PROTOBUF),
        case!("garbage JSON later", true, |c| c.send_raw(b"hello").await, MalformedMessage, Some((3, 1007)), &[Form::Json]),
        case!("odd PCM", true, |c| c.send(audio(0, &[0; 641])).await, BadAudio, None, &Form::ALL),
        case!("an oversize message", true, |c| c.send(audio(0, &vec![0; 70_000])).await, MessageTooLarge, Some((11, 1009)), &Form::ALL),
        case!("a gap", true, |c| c.send(audio(7, &[0; 640])).await, SequenceGap, None, &Form::ALL),
        case!(
            "a result nobody asked for",
            true,
            |c| c.send(ClientEvent::ToolResult { call_id: "nope".into(), output: String::new(), failed: false }).await,
            UnknownToolCall,
            None,
            &Form::ALL
        ),
    ]
}

#[tokio::test]
async fn each_wrong_message_gets_its_error_and_counts_stay_exact() {
    let server = Server::start(&[]);
    let (mut failed, mut completed) = (0, 0);
    for case in cases() {
        for &form in case.forms {
            let what = format!("{} over {form:?}", case.name);
            let mut client =
                if case.started { Client::started(server.address, form).await } else { Client::open(server.address, form).await };
            (case.deed)(&mut client).await;
            if case.close.is_none() {
                client.send(end()).await;
            }
            let (events, close) = client.rest().await;
            let error = events.iter().find_map(|e| if let ServerEvent::Error(error) = e { Some(error) } else { None });
            let Some(error) = error else { panic!("{what}: no error in {events:?}, closed with {close:?}") };
            assert_eq!((error.code, error.fatal), (case.code, case.close.is_some()), "{what}: {error}");
            assert!(error.message.len() > 10, "{what}: {error}");
            let (grpc, ws) = case.close.unwrap_or((0, 1000));
            assert_eq!(close, Some(if form == Form::Grpc { grpc } else { ws }), "{what}");
            match (case.started, case.close) {
                (false, _) => {}
                (true, Some(_)) => failed += 1,
                (true, None) => completed += 1,
            }
            server.expect_ends(&[("failed", failed), ("completed", completed)]).await;
        }
    }
}

#[tokio::test]
async fn a_binary_client_may_send_text_and_is_told_when_it_is_garbage() {
    use tokio_tungstenite::tungstenite::Message;
    let server = Server::start(&[]);
    let mut client = Client::started(server.address, Form::Binary).await;
    if let Client::Ws(ws) = &mut client {
        ws.send_message(Message::Text("hello?".into())).await;
    }
    let (events, close) = client.rest().await;
    let error = events.iter().find_map(|e| if let ServerEvent::Error(error) = e { Some(error) } else { None }).unwrap();
    assert_eq!(error.code, ErrorCode::MalformedMessage);
    assert_eq!(close, Some(1007));
    server.expect_ends(&[("failed", 1)]).await;
}

#[tokio::test]
async fn a_message_after_the_end_is_told_and_changes_nothing() {
    let server = Server::start(&[]);
    let mut client = Client::started(server.address, Form::Grpc).await;
    // Both arrive together, so that the server has read the second before it closes.
    let mut both = Vec::new();
    for event in [end(), audio(0, &[0; 640])] {
        let message = prost::Message::encode_to_vec(&proto::native::client_message(event).expect("a native event"));
        both.push(message);
    }
    if let Client::Grpc(grpc) = &mut client {
        grpc.send_together(&both);
    }
    let (events, close) = client.rest().await;
    let told = events.iter().any(|e| matches!(e, ServerEvent::Error(error) if error.code == ErrorCode::AfterEnd));
    assert!(told, "{events:?}");
    assert_eq!(close, Some(0), "the session itself ended in order");
    server.expect_ends(&[("completed", 1)]).await;
}

#[tokio::test]
async fn wrong_paths_and_plain_requests_are_told_where_to_go() {
    let server = Server::start(&[]);
    let upgrade =
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (method, path, headers, code, hint) in [
        ("GET", "/", upgrade, 404, "/voiceagent.v1"),
        ("GET", "/v1/nowhere", "", 404, "/v1/realtime"),
        ("GET", "/voiceagent.v1", "", 426, "upgrade"),
        ("POST", "/voiceagent.v1", upgrade, 405, "GET"),
        ("GET", "/voiceagent.v1", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 8\r\n", 426, "13"),
        ("GET", "/voiceagent.v1", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n", 400, "Sec-WebSocket-Key"),
    ] {
        let (got, body) = http(server.address, method, path, headers);
        assert_eq!(got, code, "{method} {path}: {body}");
        assert!(body.contains(hint), "{method} {path}: {body}");
    }
    let (code, body) = server.request("GET", "/nowhere");
    assert!(code == 404 && body.contains("/snapshot"), "{body}");
    server.expect_ends(&[]).await;
}

#[tokio::test]
async fn who_never_starts_is_closed_and_never_counted() {
    let server = Server::start(&["--start-timeout=300ms"]);
    for form in Form::ALL {
        let mut client = Client::open(server.address, form).await;
        let (events, close) = client.rest().await;
        assert!(matches!(&events[..], [ServerEvent::Error(error)] if error.code == ErrorCode::NotStarted), "{form:?}: {events:?}");
        assert_eq!(close, Some(if form == Form::Grpc { 9 } else { 1008 }), "{form:?}");
        // And one that leaves before it starts.
        let _kept = Client::open(server.address, form).await.leave(Rude::Eof).await;
    }
    // A connection that says nothing at all is closed too.
    let silent = tokio::net::TcpStream::connect(server.address).await.unwrap();
    common::within("the close of a silent connection", async {
        silent.readable().await.unwrap();
        assert_eq!(silent.try_read(&mut [0; 1]).unwrap(), 0);
    })
    .await;
    server.expect_ends(&[]).await;
}

#[tokio::test]
async fn a_frame_that_was_refused_is_counted_nowhere() {
    let server = Server::start(&[]);
    for form in Form::ALL {
        let mut client = Client::started(server.address, form).await;
        client.send(audio(0, &[0; 641])).await;
        client.send(audio(1, &[])).await;
        client.send(audio(2, &[0; 640])).await;
        client.send(end()).await;
        let (events, _) = client.rest().await;
        assert!(matches!(events.last(), Some(ServerEvent::Ended(ended)) if ended.frames_in == 1), "{form:?}: {events:?}");
    }
    let snapshot = server.expect_ends(&[("completed", 3)]).await;
    assert_eq!(snapshot.frames_in, 3, "the server's count is the sum of what it told its clients");
}

#[tokio::test]
async fn a_silent_connection_to_the_admin_port_is_closed() {
    let server = Server::start(&["--start-timeout=300ms"]);
    // One never speaks, one stops in mid-request, one keeps its connection and asks no more.
    for said in ["", "GET /snap", "GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"] {
        let mut stream = tokio::net::TcpStream::connect(server.admin).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        common::within("the close of a silent connection", stream.read_to_end(&mut heard)).await.unwrap();
        assert_eq!(heard.starts_with(b"HTTP/1.1 200"), said.ends_with('\n'), "{said:?}");
    }
}

/// RFC 6455 has 1002 for what is wrong with frames, and 1007 for what is in messages.
#[tokio::test]
async fn what_is_no_frame_closes_with_1002() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start(&[]);
    for (what, bytes) in [
        ("unmasked", [0x81, 0x04, b'a', b'b', b'c', b'd']),
        ("a reserved bit", [0xc1, 0x80, 0, 0, 0, 0]),
        ("an opcode that is not there", [0x83, 0x80, 0, 0, 0, 0]),
        ("the rest of nothing", [0x80, 0x80, 0, 0, 0, 0]),
    ] {
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let upgrade = "GET /twilio HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(upgrade.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() >= 4 && rest[0] == 0x88, "{what}: {rest:?}");
        assert_eq!(u16::from_be_bytes([rest[2], rest[3]]), 1002, "{what}");
    }
}
