//! Looks at the size of every process of the run, once a second.

use proto::time::Micros;

use super::controller::{Run, Size};
use crate::leak::{Process, Sample, look};

impl Run {
    /// This process, its workers, and the backends: those that it started as the kernel sees them, others by what they say of their memory.
    pub(super) fn watch_growth(&mut self, now: Micros) {
        let at_s = now.0 as f64 / 1e6;
        let active = self.registry.gauges().0;
        self.leaks.add("driver", "", at_s, Sample { tasks: self.tasks_of(0), ..look(Process::Own, active) });
        for (number, worker) in &self.workers {
            if let Some(pid) = worker.pid() {
                let pid = pid.as_raw_nonzero().get();
                // Its sessions are all of the run's that it can have.
                let sample = Sample { tasks: self.tasks_of(*number), ..look(Process::Other(pid), active) };
                self.leaks.add(&format!("worker {number}"), &pid.to_string(), at_s, sample);
            }
        }
        for (index, usage) in &self.backends {
            let Size { rss_bytes, active, tasks } = usage.now;
            let own = self.set.backends.get(*index).and_then(super::backends::Backend::pid);
            let sample = match own {
                Some(pid) => Sample { tasks: Some(tasks), ..look(Process::Other(pid.as_raw_nonzero().get()), active) },
                None => Sample { rss_bytes: Some(rss_bytes).filter(|bytes| *bytes > 0), tasks: Some(tasks), active, ..Sample::default() },
            };
            self.leaks.add(&format!("backend {index}"), usage.boot_id(), at_s, sample);
        }
    }

    /// Of the shards of a worker (0: of this process), by what they said last; none before they did.
    fn tasks_of(&self, worker: u32) -> Option<u64> {
        let mut tasks = self.tasks.iter().filter(|((of, _), _)| *of == worker).map(|(_, tasks)| *tasks).peekable();
        tasks.peek().is_some().then(|| tasks.sum())
    }
}
