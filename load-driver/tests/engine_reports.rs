//! Load reports that come with the sessions themselves.

mod engine_support;

use engine_support::*;
use load_driver::{
    ledger::FailureCause,
    transport::{Inbound, Received},
};
use proto::orca::{self, BINARY_HEADER, OrcaLoadReport, TEXT_HEADER};
use tokio::task::spawn_local;
use tokio_tungstenite::tungstenite::handshake::server::{Request as UpgradeRequest, Response as UpgradeResponse};

fn load(cpu_utilization: f64) -> OrcaLoadReport {
    OrcaLoadReport { cpu_utilization, ..OrcaLoadReport::default() }
}

async fn report(inbound: &mut dyn Inbound) -> OrcaLoadReport {
    match next(inbound).await {
        Received::Report(report) => *report,
        other => panic!("no report: {other:?}"),
    }
}

fn with(mut map: http::HeaderMap, report: &str) -> http::HeaderMap {
    map.insert(BINARY_HEADER, report.parse().expect("a value"));
    map
}

#[tokio::test]
async fn a_grpc_session_tells_of_the_head_and_of_the_trailers() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let handle = |_request: Request, mut respond: Respond| async move {
            let mut head = head();
            *head.headers_mut() = with(std::mem::take(head.headers_mut()), &orca::encode_binary(&load(0.25)));
            let mut send = respond.send_response(head, false).expect("sent");
            send.send_data(framed(accepted()), false).expect("sent");
            send.send_trailers(with(trailers(14), &orca::encode_binary(&load(0.75)))).expect("sent");
        };
        spawn_local(async move { serve_h2(listener.accept().await.expect("a dial").0, 100, handle).await });
        let mut stream = grpc().open(dial).await.expect("opens");
        assert_eq!(report(&mut *stream.inbound).await, load(0.25));
        assert_eq!(event(&mut stream).await, accepted());
        assert_eq!(report(&mut *stream.inbound).await, load(0.75));
        assert!(matches!(next(&mut *stream.inbound).await, Received::Closed(FailureCause::Draining)));
    })
    .await;
}

#[tokio::test]
async fn a_grpc_refusal_tells_why_it_came() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let handle = |_request: Request, mut respond: Respond| async move {
            let mut head = head();
            head.headers_mut().extend(with(trailers(8), &orca::encode_binary(&load(1.0))));
            respond.send_response(head, true).expect("sent");
        };
        spawn_local(async move { serve_h2(listener.accept().await.expect("a dial").0, 100, handle).await });
        let mut stream = grpc().open(dial).await.expect("opens");
        assert_eq!(report(&mut *stream.inbound).await, load(1.0));
        assert!(matches!(next(&mut *stream.inbound).await, Received::Closed(FailureCause::Rejected)));
    })
    .await;
}

#[tokio::test]
async fn a_report_that_cannot_be_read_harms_nobody() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let handle = |_request: Request, mut respond: Respond| async move {
            let mut head = head();
            *head.headers_mut() = with(std::mem::take(head.headers_mut()), "!!!");
            let mut send = respond.send_response(head, false).expect("sent");
            send.send_data(framed(accepted()), false).expect("sent");
            send.send_trailers(with(trailers(0), "////")).expect("sent");
        };
        spawn_local(async move { serve_h2(listener.accept().await.expect("a dial").0, 100, handle).await });
        let mut stream = grpc().open(dial).await.expect("opens");
        assert!(matches!(next(&mut *stream.inbound).await, Received::Event(_)));
        assert!(matches!(next(&mut *stream.inbound).await, Received::Closed(FailureCause::Eof)));
    })
    .await;
}

#[tokio::test]
async fn a_websocket_session_tells_of_the_head_of_its_upgrade() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        spawn_local(async move {
            let (socket, _) = listener.accept().await.expect("a dial");
            #[expect(clippy::result_large_err, reason = "the codec wants it so")]
            let answer = |_: &UpgradeRequest, mut response: UpgradeResponse| {
                response.headers_mut().insert(TEXT_HEADER, orca::encode_text(&load(0.5)).parse().expect("a value"));
                Ok(response)
            };
            ws_agent(tokio_tungstenite::accept_hdr_async(socket, answer).await.expect("an upgrade")).await
        });
        let mut stream = websocket().open(dial).await.expect("opens");
        assert_eq!(report(&mut *stream.inbound).await, load(0.5));
        stream.link.send(start()).expect("sent");
        assert_eq!(event(&mut stream).await, accepted());
        stream.link.send(goodbye()).expect("sent");
        assert_eq!(event(&mut stream).await, ended());
    })
    .await;
}
