//! Counters that are read as sums, by each source: silent on a backend that counts right, the defect with its size on one that does not, and no pass
//! where nothing was seen.

mod run_support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use run_support::{Done, Run};

const PROMETHEUS: &str = r#"
  source: prometheus
  url: 'http://{admin}/metrics'
  active: agent_server_sessions_active
  started: agent_server_sessions_started_total
  rejected: agent_server_sessions_rejected_total
  boot: agent_server_build_info
  ended:
    completed: agent_server_sessions_ended_total{outcome="completed"}
    cancelled: agent_server_sessions_ended_total{outcome="cancelled"}
    failed: agent_server_sessions_ended_total{outcome="failed"}
    timed_out: agent_server_sessions_ended_total{outcome="timed_out"}
    drained: agent_server_sessions_ended_total{outcome="drained"}
"#;

const JSON: &str = "
  source: json
  url: 'http://{admin}/snapshot'
  active: /active
  started: /started
  ended: {completed: /ended/completed, cancelled: /ended/cancelled}
  boot: /boot_id
  time: /captured_at_us
";

/// The body of an answer, by a shell that can open sockets: no other program is there for sure.
const COMMAND: &str = r#"
  source: command
  command:
    - bash
    - -c
    - |
      exec 3<>"/dev/tcp/${1%:*}/${1#*:}"
      printf 'GET /snapshot HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n' >&3
      while IFS= read -r line <&3 && [ "$line" != $'\r' ]; do :; done
      cat <&3
    - counters
    - '{admin}'
  active: /active
  started: /started
"#;

const ORCA: &str = "
  source: orca
  url: 'http://{address}'
  active: active_sessions
";

/// Ends of five kinds, in a few seconds.
fn profile(source: &str, backends: usize) -> String {
    format!(
        "
name: counters
target: {{embedded: {{backends: {backends}}}}}
driver: {{shards: 1, max_schedule_lag: 2s}}
server: {{shards: 1, keepalive_interval: 1s, keepalive_timeout: 2s}}
counters:
  interval: 200ms
  half_open_window: 8s
  settle: 6s
{source}
defaults:
  gracefulStop: 10s
  executor: constant-arrival-rate
  rate: 8
  duration: 1s
  session_length: uniform(2s, 3s)
  ack_every: 0
  conversations: [{{turns: [{{wait: 300ms}}]}}]
scenarios:
  graceful: {{end: graceful}}
  cancel-grpc: {{end: cancel, protocol: grpc}}
  tcp-fin: {{end: tcp_fin, protocol: websocket}}
  tcp-rst-grpc: {{end: tcp_rst, protocol: grpc}}
  half-open: {{end: half_open, protocol: websocket}}
thresholds:
  sessions_failed: ['rate==0']
"
    )
}

const ABRUPT: u64 = 32;

#[track_caller]
fn clean(source: &str, backends: usize) -> Done {
    let done = Run::of(&profile(source, backends)).finish().exits(0).says("cannot see");
    assert_eq!(done.findings(), []);
    assert_eq!((done.at("/counters/status"), done.at("/counters/confidence")), (&"agree".into(), &"totals".into()));
    let rows: Vec<_> = done.at("/convergence").as_array().expect("a list").iter().filter(|row| row["killed"] != 0).collect();
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap_or_else(|| panic!("no {key}: {row}"))).sum::<u64>();
    assert_eq!((sum("killed"), sum("detected")), (ABRUPT + 8, ABRUPT + 8), "{}", done.shown());
    for key in ["written_off", "ghosts", "false_capacity"] {
        assert!(rows.iter().all(|row| row[key].is_null()), "sums name no session: {rows:?}");
    }
    done
}

#[track_caller]
fn defective(source: &str, backends: usize, defect: &str, found: &str) {
    let done = Run::of(&profile(source, backends)).with("--defect").with(&format!("{defect}=0.25")).finish().exits(98);
    let strikes = done.strikes(defect);
    assert!(strikes > 1, "{}", done.shown());
    assert_eq!(done.findings(), [(found, strikes)], "{}", done.shown());
}

#[test]
fn check_says_what_a_source_can_prove() {
    let check = |name: &str| {
        let said = load_driver::cli::check::check(&load_driver::profile::Source::of(name), &[]);
        assert!(said.ok, "{}", said.text);
        said.text
    };
    let text = check("third-party");
    assert!(text.contains("# counters: prometheus, each backend, every 250ms; proves ghosts and false capacity, as sums"), "{text}");
    assert!(text.contains("# counters cannot see: which sessions"), "{text}");
    assert!(check("quickstart").contains("# counters: agent-server, every 100ms: proves each session's count and end by its name"));
}

#[test]
fn metrics_agree() {
    let done = clean(PROMETHEUS, 1);
    assert_eq!(done.count("/schema_version"), 5);
    let unseen = done.at("/counters/cannot_see").as_array().expect("a list");
    assert!(unseen.iter().any(|line| line.as_str().is_some_and(|line| line.contains("which sessions"))), "{unseen:?}");
}

#[test]
fn metrics_name_ghosts() {
    defective(PROMETHEUS, 1, "ghost", "ghost");
}

#[test]
fn metrics_name_ends_that_are_counted_twice() {
    defective(PROMETHEUS, 1, "double_decrement", "double_decrement");
}

#[test]
fn a_json_document_agrees() {
    clean(JSON, 1);
}

