//! What hostile profiles, backends and counter endpoints may do to a run, and what comes of it. Each row is one in the table of SECURITY.md, which
//! says the same. No run here panics, hangs, takes more memory than it is given, or passes; and nothing of what was sent reaches a terminal raw.

mod run_support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use run_support::{Done, Run, backend::Backend};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;

struct Row {
    id: &'static str,
    got: &'static str,
    deed: fn() -> String,
}

/// For a run that needs more than this, KiB of address space, its memory is not bounded: what is sent has no end.
const MEMORY: u32 = 3_000_000;
/// The largest figure that is read at all.
const MOST: i64 = 1 << 53;
/// At once: each is a process that measures time.
const TOGETHER: usize = 2;

const QUIET: &str = "
name: quiet
driver: {shards: 1, max_schedule_lag: 10s, connect_timeout: 1s}
counters: {window: 1s, half_open_window: 1s, settle: 1s}
scenarios:
  talk:
    executor: constant-sessions
    sessions: 2
    duration: 1s
    gracefulStop: 500ms
    start_timeout: 1s
    protocol: websocket
    conversations: [{turns: [{wait: 300ms}]}]
";

const ROWS: &[Row] = &[
    // Profiles.
    Row {
        id: "yaml-bomb",
        got: "exit 104",
        deed: || {
            let ten = |of: &str| [of; 10].join(", ");
            let deeper = (1..30).map(|n| format!("a{n}: &a{n} [{}]\n", ten(&format!("*a{}", n - 1))));
            let text: String = std::iter::once(format!("a0: &a0 [{}]\n", ten("x"))).chain(deeper).collect();
            refused(&text, &[])
        },
    },
    Row { id: "yaml-nested", got: "exit 104", deed: || refused(&format!("name: {}", "[".repeat(100_000)), &[]) },
    Row { id: "yaml-doubled-key", got: "exit 104", deed: || refused(&format!("{QUIET}\nname: again\n"), &[]) },
    Row { id: "profile-too-long", got: "exit 104", deed: || refused(&format!("{QUIET}\n# {}", "x".repeat(5 << 20)), &[]) },
    Row { id: "profile-of-noise", got: "exit 104", deed: || refused("\u{0}\u{1}\u{2}\u{fffd}{{{", &[]) },
    Row { id: "sessions-beyond-number", got: "exit 104", deed: || refused(QUIET, &["--set=scenarios.talk.sessions=1e30"]) },
    Row { id: "sessions-beyond-memory", got: "exit 104", deed: || refused(QUIET, &["--set=scenarios.talk.sessions=4294967295"]) },
    Row { id: "time-beyond-number", got: "exit 104", deed: || refused(QUIET, &["--set=scenarios.talk.duration=99999999999999999999h"]) },
    Row { id: "header-injection", got: "exit 104", deed: || refused(QUIET, &["--set=connection.headers={X: \"a\\r\\nHost: b\"}"]) },
    Row {
        id: "wav-that-lies",
        got: "exit 104",
        deed: || {
            let run = run(&QUIET.replace("turns: [{wait: 300ms}]", "turns: [{wait: 300ms, say: {wav: lie.wav}}]"));
            std::fs::write(run.folder().join("lie.wav"), [b"RIFF".as_slice(), &[0xff; 4], b"WAVEfmt ", &[0xff; 40]].concat())
                .expect("written");
            over(run)
        },
    },
    Row {
        id: "remote-without-leave",
        got: "exit 104",
        deed: || refused(QUIET, &["--target=203.0.113.7:7000", "--set=scenarios.talk.sessions=21"]),
    },
    // Backends.
    Row { id: "backend-silence", got: "exit 106", deed: || against(|mut stream| drain(&mut stream)) },
    Row { id: "backend-closes", got: "exit 106", deed: || against(drop) },
    Row { id: "backend-noise", got: "exit 106", deed: || against(|mut stream| answer(&mut stream, &[0xff; 4096])) },
    Row {
        id: "backend-head-drip",
        got: "exit 106",
        deed: || against(|mut stream| drip(&mut stream, b"HTTP/1.1 101 Switching Protocols\r\nX: ")),
    },
    Row {
        id: "backend-head-without-end",
        got: "exit 106",
        deed: || {
            against(|mut stream| {
                endless(&mut stream, b"HTTP/1.1 101 Switching Protocols\r\n", &b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(1_000));
            })
        },
    },
    Row {
        id: "backend-redirect",
        got: "exit 106",
        deed: || {
            against(|mut stream| answer(&mut stream, b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"))
        },
    },
    Row {
        id: "backend-body-without-end",
        got: "exit 106",
        deed: || against(|mut stream| endless(&mut stream, b"HTTP/1.1 500 No\r\n\r\n", &[b'a'; 64 * 1024])),
    },
    Row {
        id: "backend-escape-codes",
        got: "exit 106",
        deed: || {
            against(|mut stream| answer(&mut stream, b"HTTP/1.1 401 No\r\nContent-Length: 20\r\n\r\n\x1b]0;owned\x07\x1b[2J\x1b[31m\x00"))
        },
    },
    Row {
        id: "backend-ci-commands",
        got: "exit 106",
        deed: || against(|mut stream| answer(&mut stream, b"HTTP/1.1 401 No\r\nContent-Length: 29\r\n\r\n##[stop-commands]x\n::error::y")),
    },
    Row {
        id: "backend-frame-of-2-to-62",
        got: "exit 106",
        deed: || upgraded(|stream| answer(stream, &[&[0x82, 127, 0x40][..], &[0; 7], &[0; 4096]].concat())),
    },
    Row {
        id: "backend-message-without-end",
        got: "exit 106",
        deed: || upgraded(|stream| endless(stream, &[0x02, 0], &[&[0x00, 126, 4, 0][..], &[7; 1024]].concat().repeat(50))),
    },
    Row { id: "backend-ping-flood", got: "exit 106", deed: || upgraded(|stream| endless(stream, b"", &[0x89, 1, b'a'].repeat(10_000))) },
    Row { id: "backend-masked-frame", got: "exit 106", deed: || upgraded(|stream| answer(stream, &[0x82, 0x81, 0, 0, 0, 0, 1])) },
    Row { id: "backend-protobuf-noise", got: "exit 106", deed: || upgraded(|stream| answer(stream, &[0x82, 4, 0xff, 0xff, 0xff, 0xff])) },
    Row {
        id: "backend-json-nested",
        got: "exit 106",
        deed: || upgraded(|stream| answer(stream, &[&[0x81, 126, 0xea, 0x60][..], &[b'['; 60_000]].concat())),
    },
    Row {
        id: "backend-goaway",
        got: "exit 106",
        deed: || {
            against_grpc(|mut stream| answer(&mut stream, &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]))
        },
    },
    Row { id: "backend-h2-noise", got: "exit 106", deed: || against_grpc(|mut stream| answer(&mut stream, &[0xff; 64 * 1024])) },
    Row {
        id: "backend-h2-ping-flood",
        got: "exit 106",
        deed: || {
            against_grpc(|mut stream| {
                endless(&mut stream, &[0, 0, 0, 4, 0, 0, 0, 0, 0], &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(1_000));
            })
        },
    },
    // Counters.
    Row { id: "counters-silence", got: "exit 106", deed: || counted(|mut stream| drain(&mut stream)) },
    Row { id: "counters-head-drip", got: "exit 106", deed: || counted(|mut stream| drip(&mut stream, b"HTTP/1.1 200 OK\r\nX: ")) },
    Row {
        id: "counters-body-without-end",
        got: "exit 106",
        deed: || counted(|mut stream| endless(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n", &[b'['; 64 * 1024])),
    },
    Row {
        id: "counters-nested",
        got: "exit 106",
        deed: || {
            counted(|mut stream| {
                answer(&mut stream, format!("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{}", "[".repeat(1_000_000)).as_bytes());
            })
        },
    },
    Row {
        id: "counters-redirect",
        got: "exit 106",
        deed: || {
            counted(|mut stream| answer(&mut stream, b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"))
        },
    },
    Row {
        id: "counters-beyond",
        got: "exit 106",
        deed: || {
            lying(|path, page| {
                if path.starts_with("/snapshot") {
                    for key in ["started", "active", "rejected", "late_ends", "live_tasks", "frames_in", "captured_at_us"] {
                        page[key] = if key == "active" { json!(i64::MAX) } else { json!(u64::MAX) };
                    }
                    page["ended"] = json!({"completed": u64::MAX, "failed": u64::MAX, "cancelled": u64::MAX, "timed_out": u64::MAX, "drained": u64::MAX});
                    page["active_interval"] = json!([i64::MIN, i64::MAX]);
                }
            })
        },
    },
    Row {
        id: "counters-large",
        got: "exit 98",
        deed: || {
            lying(|path, page| {
                if path.starts_with("/snapshot") {
                    for key in
                        ["started", "active", "rejected", "late_ends", "live_tasks", "frames_in", "captured_at_us", "next_end", "cpu_us"]
                    {
                        page[key] = json!(MOST);
                    }
                    page["ended"] = json!({"completed": MOST, "failed": MOST, "cancelled": MOST, "timed_out": MOST, "drained": MOST});
                    page["active_interval"] = json!([-MOST, MOST]);
                }
            })
        },
    },
    Row {
        id: "counters-beyond-later",
        got: "exit 98",
        deed: || {
            lying(|path, page| {
                static LOOKS: AtomicU64 = AtomicU64::new(0);
                if path.starts_with("/snapshot") && LOOKS.fetch_add(1, Ordering::Relaxed) > 3 {
                    page["started"] = json!(u64::MAX);
                }
            })
        },
    },
    Row {
        id: "counters-below",
        got: "exit 98",
        deed: || {
            lying(|path, page| {
                if path.starts_with("/snapshot") {
                    page["active"] = json!(-MOST);
                    page["active_interval"] = json!([-MOST, -MOST]);
                    page["phases"] = json!({"listening": -MOST});
                }
            })
        },
    },
    Row {
        id: "counters-new-boots",
        got: "exit 98",
        deed: || {
            lying(|path, page| {
                // Another process at every look.
                static BOOT: Mutex<u64> = Mutex::new(0);
                let mut boot = BOOT.lock().expect("whole");
                if path.starts_with("/snapshot") {
                    *boot += 1;
                }
                page["boot_id"] = json!(format!("boot-{boot}"));
            })
        },
    },
    Row { id: "counters-long-names", got: "exit 106", deed: || lying(|_, page| page["boot_id"] = json!("b".repeat(4_000_000))) },
    Row {
        id: "counters-new-names",
        got: "exit 98",
        deed: || {
            lying(|path, page| {
                static LOOK: AtomicU64 = AtomicU64::new(0);
                if path.starts_with("/snapshot") {
                    page["backend_id"] = json!(format!("b{}", LOOK.fetch_add(1, Ordering::Relaxed)));
                }
            })
        },
    },
    Row {
        id: "counters-pages-without-end",
        got: "exit 98",
        deed: || {
            lying(|path, page| {
                static LOOKS: AtomicU64 = AtomicU64::new(0);
                if path.starts_with("/snapshot") {
                    LOOKS.fetch_add(1, Ordering::Relaxed);
                }
                // The first look is to be a whole one: two seconds are all that it may take.
                if path.starts_with("/ends") && LOOKS.load(Ordering::Relaxed) > 3 {
                    let after: u64 = path.split("after=").nth(1).and_then(|rest| rest.split('&').next()?.parse().ok()).unwrap_or(0);
                    page["next"] = json!(after + 1);
                    page["ends"] =
                        json!([{"seq": after, "session_id": "x".repeat(1_000), "client_ref": "x", "outcome": "completed", "at_us": 1}]);
                }
            })
        },
    },
    Row {
        id: "counters-escape-codes",
        got: "exit 98",
        deed: || {
            lying(|path, page| {
                page["backend_id"] = json!("\u{1b}]0;owned\u{7}\u{1b}[2J");
                if path.starts_with("/snapshot") {
                    page["active"] = json!(7);
                    page["phases"] = json!({"\u{1b}[31m": 7});
                }
            })
        },
    },
    Row {
        id: "counters-ci-commands",
        got: "exit 98",
        deed: || {
            lying(|path, page| {
                page["backend_id"] = json!("::error::x ##[stop-commands]x");
                if path.starts_with("/snapshot") {
                    page["active"] = json!(7);
                    page["phases"] = json!({"##[error]": 7});
                }
            })
        },
    },
    Row {
        id: "counters-token-for-a-number",
        got: "exit 106, the token nowhere",
        deed: || {
            echoing(|path, page, token| {
                if path.starts_with("/snapshot") {
                    page["started"] = json!(token);
                }
            })
        },
    },
    Row {
        id: "counters-token-for-a-number-later",
        got: "exit 98, the token nowhere",
        deed: || {
            echoing(|path, page, token| {
                static LOOKS: AtomicU64 = AtomicU64::new(0);
                if path.starts_with("/snapshot") && LOOKS.fetch_add(1, Ordering::Relaxed) > 3 {
                    page["started"] = json!(token);
                }
            })
        },
    },
    Row {
        id: "counters-token-for-names",
        got: "exit 98, the token nowhere",
        deed: || {
            echoing(|path, page, token| {
                page["boot_id"] = json!(token);
                if path.starts_with("/snapshot") {
                    page["backend_id"] = json!(token);
                    page["ended"][token] = json!(3);
                    page["phases"][token] = json!(1);
                    page["defects"] = json!({token: 1});
                }
                if path.starts_with("/ends") {
                    page["next"] = json!(1);
                    page["ends"] = json!([{"seq": 0, "session_id": token, "client_ref": token, "outcome": token, "at_us": 1}]);
                }
            })
        },
    },
];

/// What the admin port is shown.
const TOKEN: &str = "hunter2-0123456789";

#[test]
fn hostile_deeds_get_what_the_table_says() {
    let queue = Mutex::new(ROWS.iter());
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("whole").next();
                    let Some(row) = next else { break };
                    let got = (row.deed)();
                    println!("{}: {got}", row.id);
                    if got != row.got {
                        wrong.lock().expect("whole").push((row.id, got, row.got));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("whole");
    assert!(wrong.is_empty(), "deed, what it got, what it must get: {wrong:#?}");
}

#[test]
fn the_table_of_security_md_is_what_is_tried() {
    let rows: Vec<(&str, &str)> = include_str!("../../SECURITY.md")
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (side, id, _, got) = (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
            (side == "driver").then(|| (id.trim_matches('`'), got))
        })
        .collect();
    let tried: Vec<(&str, &str)> = ROWS.iter().map(|row| (row.id, row.got)).collect();
    assert_eq!(rows, tried, "SECURITY.md says it otherwise, or in another order");
}

/// A run with bounded memory.
fn run(profile: &str) -> Run {
    Run::of(profile).through(&format!("ulimit -v {MEMORY}; exec \"$@\""))
}

/// Its end, and nothing of a peer's that a terminal would obey, or the runner of a CI system.
fn over(run: Run) -> String {
    ended(&run.finish())
}

fn ended(done: &Done) -> String {
    for (what, text) in [("standard output", &done.stdout), ("standard error", &done.stderr)] {
        let raw = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
        assert_eq!(raw, None, "{what}: {text:?}");
        let command = text.lines().find(|line| line.contains("##[") || line.trim_start().starts_with("::"));
        assert_eq!(command, None, "{what}: {text:?}");
    }
    assert!(!done.stderr.contains("overflow") && !done.stderr.contains("memory allocation"), "{}", done.stderr);
    done.code().map_or_else(|| "a signal".to_owned(), |code| format!("exit {code}"))
}

fn refused(profile: &str, arguments: &[&str]) -> String {
    over(arguments.iter().fold(run(profile), |run, argument| run.with(argument)))
}

/// A server of the test's own; each connection is a thread's.
fn server(serve: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn against(serve: fn(TcpStream)) -> String {
    over(run(QUIET).with(&format!("--target={}", server(serve))))
}

fn against_grpc(serve: fn(TcpStream)) -> String {
    over(run(QUIET).with("--set=scenarios.talk.protocol=grpc").with(&format!("--target={}", server(serve))))
}

/// After a handshake in order.
fn upgraded(serve: fn(&mut TcpStream)) -> String {
    over(run(QUIET).with(&format!(
        "--target={}",
        server(move |stream| {
            if let Ok(mut socket) = tungstenite::accept(stream) {
                serve(socket.get_mut());
            }
        })
    )))
}

/// Against an agent whose counters are read from this server.
fn counted(serve: fn(TcpStream)) -> String {
    let backend = Backend::start(&[]);
    let admin = server(serve);
    over(run(QUIET).with(&format!("--set=target=[{{address: '{}', admin: '{admin}'}}]", backend.address)))
}

/// Against an agent whose counters are passed on with changes.
fn lying(change: fn(&str, &mut Value)) -> String {
    let backend = Backend::start(&[]);
    let real = backend.admin;
    let admin = server(move |mut stream| {
        while let Some(head) = head(&mut stream) {
            let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
            let mut page = fetch(real, &path);
            change(&path, &mut page);
            let body = page.to_string();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    over(run(QUIET).with(&format!("--set=target=[{{address: '{}', admin: '{admin}'}}]", backend.address)))
}

/// Against an agent whose counters are passed on with what was shown for them. Nothing of the run may hold it.
fn echoing(change: fn(&str, &mut Value, &str)) -> String {
    let backend = Backend::start(&[]);
    let real = backend.admin;
    let admin = server(move |mut stream| {
        while let Some(head) = head(&mut stream) {
            let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
            let mut page = fetch(real, &path);
            let shown = head.lines().find_map(|line| line.strip_prefix("authorization: ")).expect("a token");
            change(&path, &mut page, shown);
            let body = page.to_string();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let target = format!("--set=target=[{{address: '{}', admin: '{admin}'}}]", backend.address);
    let done = run(QUIET).with(&target).with("--admin-token=${THE_TOKEN}").environment("THE_TOKEN", TOKEN).finish();
    assert!(!done.everything().contains(TOKEN) && !done.everything().contains("hunter2"), "{}", done.shown());
    ended(&done) + ", the token nowhere"
}

fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn fetch(admin: SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(admin).expect("connects");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("writes");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("reads");
    serde_json::from_str(text.split_once("\r\n\r\n").expect("a body").1).expect("json")
}

fn answer(stream: &mut TcpStream, bytes: &[u8]) {
    // It is a client's request that is answered.
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(bytes);
    drain(stream);
}

/// Until the driver closes.
fn drain(stream: &mut TcpStream) {
    let mut sink = [0; 4096];
    while matches!(stream.read(&mut sink), Ok(1..)) {}
}

fn drip(stream: &mut TcpStream, first: &[u8]) {
    let _ = stream.write_all(first);
    while stream.write_all(b"a").is_ok() {
        thread::sleep(Duration::from_millis(20));
    }
}

fn endless(stream: &mut TcpStream, first: &[u8], again: &[u8]) {
    let _ = stream.write_all(first);
    while stream.write_all(again).is_ok() {}
}
