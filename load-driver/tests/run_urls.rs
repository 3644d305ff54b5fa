//! Targets by URL: TLS, what is sent with every stream, and what a run says when a service does not let it in.

mod run_support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use run_support::{Done, Run, backend::Backend};

const SECRET: &str = "sk-hunter2-0123456789";
const PATH: &str = "/voiceagent.v1";

/// A few short sessions of one protocol.
fn talk(protocol: &str, more: &str) -> String {
    format!(
        "
name: urls
driver: {{shards: 1, max_schedule_lag: 2s, connect_timeout: 5s}}
counters: {{window: 2s, half_open_window: 5s, settle: 10s}}
scenarios:
  talk:
    protocol: {protocol}
    executor: constant-sessions
    sessions: 3
    duration: 1s
    gracefulStop: 2s
    start_timeout: 5s
    conversations: [{{turns: [{{wait: 100ms, say: {{synth: 200ms}}, response: 100ms}}]}}]
{more}"
    )
}

/// A backend whose TLS port shows a certificate of its own.
struct Secure {
    backend: Backend,
    cert: PathBuf,
    _folder: tempfile::TempDir,
}

impl Secure {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cert = folder.path().join("cert.pem");
        let own = format!("--tls-self-signed={}", cert.display());
        let backend = Backend::start(&[&["--tls-listen=127.0.0.1:0", &own, "--think=20ms"], more].concat());
        Self { backend, cert, _folder: folder }
    }

    fn port(&self) -> u16 {
        self.backend.tls_address.expect("TLS").port()
    }

    fn ca(&self) -> String {
        format!("--ca={}", self.cert.display())
    }

    /// With its counters.
    fn target(&self, url: &str) -> String {
        format!("target=[{{address: '{url}', admin: '{}'}}]", self.backend.admin)
    }
}

#[track_caller]
fn completes(done: Done) -> Done {
    let done = done.exits(0);
    assert!(done.count("/funnel/completed") >= 3, "{}", done.shown());
    assert_eq!(done.count("/funnel/failed") + done.count("/funnel/not_established"), 0, "{}", done.shown());
    done
}

#[track_caller]
fn fails_with(done: Done, cause: &str) -> Done {
    assert_ne!(done.code(), Some(0), "{}", done.shown());
    let errors = done.at("/errors").as_object().expect("a map");
    assert_eq!(errors.keys().collect::<Vec<_>>(), [cause], "{}", done.shown());
    assert_eq!(done.count("/funnel/established"), 0);
    done.says(cause)
}

#[test]
fn sessions_over_wss_and_https_complete_and_the_counters_agree() {
    let tls = Secure::start(&[]);
    for (protocol, url) in
        [("websocket", format!("wss://localhost:{}{PATH}", tls.port())), ("grpc", format!("https://127.0.0.1:{}", tls.port()))]
    {
        let done = completes(Run::of(&talk(protocol, "")).with("--set").with(&tls.target(&url)).with(&tls.ca()).finish());
        assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
        assert_eq!(done.at("/run/targets/0"), &url);
    }
    // A URL alone has no counters.
    let url = format!("wss://localhost:{}/voiceagent.v1?token={SECRET}&kind=test", tls.port());
    let done = completes(Run::of(&talk("websocket", "")).with("--target").with(&url).with(&tls.ca()).finish()).says("NOT CHECKED");
    assert!(!done.everything().contains(SECRET));
    assert!(done.stdout.contains("token=***&kind=test"), "{}", done.stdout);
}

#[test]
fn plain_urls_are_as_good_as_addresses() {
    let backend = Backend::start(&["--think=20ms"]);
    for (protocol, scheme) in [("websocket", "ws"), ("grpc", "http")] {
        let url = format!("{scheme}://{}", backend.address);
        completes(Run::of(&talk(protocol, "")).with("--target").with(&url).finish());
    }
}

#[test]
fn kills_work_under_tls() {
    let tls = Secure::start(&["--keepalive-interval=500ms", "--keepalive-timeout=300ms"]);
    for (protocol, url) in
        [("websocket", format!("wss://127.0.0.1:{}{PATH}", tls.port())), ("grpc", format!("https://127.0.0.1:{}", tls.port()))]
    {
        let ends = "    end: [{kind: tcp_fin}, {kind: tcp_rst}, {kind: half_open}, {kind: cancel}, {kind: graceful}]\n";
        let profile = talk(protocol, ends).replace("sessions: 3", "sessions: 30");
        let done = Run::of(&profile).with("--set").with(&tls.target(&url)).with(&tls.ca()).finish().exits(0);
        assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
        for row in done.rows().iter().filter(|row| row.name.ends_with(protocol)) {
            assert_eq!((row.killed, row.ghosts, row.false_capacity), (row.detected, 0, 0), "{}", done.shown());
        }
        let kinds = done.rows().iter().filter(|row| row.killed > 0).count();
        assert!(kinds >= 4, "{}", done.shown());
    }
}

