//! The source against real sockets: a small server that answers well, badly, or not at all.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use agent_server::{
    admin::wire::{EndRecord, EndsPage, SessionJson, SessionsPage, SnapshotJson},
    runtime::clock::Clock,
};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::{AgentServerSource, CounterError, CounterSample, CounterSource, Observation};

pub(super) type Answer = Arc<dyn Fn(&str) -> Option<(u16, String)> + Send + Sync>;

/// Answers what `answer` gives for a path with query; `None` never answers.
pub(super) async fn server(answer: Answer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let answer = Arc::clone(&answer);
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = Arc::clone(&answer);
                async move {
                    let path = request.uri().path_and_query().unwrap().as_str().to_owned();
                    let Some((status, body)) = answer(&path) else { return std::future::pending().await };
                    let response = Response::builder().status(StatusCode::from_u16(status).unwrap()).body(Full::new(Bytes::from(body)));
                    Ok::<_, Infallible>(response.unwrap())
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}

/// What broke a connection is told to the end: a peer that wants another certificate says so there.
#[tokio::test]
async fn a_broken_connection_says_what_broke_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        socket.readable().await.unwrap();
        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let error = source(address).poll(false).await.unwrap_err().to_string();
    assert!(error.contains("reset by peer"), "{error}");
}

struct Looks(AgentServerSource);

impl Looks {
    async fn poll(&mut self, registry: bool) -> Result<CounterSample, CounterError> {
        self.0.poll(registry).await.map(|seen| match seen {
            Observation::Snapshot(sample) => *sample,
            Observation::Totals(sample) => panic!("{sample:?}"),
        })
    }
}

fn source(address: SocketAddr) -> Looks {
    Looks(AgentServerSource::new(3, address, Clock::start(), Duration::from_secs(30)))
}

fn snapshot(boot: &str, next_end: u64) -> SnapshotJson {
    SnapshotJson {
        backend_id: "b".into(),
        boot_id: boot.into(),
        captured_at_us: 1,
        exact: true,
        started: next_end,
        active: 0,
        active_interval: (0, 0),
        ended: BTreeMap::from([("completed".to_owned(), next_end)]),
        phases: BTreeMap::new(),
        max_sessions: None,
        rejected: 0,
        late_ends: 0,
        live_tasks: 0,
        draining: false,
        next_end,
        frames_in: 0,
        frames_out: 0,
        cpu_us: 0,
        rss_bytes: 0,
        virtual_cost_us: 0,
        load: agent_server::admin::wire::LoadJson::default(),
        defects: BTreeMap::new(),
        faults: BTreeMap::new(),
    }
}

/// A backend with so many ends, two a page, in the boot named.
fn backend(state: Arc<Mutex<(String, u64)>>) -> Answer {
    Arc::new(move |path| {
        let (boot_id, total) = state.lock().clone();
        let number = |key: &str| path.split(['?', '&']).find_map(|part| part.strip_prefix(key)?.parse::<u64>().ok());
        let json = if path == "/snapshot" {
            serde_json::to_string(&snapshot(&boot_id, total))
        } else if path.starts_with("/ends?") {
            let after = number("after=").unwrap();
            let next = (after + 2).min(total);
            let end =
                |seq| EndRecord { seq, session_id: format!("s{seq}"), client_ref: String::new(), outcome: "completed".into(), at_us: seq };
            serde_json::to_string(&EndsPage { boot_id, oldest: 0, next, ends: (after..next).map(end).collect() })
        } else if path.starts_with("/sessions?") {
            let second = path.contains("after=a");
            let row = |id: &str| SessionJson {
                session_id: id.into(),
                client_ref: String::new(),
                phase: "listening".into(),
                age_ms: 1,
                frames_in: 0,
                frames_out: 0,
            };
            let next = (!second).then(|| "a".to_owned());
            serde_json::to_string(&SessionsPage { boot_id, total: 2, sessions: vec![row(if second { "b" } else { "a" })], next })
        } else {
            return Some((404, String::new()));
        };
        Some((200, json.unwrap()))
    })
}

