//! A small language for tests of `load-driver run` as a user has it: a profile in a file, a process, its exit code, and what it wrote.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod backend;
pub mod front;
pub mod schema;

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// No run here takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(10);

/// A run that can begin.
pub struct Run {
    folder: TempDir,
    arguments: Vec<String>,
    shell: Option<String>,
    environment: Vec<(String, String)>,
}

impl Run {
    /// Of this profile; its folder holds everything that comes of it.
    pub fn of(profile: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("profile.yaml"), profile).expect("written");
        Self { folder, arguments: Vec::new(), shell: None, environment: Vec::new() }
    }

    /// Where its profile is.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// With one more argument.
    pub fn with(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Against a backend of the test's own.
    pub fn against(self, backend: &backend::Backend) -> Self {
        self.with("--set").with(&format!("target=[{{address: '{}', admin: '{}'}}]", backend.address, backend.admin))
    }

    /// With this in its environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Through a shell: `"$@"` in the script is the whole command.
    pub fn through(mut self, script: &str) -> Self {
        self.shell = Some(script.to_owned());
        self
    }

    /// Starts it.
    pub fn begin(self) -> Going {
        let path = |name: &str| self.folder.path().join(name);
        let file = |name: &str| Stdio::from(File::create(path(name)).expect("created"));
        let program = env!("CARGO_BIN_EXE_load-driver");
        let mut command = if let Some(script) = &self.shell {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh", program]);
            shell
        } else {
            Command::new(program)
        };
        // What is set in the shell of whoever tests must not change the test.
        for (name, _) in
            std::env::vars().filter(|(name, _)| ["LOAD_DRIVER_", "AGENT_SERVER_", "GITHUB_"].iter().any(|start| name.starts_with(start)))
        {
            command.env_remove(name);
        }
        command.arg("run").arg(path("profile.yaml")).arg("--out").arg(path("out")).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let child = command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr")).spawn().expect("starts");
        Going { child, folder: self.folder }
    }

    /// Starts it and waits for its end.
    pub fn finish(self) -> Done {
        self.begin().finish()
    }
}

/// A run under way.
pub struct Going {
    child: Child,
    folder: TempDir,
}

impl Going {
    /// Of the driver.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The folder of everything that comes of it.
    pub fn root(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Sends the driver a signal. It may be over already.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Its child that was started with this subcommand, once there is one.
    pub fn child(&self, subcommand: &str) -> u32 {
        eventually(&format!("a child `{subcommand}`"), || children(self.pid()).into_iter().find(|pid| runs(*pid, subcommand)))
    }

    /// What it said on standard error so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// It is over.
    pub fn over(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for its end, but not for ever.
    pub fn finish(mut self) -> Done {
        let text =
            |folder: &TempDir, name: &str| String::from_utf8_lossy(&fs::read(folder.path().join(name)).unwrap_or_default()).into_owned();
        let mut waited = Duration::ZERO;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(waited < PATIENCE, "the run hangs:\n{}\n{}", text(&self.folder, "stdout"), text(&self.folder, "stderr"));
            std::thread::sleep(LOOK);
            waited += LOOK;
        };
        let (stdout, stderr) = (text(&self.folder, "stdout"), text(&self.folder, "stderr"));
        assert!(!stderr.contains("panicked"), "{stderr}");
        let results = fs::read_dir(self.folder.path().join("out")).ok().and_then(|mut all| Some(all.next()?.ok()?.path()));
        let summary = results.as_ref().and_then(|results| fs::read_to_string(results.join("summary.json")).ok());
        let summary = summary.map(|text| serde_json::from_str(&text).expect("summary.json is JSON"));
        Done { code: status.code(), stdout, stderr, results, summary, _folder: std::mem::replace(&mut self.folder, empty_folder()) }
    }
}

fn empty_folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

impl Drop for Going {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A run that is over.
pub struct Done {
    code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    results: Option<PathBuf>,
    summary: Option<Value>,
    _folder: TempDir,
}

/// One row of the table by kind of end.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub killed: u64,
    pub detected: u64,
    pub written_off: u64,
    pub ghosts: u64,
    pub false_capacity: u64,
}

impl Done {
    /// It ended with this exit code, and its summary, if it got that far, says the same.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}", self.shown());
        if let Some(summary) = &self.summary {
            assert_eq!(summary["exit"]["code"], code, "{}", self.shown());
        }
        self
    }

