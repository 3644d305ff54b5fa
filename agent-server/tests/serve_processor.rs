//! What waits for the processor of `--cost virtual:`, and what does not: the counts.

mod common;

use std::time::Duration;

use common::{
    Server,
    client::{Client, Form, Got, Rude, end, start},
    eventually,
};
use proto::frame::{Outcome, ServerEvent, SessionEnded};
use tokio::time::Instant;

/// Opens a session and does not wait.
async fn opened(server: &Server, form: Form) -> Client {
    let mut client = Client::open(server.address, form).await;
    client.send(start("test")).await;
    client
}

async fn started(server: &Server, sessions: u64) {
    eventually("all are counted", async || (server.snapshot().started == sessions).then_some(())).await;
}

fn outcome(event: Option<&ServerEvent>) -> Option<Outcome> {
    match event {
        Some(ServerEvent::Ended(SessionEnded { outcome, .. })) => Some(*outcome),
        _ => None,
    }
}

#[tokio::test]
async fn sessions_are_counted_at_once_and_accepted_one_after_the_other() {
    let server = Server::start(&["--cost=virtual:start=200ms", "--cpu-cores=1"]);
    let begin = Instant::now();
    let mut clients = Vec::new();
    for i in 0..10 {
        clients.push(opened(&server, Form::ALL[i % 3]).await);
    }
    let accepted = clients.iter_mut().map(async |client| {
        let got = client.next().await;
        assert!(matches!(got, Got::Event(ServerEvent::Accepted(_))), "{got:?}");
        begin.elapsed()
    });
    let counted = async {
        started(&server, 10).await;
        (begin.elapsed(), server.snapshot())
    };
    let (mut times, (at, snapshot)) = tokio::join!(futures_util::future::join_all(accepted), counted);
    times.sort_unstable();
    for (time, place) in times.iter().zip(1..) {
        assert!(*time >= Duration::from_millis(200) * place, "acceptance {place} of {times:?}");
    }
    assert!(times[0] * 2 < times[9], "the first does not wait for the last: {times:?}");
    assert!(at < times[9], "counts do not wait");
    assert_eq!((snapshot.active, snapshot.virtual_cost_us, snapshot.next_end, snapshot.exact), (10, 2_000_000, 0, true));
    assert_eq!(snapshot.phases["listening"], 10);
    for mut client in clients {
        client.send(end()).await;
        client.rest().await;
    }
    server.expect_ends(&[("completed", 10)]).await;
}

#[tokio::test]
async fn who_leaves_before_the_acceptance_is_counted_then_and_not_later() {
    let server = Server::start(&["--cost=virtual:start=1s", "--cpu-cores=0.5"]);
    let begin = Instant::now();
    let mut polite = opened(&server, Form::Grpc).await;
    let reset = opened(&server, Form::Grpc).await;
    let half_closed = opened(&server, Form::Grpc).await;
    let closed = opened(&server, Form::Json).await;
    started(&server, 4).await;
    polite.send(end()).await;
    reset.leave(Rude::Rst).await;
    let half_closed = half_closed.leave(Rude::Eof).await;
    closed.leave(Rude::Cancel).await;
    let (events, _) = half_closed.unwrap().rest().await;
    assert_eq!(events, [], "who is gone is not accepted");
    server.expect_ends(&[("completed", 1), ("cancelled", 3)]).await;
    let all_counted = begin.elapsed();
    let (events, code) = polite.rest().await;
    assert!(matches!(events[0], ServerEvent::Accepted(_)) && events.len() == 2, "{events:?}");
    assert_eq!((outcome(events.last()), code), (Some(Outcome::Completed), Some(0)));
    let told = begin.elapsed();
    assert!(told >= Duration::from_secs(2) && all_counted < told, "counted after {all_counted:?}, told after {told:?}");
}

#[tokio::test]
async fn last_words_that_are_held_back_are_not_words_that_nobody_reads() {
    let server = Server::start(&["--cost=virtual:start=1s", "--cpu-cores=1", "--max-duration=100ms", "--keepalive-timeout=100ms"]);
    for form in Form::ALL {
        let begin = Instant::now();
        let (events, _) = opened(&server, form).await.rest().await;
        assert!(begin.elapsed() >= Duration::from_secs(1), "{form:?}");
        let [ServerEvent::Accepted(_), ServerEvent::Error(_), last] = &events[..] else { panic!("{form:?}: {events:?}") };
        assert_eq!(outcome(Some(last)), Some(Outcome::TimedOut), "{form:?}");
    }
    server.expect_ends(&[("timed_out", 3)]).await;
}

#[tokio::test]
async fn an_answer_waits_for_what_was_in_the_line_before_it() {
    let server = Server::start(&["--cost=virtual:start=1s", "--cpu-cores=1"]);
    let mut talker = Client::started(server.address, Form::Grpc).await;
    let begin = Instant::now();
    let mut other = opened(&server, Form::Binary).await;
    started(&server, 2).await;
    talker.speak().await;
    while !matches!(talker.next().await, Got::Event(ServerEvent::ResponseStart { .. })) {}
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(matches!(other.next().await, Got::Event(ServerEvent::Accepted(_))));
}

#[tokio::test]
async fn the_drain_does_not_wait_for_the_processor() {
    let mut server = Server::start(&["--cost=virtual:start=1s", "--cpu-cores=0.01", "--drain-timeout=100ms"]);
    let mut clients = vec![opened(&server, Form::Grpc).await, opened(&server, Form::Binary).await];
    started(&server, 2).await;
    assert_eq!(server.request("POST", "/drain").0, 202);
    for client in &mut clients {
        let (events, _) = client.rest().await;
        assert!(matches!(events[0], ServerEvent::Accepted(_)), "{events:?}");
        assert_eq!(outcome(events.last()), Some(Outcome::Drained), "{events:?}");
    }
    assert_eq!(server.exit_code().await, Some(0));
}