fn seqs(sample: &CounterSample) -> Vec<u64> {
    sample.ends.as_ref().unwrap().iter().map(|end| end.seq).collect()
}

#[tokio::test]
async fn each_end_is_handed_over_once_and_a_new_boot_begins_anew() {
    let state = Arc::new(Mutex::new(("one".to_owned(), 5)));
    let mut source = source(server(backend(Arc::clone(&state))).await);
    let first = source.poll(false).await.unwrap();
    assert_eq!((first.backend, seqs(&first), first.sessions.is_none()), (3, vec![0, 1, 2, 3, 4], true));
    assert!(first.asked_at_us <= first.answered_at_us && first.asked_at_us > 1_000_000_000_000_000);
    state.lock().1 = 7;
    assert_eq!(seqs(&source.poll(false).await.unwrap()), [5, 6]);
    assert_eq!(seqs(&source.poll(false).await.unwrap()), [0; 0]);
    *state.lock() = ("two".to_owned(), 3);
    assert_eq!(seqs(&source.poll(false).await.unwrap()), [0, 1, 2]);
    let rows = source.poll(true).await.unwrap().sessions.unwrap();
    assert_eq!(rows.iter().map(|row| row.session_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[tokio::test]
async fn a_backend_without_lists_still_gives_totals() {
    let answer: Answer = Arc::new(|path| {
        let json = serde_json::to_string(&snapshot("one", 0)).unwrap();
        Some(if path == "/snapshot" { (200, json) } else { (404, "no".into()) })
    });
    let sample = source(server(answer).await).poll(true).await.unwrap();
    assert_eq!((sample.ends, sample.sessions), (None, None));
}

#[tokio::test]
async fn what_is_no_answer_is_an_error_that_says_which() {
    let vacant = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(matches!(source(vacant).poll(false).await, Err(CounterError::Refused { .. })));

    let missing = source(server(Arc::new(|_| Some((404, String::new())))).await).poll(false).await;
    assert!(matches!(missing, Err(CounterError::Status { status: 404, .. })), "{missing:?}");

    let ill = source(server(Arc::new(|_| Some((503, String::new())))).await).poll(false).await;
    assert!(matches!(ill, Err(CounterError::Status { status: 503, .. })), "{ill:?}");

    let garbage = source(server(Arc::new(|_| Some((200, "<html>".into())))).await).poll(false).await;
    assert!(matches!(garbage, Err(CounterError::Garbage { .. })), "{garbage:?}");

    let huge = source(server(Arc::new(|_| Some((200, " ".repeat(17 << 20))))).await).poll(false).await;
    assert!(matches!(huge, Err(CounterError::TooLarge { .. })), "{huge:?}");
}

#[tokio::test]
async fn a_backend_that_never_answers_is_left_after_the_timeout() {
    let address = server(Arc::new(|_| None)).await;
    let mut source = AgentServerSource::new(0, address, Clock::start(), Duration::from_millis(50));
    let result = source.poll(false).await;
    assert!(matches!(result, Err(CounterError::Timeout { ms: 50, .. })), "{result:?}");
}

#[tokio::test]
async fn an_endless_list_does_not_hold_the_poll() {
    let answer: Answer = Arc::new(|path| {
        let after = path.split(['=', '&']).nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let end = EndRecord { seq: after, session_id: "s".into(), client_ref: String::new(), outcome: "failed".into(), at_us: 0 };
        let page = EndsPage { boot_id: "one".into(), oldest: 0, next: after + 1, ends: vec![end] };
        let snapshot = serde_json::to_string(&snapshot("one", 0)).unwrap();
        Some((200, if path == "/snapshot" { snapshot } else { serde_json::to_string(&page).unwrap() }))
    });
    let mut source = source(server(answer).await);
    let first = source.poll(false).await.unwrap().ends.unwrap().len() as u64;
    // Bounded, and what was not read yet is read next.
    assert_eq!(source.poll(false).await.unwrap().ends.unwrap()[0].seq, first);
}
