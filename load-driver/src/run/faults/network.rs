//! Faults of the network: by the relay, or by the kernel in the namespaces of the backends.

use super::{
    super::{controller::Run, poller::unix_now},
    Begun,
};
use crate::{
    ledger::Weather,
    plan::{Fault, FaultKind, Maker},
};

/// Begins it.
pub(super) fn begin(run: &mut Run, fault: &Fault) -> Begun {
    if let Some(why) = run.set.ground.missing.get(&fault.kind.name()) {
        return Begun::Skipped(why.clone());
    }
    let made = match fault.kind.name().maker() {
        Maker::Relay => match &run.set.ground.relay {
            Some(relay) => Ok(relay.begin(fault)),
            None => Err("there is no relay".to_owned()),
        },
        _ => in_namespaces(run, fault, &struck(run, fault)),
    };
    match made {
        Ok(connections) => Begun::Made(Some(connections)),
        Err(why) => Begun::Skipped(why),
    }
}

/// Ends it.
pub(super) fn end(run: &mut Run, fault: &Fault) {
    if fault.kind.name().maker() == Maker::Relay {
        let later = run.set.ground.relay.as_ref().map_or(0, |relay| relay.end(fault.number));
        run.timeline.struck(fault.number, later);
    } else {
        for index in struck(run, fault) {
            if let Some(Err(why)) = run.set.ground.homes.get(&index).map(|home| home.namespace.end(fault.kind)) {
                tracing::error!("failed to end the fault {} of backend {index}: {why}", fault.kind.name().name());
            }
        }
    }
    calm(run, fault);
}

/// The members that a fault strikes; behind a front any may be.
pub(super) fn struck(run: &Run, fault: &Fault) -> Vec<usize> {
    (0..run.set.members).filter(|index| fault.target.backend.is_none_or(|one| one == *index)).collect()
}

/// What of a fault the ledger must know. What resets connections is heard of at once by both sides.
pub(super) fn weather(kind: FaultKind) -> Option<Weather> {
    let us = |span: std::time::Duration| span.as_micros() as u64;
    match kind {
        // There and back again, and room for what waits its turn.
        FaultKind::Delay { delay, jitter } => Some(Weather::Late(us(2 * (delay + jitter)))),
        FaultKind::Gaps { gap, .. } => Some(Weather::Late(us(2 * gap))),
        FaultKind::Stall
        | FaultKind::Bandwidth { .. }
        | FaultKind::Blackhole
        | FaultKind::Netem { .. }
        | FaultKind::Tbf { .. }
        | FaultKind::NftDrop => Some(Weather::Lost),
        _ => None,
    }
}

/// A reset whose packet is lost is not sent again: the keepalive finds out. The relay loses nothing that it does not make up for by a reset of its own.
pub(super) fn loses_for_good(fault: &Fault) -> bool {
    fault.kind.name().maker() == Maker::Namespace
}

fn calm(run: &mut Run, fault: &Fault) {
    let keepalive = loses_for_good(fault);
    let at_us = unix_now(&run.clock);
    for index in struck(run, fault) {
        run.ledger.network_calm(index, fault.number, at_us, keepalive);
    }
}

/// In the namespace of each; what was begun before one fails is ended again.
fn in_namespaces(run: &Run, fault: &Fault, backends: &[usize]) -> Result<u64, String> {
    let ground = &run.set.ground;
    let mut begun = Vec::new();
    let mut connections = 0;
    for index in backends {
        let begin = || {
            let home = ground.homes.get(index).ok_or_else(|| format!("backend {index} has no network namespace; see the log"))?;
            let backend = run.set.backends.get(*index).ok_or_else(|| format!("there is no backend {index}"))?;
            let port = backend.address.port();
            let struck = home.namespace.connections(port)?;
            home.namespace.begin(fault.kind, port).map(|()| (home, struck))
        };
        match begin() {
            Ok((home, struck)) => {
                begun.push(home);
                connections += struck;
            }
            Err(why) => {
                for home in begun {
                    if let Err(why) = home.namespace.end(fault.kind) {
                        tracing::error!("failed to end a fault that did not come about: {why}");
                    }
                }
                return Err(why);
            }
        }
    }
    Ok(connections)
}
