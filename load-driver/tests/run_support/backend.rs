//! An agent-server of the test's own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

use agent_server::admin::wire::SnapshotJson;
use rustix::process::Signal;

use super::{eventually, send};

pub struct Backend {
    child: Child,
    pub address: SocketAddr,
    pub tls_address: Option<SocketAddr>,
    pub admin: SocketAddr,
}

impl Backend {
    /// With further `agent-server serve` arguments.
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_load-driver"))
            .args(["backend", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--shards", "1"])
            .args(["--stop-on-stdin-eof", "--log", "error", "--drain-timeout", "1s"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("readable");
        let ready: serde_json::Value = serde_json::from_str(&line).expect("a ready line");
        let address = |key: &str| ready[key].as_str().expect("there").parse().expect("an address");
        let tls_address = ready.get("tls_address").map(|_| address("tls_address"));
        Self { address: address("address"), tls_address, admin: address("admin"), child }
    }

    pub fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    pub fn snapshot(&self) -> SnapshotJson {
        let mut stream = TcpStream::connect(self.admin).expect("connects");
        write!(stream, "GET /snapshot HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("writes");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("reads");
        let body = text.split_once("\r\n\r\n").expect("a body").1;
        serde_json::from_str(&body[body.find('{').expect("json")..=body.rfind('}').expect("json")]).expect("a snapshot")
    }

    /// Polls until the snapshot is as wanted.
    pub fn eventually(&self, what: &str, wanted: impl Fn(&SnapshotJson) -> bool) -> SnapshotJson {
        eventually(what, || Some(self.snapshot()).filter(&wanted))
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
