//! A program that prints one JSON object. A place is a JSON pointer into that. It is started for each look, bounded in time and output, and no
//! shell reads its arguments.

use std::{future::Future, pin::Pin, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};

use super::{CounterError, Document, Fetch, FetchResult, Opening, json::Pointed};

/// Of its output.
const MAX_OUTPUT: u64 = 1 << 20;
/// Of what it says of its failures.
const MAX_ERRORS: u64 = 4 << 10;

pub(super) fn open(opening: &Opening<'_>) -> Result<Box<dyn Fetch>, CounterError> {
    let fill = |word: &String| opening.site.fill(word);
    let words = opening.counters.command.iter().map(fill).collect::<Result<Vec<_>, _>>().map_err(CounterError::Unusable)?;
    if words.first().is_none_or(String::is_empty) {
        return Err(CounterError::Unusable("no program is named to read counters with".to_owned()));
    }
    Ok(Box::new(Program { words, timeout: opening.timeout }))
}

struct Program {
    words: Vec<String>,
    timeout: Duration,
}

impl Fetch for Program {
    fn shown(&self) -> String {
        format!("the program `{}`", self.name())
    }

    fn fetch(&mut self) -> Pin<Box<dyn Future<Output = FetchResult> + Send + '_>> {
        Box::pin(async move {
            match tokio::time::timeout(self.timeout, self.run()).await {
                Ok(value) => Ok(Box::new(Pointed(value?)) as Box<dyn Document>),
                Err(_) => Err(self.failed(format!("it had not ended after {} ms and was killed", self.timeout.as_millis()))),
            }
        })
    }
}

impl Program {
    fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    fn failed(&self, reason: String) -> CounterError {
        CounterError::Unreadable { address: self.shown(), reason }
    }

    async fn run(&self) -> Result<Value, CounterError> {
        let mut child = Command::new(self.name())
            .args(self.words.get(1..).unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.failed(format!("it cannot be started: {error}")))?;
        // What it started goes with it, when the look is over. Its number is nobody else's as long as one of the group lives, and not soon after.
        let _group = Group(child.id());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (output, errors) = tokio::join!(bounded(stdout, MAX_OUTPUT, false), bounded(stderr, MAX_ERRORS, true));
        let output = output.map_err(|error| self.failed(format!("its output cannot be read: {error}")))?;
        if output.len() as u64 > MAX_OUTPUT {
            return Err(self.failed(format!("it printed more than {MAX_OUTPUT} bytes")));
        }
        let status = child.wait().await.map_err(|error| self.failed(error.to_string()))?;
        if !status.success() {
            let errors = String::from_utf8_lossy(&errors.unwrap_or_default()).trim().to_owned();
            let said = if errors.is_empty() { String::new() } else { format!(": {errors}") };
            return Err(self.failed(format!("it ended with {status}{said}")));
        }
        let value: Value =
            serde_json::from_slice(&output).map_err(|error| self.failed(format!("it did not print one JSON object: {error}")))?;
        if value.is_object() { Ok(value) } else { Err(self.failed("it did not print a JSON object".to_owned())) }
    }
}

/// Ends the program's process group, whatever became of the program.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let leader = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(leader) = leader {
            // It may be over, with all that it started.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

/// Up to one byte more than the bound. `drain`: whoever says more is listened to, and the rest forgotten; else the pipe is closed.
async fn bounded(pipe: Option<impl AsyncRead + Unpin>, most: u64, drain: bool) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(most + 1).read_to_end(&mut out).await?;
        if drain {
            tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
        }
    }
    Ok(out)
}
