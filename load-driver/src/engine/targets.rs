//! Where sessions go.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

use parking_lot::RwLock;

use crate::{
    plan::{Connection, SessionPlan, turn},
    profile::{TargetUrl, shown},
    transport::{Endpoint, TlsClient, TlsError},
};

/// Of several addresses of a name, one that does not answer by then is left for the next.
const PROBE: Duration = Duration::from_secs(1);

/// One backend.
#[derive(Debug, Clone)]
pub struct Target {
    /// As in the profile, `host:port` or a URL, without secrets.
    pub name: String,
    /// For the `host` header and `:authority`.
    pub authority: String,
    /// Resolved.
    pub address: SocketAddr,
    /// What of it is no address.
    pub endpoint: Endpoint,
}

/// A target that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Not a target at all.
    #[error("failed to read a target: {0}")]
    Malformed(String),
    /// No such host.
    #[error("failed to resolve target `{name}` (host:port or a URL is due): {source}")]
    Resolve {
        /// As given.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file of certificates is missing or wrong.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There must be one.
    #[error("no target: name at least one host:port or URL")]
    None,
}

/// The backends by index. A backend that comes back elsewhere keeps its index.
#[derive(Debug)]
pub struct Targets {
    all: RwLock<Vec<Target>>,
    /// As given, secrets and all, for other processes.
    given: RwLock<Vec<String>>,
    connection: Connection,
    tls: Option<TlsClient>,
}

impl Targets {
    /// Resolves `host:port` names and URLs, in order. Blocks on the resolver.
    pub fn resolve(names: &[String]) -> Result<Self, TargetError> {
        Self::resolve_with(names, &Connection::default())
    }

    /// As [`Self::resolve`], reached as the profile says.
    pub fn resolve_with(names: &[String], connection: &Connection) -> Result<Self, TargetError> {
        if names.is_empty() {
            return Err(TargetError::None);
        }
        let urls = names.iter().map(|name| TargetUrl::parse(name).map_err(TargetError::Malformed)).collect::<Result<Vec<_>, _>>()?;
        let tls = urls.iter().any(TargetUrl::tls).then(|| TlsClient::load(connection)).transpose()?;
        let all = names.iter().zip(&urls).map(|(name, url)| resolve(name, url, tls.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { all: RwLock::new(all), given: RwLock::new(names.to_vec()), connection: connection.clone(), tls })
    }

    /// Moves backend `index`; dials from now on go there.
    pub fn replace(&self, index: usize, name: &str) -> Result<(), TargetError> {
        let target = resolve(name, &TargetUrl::parse(name).map_err(TargetError::Malformed)?, self.tls.as_ref())?;
        if let Some(slot) = self.all.write().get_mut(index) {
            *slot = target;
        }
        if let Some(slot) = self.given.write().get_mut(index) {
            name.clone_into(slot);
        }
        Ok(())
    }

    /// From now on each is reached at this address in the same order, whatever its own: a relay stands before it. Name, authority and TLS stay.
    pub fn go_through(&self, addresses: &[SocketAddr]) {
        for (target, address) in self.all.write().iter_mut().zip(addresses) {
            target.address = *address;
        }
    }

    /// Backend `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<Target> {
        self.all.read().get(index).cloned()
    }

    /// How many; never none.
    pub fn count(&self) -> usize {
        self.all.read().len()
    }

    /// As they were given, in order. Not for people: a URL may hold a secret.
    pub fn given(&self) -> Vec<String> {
        self.given.read().clone()
    }

    /// How they are reached.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

fn resolve(name: &str, url: &TargetUrl, tls: Option<&TlsClient>) -> Result<Target, TargetError> {
    let error = |source| TargetError::Resolve { name: shown(name).into_owned(), source };
    let mut addresses = (url.host.as_str(), url.port).to_socket_addrs().map_err(error)?;
    let first = addresses.next().ok_or_else(|| error(io::Error::new(io::ErrorKind::NotFound, "the name has no address")))?;
    // A name may have addresses of both kinds, and a route to one of them only.
    let rest: Vec<SocketAddr> = addresses.collect();
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, PROBE).is_ok();
    let address = if rest.is_empty() { first } else { *std::iter::once(&first).chain(&rest).find(answers).unwrap_or(&first) };
    let tls = match tls.filter(|_| url.tls()) {
        None => None,
        Some(client) => Some(client.for_host(&url.host)?),
    };
    Ok(Target {
        name: shown(name).into_owned(),
        authority: url.authority(),
        address,
        endpoint: Endpoint { tls, path: url.path.clone(), query: url.query.clone() },
    })
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
        assert_eq!(targets.given(), ["127.0.0.1:7000", "127.0.0.1:7009"]);
        assert_eq!(targets.get(1).map(|t| t.address.port()), Some(7009));
        assert!(targets.get(2).is_none());
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
