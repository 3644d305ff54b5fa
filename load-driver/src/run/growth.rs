//! Looks at the size of every process of the run, once a second.

use proto::time::Micros;

use super::controller::Run;
use crate::leak::{Process, Sample, look};

impl Run {
    /// This process, its workers, and the backends: those that it started as the kernel sees them, others by what they say of their memory.
    pub(super) fn watch_growth(&mut self, now: Micros) {
        let at_s = now.0 as f64 / 1e6;
        let active = self.registry.gauges().0;
        self.leaks.add("driver", "", at_s, look(Process::Own, active));
        for (number, worker) in &self.workers {
            if let Some(pid) = worker.pid() {
                let pid = pid.as_raw_nonzero().get();
                // Its sessions are all of the run's that it can have.
                self.leaks.add(&format!("worker {number}"), &pid.to_string(), at_s, look(Process::Other(pid), active));
            }
        }
        for (index, usage) in &self.backends {
            let (rss_bytes, active) = usage.now;
            let own = self.set.backends.get(*index).and_then(super::backends::Backend::pid);
            let sample = match own {
                Some(pid) => look(Process::Other(pid.as_raw_nonzero().get()), active),
                None => Sample { rss_bytes: Some(rss_bytes).filter(|bytes| *bytes > 0), active, ..Sample::default() },
            };
            self.leaks.add(&format!("backend {index}"), usage.boot_id(), at_s, sample);
        }
    }
}
