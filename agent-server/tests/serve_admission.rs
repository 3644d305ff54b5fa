//! The cap, the drain and the ways to stop.

mod common;

use common::{
    Server,
    client::{Client, Form, Got, end, grpc_message, start},
    eventually,
    foreign::{Foreign, Heard},
};
use proto::frame::{ErrorCode, Outcome, ServerEvent};
use rustix::process::Signal;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

async fn channel(server: &Server) -> tonic::transport::Channel {
    tonic::transport::Endpoint::try_from(format!("http://{}", server.address)).unwrap().connect().await.unwrap()
}

async fn health(server: &Server, service: &str) -> ServingStatus {
    let mut client = HealthClient::new(channel(server).await);
    let answer = client.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap();
    answer.into_inner().status()
}

#[tokio::test]
async fn the_cap_refuses_the_next_session_and_no_count_but_rejected_moves() {
    let server = Server::start(&["--max-sessions=2"]);
    let mut first = Client::started(server.address, Form::Grpc).await;
    let _second = Client::started(server.address, Form::Json).await;
    for (form, code) in [(Form::Grpc, 8), (Form::Binary, 1013), (Form::Json, 1013)] {
        let mut third = Client::open(server.address, form).await;
        third.send(start("third")).await;
        let (events, close) = third.rest().await;
        match form {
            // Refused before any headers: there is nothing but the status.
            Form::Grpc => assert_eq!(events, []),
            _ => assert!(
                matches!(&events[..], [ServerEvent::Error(error)] if error.code == ErrorCode::Overloaded && error.fatal),
                "{events:?}"
            ),
        }
        assert_eq!(close, Some(code), "{form:?}");
    }
    let snapshot = server.snapshot();
    assert_eq!((snapshot.started, snapshot.active, snapshot.rejected, snapshot.next_end), (2, 2, 3, 0));
    first.send(end()).await;
    first.rest().await;
    Client::started(server.address, Form::Grpc).await;
    assert_eq!(server.snapshot().rejected, 3);
}

#[tokio::test]
async fn sigterm_lets_sessions_finish_refuses_new_ones_and_exits_with_0() {
    let mut server = Server::start(&[]);
    assert_eq!(health(&server, "").await, ServingStatus::Serving);
    assert_eq!(health(&server, "voiceagent.v1.VoiceAgent").await, ServingStatus::Serving);
    assert_eq!(server.request("GET", "/healthz").0, 200);
    let mut clients = Vec::new();
    for form in Form::ALL {
        clients.push((form, Client::started(server.address, form).await));
    }
    server.signal(Signal::TERM);
    eventually("the drain begins", async || server.snapshot().draining.then_some(())).await;
    assert_eq!(health(&server, "").await, ServingStatus::NotServing);
    assert_eq!(health(&server, "voiceagent.v1.VoiceAgent").await, ServingStatus::NotServing);
    assert_eq!(server.request("GET", "/healthz").0, 503);
    for (form, code) in [(Form::Grpc, 14), (Form::Binary, 1001)] {
        let mut late = Client::open(server.address, form).await;
        late.send(start("late")).await;
        let (events, close) = late.rest().await;
        match form {
            Form::Grpc => assert_eq!(events, []),
            _ => assert!(matches!(&events[..], [ServerEvent::Error(error)] if error.code == ErrorCode::Draining), "{events:?}"),
        }
        assert_eq!(close, Some(code), "{form:?}");
    }
    assert_eq!(server.snapshot().active, 3);
    for (form, client) in &mut clients {
        client.speak().await;
        while !matches!(client.next().await, Got::Event(ServerEvent::ResponseEnd { .. })) {}
        client.send(end()).await;
        let (events, close) = client.rest().await;
        assert!(matches!(events.last(), Some(ServerEvent::Ended(ended)) if ended.outcome == Outcome::Completed), "{form:?}: {events:?}");
        assert_eq!(close, Some(if *form == Form::Grpc { 0 } else { 1000 }), "{form:?}");
    }
    assert_eq!(server.exit_code().await, Some(0));
}

