//! Faults that the controller makes: on processes, and from outside of sessions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    super::{backends::Backend, controller::Run, workers::Worker},
    Begun,
    cgroup::{PREFIX, Squeeze},
    churn::Churn,
};
use crate::plan::{Fault, FaultKind};

/// A drained backend is started anew so long after the fault is over.
const RESTART_AFTER: Duration = Duration::from_millis(100);

/// What is under way, by the number of its fault.
#[derive(Debug, Default)]
pub(in crate::run) struct UnderWay {
    stopped: BTreeMap<u16, Vec<Pid>>,
    squeezed: BTreeMap<u16, Vec<Squeeze>>,
    churns: BTreeMap<u16, Vec<Churn>>,
}

impl UnderWay {
    /// A process is no more: the stops that held nobody else are over.
    fn gone(&mut self, pid: Pid) -> Vec<u16> {
        let mut over = Vec::new();
        for (fault, pids) in &mut self.stopped {
            let held = pids.contains(&pid);
            // Whoever gets its number next is none of ours.
            pids.retain(|one| *one != pid);
            if held && pids.is_empty() {
                over.push(*fault);
            }
        }
        over
    }
}

impl Drop for UnderWay {
    /// Whatever ends the run: a stopped process cannot even be told to end.
    fn drop(&mut self) {
        for pid in self.stopped.values().flatten() {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}

/// Begins it.
pub(super) fn begin(run: &mut Run, fault: &Fault) -> Begun {
    match fault.kind {
        FaultKind::Stop => stop(run, fault),
        // The kills themselves are among the run's planned ones, and tell whom they struck.
        FaultKind::KillBackend { .. } => Begun::Made(Some(0)),
        FaultKind::Drain => drain(run, fault),
        FaultKind::Cpu { cores } => squeeze(run, fault, cores),
        FaultKind::Churn { rate } => churn(run, fault, rate),
        _ => Begun::Skipped("nobody makes it".to_owned()),
    }
}

/// Ends it.
pub(super) async fn end(run: &mut Run, fault: &Fault) {
    match fault.kind {
        FaultKind::Stop => {
            for pid in run.under_way.stopped.remove(&fault.number).unwrap_or_default() {
                if let Err(error) = kill_process(pid, Signal::CONT) {
                    tracing::error!("failed to let process {} go on: {error}", pid.as_raw_nonzero());
                }
            }
        }
        FaultKind::Drain => {
            for index in struck(run, fault) {
                // One that was killed meanwhile is another process by now.
                if run.draining.contains(&index) {
                    run.kill_backend(index, RESTART_AFTER).await;
                }
            }
        }
        FaultKind::Cpu { .. } => drop(run.under_way.squeezed.remove(&fault.number)),
        FaultKind::Churn { .. } => {
            let made: u64 = run.under_way.churns.remove(&fault.number).unwrap_or_default().iter().map(Churn::made).sum();
            run.timeline.struck(fault.number, made);
        }
        _ => {}
    }
}

/// This process was killed now, whatever else was done to it.
pub(in crate::run) fn killed(run: &mut Run, pid: Option<Pid>) {
    for fault in pid.map(|pid| run.under_way.gone(pid)).unwrap_or_default() {
        run.timeline.ended(fault, run.clock.now());
    }
}

/// The embedded backends that a fault strikes, by index.
fn struck(run: &Run, fault: &Fault) -> Vec<usize> {
    run.set.backends.iter().map(|backend| backend.index).filter(|index| fault.target.backend.is_none_or(|one| one == *index)).collect()
}

/// Their processes, without those that are dead.
fn pids(run: &Run, fault: &Fault) -> Vec<Pid> {
    let dead = |index: usize| run.dead.iter().any(|(dead, _)| *dead == index);
    struck(run, fault).into_iter().filter(|index| !dead(*index)).filter_map(|index| run.set.backends.get(index)?.pid()).collect()
}

fn stop(run: &mut Run, fault: &Fault) -> Begun {
    let pids = match fault.target.scenario {
        Some(scenario) => {
            let worker = run.worker_of.get(&scenario).and_then(|number| run.workers.get(number));
            worker.and_then(Worker::pid).into_iter().collect()
        }
        None => pids(run, fault),
    };
    if pids.is_empty() {
        return Begun::Skipped("no process is there to be stopped".to_owned());
    }
    let mut stopped = Vec::new();
    for pid in pids {
        match kill_process(pid, Signal::STOP) {
            Ok(()) => stopped.push(pid),
            Err(error) => tracing::error!("failed to stop process {}: {error}", pid.as_raw_nonzero()),
        }
    }
    let count = stopped.len() as u64;
    run.under_way.stopped.insert(fault.number, stopped);
    Begun::Made(Some(count))
}

fn drain(run: &mut Run, fault: &Fault) -> Begun {
    let mut count = 0;
    for index in struck(run, fault) {
        let pid = run.set.backends.get(index).and_then(Backend::pid);
        if let Some(pid) = pid
            && kill_process(pid, Signal::TERM).is_ok()
        {
            run.draining.insert(index);
            count += 1;
        }
    }
    if count == 0 { Begun::Skipped("no backend is there to be drained".to_owned()) } else { Begun::Made(Some(count)) }
}

fn squeeze(run: &mut Run, fault: &Fault, cores: f64) -> Begun {
    let mut squeezed = Vec::new();
    for pid in pids(run, fault) {
        let name = format!("{PREFIX}{}-{}-{}-{}", run.info.run_id, fault.number, pid.as_raw_nonzero(), std::process::id());
        match Squeeze::begin(&name, pid, cores) {
            Ok(one) => squeezed.push(one),
            // Those that were squeezed before are let go by their drop.
            Err(why) => return Begun::Skipped(why),
        }
    }
    if squeezed.is_empty() {
        return Begun::Skipped("no process is there to be squeezed".to_owned());
    }
    let count = squeezed.len() as u64;
    run.under_way.squeezed.insert(fault.number, squeezed);
    Begun::Made(Some(count))
}

fn churn(run: &mut Run, fault: &Fault, rate: f64) -> Begun {
    let targets = Arc::clone(&run.set.targets);
    let of_target = |index: &usize| fault.target.backend.is_none_or(|one| run.set.front || one == *index);
    let addresses: Vec<_> = (0..targets.count()).filter(of_target).filter_map(|index| targets.get(index).map(|t| t.address)).collect();
    if addresses.is_empty() {
        return Begun::Skipped("no target is there to be connected to".to_owned());
    }
    let each = rate / addresses.len() as f64;
    let churns = addresses.into_iter().map(|address| Churn::start(address, each)).collect();
    run.under_way.churns.insert(fault.number, churns);
    Begun::Made(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_over_when_nobody_is_left_to_go_on() {
        // No process has such a number.
        let pid = |id| Pid::from_raw(i32::MAX - id).expect("a number");
        let mut all = UnderWay::default();
        all.stopped.extend([(1, vec![pid(7), pid(8)]), (2, vec![pid(8)])]);
        assert_eq!(all.gone(pid(9)), Vec::<u16>::new());
        assert_eq!(all.gone(pid(8)), [2]);
        assert_eq!(all.gone(pid(8)), Vec::<u16>::new(), "told once");
        assert_eq!(all.gone(pid(7)), [1]);
    }
}
