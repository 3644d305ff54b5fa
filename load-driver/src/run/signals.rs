//! What ends a run early: Ctrl-C, `SIGTERM`, and a terminal that goes away.

use futures_util::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whatever asks the run to stop.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where whoever started the run had it ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = if ignores_hangup(&status) { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())?, hangup })
    }

    /// One came since the last look.
    pub(super) fn pending(&mut self) -> bool {
        let one = |signal: &mut Signal| signal.recv().now_or_never().is_some();
        one(&mut self.interrupt) || one(&mut self.terminate) || self.hangup.as_mut().is_some_and(one)
    }

    pub(super) async fn next(&mut self) {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hung_up => {}
        }
    }
}

/// By the kernel's word for a process.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Signal 1 is the lowest bit. A signal that this program already listens to is none that is ignored.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_under_nohup_is_known() {
        assert!(ignores_hangup("Name:\tload-driver\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\n") && !ignores_hangup(""));
    }
}
