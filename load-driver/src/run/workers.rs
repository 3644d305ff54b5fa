//! Worker processes: an engine of their own, so that sessions can die by `kill -9` of the process that holds them.

use std::{
    io::{self, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    thread::{self, JoinHandle},
};

use rustix::process::Pid;
use tokio::sync::mpsc::Sender;

use crate::engine::{
    EngineEvent,
    wire::{WireError, read_event},
    worker::{WorkerCommand, WorkerJob},
};

/// What comes from the workers.
#[derive(Debug)]
pub(super) enum WorkerNews {
    /// An event of its engine.
    Event {
        /// Which worker, from 1.
        worker: u32,
        /// As from an engine in this process.
        event: EngineEvent,
    },
    /// Its pipe is closed: everything it managed to say was said.
    Gone {
        /// Which worker.
        worker: u32,
        /// Set unless the pipe ended cleanly between two events, or in the middle of one, as it does in a kill.
        fault: Option<String>,
    },
}

/// A running worker process. It ends when this process does: its stdin closes.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts worker `number` (from 1; 0 is the engine of this process) on a job.
    pub(super) fn start(number: u32, program: &Path, job: &WorkerJob, news: Sender<WorkerNews>) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        let mut child = Command::new(program)
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C at a terminal goes to the whole group; the driver tells its workers itself.
            .process_group(0)
            .spawn()?;
        let mut stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let mut worker = Self { child, stdin: None, reader: None };
        if let Some(stdout) = stdout {
            let reader = move || read_all(number, BufReader::new(stdout), &news);
            worker.reader = Some(thread::Builder::new().name(format!("worker-{number}")).spawn(reader)?);
        }
        if let Some(stdin) = &mut stdin {
            write_line(stdin, job)?;
        }
        worker.stdin = stdin;
        Ok(worker)
    }

    /// Passes a command on. A worker that is gone cannot take it; its `Gone` comes anyway.
    pub(super) fn tell(&mut self, command: &WorkerCommand) {
        if let Some(stdin) = &mut self.stdin {
            let _ = write_line(stdin, command);
        }
    }

    /// Of the process, which was not waited for yet.
    pub(super) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id() as i32)
    }

    /// `kill -9`. `Gone` follows once everything it said before was read.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Closes its input, which ends it, and waits. The news channel must be read or closed meanwhile.
    pub(super) fn join(mut self) {
        self.reap();
    }

    fn reap(&mut self) {
        self.stdin = None;
        // It may have been killed; how it ended was told by `Gone`.
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.reader.is_some() {
            let _ = self.child.kill();
            self.reap();
        }
    }
}

fn write_line(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

fn read_all(worker: u32, mut pipe: impl io::Read, news: &Sender<WorkerNews>) {
    let fault = loop {
        match read_event(&mut pipe) {
            Ok(Some(event)) => {
                if news.blocking_send(WorkerNews::Event { worker, event }).is_err() {
                    return;
                }
            }
            Ok(None) | Err(WireError::Truncated) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    // Nobody listens any more when the run is over.
    let _ = news.blocking_send(WorkerNews::Gone { worker, fault });
}
