//! Sources of sums against real sockets and programs: what they read, and what they say of what they cannot.

use std::{sync::Arc, time::Duration};

use ::agent_server::runtime::clock::Clock;
use proto::frame::Outcome;

use super::{
    CounterSource, Counts, Observation, check_place,
    tests::{Answer, server},
};
use crate::{
    plan::Connection,
    profile::{CounterKind, Counters, Ended, Site, Urls},
};

fn site() -> Site {
    Site { index: 0, address: "127.0.0.1:7000".to_owned(), admin: None }
}

fn sums(kind: CounterKind, active: &str) -> Counters {
    Counters { source: kind, active: Some(active.to_owned()), ..Counters::default() }
}

async fn look(counters: &Counters) -> Result<Counts, String> {
    look_within(counters, Duration::from_secs(20)).await
}

async fn look_within(counters: &Counters, timeout: Duration) -> Result<Counts, String> {
    let mut source = super::of(counters, 0, &[site()], Clock::start(), timeout).map_err(|error| error.to_string())?;
    match source.poll(false).await.map_err(|error| error.to_string())? {
        Observation::Totals(sample) => {
            assert!(sample.asked_at_us <= sample.answered_at_us);
            Ok(sample.counts)
        }
        Observation::Snapshot(sample) => panic!("{sample:?}"),
    }
}

/// What is read of a page at any path.
async fn read(counters: Counters, page: &str) -> Result<Counts, String> {
    let page = page.to_owned();
    let answer: Answer = Arc::new(move |_| Some((200, page.clone())));
    let url = Urls(vec![format!("http://{}/metrics", server(answer).await)]);
    look(&Counters { url, ..counters }).await
}

const PAGE: &str = r#"
# HELP sessions_active Live.
# TYPE sessions_active gauge
sessions_active{model="a",worker="1"} 3
sessions_active{model="b",worker="1"} 4.0
sessions_active{model="b",worker="2"} 1e1
# TYPE started counter
started_total 120 1700000000000
# TYPE ended counter
ended_total{outcome="completed"} 90
ended_total{outcome="a \"quoted\" \\ one\n"} 1 # {trace="x"} 1
# TYPE refused counter
process_start_time_seconds 1.7e+09
odd_total NaN
half 2.5
huge 1e300
below -4
wrapped 1.8446744073709552e+19
"#;

#[tokio::test]
async fn series_that_fit_are_added_up() {
    let all = Counters {
        started: Some("started_total".to_owned()),
        ended: Some(Ended::ByOutcome(
            [("completed", "ended_total{outcome=\"completed\"}"), ("cancelled", "ended_total{outcome!=\"completed\"}")]
                .map(|(outcome, place)| (outcome.to_owned(), place.to_owned()))
                .into(),
        )),
        // Declared, and no event yet.
        rejected: Some("refused_total".to_owned()),
        // 2023: `time` alone would make it old.
        max_age: crate::profile::Span::seconds(2_000_000_000),
        ..sums(CounterKind::Prometheus, "sessions_active")
    };
    let counts = read(all, PAGE).await.expect("readable");
    assert_eq!((counts.active, counts.started, counts.ended, counts.rejected), (17, Some(120), Some(91), Some(0)));
    assert_eq!(counts.outcomes, [(Outcome::Completed, 90), (Outcome::Cancelled, 1)].into());
    assert_eq!((counts.boot.as_deref(), counts.time_us), (Some("1700000000"), Some(1_700_000_000_000_000)));
    assert_eq!(counts.absent, ["refused_total"]);
    for (place, active) in [("sessions_active{model=\"b\"}", 14), ("sessions_active{ worker!=\"1\", }", 10), ("below", -4), ("wrapped", -1)]
    {
        assert_eq!(read(sums(CounterKind::Prometheus, place), PAGE).await.map(|counts| counts.active), Ok(active), "{place}");
    }
}

#[tokio::test]
async fn what_is_no_count_in_an_exposition_is_told() {
    for (place, complaint) in [
        ("odd_total", "no number of sessions"),
        ("half", "is it an average?"),
        ("huge", "too large"),
        ("session_active", "did you mean `sessions_active`?"),
        ("sessions_active{model=\"c\"}", "nothing is at"),
    ] {
        let error = read(sums(CounterKind::Prometheus, place), PAGE).await.expect_err(place);
        assert!(error.contains(complaint) && error.contains(place), "{place}: {error}");
    }
    let counter = |place: &str| Counters { started: Some(place.to_owned()), ..sums(CounterKind::Prometheus, "below") };
    let error = read(counter("below"), PAGE).await.expect_err("negative");
    assert!(error.contains("not below zero"), "{error}");
    for (page, complaint) in [
        ("live{a=\"1\"} 1\nlive{a=\"1\"} 2\n", "more than once"),
        ("live one\n", "line 1: the value is no number"),
        ("live\n", "no value"),
        ("live{a=1} 1\n", "double quotes"),
        ("live{a=\"1\" 1\n", "missing after the labels"),
        ("{\"live\": 1}\n", "no exposition"),
        ("<html>\n", "no exposition"),
        ("", "nothing is at"),
    ] {
        let error = read(sums(CounterKind::Prometheus, "live"), page).await.expect_err(page);
        assert!(error.contains(complaint), "{page}: {error}");
    }
    let zero = Counters { absent_is_zero: true, ..sums(CounterKind::Prometheus, "live") };
    assert_eq!(read(zero, "").await.map(|counts| counts.active), Ok(0));
}

