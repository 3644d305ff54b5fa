//! Where sessions go.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

use parking_lot::RwLock;

use crate::{
    plan::{SessionPlan, turn},
    transport::Endpoint,
};

/// One backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As in the profile: `host:port`.
    pub authority: String,
    /// Resolved.
    pub address: SocketAddr,
    /// What of it is no address.
    pub endpoint: Endpoint,
}

/// A target that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Not an address, or no such host.
    #[error("failed to resolve target `{authority}` (host:port is due): {source}")]
    Resolve {
        /// As given.
        authority: String,
        /// What the system said.
        source: io::Error,
    },
    /// There must be one.
    #[error("no target: name at least one host:port")]
    None,
}

/// The backends by index. A backend that comes back elsewhere keeps its index.
#[derive(Debug)]
pub struct Targets(RwLock<Vec<Target>>);

impl Targets {
    /// Resolves `host:port` names, in order. Blocks on the resolver.
    pub fn resolve(authorities: &[String]) -> Result<Self, TargetError> {
        if authorities.is_empty() {
            return Err(TargetError::None);
        }
        let targets = authorities.iter().map(|authority| resolve(authority)).collect::<Result<_, _>>()?;
        Ok(Self(RwLock::new(targets)))
    }

    /// Moves backend `index`; dials from now on go there.
    pub fn replace(&self, index: usize, authority: &str) -> Result<(), TargetError> {
        let target = resolve(authority)?;
        if let Some(slot) = self.0.write().get_mut(index) {
            *slot = target;
        }
        Ok(())
    }

    /// Backend `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<Target> {
        self.0.read().get(index).cloned()
    }

    /// How many; never none.
    pub fn count(&self) -> usize {
        self.0.read().len()
    }

    /// As in the profile, in order.
    pub fn authorities(&self) -> Vec<String> {
        self.0.read().iter().map(|target| target.authority.clone()).collect()
    }
}

fn resolve(authority: &str) -> Result<Target, TargetError> {
    let error = |source| TargetError::Resolve { authority: authority.to_owned(), source };
    let address = authority.to_socket_addrs().map_err(error)?.next();
    let address = address.ok_or_else(|| error(io::Error::new(io::ErrorKind::NotFound, "the name has no address")))?;
    Ok(Target { authority: authority.to_owned(), address, endpoint: Endpoint::default() })
}

/// The backend of a session: the pinned one, or each in turn by the session's place in the plan, so that it follows from the plan alone.
pub(super) fn choose(session: &SessionPlan, targets: &Targets) -> usize {
    let count = targets.count() as u64;
    session.scenario.backend.unwrap_or((turn(session.index) % count.max(1)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_moves_and_keeps_its_index() {
        let targets = Targets::resolve(&["127.0.0.1:7000".to_owned(), "127.0.0.1:7001".to_owned()]).expect("resolves");
        targets.replace(1, "127.0.0.1:7009").expect("resolves");
        assert_eq!(targets.authorities(), ["127.0.0.1:7000", "127.0.0.1:7009"]);
        assert_eq!(targets.get(1).map(|t| t.address.port()), Some(7009));
        assert_eq!(targets.get(2), None);
    }

    /// Arrivals are lanes of one session each: their numbers differ in the upper bits only.
    #[test]
    fn sessions_go_to_each_in_turn() {
        let index = |scenario, lane, iteration| turn(crate::plan::index(scenario, lane, iteration));
        let arrivals: Vec<u64> = (0..6).map(|lane| index(0, lane, 0) % 2).collect();
        assert_eq!(arrivals, [0, 1, 0, 1, 0, 1]);
        let repeated: Vec<u64> = (0..4).map(|iteration| index(1, 2, iteration) % 4).collect();
        assert_eq!(repeated, [3, 0, 1, 2]);
    }

    #[test]
    fn what_is_no_address_is_an_error_that_names_it() {
        let error = Targets::resolve(&["127.0.0.1".to_owned()]).expect_err("no port").to_string();
        assert!(error.contains("`127.0.0.1`"), "{error}");
        assert!(matches!(Targets::resolve(&[]), Err(TargetError::None)));
    }
}