#[test]
fn a_certificate_that_is_not_trusted_is_named() {
    let (tls, other) = (Secure::start(&[]), Secure::start(&[]));
    for (protocol, scheme) in [("websocket", "wss"), ("grpc", "https")] {
        let url = format!("{scheme}://localhost:{}", tls.port());
        let done = Run::of(&talk(protocol, "")).with("--target").with(&url).with(&other.ca()).finish();
        fails_with(done, "tls").says("invalid peer certificate").says("--ca");
    }
    // Neither the other way round: TLS towards a plain port.
    let url = format!("wss://{}", tls.backend.address);
    fails_with(Run::of(&talk("websocket", "")).with("--target").with(&url).with(&tls.ca()).finish(), "tls").says("TLS handshake");
    assert_eq!(tls.backend.snapshot().started, 0);
}

#[test]
fn a_backend_that_asks_for_a_certificate_gets_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let mut params = CertificateParams::new(Vec::new()).expect("params");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    std::fs::write(file("ca.pem"), issuer.pem()).expect("written");
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["driver".to_owned()]).expect("params");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    std::fs::write(file("own.pem"), params.signed_by(&key, &issuer).expect("signed").pem()).expect("written");
    std::fs::write(file("own.key"), key.serialize_pem()).expect("written");

    let tls = Secure::start(&[&format!("--tls-client-ca={}", file("ca.pem"))]);
    for (protocol, scheme) in [("websocket", "wss"), ("grpc", "https")] {
        let url = format!("{scheme}://localhost:{}", tls.port());
        let run = || Run::of(&talk(protocol, "")).with("--target").with(&url).with(&tls.ca());
        completes(run().with("--cert").with(&file("own.pem")).with("--key").with(&file("own.key")).finish());
        fails_with(run().finish(), "tls");
    }
    // Files are looked at before anything starts.
    let url = format!("wss://localhost:{}", tls.port());
    let run = Run::of(&talk("websocket", "")).with("--target").with(&url).with("--ca").with(&file("none.pem"));
    run.finish().exits(104).says("none.pem").has_no_summary();
    Run::of(&talk("websocket", "")).with("--cert").with(&file("own.pem")).finish().exits(104).says("--key");
}

#[test]
fn a_wrong_path_is_told_with_the_servers_words() {
    let backend = Backend::start(&[]);
    let url = format!("ws://{}/v1/nowhere", backend.address);
    fails_with(Run::of(&talk("websocket", "")).with("--target").with(&url).finish(), "not_found")
        .says("404")
        .says("no dialect is served at `/v1/nowhere`")
        .says("check the path");
    let url = format!("http://{}/no.Such/Method", backend.address);
    fails_with(Run::of(&talk("grpc", "")).with("--target").with(&url).finish(), "not_found");
    assert_eq!(backend.snapshot().started, 0);
}

#[test]
fn a_key_is_asked_for_and_is_in_no_output() {
    let tls = Secure::start(&[&format!("--auth-token={SECRET}")]);
    for (protocol, url) in
        [("websocket", format!("wss://localhost:{}{PATH}", tls.port())), ("grpc", format!("https://localhost:{}", tls.port()))]
    {
        let run = |more: &str| Run::of(&talk(protocol, more)).with("--set").with(&tls.target(&url)).with(&tls.ca());
        let refused = fails_with(run("").finish(), "unauthorized").says("the token of this server is missing").says("check the key");
        assert_eq!(refused.at("/counters/status"), "agree", "{}", refused.shown());
        let wrong = run("").with("--header").with("Authorization: Bearer not-the-key-at-all").finish();
        assert!(!fails_with(wrong, "unauthorized").everything().contains("not-the-key-at-all"));

        // By the profile and the environment, by a flag and the environment, by a flag alone.
        let by_profile = run("connection: {headers: {Authorization: 'Bearer ${URLS_TEST_KEY}'}}\n").environment("URLS_TEST_KEY", SECRET);
        let by_flag = run("").with("--header").with("Authorization: Bearer ${URLS_TEST_KEY}").environment("URLS_TEST_KEY", SECRET);
        let literal = run("").with("--header").with(&format!("x-goog-api-key: {SECRET}"));
        for (run, stored) in [(by_profile, "Bearer ${URLS_TEST_KEY}"), (by_flag, "Bearer ${URLS_TEST_KEY}"), (literal, "***")] {
            let done = completes(run.finish());
            assert_eq!(done.at("/counters/status"), "agree", "{}", done.shown());
            assert!(!done.everything().contains(SECRET));
            let headers = done.at("/resolved_profile/connection/headers").as_object().expect("a map");
            assert_eq!(headers.values().collect::<Vec<_>>(), [stored]);
        }
    }
    // Other ways of a WebSocket, and worker processes have them too.
    let url = format!("wss://localhost:{}{PATH}", tls.port());
    let run = |more: &str| Run::of(&talk("websocket", more)).with("--set").with(&tls.target(&url)).with(&tls.ca());
    let by_query = run("").with("--query").with(&format!("api_key={SECRET}")).finish();
    assert!(!completes(by_query).everything().contains(SECRET));
    let killed = run("    end: kill_worker\n    kill_at: 800ms\n").with("--query").with(&format!("key={SECRET}")).finish().exits(0);
    assert!(killed.count("/funnel/established") >= 3 && !killed.everything().contains(SECRET), "{}", killed.shown());
}