    /// The exit code, whatever it is.
    pub fn code(&self) -> Option<i32> {
        self.code
    }

    /// It told the user, on either stream.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stdout.contains(text) || self.stderr.contains(text), "no `{text}` in:\n{}", self.shown());
        self
    }

    /// Everything that it told, for messages.
    pub fn shown(&self) -> String {
        format!("exit code {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }

    /// It ended before it had results.
    #[track_caller]
    pub fn has_no_summary(self) -> Self {
        assert!(self.summary.is_none(), "{}", self.shown());
        self
    }

    /// `summary.json`.
    #[track_caller]
    pub fn summary(&self) -> &Value {
        self.summary.as_ref().unwrap_or_else(|| panic!("no summary.json:\n{}", self.shown()))
    }

    /// The value at a JSON pointer of the summary.
    #[track_caller]
    pub fn at(&self, pointer: &str) -> &Value {
        self.summary().pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in the summary"))
    }

    /// A whole number of the summary.
    #[track_caller]
    pub fn count(&self, pointer: &str) -> u64 {
        self.at(pointer).as_u64().unwrap_or_else(|| panic!("{pointer} is no whole number"))
    }

    /// A part of one scenario of the summary.
    #[track_caller]
    pub fn scenario(&self, name: &str) -> &Value {
        let all = self.at("/scenarios").as_array().expect("a list");
        all.iter().find(|scenario| scenario["name"] == name).unwrap_or_else(|| panic!("no scenario {name}"))
    }

    /// A figure of a latency, such as `("session_startup", "response", "p99_ms")`.
    #[track_caller]
    pub fn latency(&self, metric: &str, basis: &str, figure: &str) -> f64 {
        let all = self.at("/latencies").as_array().expect("a list");
        let row = all.iter().find(|row| row["metric"] == metric).unwrap_or_else(|| panic!("no metric {metric}"));
        row[basis][figure].as_f64().unwrap_or_else(|| panic!("no {basis} {figure} of {metric}: {row}"))
    }

    /// A latency of one scenario, milliseconds.
    #[track_caller]
    pub fn latency_of(&self, scenario: &str, metric: &str, figure: &str) -> f64 {
        let all = self.scenario(scenario)["latencies"].as_array().expect("a list");
        let row = all.iter().find(|row| row["metric"] == metric).unwrap_or_else(|| panic!("no {metric} of {scenario}: {all:?}"));
        row["service"][figure].as_f64().unwrap_or_else(|| panic!("no {figure}: {row}"))
    }

    /// The row of a fault of the timeline, made or not.
    #[track_caller]
    pub fn fault(&self, kind: &str) -> &Value {
        let all = self.at("/faults").as_array().expect("a list");
        all.iter().find(|row| row["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {all:?}"))
    }

    /// The row of one that was made.
    #[track_caller]
    pub fn made(&self, kind: &str) -> &Value {
        let row = self.fault(kind);
        assert_eq!(row["skipped"], Value::Null, "{row}");
        assert!(row["began_s"].as_f64() >= row["planned_s"].as_f64(), "{row}");
        row
    }

    /// So many it struck.
    #[track_caller]
    pub fn struck(&self, kind: &str) -> u64 {
        self.made(kind)["struck"].as_u64().expect("a number")
    }

    /// Names and sizes of what is wrong with the counters.
    pub fn findings(&self) -> Vec<(&str, u64)> {
        let all = self.at("/counters/findings").as_array().expect("a list");
        all.iter().map(|f| (f["name"].as_str().expect("a name"), f["size"].as_u64().expect("a size"))).collect()
    }

    /// How far the counts were off, each backend's figure added up: most, least, session-seconds of ghosts, of false capacity.
    pub fn off(&self) -> (i64, i64, f64, f64) {
        let rows = self.at("/counters/drift").as_array().expect("a list");
        assert!(!rows.is_empty() && rows.iter().all(|row| row["looks"].as_u64() > Some(10)), "{rows:?}");
        let whole = |key: &str| rows.iter().map(|row| row[key].as_i64().expect("a number")).sum();
        let time = |key: &str| rows.iter().map(|row| row[key].as_f64().expect("a number")).sum();
        (whole("most"), whole("least"), time("ghost_seconds"), time("false_capacity_seconds"))
    }

    /// The table by kind of end.
    pub fn rows(&self) -> Vec<Row> {
        let all = self.at("/convergence").as_array().expect("a list");
        let row = |row: &Value| {
            let n = |key: &str| row[key].as_u64().expect("a number");
            Row {
                name: format!("{} {}", row["kind"].as_str().expect("a kind"), row["protocol"].as_str().expect("a protocol")),
                killed: n("killed"),
                detected: n("detected"),
                written_off: n("written_off"),
                ghosts: n("ghosts"),
                false_capacity: n("false_capacity"),
            }
        };
        all.iter().map(row).collect()
    }

    /// There is such a file among the results.
    pub fn has_file(&self, name: &str) -> bool {
        self.results.as_ref().is_some_and(|results| results.join(name).exists())
    }

    /// The folder of the results.
    #[track_caller]
    pub fn folder(&self) -> &std::path::Path {
        self.results.as_ref().unwrap_or_else(|| panic!("no results:\n{}", self.shown()))
    }

    /// A file of the results.
    #[track_caller]
    pub fn file(&self, name: &str) -> String {
        let results = self.results.as_ref().unwrap_or_else(|| panic!("no results:\n{}", self.shown()));
        fs::read_to_string(results.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Every file of the results, and what was printed.
    pub fn everything(&self) -> String {
        let results = self.results.iter().flat_map(|results| fs::read_dir(results).expect("a folder"));
        let files =
            results.map(|entry| String::from_utf8_lossy(&fs::read(entry.expect("an entry").path()).unwrap_or_default()).into_owned());
        files.chain([self.stdout.clone(), self.stderr.clone()]).collect()
    }

    /// How often a defect struck, as the embedded backends that lived to the end of the run say in their logs.
    #[track_caller]
    pub fn strikes(&self, defect: &str) -> u64 {
        let results = self.results.as_ref().expect("results");
        let logs = fs::read_dir(results).expect("a folder").map(|entry| entry.expect("an entry").path());
        let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let before = format!("{defect} struck ");
        let of = |log: &str| -> u64 {
            let counts = log.lines().filter_map(|line| line.split_once(&before)?.1.split(' ').next()?.parse::<u64>().ok());
            counts.sum()
        };
        logs.map(|path| of(&fs::read_to_string(path).expect("a log"))).sum()
    }
}

/// Sends a signal to a process that the test started, or that one of those started.
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("not 0");
    // It may be over.
    kill_process(pid, signal).ok();
}

/// Polls until there is an answer.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(answer) = look() {
            return answer;
        }
        std::thread::sleep(LOOK);
    }
    panic!("never: {what}");
}

/// The process runs: it is neither gone nor waits to be reaped.
pub fn alive(pid: u32) -> bool {
    stat(pid, 0).is_some_and(|state| state != "Z")
}

/// A field of `/proc/PID/stat`, from the state on. The name of the program may hold anything, but the last parenthesis ends it.
fn stat(pid: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field).map(str::to_owned)
}

fn children(of: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid, 1) == Some(of.to_string())).collect()
}

fn runs(pid: u32, subcommand: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(subcommand.as_bytes())
}
