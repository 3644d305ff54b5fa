//! A server process, its admin port, and clients that can be killed.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod client;
pub mod foreign;
pub mod openai;
pub mod tls;

use std::{
    future::Future,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use agent_server::admin::wire::{EndsPage, SessionsPage, SnapshotJson};
use serde::de::DeserializeOwned;

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running `agent-server serve`; killed when dropped.
pub struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    pub address: SocketAddr,
    pub tls_address: Option<SocketAddr>,
    pub admin: SocketAddr,
    /// What the admin port wants to be shown.
    admin_headers: String,
}

impl Server {
    /// On free ports, with quick agents, and these flags.
    pub fn start(flags: &[&str]) -> Self {
        Self::start_alone(&[&["--listen=127.0.0.1:0"], flags].concat())
    }

    /// As [`Self::start`], without an address.
    pub fn start_alone(flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_agent-server"))
            .args(["serve", "--shards=2", "--think=20ms", "--stop-on-stdin-eof"])
            .args(flags)
            .env("AGENT_SERVER_LOG", "warn")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("no ready line ({e}): {line:?}"));
        assert_eq!(ready["event"], "listening");
        assert_eq!(ready["pid"], child.id());
        let address = |key: &str| ready[key].as_str().unwrap().parse().unwrap();
        let tls_address = ready.get("tls_address").map(|_| address("tls_address"));
        let token = flags.iter().find_map(|flag| flag.strip_prefix("--admin-token="));
        let admin_headers = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        Self { address: address("address"), tls_address, admin: address("admin"), admin_headers, stdin: child.stdin.take(), child }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the process to exit by itself.
    pub async fn exit_code(&mut self) -> Option<i32> {
        let child = &mut self.child;
        eventually("the server exits", async || child.try_wait().unwrap()).await.code()
    }

    /// Status code and body.
    pub fn request(&self, method: &str, path: &str) -> (u16, String) {
        http(self.admin, method, path, &self.admin_headers)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let (code, body) = self.request("GET", path);
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub fn snapshot(&self) -> SnapshotJson {
        self.get("/snapshot")
    }

    pub fn sessions(&self, query: &str) -> SessionsPage {
        self.get(&format!("/sessions{query}"))
    }

    pub fn ends(&self, query: &str) -> EndsPage {
        self.get(&format!("/ends{query}"))
    }

    /// Waits until nothing lives, then checks that the counts add up to these ends and no others.
    pub async fn expect_ends(&self, expected: &[(&str, u64)]) -> SnapshotJson {
        let want: u64 = expected.iter().map(|(_, n)| n).sum();
        let snapshot = eventually(&format!("{expected:?} are counted"), async || {
            let s = self.snapshot();
            (s.active == 0 && s.live_tasks == 0 && s.started == want).then_some(s)
        })
        .await;
        let ended: Vec<(&str, u64)> = snapshot.ended.iter().filter(|(_, n)| **n > 0).map(|(k, n)| (k.as_str(), *n)).collect();
        let mut expected: Vec<_> = expected.iter().filter(|(_, n)| *n > 0).copied().collect();
        expected.sort_unstable();
        assert_eq!(ended, expected);
        assert!(snapshot.exact && snapshot.phases.values().all(|n| *n == 0), "{snapshot:?}");
        assert_eq!(self.ends("").ends.len() as u64, want);
        snapshot
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A bare HTTP/1.1 exchange: status code and body.
pub fn http(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String) {
    let (head, body) = http_whole(address, method, path, headers);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

/// As [`http`], with the whole head.
pub fn http_whole(address: SocketAddr, method: &str, path: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head.to_owned(), body.to_owned())
}

/// Asks until there is an answer.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(what, asking).await
}

/// Fails instead of hanging.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("did not happen: {what}"))
}