#[tokio::test]
async fn a_page_that_is_old_by_its_own_time_is_no_reading() {
    let error = read(sums(CounterKind::Prometheus, "live"), "live 1 1700000000000\n").await.expect_err("old");
    assert!(error.contains("max_age"), "{error}");
}

#[test]
fn places_are_checked() {
    for (kind, right) in [
        (CounterKind::Prometheus, "a:b_total{x=\"y\", z!=\"\"}"),
        (CounterKind::Json, "/a~1b/0"),
        (CounterKind::Command, "/a"),
        (CounterKind::Orca, "active_sessions"),
    ] {
        assert_eq!(check_place(kind, right), Ok(()), "{right}");
    }
    for (kind, wrong) in [
        (CounterKind::Prometheus, "1x"),
        (CounterKind::Prometheus, "x{a=~\"b\"}"),
        (CounterKind::Prometheus, "x{a=\"b\"} 1"),
        (CounterKind::Prometheus, "sum(x)"),
        (CounterKind::Json, "a/b"),
        (CounterKind::Json, "/a~2"),
        (CounterKind::Orca, "a b"),
    ] {
        assert!(check_place(kind, wrong).is_err(), "{wrong}");
    }
}

const JSON: &str =
    r#"{"sessions": {"live": 3, "ever": "120", "text": "many", "list": [1], "half": 1.5, "none": null, "minus": -1}, "pid": 17}"#;

#[tokio::test]
async fn pointers_lead_to_numbers() {
    let json = |place: &str| sums(CounterKind::Json, place);
    let counters = Counters { started: Some("/sessions/ever".to_owned()), boot: Some("/pid".to_owned()), ..json("/sessions/live") };
    let counts = read(counters, JSON).await.expect("readable");
    assert_eq!((counts.active, counts.started, counts.boot.as_deref()), (3, Some(120), Some("17")));
    for (place, complaint) in [
        ("/sessions/text", "no number"),
        ("/sessions/list", "a list"),
        ("/sessions", "point into it"),
        ("/sessions/half", "average"),
        ("/sessions/none", "nothing is at"),
        ("/sessions/lives", "did you mean `/sessions/live`?"),
    ] {
        let error = read(json(place), JSON).await.expect_err(place);
        assert!(error.contains(complaint), "{place}: {error}");
    }
    assert!(read(json("/a"), "<html>").await.expect_err("no JSON").contains("no JSON"));
    let error = read(Counters { started: Some("/sessions/minus".to_owned()), ..json("/pid") }, JSON).await.expect_err("negative");
    assert!(error.contains("below zero"), "{error}");
}

#[tokio::test]
async fn a_url_that_gives_no_page_is_told_with_its_address_and_without_secrets() {
    let answer: Answer =
        Arc::new(|path| if path.contains("k3y-of-mine") { Some((503, String::new())) } else { Some((404, String::new())) });
    let address = server(answer).await;
    let url = |path: &str| Urls(vec![format!("http://{address}{path}")]);
    let error = look(&Counters { url: url("/metrics"), ..sums(CounterKind::Prometheus, "live") }).await.expect_err("404");
    assert!(error.contains("/metrics answered 404") && error.contains(&address.to_string()), "{error}");
    // The parameter arrives, and is in no message.
    let connection = Connection { query: [("token".to_owned(), "k3y-of-mine".to_owned())].into(), ..Connection::default() };
    let error = look(&Counters { url: url("/m"), connection, ..sums(CounterKind::Json, "/a") }).await.expect_err("503");
    assert!(error.contains("503") && !error.contains("k3y-of-mine"), "{error}");
    let silent = server(Arc::new(|_| None)).await;
    let counters = Counters { url: Urls(vec![format!("http://{silent}/")]), ..sums(CounterKind::Json, "/a") };
    assert!(look_within(&counters, Duration::from_millis(50)).await.expect_err("silent").contains("50 ms"));
}

fn program(words: &[&str]) -> Counters {
    Counters { command: words.iter().map(|word| (*word).to_owned()).collect(), ..sums(CounterKind::Command, "/live") }
}