/// As docs/connections.md has it. A client of WebSocket gives up when the server selects none of what it offers.
#[test]
fn a_token_can_be_a_subprotocol() {
    let backend = Backend::start(&["--think=20ms", &format!("--auth-token={SECRET}")]);
    for (dialect, path) in [("native", PATH), ("openai_realtime", "/v1/realtime")] {
        let url = format!("target=[{{address: 'ws://{}{path}', admin: '{}'}}]", backend.address, backend.admin);
        let run = |offered: &str| {
            let more = format!("    dialect: {dialect}\nconnection: {{subprotocols: {offered}}}\n");
            Run::of(&talk("websocket", &more)).with("--set").with(&url).environment("API_KEY", SECRET).finish()
        };
        for offered in ["[realtime, 'openai-insecure-api-key.${API_KEY}']", "[token, '${API_KEY}']", "[bearer, '${API_KEY}']"] {
            let done = completes(run(offered));
            assert_eq!(done.at("/counters/status"), "agree", "{dialect} {offered}: {}", done.shown());
            assert!(!done.everything().contains(SECRET), "{dialect} {offered}");
        }
        fails_with(run("[token, another]"), "unauthorized");
        // There is nothing that the server could select but the key itself.
        let alone = fails_with(run("['openai-insecure-api-key.${API_KEY}']"), "not_an_agent").says("selected none of the subprotocols");
        assert!(!alone.everything().contains(SECRET));
    }
}

/// Answers every request with this.
fn always(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut request = [0; 4096];
                if matches!(stream.read(&mut request), Ok(n) if n > 0) {
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
        }
    });
    address
}

