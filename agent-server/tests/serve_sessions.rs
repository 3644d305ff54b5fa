//! Whole sessions over real sockets, on both transports and in every form.

mod common;

use common::{
    Server,
    client::{Client, Form, Got, end, start},
};
use proto::frame::{Outcome, ResponseStatus, ServerEvent};

#[tokio::test]
async fn a_session_completes_in_every_form() {
    let server = Server::start(&[]);
    for form in Form::ALL {
        let mut client = Client::started(server.address, form).await;
        client.speak().await;
        let (mut frames, mut said) = (0, false);
        while !said {
            match client.next().await {
                Got::Event(ServerEvent::Audio(_)) => frames += 1,
                Got::Event(ServerEvent::ResponseEnd { status, .. }) => {
                    assert_eq!(status, ResponseStatus::Completed, "{form:?}");
                    said = true;
                }
                Got::Event(ServerEvent::Error(error)) => panic!("{form:?}: {error}"),
                Got::Event(_) => {}
                Got::Closed(code) => panic!("{form:?}: closed with {code:?}"),
            }
        }
        assert_eq!(frames, 5, "{form:?}: 100 ms of answer");
        client.send(end()).await;
        let (events, code) = client.rest().await;
        let Some(ServerEvent::Ended(ended)) = events.last() else { panic!("{form:?}: no end in {events:?}") };
        assert_eq!((ended.outcome, ended.frames_in, ended.frames_out), (Outcome::Completed, 10, 5), "{form:?}");
        assert_eq!(code, Some(if form == Form::Grpc { 0 } else { 1000 }), "{form:?}");
    }
    let snapshot = server.expect_ends(&[("completed", 3)]).await;
    assert_eq!((snapshot.frames_in, snapshot.frames_out, snapshot.late_ends), (30, 15, 0));
}

#[tokio::test]
async fn headers_come_before_the_first_message() {
    let server = Server::start(&[]);
    let Client::Grpc(mut grpc) = Client::open(server.address, Form::Grpc).await else { unreachable!() };
    assert_eq!(grpc.headers().await, 200);
    assert_eq!(server.snapshot().started, 0);
}

#[tokio::test]
async fn sessions_are_listed_in_pages_and_their_ends_logged() {
    let server = Server::start(&[]);
    let mut clients = Vec::new();
    for name in ["a", "b", "c"] {
        let mut client = Client::open(server.address, Form::Binary).await;
        client.send(start(name)).await;
        client.next().await;
        clients.push(client);
    }
    let first = server.sessions("?limit=2");
    assert_eq!((first.total, first.sessions.len()), (3, 2));
    let second = server.sessions(&format!("?limit=2&after={}", first.next.unwrap()));
    assert_eq!((second.sessions.len(), second.next), (1, None));
    let names: Vec<_> = first.sessions.iter().chain(&second.sessions).map(|s| s.client_ref.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let (code, complaint) = server.request("GET", "/sessions?after=nonsense");
    assert_eq!(code, 400, "{complaint}");

    clients[1].send(end()).await;
    clients[1].rest().await;
    let ends = common::eventually("the end is logged", async || Some(server.ends("")).filter(|page| !page.ends.is_empty())).await;
    assert_eq!((ends.ends[0].client_ref.as_str(), ends.ends[0].outcome.as_str(), ends.next), ("b", "completed", 1));
    let (_, metrics) = server.request("GET", "/metrics");
    assert!(metrics.contains("agent_server_sessions_ended_total{outcome=\"completed\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_client_that_does_not_read_costs_frames_and_not_the_server() {
    let server = Server::start(&["--send-queue=16"]);
    let mut deaf = Client::started(server.address, Form::Grpc).await;
    // 64 KiB of window are 100 frames, 2 s of speech; the rest waits, then is dropped.
    deaf.ask(30_000).await;
    common::eventually("frames are dropped", async || {
        let (_, metrics) = server.request("GET", "/metrics");
        metrics.lines().find_map(|l| l.strip_prefix("agent_server_events_dropped_total ")?.parse::<u64>().ok()).filter(|n| *n > 0)
    })
    .await;
    let mut other = Client::started(server.address, Form::Binary).await;
    other.send(end()).await;
    other.rest().await;
    drop(deaf);
    server.expect_ends(&[("completed", 1), ("cancelled", 1)]).await;
}

#[tokio::test]
async fn a_stream_whose_client_never_reads_its_end_is_given_up_and_its_connection_is_not() {
    let server = Server::start(&["--max-duration=3s", "--keepalive-timeout=300ms", "--send-queue=16"]);
    let mut deaf = Client::started(server.address, Form::Grpc).await;
    // Fills the window, so that neither the rest nor the end can be sent.
    deaf.ask(30_000).await;
    server.expect_ends(&[("timed_out", 1)]).await;
    common::eventually("the stream is given up", async || {
        let (_, metrics) = server.request("GET", "/metrics");
        metrics.lines().any(|l| l == "agent_server_streams_unread_total 1").then_some(())
    })
    .await;
    let Client::Grpc(grpc) = &deaf else { unreachable!() };
    let (response, mut stream) = grpc.open_another().await;
    stream.send_data(common::client::grpc_message(&start("bystander")), false).unwrap();
    assert_eq!(common::within("the bystander's headers", response).await.unwrap().status(), 200);
    let (_, close) = deaf.rest().await;
    assert_eq!(close, None, "the stream was reset");
    drop(stream);
    server.expect_ends(&[("timed_out", 1), ("cancelled", 1)]).await;
}

#[tokio::test]
async fn an_idle_session_costs_what_idling_is_said_to_cost() {
    let server = Server::start(&["--cost=virtual:idle=3us"]);
    let _idle = Client::started(server.address, Form::Binary).await;
    let cost = common::eventually("the cost is accounted", async || Some(server.snapshot().virtual_cost_us).filter(|us| *us > 0)).await;
    assert_eq!(cost % 3, 0);
}