#[tokio::test]
async fn a_program_prints_one_object_a_look() {
    // Without a shell a word is a word.
    assert_eq!(look(&program(&["printf", "%s", "{\"live\": 4, \"x\": \"$HOME `id`\"}"])).await.map(|counts| counts.active), Ok(4));
    // The address of the backend is known to it.
    let counters = program(&["sh", "-c", "test \"$1\" = 127.0.0.1:7000 && echo '{\"live\": 5}'", "sh", "{address}"]);
    assert_eq!(look(&counters).await.map(|counts| counts.active), Ok(5));
    // What it says on standard error is its own affair, as long as it ends well.
    let loud = program(&["sh", "-c", "yes complaint | head -c 100000 >&2; echo '{\"live\": 6}'"]);
    assert_eq!(look(&loud).await.map(|counts| counts.active), Ok(6));
}

#[tokio::test]
async fn what_a_program_leaves_running_ends_with_the_look() {
    let counts = look(&program(&["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo \"{\\\"live\\\": $!}\""])).await.expect("sums");
    let left = format!("/proc/{}/stat", counts.active);
    // Whoever takes orphans in may not have fetched it yet.
    let ends = async {
        while std::fs::read_to_string(&left).is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ends).await.expect("it ends");
}

#[tokio::test]
async fn a_program_that_fails_is_told_and_bounded() {
    for (words, complaint) in [
        (&["/nonexistent/program"][..], "cannot be started"),
        (&["sh", "-c", "echo no database >&2; exit 3"], "no database"),
        (&["sh", "-c", "exit 3"], "exit status: 3"),
        (&["echo", "live: 4"], "one JSON object"),
        (&["echo", "[4]"], "did not print a JSON object"),
        (&["echo", "{\"live\": 4} {\"live\": 5}"], "one JSON object"),
        (&["echo", "{}"], "nothing is at `/live`"),
        (&["true"], "one JSON object"),
        (&["yes", "{}"], "more than 1048576 bytes"),
    ] {
        let error = look(&program(words)).await.expect_err(complaint);
        assert!(error.contains(complaint), "{words:?}: {error}");
    }
    let error = look_within(&program(&["sh", "-c", "sleep 600 & sleep 600"]), Duration::from_millis(200)).await.expect_err("it sleeps");
    assert!(error.contains("200 ms"), "{error}");
}

#[tokio::test]
async fn several_parts_are_one_sum() {
    let answer: Answer = Arc::new(|path| Some((200, format!("{{\"live\": {}, \"boot\": \"b\"}}", if path == "/0" { 2 } else { 40 }))));
    let address = server(answer).await;
    let counters = Counters {
        url: Urls(vec![format!("http://{address}/{{index}}")]),
        boot: Some("/boot".to_owned()),
        sum: true,
        ..sums(CounterKind::Json, "/live")
    };
    let sites = [0, 1].map(|index| Site { index, ..site() });
    let mut source = super::of(&counters, 7, &sites, Clock::start(), Duration::from_secs(20)).expect("opened");
    let Ok(Observation::Totals(sample)) = source.poll(false).await else { panic!("no sums") };
    assert_eq!((sample.source, sample.counts.active, sample.counts.boot.as_deref()), (7, 42, Some("b+b")));
}

#[tokio::test]
async fn a_page_behind_tls_is_read_with_the_certificates_of_the_profile() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, rustls};

    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key))
        .expect("a configuration");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let mut head = [0; 512];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nlive 4\n").await;
            let _ = stream.shutdown().await;
        }
    });
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, own.cert.pem().as_bytes()).expect("written");
    let connection = Connection { ca: Some(file.path().to_owned()), ..Connection::default() };
    let url = Urls(vec![format!("https://localhost:{port}/metrics")]);
    let trusting = Counters { url: url.clone(), connection, ..sums(CounterKind::Prometheus, "live") };
    assert_eq!(look(&trusting).await.map(|counts| counts.active), Ok(4));
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    std::fs::write(file.path(), stranger.cert.pem()).expect("written");
    let error = look(&trusting).await.expect_err("another's certificate");
    assert!(error.contains("TLS handshake failed"), "{error}");
}

proptest::proptest! {
    #[test]
    fn any_page_is_read_or_refused(page in "([a-z_:{}=\"\\\\,# \n0-9.+eNaInf]|\\PC){0,200}", place in "([a-z_{}=\"\\\\,!~ ]|\\PC){0,40}") {
        use super::{Document, exposition::{Exposition, Selector}};
        let selector = Selector::parse(&place);
        if let (Ok(exposition), Ok(_)) = (Exposition::parse(&page), selector) {
            let _ = (exposition.number(&place), exposition.text(&place), exposition.process());
        }
    }
}