#[test]
fn refused_handshakes_are_told_apart() {
    for (answer, cause, words) in [
        ("HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 12\r\n\r\nall seats go", "rejected", "all seats go"),
        ("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "draining", "503"),
        ("HTTP/1.1 429 Slow\r\ncontent-length: 0\r\n\r\n", "rejected", "429"),
        ("HTTP/1.1 403 No\r\ncontent-length: 8\r\n\r\nnot you!", "unauthorized", "not you!"),
        ("HTTP/1.1 426 Upgrade\r\ncontent-length: 0\r\n\r\n", "not_an_agent", "426"),
    ] {
        let url = format!("ws://{}/", always(answer));
        fails_with(Run::of(&talk("websocket", "")).with("--target").with(&url).finish(), cause).says(words);
    }
}

#[test]
fn what_cannot_be_sent_or_spoken_is_told_before_anything_starts() {
    let to = |more: &str| Run::of(&talk("websocket", more)).with("--target").with("wss://localhost:1/");
    let profile = "connection: {headers: {Authorization: 'Bearer ${NO_SUCH_VARIABLE}'}}\n";
    to(profile)
        .finish()
        .exits(104)
        .says("NO_SUCH_VARIABLE")
        .says("connection.headers.Authorization")
        .says("profile.yaml:")
        .has_no_summary();
    to("").with("--query").with("key=${NO_SUCH_VARIABLE}").finish().exits(104).says("--query key").says("NO_SUCH_VARIABLE");
    for (more, complaint) in [
        ("connection: {headers: {'a b': c}}\n", "no name of an HTTP header"),
        ("connection: {headers: {Host: c}}\n", "set by the driver itself"),
        ("connection: {headers: {X-Y: \"a\\nb\"}}\n", "cannot be sent"),
        ("connection: {headers: {X-Y: '${A'}}\n", "write ${NAME}"),
        ("connection: {subprotocols: ['a, b']}\n", "subprotocol"),
        ("connection: {certificate: own.pem}\n", "`key` is not"),
    ] {
        to(more).finish().exits(104).says(complaint).says("profile.yaml:").has_no_summary();
    }
    let other = |url: &str| Run::of(&talk("websocket", "")).with("--target").with(url).finish().exits(104);
    other("https://localhost:1").says("speaks WebSocket").says("ws:// or wss://").says("protocol: grpc");
    other("ftp://localhost:1").says("ws, wss, http and https");
    other(&format!("wss://me:{SECRET}@localhost:1")).says("user name");
    let told = other(&format!("wss://localhost:0/?key={SECRET}")).says("port is 0");
    assert!(!told.shown().contains(SECRET), "{}", told.shown());
}

/// Its admin port speaks TLS and wants a token.
fn guarded() -> Secure {
    let secure = Secure::start(&["--admin-tls", "--admin-token", SECRET]);
    assert!(std::net::TcpStream::connect(secure.backend.admin).is_ok());
    secure
}

#[test]
fn counters_are_read_over_tls_with_the_admin_token_and_it_is_shown_nowhere() {
    let secure = guarded();
    let target = format!("target=[{{address: '{}', admin: 'https://localhost:{}'}}]", secure.backend.address, secure.backend.admin.port());
    let run = |profile: &str| {
        Run::of(&talk("websocket", profile)).with("--set").with(&target).with(&secure.ca()).environment("THE_TOKEN", SECRET)
    };
    for run in [
        run("").with("--admin-token=${THE_TOKEN}"),
        run("connection: {admin_token: '${THE_TOKEN}'}"),
        run("").environment("LOAD_DRIVER_ADMIN_TOKEN", SECRET),
    ] {
        let done = completes(run.finish());
        assert!(!done.everything().contains(SECRET) && !done.stderr.contains("list of processes"), "{}", done.shown());
        assert!(!done.stdout.contains("NOT CHECKED"), "{}", done.shown());
    }
    // Written out it works as well, and the user is told who else can read it.
    let done = completes(run("").with(&format!("--admin-token={SECRET}")).finish()).says("list of processes");
    assert!(!done.everything().contains(SECRET));
    for wrong in [run(""), run("").with("--admin-token=another")] {
        wrong.finish().exits(106).says("401").says("--admin-token").has_no_summary();
    }
    run("").with("--admin-token=${NOT_SET_ANYWHERE}").finish().exits(104).says("NOT_SET_ANYWHERE");
    // Without the certificate, and without TLS.
    let plain = format!("target=[{{address: '{0}', admin: '{1}'}}]", secure.backend.address, secure.backend.admin);
    Run::of(&talk("websocket", "")).with("--set").with(&plain).finish().exits(106);
    let untrusted =
        Run::of(&talk("websocket", "")).with("--set").with(&target).with("--admin-token=${THE_TOKEN}").environment("THE_TOKEN", SECRET);
    untrusted.finish().exits(106);
}

#[test]
fn backends_and_workers_of_a_run_have_no_secrets_in_their_arguments_and_take_none_from_around() {
    let profile =
        talk("websocket", "").replace("duration: 1s", "duration: 3s\n    end: kill_worker\n    kill_at: 2500ms\n    session_length: 1m");
    let going = Run::of(&profile)
        .with("--header=Authorization: Bearer ${THE_TOKEN}")
        .environment("THE_TOKEN", SECRET)
        .environment("AGENT_SERVER_ADMIN_TOKEN", SECRET)
        .environment("AGENT_SERVER_AUTH_TOKEN", SECRET)
        .environment("AGENT_SERVER_ADMIN_TLS", "true")
        .environment("AGENT_SERVER_DEFECT", "ghost=1")
        .environment("AGENT_SERVER_MAX_SESSIONS", "1")
        .begin();
    for child in ["backend", "worker"] {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", going.child(child))).expect("a process");
        assert!(!String::from_utf8_lossy(&arguments).contains("hunter2"), "{child}");
    }
    let done = going.finish().exits(0);
    assert_eq!(done.count("/funnel/not_established"), 0, "{}", done.shown());
    assert!(!done.everything().contains(SECRET), "{}", done.shown());
}

#[test]
fn more_than_a_modest_load_for_somebody_else_asks_before_anything_is_sent() {
    let more = talk("websocket", "").replace("sessions: 3", "sessions: 21");
    let asked = Run::of(&more).with("--target=wss://203.0.113.7/v1/realtime?api_key=hunter2").finish().exits(104).has_no_summary();
    let asked = asked.says("--allow-remote").says("21 sessions").says("203.0.113.7");
    assert!(!asked.shown().contains("hunter2"), "{}", asked.shown());
}
