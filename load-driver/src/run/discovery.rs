//! Backends by a name: every address that the name has is one.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use agent_server::runtime::clock::Clock;
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::{
    RunError,
    poller::{self, Look, Whose},
};
use crate::{
    plan::Connection,
    profile::{Address, Discovery},
    report::Exit,
};

/// A resolver that has not answered by then is taken for none.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// For a look whether anybody is there at all.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The backends of a name, in the order of their addresses. A backend that answers at two addresses, by IPv4 and IPv6 say, is one; of the
/// loopback addresses only those that answer are backends, if any does: `localhost` stands for one machine, not for a list of them.
pub(super) async fn resolve(name: &Discovery, connection: &Connection, clock: Clock) -> Result<Vec<Address>, RunError> {
    let unusable = |reason: &dyn std::fmt::Display| {
        RunError::new(Exit::TargetUnusable, format!("failed to resolve `{}` (host:port is due): {reason}", name.dns))
    };
    let found = match timeout(RESOLVE_TIMEOUT, lookup_host(&name.dns)).await {
        Ok(found) => found.map_err(|e| unusable(&e))?.collect::<BTreeSet<SocketAddr>>(),
        Err(_) => return Err(unusable(&format!("no answer within {RESOLVE_TIMEOUT:?}"))),
    };
    let mut backends = Vec::new();
    let mut boots = BTreeSet::new();
    for at in on_the_air(found).await {
        let address = Address { address: at.to_string(), admin: name.admin_port.map(|port| SocketAddr::new(at.ip(), port).to_string()) };
        if let Some(boot) = boot(&address, connection, clock).await
            && !boots.insert(boot)
        {
            tracing::info!("{at} is a backend that answers at another address too");
            continue;
        }
        backends.push(address);
    }
    if backends.is_empty() {
        return Err(unusable(&"the name has no address"));
    }
    Ok(backends)
}

/// Without the loopback addresses at which nobody listens, if somebody does at another.
async fn on_the_air(found: BTreeSet<SocketAddr>) -> Vec<SocketAddr> {
    let mut silent = BTreeSet::new();
    let own = |at: &SocketAddr| at.ip().is_loopback();
    if found.iter().filter(|at| own(at)).count() > 1 {
        for at in found.iter().filter(|at| own(at)) {
            if !matches!(timeout(PROBE_TIMEOUT, TcpStream::connect(*at)).await, Ok(Ok(_))) {
                silent.insert(*at);
            }
        }
    }
    let some_answer = found.iter().any(|at| own(at) && !silent.contains(at));
    found.into_iter().filter(|at| !some_answer || !silent.contains(at)).collect()
}

/// Which process answers there, if its counters do.
async fn boot(address: &Address, connection: &Connection, clock: Clock) -> Option<String> {
    let mut source = poller::source(0, &address.admin()?, connection, clock).ok()?;
    match poller::look(&mut source, Whose::Backend(0), false, clock).await {
        Look::Sample(sample) => Some(sample.snapshot.boot_id),
        Look::Gap { .. } | Look::Totals(_) | Look::Blind { .. } => None,
    }
}

/// Whom the run is against, in words.
pub(super) fn names(name: &Discovery, backends: &[Address]) -> Vec<String> {
    let count = format!("{} ({} backend{})", name.dns, backends.len(), if backends.len() == 1 { "" } else { "s" });
    std::iter::once(count).chain(backends.iter().map(|backend| backend.address.clone())).collect()
}