#[test]
fn a_json_document_names_ghosts() {
    defective(JSON, 1, "ghost", "ghost");
}

#[test]
fn a_program_agrees() {
    clean(COMMAND, 1);
}

#[test]
fn a_program_names_false_capacity() {
    defective(COMMAND, 1, "double_decrement", "false_capacity");
}

#[test]
fn load_reports_agree() {
    clean(ORCA, 1);
}

#[test]
fn load_reports_name_ghosts() {
    defective(ORCA, 1, "ghost", "ghost");
}

#[test]
fn several_backends_are_proven_one_by_one_or_as_one_sum() {
    clean(PROMETHEUS, 2);
    let basis = clean(&format!("  sum: true{JSON}"), 2).at("/counters/basis").to_string();
    assert!(basis.contains(" looks at the sum of 2 backends, "), "{basis}");
    defective(&format!("  sum: true{JSON}"), 2, "ghost", "ghost");
}

#[test]
fn a_backend_that_the_plan_kills_is_written_off() {
    let profile = format!(
        "
target: {{embedded: {{backends: 1}}}}
driver: {{shards: 1, max_schedule_lag: 2s}}
server: {{shards: 1}}
counters:
  interval: 100ms
  settle: 6s
{PROMETHEUS}
scenarios:
  victims:
    executor: constant-sessions
    sessions: 6
    duration: 3s
    gracefulStop: 5s
    backend: 0
    session_length: 60s
    end: kill_backend
    kill_at: 2s
    conversations: [{{turns: [{{wait: 300ms}}]}}]
thresholds: {{sessions_failed: ['rate==0']}}
"
    );
    Run::of(&profile).finish().exits(0).says("6 sessions are written off");
}

#[test]
fn a_place_that_is_not_there_stops_the_run_before_it_begins() {
    let wrong = PROMETHEUS.replace("agent_server_sessions_active", "agent_server_session_active");
    let said = Run::of(&profile(&wrong, 1)).finish().exits(106).has_no_summary();
    said.says("did you mean `agent_server_sessions_active`?").says("`agent_server_session_active`, where `active` is to be");
    let wrong = JSON.replace("/started", "/begun");
    Run::of(&profile(&wrong, 1)).finish().exits(106).has_no_summary().says("nothing is at `/begun`, where `started` is to be");
    let wrong = COMMAND.replace("- bash\n", "- /nonexistent/program\n");
    Run::of(&profile(&wrong, 1)).finish().exits(106).says("cannot be started");
    let wrong = ORCA.replace("active_sessions", "active");
    Run::of(&profile(&wrong, 1)).finish().exits(106).says("active_sessions");
}

/// Answers what `answer` gives for the number of the request, from 0; none closes. Keeps what was asked.
fn serve(answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let number = AtomicUsize::new(0);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                request.push(byte[0]);
            }
            heard.lock().expect("whole").push(String::from_utf8_lossy(&request).into_owned());
            if let Some(body) = answer(number.fetch_add(1, Ordering::Relaxed)) {
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).ok();
            }
        }
    });
    (address, asked)
}

fn from(address: SocketAddr) -> String {
    format!("  source: json\n  url: 'http://{address}/counts'\n  active: /active\n  started: /started\n")
}

#[test]
fn a_source_that_stops_answering_is_no_pass() {
    let (address, _) = serve(|number| (number < 3).then(|| "{\"active\": 0, \"started\": 0}".to_owned()));
    let done = Run::of(&profile(&from(address), 1)).finish().exits(98).says("after its last session had ended");
    assert_eq!(done.findings().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["unverified"]);
}

#[test]
fn numbers_that_never_move_are_no_pass() {
    let (address, _) = serve(|_| Some("{\"active\": 0, \"started\": 0}".to_owned()));
    let done = Run::of(&profile(&from(address), 1)).finish().exits(98).says("never moved although 40 sessions came and went");
    assert_eq!(done.at("/counters/status"), "unverified");
}

#[test]
fn a_number_that_is_none_is_a_look_that_failed() {
    let (address, _) =
        serve(|number| Some(if number == 0 { "{\"active\": 0, \"started\": 0}" } else { "{\"active\": 0.5, \"started\": 0}" }.to_owned()));
    Run::of(&profile(&from(address), 1)).finish().exits(98).says("is it an average?");
}

#[test]
fn secrets_go_to_the_url_and_nowhere_else() {
    let (address, asked) = serve(|number| Some(format!("{{\"active\": 0, \"started\": {number}}}")));
    let source = format!(
        "{}  connection: {{headers: {{Authorization: 'Bearer ${{COUNTERS_TOKEN}}'}}, query: {{api_key: '${{COUNTERS_TOKEN}}'}}}}\n",
        from(address)
    );
    Run::of(&profile(&source, 1)).finish().exits(104).says("COUNTERS_TOKEN is not set");
    let done = Run::of(&profile(&source, 1)).environment("COUNTERS_TOKEN", "hunter2-and-more").finish();
    assert_eq!(done.code(), Some(98), "{}", done.shown());
    assert!(!done.everything().contains("hunter2-and-more"));
    let asked = asked.lock().expect("whole");
    assert!(asked.iter().all(|request| request.to_lowercase().contains("authorization: bearer hunter2-and-more")), "{asked:?}");
    assert!(asked.iter().all(|request| request.starts_with("GET /counts?api_key=hunter2-and-more ")), "{asked:?}");
}
