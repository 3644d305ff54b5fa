//! A real agent-server in a process of its own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

use agent_server::admin::wire::SnapshotJson;

pub struct Backend {
    child: Child,
    pub address: SocketAddr,
    admin: SocketAddr,
}

impl Backend {
    /// With further `agent-server serve` arguments.
    /// With further `agent-server serve` arguments.
    pub fn start(arguments: &str) -> Self {
        Self::start_at("127.0.0.1:0", arguments)
    }

    /// Sessions go to this address.
    pub fn start_at(listen: &str, arguments: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_load-driver"))
            .args(["backend", "--listen", listen, "--stop-on-stdin-eof", "--log", "error", "--drain-timeout", "1s"])
            .args(arguments.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        let ready: serde_json::Value = serde_json::from_str(&line).expect("a ready line");
        let address = |key: &str| ready[key].as_str().expect("there").parse().expect("an address");
        Self { address: address("address"), admin: address("admin"), child }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }

    pub fn snapshot(&self) -> SnapshotJson {
        let mut stream = TcpStream::connect(self.admin).expect("connects");
        write!(stream, "GET /snapshot HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("writes");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("reads");
        let body = text.split_once("\r\n\r\n").expect("a body").1;
        serde_json::from_str(&body[body.find('{').expect("json")..=body.rfind('}').expect("json")]).expect("a snapshot")
    }

    /// Polls until the snapshot is as wanted, for ten seconds.
    pub fn eventually(&self, what: &str, wanted: impl Fn(&SnapshotJson) -> bool) -> SnapshotJson {
        for _ in 0..1_000 {
            let snapshot = self.snapshot();
            if wanted(&snapshot) {
                return snapshot;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("never {what}: {:?}", self.snapshot());
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
