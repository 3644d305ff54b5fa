//! Embedded backends: real `agent-server` processes, started from this very binary, killed and restarted as the profile says.

use std::{
    ffi::OsStr,
    fs::File,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
    time::timeout,
};

/// A backend that has not said that it listens by then never will.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// After SIGTERM a backend may take so long before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an embedded backend could not be had.
#[derive(Debug, thiserror::Error)]
#[error("failed to start embedded backend {index}: {reason}; its log is {}", log.display())]
pub(super) struct BackendError {
    index: usize,
    reason: String,
    log: PathBuf,
}

/// How to start a backend process.
#[derive(Debug, Clone)]
pub(super) struct BackendSpec {
    /// This binary.
    pub(super) program: PathBuf,
    /// Settings of this backend, as a config file for `agent-server`.
    pub(super) config: PathBuf,
    /// Further flags, such as defects.
    pub(super) flags: Vec<String>,
    /// Where logs go.
    pub(super) log_dir: PathBuf,
    /// The network namespace that it runs in: what stands before its command, and the address for sessions.
    pub(super) home: Option<(Vec<String>, Ipv4Addr)>,
}

/// The line that a backend prints on stdout once it listens.
#[derive(Debug, Clone, Deserialize)]
struct Ready {
    address: SocketAddr,
    admin: SocketAddr,
    boot_id: String,
}

/// One running backend process. It ends when this process does: its stdin closes.
#[derive(Debug)]
pub(super) struct Backend {
    /// Position in the fleet.
    pub(super) index: usize,
    /// Sessions go here; the same after a restart.
    pub(super) address: SocketAddr,
    /// Counters are here; the same after a restart.
    pub(super) admin: SocketAddr,
    /// Of the running process.
    pub(super) boot_id: String,
    child: Child,
    /// Held: the backend stops when it closes.
    stdin: Option<ChildStdin>,
    spec: BackendSpec,
}

impl Backend {
    /// Starts a backend on free loopback ports and waits until it listens.
    pub(super) async fn start(index: usize, spec: BackendSpec) -> Result<Self, BackendError> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sessions = spec.home.as_ref().map_or(any, |(_, address)| SocketAddr::from((*address, 0)));
        let (child, stdin, ready) = spawn(index, &spec, sessions, any).await?;
        Ok(Self { index, address: ready.address, admin: ready.admin, boot_id: ready.boot_id, child, stdin, spec })
    }

    /// How the process ended, if it has.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Of the running process.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|id| Pid::from_raw(id as i32))
    }

    /// `kill -9`, and waits until the process is gone.
    pub(super) async fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill().await
    }

    /// Starts a killed backend again on the same ports; it has a new boot id then.
    pub(super) async fn restart(&mut self) -> Result<(), BackendError> {
        let (child, stdin, ready) = spawn(self.index, &self.spec, self.address, self.admin).await?;
        self.child = child;
        self.stdin = stdin;
        self.boot_id = ready.boot_id;
        Ok(())
    }

    /// SIGTERM, then SIGKILL when that takes too long.
    pub(super) async fn stop(mut self) {
        if let Some(pid) = self.pid() {
            // It may be gone already; then there is nothing to stop.
            let _ = kill_process(pid, Signal::TERM);
        }
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// All settings but that of the log, which changes nothing of what a backend does.
fn is_of_other_servers(variable: &OsStr) -> bool {
    variable.as_encoded_bytes().starts_with(b"AGENT_SERVER_") && variable != "AGENT_SERVER_LOG"
}

fn log_file(spec: &BackendSpec, index: usize) -> PathBuf {
    spec.log_dir.join(format!("backend-{index}.log"))
}

fn append(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

async fn spawn(
    index: usize,
    spec: &BackendSpec,
    listen: SocketAddr,
    admin: SocketAddr,
) -> Result<(Child, Option<ChildStdin>, Ready), BackendError> {
    let log = log_file(spec, index);
    let error = |reason: String| BackendError { index, reason, log: log.clone() };
    let stderr = append(&log).map_err(|e| error(format!("its log cannot be written: {e}")))?;
    // `ip netns exec` becomes the backend: it has the process's number.
    let mut words = spec.home.iter().flat_map(|(prefix, _)| prefix).map(OsStr::new).chain([spec.program.as_os_str()]);
    let mut command = Command::new(words.next().unwrap_or(spec.program.as_os_str()));
    // It is what the profile says, whatever the run's own environment says of other servers: a defect, or a limit, that nobody sees in the profile
    // would look like a fault of the backend's.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_other_servers(name)) {
        command.env_remove(name);
    }
    let mut child = command
        .args(words)
        .arg("backend")
        .arg("--config")
        .arg(&spec.config)
        .args(["--listen", &listen.to_string(), "--admin-listen", &admin.to_string()])
        .args(["--backend-id", &format!("backend-{index}"), "--stop-on-stdin-eof"])
        .args(&spec.flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .kill_on_drop(true)
        // Ctrl-C at a terminal goes to the whole group; the driver decides when its backends stop.
        .process_group(0)
        .spawn()
        .map_err(|e| error(e.to_string()))?;
    let stdin = child.stdin.take();
    let Some(stdout) = child.stdout.take() else { return Err(error("it has no stdout".into())) };
    let mut lines = BufReader::new(stdout).lines();
    let line = match timeout(READY_TIMEOUT, lines.next_line()).await {
        Ok(Ok(Some(line))) => line,
        Ok(Ok(None)) => {
            let status = child.wait().await.map_or_else(|e| e.to_string(), |s| s.to_string());
            let tail = std::fs::read_to_string(&log).unwrap_or_default();
            let tail = tail.lines().last().unwrap_or_default();
            return Err(error(format!("it ended before it listened ({status}): {tail}")));
        }
        Ok(Err(e)) => return Err(error(e.to_string())),
        Err(_) => return Err(error(format!("it did not listen within {READY_TIMEOUT:?}"))),
    };
    let ready: Ready = serde_json::from_str(&line).map_err(|e| error(format!("it said `{line}`, not that it listens: {e}")))?;
    Ok((child, stdin, ready))
}