#[tokio::test]
async fn what_outlives_the_drain_timeout_ends_as_drained() {
    let mut server = Server::start(&["--drain-timeout=300ms"]);
    let mut clients = Vec::new();
    for form in Form::ALL {
        clients.push(Client::started(server.address, form).await);
    }
    assert_eq!(server.request("POST", "/drain").0, 202);
    for client in &mut clients {
        let (events, close) = client.rest().await;
        assert!(matches!(events.last(), Some(ServerEvent::Ended(ended)) if ended.outcome == Outcome::Drained), "{events:?}");
        assert!(matches!(close, Some(14 | 1001)), "{close:?}");
    }
    assert_eq!(server.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_second_signal_exits_at_once() {
    let mut server = Server::start(&[]);
    let _client = Client::started(server.address, Form::Grpc).await;
    server.signal(Signal::TERM);
    eventually("the drain begins", async || server.snapshot().draining.then_some(())).await;
    server.signal(Signal::INT);
    assert_eq!(server.exit_code().await, Some(130));
}

#[tokio::test]
async fn the_server_goes_with_its_parent() {
    let mut server = Server::start(&[]);
    let _client = Client::started(server.address, Form::Binary).await;
    server.close_stdin();
    assert_eq!(server.exit_code().await, Some(0));
}

#[tokio::test]
async fn thousands_of_cancelled_streams_leave_their_connection_alive() {
    let server = Server::start(&[]);
    let mut bystander = Client::started(server.address, Form::Grpc).await;
    let Client::Grpc(grpc) = &bystander else { unreachable!() };
    for _ in 0..3_000 {
        // Reset right behind its start: the server sees both at once, or the reset alone.
        let (_, mut stream) = grpc.open_another().await;
        let _ = stream.send_data(grpc_message(&start("cancelled")), false);
        stream.send_reset(h2::Reason::CANCEL);
    }
    bystander.send(end()).await;
    let (events, close) = bystander.rest().await;
    assert!(matches!(events.last(), Some(ServerEvent::Ended(ended)) if ended.outcome == Outcome::Completed), "{events:?}");
    assert_eq!(close, Some(0));
    let snapshot = eventually("every cancelled session has ended", async || Some(server.snapshot()).filter(|s| s.active == 0)).await;
    assert_eq!(snapshot.started, snapshot.ended["completed"] + snapshot.ended["cancelled"]);
    assert_eq!(snapshot.ended["completed"], 1);
}

#[tokio::test]
async fn defects_are_listed_by_name_with_their_strikes() {
    let server = Server::start(&["--defect=ghost=1"]);
    let client = Client::started(server.address, Form::Grpc).await;
    client.leave(common::client::Rude::Rst).await;
    let snapshot = eventually("the ghost", async || Some(server.snapshot()).filter(|s| s.live_tasks == 0)).await;
    assert_eq!((snapshot.active, snapshot.defects["ghost"]), (1, 1));
    let (_, metrics) = server.request("GET", "/metrics");
    assert!(metrics.contains("agent_server_defect_strikes_total{kind=\"ghost\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_signal_right_behind_the_ready_line_drains() {
    for _ in 0..5 {
        let mut server = Server::start(&[]);
        server.signal(Signal::TERM);
        assert_eq!(server.exit_code().await, Some(0));
    }
}

fn twilio_start() -> serde_json::Value {
    serde_json::json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {"streamSid": "MZ1", "callSid": "CA1",
        "tracks": ["inbound"], "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}})
}

/// Clients that count a session once their start is written, without a word of ours, must be right.
#[tokio::test]
async fn an_upgrade_that_is_taken_has_a_place_for_its_start() {
    let server = Server::start(&["--max-sessions=1"]);
    let mut first = Foreign::open(server.address, "/twilio", &[]).await;
    let Err((status, body)) = Foreign::try_open(server.address, "/twilio", &[]).await else { panic!("two upgrades for one place") };
    assert_eq!((status, body.contains("full")), (503, true), "{body}");
    // The place is taken for every dialect, and is no session before its start.
    let mut native = Client::open(server.address, Form::Json).await;
    native.send(start("native")).await;
    assert_eq!(native.rest().await.1, Some(1013));
    let snapshot = server.snapshot();
    assert_eq!((snapshot.started, snapshot.active, snapshot.rejected), (0, 0, 2));
    first.json(twilio_start()).await;
    eventually("the start is counted", async || (server.snapshot().active == 1).then_some(())).await;
    first.json(serde_json::json!({"event": "stop", "streamSid": "MZ1"})).await;
    assert_eq!(first.next().await, Heard::Closed(Some(1000)));
    server.expect_ends(&[("completed", 1)]).await;
    // A place whose start never comes is given back: when the client leaves, says what is wrong, or says nothing for too long.
    drop(Foreign::open(server.address, "/twilio", &[]).await);
    let mut wrong = eventually("the place of who left", async || Foreign::try_open(server.address, "/twilio", &[]).await.ok()).await;
    wrong.text("no call").await;
    assert!(matches!(wrong.next().await, Heard::Closed(Some(_))));
    let _last = eventually("the place of who was refused", async || Foreign::try_open(server.address, "/twilio", &[]).await.ok()).await;
    assert_eq!(server.snapshot().started, 1);
}

#[tokio::test]
async fn a_place_is_given_back_when_its_start_does_not_come_in_time() {
    let server = Server::start(&["--max-sessions=1", "--start-timeout=300ms"]);
    let mut silent = Foreign::open(server.address, "/twilio", &[]).await;
    assert!(matches!(silent.next().await, Heard::Closed(Some(_))));
    let mut next = eventually("the place", async || Foreign::try_open(server.address, "/twilio", &[]).await.ok()).await;
    next.json(twilio_start()).await;
    eventually("the start is counted", async || (server.snapshot().active == 1).then_some(())).await;
}

/// The client was let in and cannot know of the drain: its start is a session like those that live.
#[tokio::test]
async fn the_drain_waits_for_the_start_of_an_upgrade_that_was_taken() {
    let mut server = Server::start(&[]);
    let mut call = Foreign::open(server.address, "/twilio", &[]).await;
    assert_eq!(server.request("POST", "/drain").0, 202);
    eventually("the drain begins", async || server.snapshot().draining.then_some(())).await;
    assert_eq!(Foreign::try_open(server.address, "/twilio", &[]).await.err().map(|(status, _)| status), Some(503));
    call.json(twilio_start()).await;
    eventually("the start is counted", async || (server.snapshot().active == 1).then_some(())).await;
    call.json(serde_json::json!({"event": "stop", "streamSid": "MZ1"})).await;
    assert_eq!(call.next().await, Heard::Closed(Some(1000)));
    assert_eq!(server.exit_code().await, Some(0));
}
