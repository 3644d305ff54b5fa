//! Load reports as they are on the wire: out of band, in headers and trailers, over HTTP; and the refusals that stop stock balancers.

#![expect(clippy::float_cmp, reason = "whole numbers travel as doubles, and arrive as they were")]

mod common;

use std::time::Duration;

use common::{
    Server,
    client::{Client, Form, Got, Grpc, Rude, end, start},
    eventually, http_whole, within,
};
use http::HeaderMap;
use proto::{
    frame::{Outcome, ServerEvent},
    native,
    orca::{BINARY_HEADER, OrcaLoadReport, TEXT_HEADER, decode_header},
    xds::service::orca::v3::{OrcaLoadReportRequest, open_rca_service_client::OpenRcaServiceClient},
};
use rustix::process::Signal;
use tokio::time::Instant;
use tonic::{Code, Streaming, transport::Channel};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient, server_reflection_request::MessageRequest,
    server_reflection_response::MessageResponse,
};

/// Looks every 50 ms, over a window of a second.
const QUICK: [&str; 2] = ["--report-min-interval=50ms", "--report-window=1s"];

async fn channel(server: &Server) -> Channel {
    tonic::transport::Endpoint::try_from(format!("http://{}", server.address)).unwrap().connect().await.unwrap()
}

async fn subscribe(server: &Server, interval: Duration) -> Streaming<OrcaLoadReport> {
    let request = OrcaLoadReportRequest { report_interval: interval.try_into().ok(), ..OrcaLoadReportRequest::default() };
    OpenRcaServiceClient::new(channel(server).await).stream_core_metrics(request).await.unwrap().into_inner()
}

async fn next(reports: &mut Streaming<OrcaLoadReport>) -> OrcaLoadReport {
    within("a report comes", reports.message()).await.unwrap().expect("the stream goes on")
}

/// Reads until a report is as wanted.
async fn until(reports: &mut Streaming<OrcaLoadReport>, wanted: impl Fn(&OrcaLoadReport) -> bool) -> OrcaLoadReport {
    let reading = async {
        loop {
            let report = reports.message().await.unwrap().expect("the stream goes on");
            if wanted(&report) {
                return report;
            }
        }
    };
    within("a report as wanted", reading).await
}

/// The one report of these headers.
fn binary(headers: Option<&HeaderMap>) -> OrcaLoadReport {
    let values: Vec<_> = headers.expect("there are headers").get_all(BINARY_HEADER).iter().collect();
    assert_eq!(values.len(), 1, "{headers:?}");
    assert!(values[0].len().is_multiple_of(4), "padded, or Envoy reads nothing");
    decode_header(BINARY_HEADER, values[0]).unwrap()
}

/// The one report of this head of an HTTP/1.1 answer.
fn text(head: &str) -> OrcaLoadReport {
    let values: Vec<_> = head.lines().filter_map(|line| line.split_once(": ")).filter(|(name, _)| *name == TEXT_HEADER).collect();
    assert_eq!(values.len(), 1, "{head}");
    assert!(values[0].1.starts_with("TEXT "), "{head}");
    decode_header(TEXT_HEADER, values[0].1).unwrap()
}

fn grpc(client: &mut Client) -> &mut Grpc {
    match client {
        Client::Grpc(grpc) => grpc,
        Client::Ws(_) => panic!("a gRPC client"),
    }
}

fn status(headers: Option<&HeaderMap>) -> &str {
    headers.and_then(|h| h.get("grpc-status")).expect("a status").to_str().unwrap()
}

