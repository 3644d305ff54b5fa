//! Clients that leave without goodbye: each is counted once, as what it was.

mod common;

use common::{
    Server,
    client::{Client, Form, Got, Rude, end},
};
use proto::frame::ServerEvent;

#[tokio::test]
async fn every_rude_end_is_counted_once() {
    let server = Server::start(&[]);
    let mut kept = Vec::new();
    let mut expected = 0;
    for how in [Rude::Cancel, Rude::Eof, Rude::Fin, Rude::Rst] {
        for form in Form::ALL {
            let mut client = Client::started(server.address, form).await;
            client.speak().await;
            kept.push(client.leave(how).await);
            expected += 1;
            server.expect_ends(&[("cancelled", expected)]).await;
        }
    }
}

#[tokio::test]
async fn a_half_open_peer_is_found_and_timed_out() {
    let server = Server::start(&["--keepalive-interval=300ms", "--keepalive-timeout=200ms"]);
    let mut kept = Vec::new();
    for form in [Form::Grpc, Form::Binary] {
        // One idles, the other is spoken to while it goes silent.
        for speaks in [false, true] {
            let mut client = Client::started(server.address, form).await;
            if speaks {
                client.speak().await;
            }
            kept.push(client.leave(Rude::HalfOpen).await);
        }
    }
    let snapshot = server.expect_ends(&[("timed_out", 4)]).await;
    assert_eq!(snapshot.late_ends, 0);
}

#[tokio::test]
async fn a_half_open_peer_with_a_full_socket_is_found_too() {
    let server = Server::start(&["--keepalive-interval=2s", "--keepalive-timeout=1s", "--http2-stream-window=1048576"]);
    let mut client = Client::started(server.address, Form::Grpc).await;
    client.ask(60_000).await;
    let _kept = client.leave(Rude::HalfOpen).await;
    server.expect_ends(&[("timed_out", 1)]).await;
}

#[tokio::test]
async fn an_idle_peer_that_answers_pings_lives() {
    let server = Server::start(&["--keepalive-interval=200ms", "--keepalive-timeout=1s"]);
    for form in [Form::Grpc, Form::Binary] {
        let mut client = Client::started(server.address, form).await;
        // Reading answers pings; the session outlives the deadline of a silent one.
        let quiet = tokio::time::timeout(std::time::Duration::from_millis(1_500), client.next()).await;
        assert!(quiet.is_err(), "{form:?}: {quiet:?}");
        client.send(end()).await;
        assert!(matches!(client.next().await, Got::Event(ServerEvent::Ended(_))), "{form:?}");
    }
    server.expect_ends(&[("completed", 2)]).await;
}

#[tokio::test]
async fn a_cancel_in_mid_message_is_a_cancel() {
    let server = Server::start(&[]);
    let mut client = Client::started(server.address, Form::Grpc).await;
    if let Client::Grpc(grpc) = &mut client {
        grpc.send_half_a_message();
    }
    let _kept = client.leave(Rude::Cancel).await;
    server.expect_ends(&[("cancelled", 1)]).await;
}

#[tokio::test]
async fn a_close_frame_is_answered() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;
    let server = Server::start(&[]);
    let url = format!("ws://{}/voiceagent.v1", server.address);
    for started in [false, true] {
        let socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let (mut stream, _) = tokio_tungstenite::client_async(&url, socket).await.unwrap();
        if started {
            stream.send(Message::Text("{\"start\":{\"encoding\":1,\"sampleRate\":16000}}".into())).await.unwrap();
            common::within("the session begins", stream.next()).await.unwrap().unwrap();
        }
        stream.send(Message::Close(None)).await.unwrap();
        let answer = common::within("the answer to a close", stream.next()).await;
        assert!(matches!(answer, Some(Ok(Message::Close(_)))), "{answer:?}");
    }
    server.expect_ends(&[("cancelled", 1)]).await;
}