/// Published by now, so that the headers of the next answer show it.
async fn published(server: &Server, name: &str, value: f64) {
    eventually(&format!("{name} is {value}"), async || {
        let (head, _) = http_whole(server.admin, "GET", "/healthz", "");
        (text(&head).named_metrics.get(name) == Some(&value)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn out_of_band_reports_come_at_once_and_follow_the_sessions() {
    let server = Server::start(&[&QUICK[..], &["--max-sessions=10"]].concat());
    // An hour long interval: what comes is the first report.
    let first = next(&mut subscribe(&server, Duration::from_hours(1)).await).await;
    let named = &first.named_metrics;
    assert_eq!((named["active_sessions"], named["max_sessions"], named["draining"]), (0.0, 10.0, 0.0));
    // Nothing is there and nothing was used: the prior of 0.01, the target of 0.8, a window of 1 s.
    assert!(named["additional_session_rate"] > 0.0 && named["effective_capacity"] <= 10.0, "{first:?}");
    assert!((0.0..1.0).contains(&first.mem_utilization) && first.mem_utilization > 0.0, "{first:?}");

    let mut reports = subscribe(&server, Duration::from_millis(1)).await;
    let mut clients = Vec::new();
    for form in Form::ALL {
        clients.push(Client::started(server.address, form).await);
    }
    let report = until(&mut reports, |r| r.named_metrics["active_sessions"] == 3.0).await;
    assert!((report.named_metrics["sessions_util"] - 0.3).abs() < 1e-9, "{report:?}");
    // N and the rate are of the window: after a whole one they are those of three sessions.
    until(&mut reports, |r| (r.rps_fractional - 3.0).abs() < 1e-6 && (r.application_utilization - r.cpu_utilization.max(0.3)).abs() < 1e-6)
        .await;
    clients[0].speak().await;
    until(&mut reports, |r| r.named_metrics["speaking_sessions"] == 1.0).await;
    for client in &mut clients {
        client.send(end()).await;
        client.rest().await;
    }
    until(&mut reports, |r| r.named_metrics["active_sessions"] == 0.0 && r.rps_fractional == 0.0).await;
    let snapshot = server.snapshot();
    assert_eq!((snapshot.started, snapshot.active), (3, 0), "subscriptions are no sessions");
}

#[tokio::test]
async fn a_shorter_interval_is_raised_to_the_minimum_and_a_longer_one_kept() {
    let server = Server::start(&["--report-min-interval=300ms"]);
    for (asked, least) in [(Duration::from_millis(1), 300), (Duration::ZERO, 300), (Duration::from_millis(500), 500)] {
        let mut reports = subscribe(&server, asked).await;
        let since = Instant::now();
        for _ in 0..4 {
            next(&mut reports).await;
        }
        // Three intervals; the first report may have been late, not a whole interval.
        assert!(since.elapsed() >= Duration::from_millis(2 * least), "{asked:?}: {:?}", since.elapsed());
    }
}

#[tokio::test]
async fn reflection_knows_the_service_and_all_that_it_is_made_of() {
    let server = Server::start(&[]);
    let mut client = ServerReflectionClient::new(channel(&server).await);
    let mut ask = async |request| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
        within("an answer", answers.message()).await.unwrap().unwrap().message_response
    };
    let service = "xds.service.orca.v3.OpenRcaService";
    let Some(MessageResponse::ListServicesResponse(list)) = ask(MessageRequest::ListServices(String::new())).await else {
        panic!("no list")
    };
    assert!(list.service.iter().any(|s| s.name == service), "{list:?}");
    for request in [
        MessageRequest::FileContainingSymbol(service.to_owned()),
        MessageRequest::FileContainingSymbol("xds.data.orca.v3.OrcaLoadReport".to_owned()),
        MessageRequest::FileByFilename("google/protobuf/duration.proto".to_owned()),
    ] {
        let answer = ask(request.clone()).await;
        assert!(matches!(answer, Some(MessageResponse::FileDescriptorResponse(_))), "{request:?}: {answer:?}");
    }
}

#[tokio::test]
async fn a_session_has_the_load_in_its_headers_and_in_its_trailers() {
    let server = Server::start(&QUICK);
    let mut client = Client::started(server.address, Form::Grpc).await;
    published(&server, "active_sessions", 1.0).await;
    assert_eq!(binary(grpc(&mut client).head.as_ref()).named_metrics["active_sessions"], 0.0);
    client.send(end()).await;
    assert_eq!(client.rest().await.1, Some(0));
    let trailers = grpc(&mut client).trailers.clone();
    assert_eq!(status(trailers.as_ref()), "0");
    assert_eq!(binary(trailers.as_ref()).named_metrics["active_sessions"], 1.0);
}

#[tokio::test]
async fn an_error_status_has_the_load_in_its_trailers_too() {
    let server = Server::start(&QUICK);
    let mut before = Client::open(server.address, Form::Grpc).await;
    before.send(end()).await;
    assert_eq!(before.rest().await.1, Some(9));
    let mut after = Client::started(server.address, Form::Grpc).await;
    after.send_raw(&[0xff; 9]).await;
    assert_eq!(after.rest().await.1, Some(3));
    for (client, code) in [(&mut before, "9"), (&mut after, "3")] {
        let grpc = grpc(client);
        assert_eq!(status(grpc.trailers.as_ref()), code);
        binary(grpc.head.as_ref());
        binary(grpc.trailers.as_ref());
    }
    // A session that failed is an error of the backend; a stream that never became one is not.
    let report = eventually("the failure is told", async || {
        let report = text(&http_whole(server.admin, "GET", "/healthz", "").0);
        (report.eps > 0.0).then_some(report)
    })
    .await;
    assert!(report.eps <= 20.0 + 1e-9, "one failure between two looks: {report:?}");
}

#[tokio::test]
async fn http_answers_on_both_ports_have_the_load_as_text() {
    let server = Server::start(&QUICK);
    let _client = Client::started(server.address, Form::Json).await;
    published(&server, "active_sessions", 1.0).await;
    let socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let url = format!("ws://{}{}", server.address, native::WEBSOCKET_PATH);
    let (_, upgrade) = within("the upgrade", tokio_tungstenite::client_async(url, socket)).await.unwrap();
    assert_eq!(upgrade.status(), 101);
    let report = decode_header(TEXT_HEADER, &upgrade.headers()[TEXT_HEADER]).unwrap();
    assert_eq!(report.named_metrics["active_sessions"], 1.0);
    for (address, method, path, code) in [
        (server.address, "GET", "/nowhere", "404"),
        (server.address, "GET", native::WEBSOCKET_PATH, "426"),
        (server.admin, "GET", "/snapshot", "200"),
        (server.admin, "GET", "/metrics", "200"),
        (server.admin, "GET", "/sessions?after=nonsense", "400"),
        (server.admin, "GET", "/ends?after=nonsense", "400"),
        (server.admin, "GET", "/nowhere", "404"),
        (server.admin, "GET", "/drain", "405"),
    ] {
        let (head, _) = http_whole(address, method, path, "");
        assert_eq!(head.split(' ').nth(1), Some(code), "{path}: {head}");
        assert_eq!(text(&head).named_metrics["active_sessions"], 1.0, "{path}");
    }
}

#[tokio::test]
async fn the_modes_claim_what_they_say_and_name_what_is() {
    for (mode, rps, utilization) in [("rate_weight", None, 1.0), ("fixed=0.9", Some(100.0), 0.9)] {
        let mode = format!("--report-mode={mode}");
        let server = Server::start(&[&QUICK[..], &[&mode]].concat());
        let _client = Client::started(server.address, Form::Grpc).await;
        let mut reports = subscribe(&server, Duration::ZERO).await;
        let report = until(&mut reports, |r| r.named_metrics["active_sessions"] == 1.0).await;
        let rate = report.named_metrics["additional_session_rate"];
        assert!((report.rps_fractional - rps.unwrap_or(rate * 1_000.0)).abs() < 1e-6, "{report:?}");
        assert!((report.application_utilization - utilization).abs() < 1e-9, "{report:?}");
    }
}

#[tokio::test]
async fn utilization_is_the_accounted_cost_over_the_cores() {
    // 2 ms for each 20 ms of silence are 0.1 cores of 0.5: utilization 0.2.
    let server = Server::start(&[&QUICK[..], &["--cost=virtual:idle=2ms", "--cpu-cores=0.5"]].concat());
    let _client = Client::started(server.address, Form::Grpc).await;
    let mut reports = subscribe(&server, Duration::ZERO).await;
    until(&mut reports, |r| (0.17..0.23).contains(&r.cpu_utilization) && (r.rps_fractional - 1.0).abs() < 1e-6).await;
    let load = server.snapshot().load;
    assert!((load.cores - 0.5).abs() < 1e-9 && (load.target - 0.8).abs() < 1e-9 && load.used_us > 0, "{load:?}");
    assert!((load.sessions - 1.0).abs() < 0.1 && (0.1..0.3).contains(&load.utilization) && (0.1..0.3).contains(&load.cost), "{load:?}");
    let expected = (0.8 - load.utilization) / (load.cost * 2.0);
    assert!((load.rate - expected).abs() < 1e-6 && (load.effective_capacity - load.sessions - expected).abs() < 1e-6, "{load:?}");
    let (_, metrics) = server.request("GET", "/metrics");
    for name in ["load_utilization 0.", "load_additional_session_rate ", "load_cores 0.5", "load_cpu_microseconds_total "] {
        assert!(metrics.lines().any(|line| line.starts_with(&format!("agent_server_{name}"))), "{name}: {metrics}");
    }
}

#[tokio::test]
async fn reports_believe_the_counters_ghosts_included() {
    let server = Server::start(&[&QUICK[..], &["--defect=ghost=1"]].concat());
    let client = Client::started(server.address, Form::Grpc).await;
    client.leave(Rude::Rst).await;
    eventually("the session is gone", async || (server.snapshot().live_tasks == 0).then_some(())).await;
    let mut reports = subscribe(&server, Duration::ZERO).await;
    until(&mut reports, |r| (r.rps_fractional - 1.0).abs() < 1e-6).await;
    assert_eq!(next(&mut reports).await.named_metrics["active_sessions"], 1.0);
}

#[tokio::test]
async fn at_the_cap_a_session_is_refused_before_headers() {
    let server = Server::start(&[&QUICK[..], &["--max-sessions=1", "--defect=decrement_on_reject=0.5"]].concat());
    let mut first = Client::started(server.address, Form::Grpc).await;
    published(&server, "active_sessions", 1.0).await;
    let mut second = Client::open(server.address, Form::Grpc).await;
    assert!(grpc(&mut second).silent_for(Duration::from_millis(100)).await, "no headers before the start: it may yet be admitted");
    second.send(start("second")).await;
    assert_eq!(second.rest().await, (vec![], Some(8)));
    let second = grpc(&mut second);
    assert_eq!((status(second.head.as_ref()), &second.trailers), ("8", &None), "the status is in the headers, and there is nothing else");
    assert_eq!(binary(second.head.as_ref()).named_metrics["sessions_util"], 1.0);
    // The way in was the same as ever: counted, and the defect struck under the client's name.
    let snapshot = server.snapshot();
    assert_eq!((snapshot.rejected, snapshot.defects["decrement_on_reject"]), (1, 1));
    assert_eq!(server.ends("").ends[0].client_ref, "second");
    let mut reports = subscribe(&server, Duration::ZERO).await;
    until(&mut reports, |r| r.eps > 0.0).await;
    first.send(end()).await;
    assert_eq!(first.rest().await.1, Some(0));
}

#[tokio::test]
async fn who_opens_at_the_cap_and_starts_when_there_is_room_is_a_session() {
    let server = Server::start(&["--max-sessions=1"]);
    let mut first = Client::started(server.address, Form::Grpc).await;
    let mut second = Client::open(server.address, Form::Grpc).await;
    assert!(grpc(&mut second).silent_for(Duration::from_millis(100)).await);
    first.send(end()).await;
    first.rest().await;
    second.send(start("second")).await;
    assert!(matches!(second.next().await, Got::Event(ServerEvent::Accepted(_))));
    binary(grpc(&mut second).head.as_ref());
    second.speak().await;
    while !matches!(second.next().await, Got::Event(ServerEvent::ResponseEnd { .. })) {}
    second.send(end()).await;
    let (events, close) = second.rest().await;
    assert!(matches!(events.last(), Some(ServerEvent::Ended(ended)) if ended.outcome == Outcome::Completed), "{events:?}");
    assert_eq!(close, Some(0));
    assert_eq!(server.expect_ends(&[("completed", 2)]).await.rejected, 0);
}

#[tokio::test]
async fn who_says_nothing_at_the_cap_is_told_so_in_time_and_who_leaves_is_nobody() {
    let server = Server::start(&["--max-sessions=1", "--start-timeout=300ms"]);
    let _first = Client::started(server.address, Form::Json).await;
    let mut silent = Client::open(server.address, Form::Grpc).await;
    assert_eq!(silent.rest().await, (vec![], Some(9)));
    assert_eq!(status(grpc(&mut silent).head.as_ref()), "9");
    for how in [Rude::Cancel, Rude::Rst] {
        let mut rude = Client::open(server.address, Form::Grpc).await;
        assert!(grpc(&mut rude).silent_for(Duration::from_millis(50)).await);
        rude.leave(how).await;
    }
    let snapshot = server.snapshot();
    assert_eq!((snapshot.rejected, snapshot.started, snapshot.active), (0, 1, 1));
    let ended = Client::open(server.address, Form::Grpc).await;
    ended.leave(Rude::Eof).await.unwrap().rest().await;
    // Both who said nothing, and both who left where that was seen before the stream was gone.
    let (_, metrics) = server.request("GET", "/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix("agent_server_streams_refused_total{code=\"not_started\"} "));
    assert!(line.is_some_and(|n| (2..=4).contains(&n.parse::<u64>().unwrap())), "{metrics}");
}

#[tokio::test]
async fn subscriptions_outlive_the_drain_and_do_not_hold_it_up() {
    let mut server = Server::start(&QUICK);
    let mut session = Client::started(server.address, Form::Grpc).await;
    let mut reports = subscribe(&server, Duration::ZERO).await;
    next(&mut reports).await;
    // One that nobody reads.
    let _unread = subscribe(&server, Duration::ZERO).await;
    server.signal(Signal::TERM);
    let report = until(&mut reports, |r| r.named_metrics["draining"] == 1.0).await;
    assert_eq!(report.named_metrics["active_sessions"], 1.0);
    assert_eq!(report.named_metrics["additional_session_rate"], 0.0);
    let mut late = Client::open(server.address, Form::Grpc).await;
    late.send(start("late")).await;
    assert_eq!(late.rest().await, (vec![], Some(14)));
    assert_eq!(status(grpc(&mut late).head.as_ref()), "14");
    // Refusals while draining are errors too.
    until(&mut reports, |r| r.eps > 0.0).await;
    session.send(end()).await;
    assert_eq!(session.rest().await.1, Some(0));
    let exited = Instant::now();
    assert_eq!(server.exit_code().await, Some(0));
    assert!(exited.elapsed() < Duration::from_secs(5), "nobody waits for subscriptions: {:?}", exited.elapsed());
    let last = loop {
        match within("the subscription ends", reports.message()).await {
            Ok(report) => assert!(report.is_some(), "an end without a status is no end in order"),
            Err(status) => break status,
        }
    };
    assert_eq!((last.code(), last.message()), (Code::Unavailable, "the server stops"));
}

/// Most of them on few connections, and half of them never read.
#[tokio::test]
async fn thousands_of_subscriptions_harm_no_session_and_end_with_the_drain() {
    const CONNECTIONS: usize = 20;
    const EACH: usize = 100;
    let mut server = Server::start(&QUICK);
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for n in 0..CONNECTIONS {
        let mut client = OpenRcaServiceClient::new(channel(&server).await);
        for _ in 0..EACH {
            let request = OrcaLoadReportRequest::default();
            let stream = within("a subscription", client.stream_core_metrics(request)).await.unwrap().into_inner();
            if n % 2 == 0 { read.push(stream) } else { unread.push(stream) }
        }
    }
    let mut session = Client::started(server.address, Form::Grpc).await;
    session.speak().await;
    for reports in &mut read {
        until(reports, |r| r.named_metrics["active_sessions"] == 1.0).await;
    }
    server.signal(Signal::TERM);
    session.send(end()).await;
    assert_eq!(session.rest().await.1, Some(0));
    let begun = Instant::now();
    assert_eq!(server.exit_code().await, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(unread);
}

/// Each refusal makes room for one more than there is: who comes at the cap is refused before the headers, let in, or told in the stream,
/// and nobody hangs.
#[tokio::test]
async fn refusals_that_are_counted_as_ends_leave_nobody_without_an_answer() {
    let server = Server::start(&[&QUICK[..], &["--max-sessions=4", "--defect=decrement_on_reject=0.5"]].concat());
    let (mut accepted, mut before_headers, mut held) = (0_u64, 0_u64, Vec::new());
    for round in 0..60 {
        let mut client = Client::open(server.address, Form::Grpc).await;
        client.send(start(&format!("s{round}"))).await;
        match within("an answer", client.next()).await {
            Got::Event(ServerEvent::Accepted(_)) => {
                accepted += 1;
                held.push(client);
            }
            Got::Closed(code) => {
                assert_eq!(code, Some(8), "full");
                assert_eq!(status(grpc(&mut client).head.as_ref()), "8", "not before the headers");
                before_headers += 1;
            }
            other @ Got::Event(_) => panic!("{other:?}"),
        }
        if round % 7 == 6
            && let Some(mut client) = held.pop()
        {
            client.send(end()).await;
            client.rest().await;
        }
    }
    assert_eq!((accepted + before_headers, server.snapshot().rejected), (60, before_headers));
    assert!(accepted > 4 && before_headers > 4, "{accepted} {before_headers}");
}
