//! Counters of an `agent-server`: HTTP/1.1 on its admin port, a connection for each poll.

use std::{future::Future, net::SocketAddr, pin::Pin, time::Duration};

use ::http::StatusCode;
use agent_server::{
    admin::wire::{EndRecord, EndsPage, SessionJson, SessionsPage, SnapshotJson},
    runtime::clock::Clock,
};
use serde::de::DeserializeOwned;

use super::{Access, CounterError, CounterSample, CounterSource, Observation, PollResult, http::Client, plausible};
use crate::transport::Net;

const ENDS_PER_PAGE: usize = 10_000;
const SESSIONS_PER_PAGE: usize = 1_000;
/// More pages than any ring or registry here needs: a backend that never stops answering must not hold the poll.
const MAX_PAGES: usize = 200;

/// Polls one admin port.
#[derive(Debug)]
pub struct AgentServerSource {
    backend: usize,
    address: SocketAddr,
    clock: Clock,
    net: Net,
    timeout: Duration,
    access: Access,
    boot_id: String,
    /// Next end to ask for.
    after: u64,
}

impl AgentServerSource {
    /// `backend` is the index into the targets, `timeout` bounds a whole poll.
    pub fn new(backend: usize, address: SocketAddr, clock: Clock, timeout: Duration) -> Self {
        Self { backend, address, clock, net: Net::Tcp, timeout, access: Access::default(), boot_id: String::new(), after: 0 }
    }

    /// Asked in this way.
    #[must_use]
    pub fn with(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// The same over another network.
    #[must_use]
    pub fn over(self, net: Net) -> Self {
        Self { net, ..self }
    }

    async fn read(&mut self, registry: bool) -> PollResult {
        let host = self.address.ip().to_string();
        let to = (host.as_str(), self.address.port());
        let mut client = Client::connect(&self.net, to, &self.address.to_string(), self.access.tls.as_ref()).await?;
        client.authorize(self.access.authorization.clone());
        let asked_at_us = self.now_us();
        let snapshot: SnapshotJson =
            get(&mut client, "/snapshot").await?.ok_or_else(|| wrong_status(&client, "/snapshot", StatusCode::NOT_FOUND))?;
        let answered_at_us = self.now_us();
        plausible::snapshot(&snapshot).map_err(|reason| garbage(&client, "/snapshot", reason))?;
        if snapshot.boot_id != self.boot_id {
            self.boot_id.clone_from(&snapshot.boot_id);
            self.after = 0;
        }
        let ends = self.ends(&mut client).await?;
        let sessions = if registry { sessions(&mut client).await? } else { None };
        // Only what is handed over counts as read: an error above asks for the same ends again.
        if let Some((_, next)) = &ends {
            self.after = *next;
        }
        let ends = ends.map(|(ends, _)| ends);
        let sample = CounterSample { backend: self.backend, asked_at_us, answered_at_us, snapshot, ends, sessions };
        Ok(Observation::Snapshot(Box::new(sample)))
    }

    async fn ends(&self, client: &mut Client) -> Result<Option<(Vec<EndRecord>, u64)>, CounterError> {
        let (mut all, mut after) = (Vec::new(), self.after);
        for _ in 0..MAX_PAGES {
            let Some(page) = get::<EndsPage>(client, &format!("/ends?after={after}&limit={ENDS_PER_PAGE}")).await? else { return Ok(None) };
            // The process was replaced between two requests: its ends are another boot's.
            if page.boot_id != self.boot_id {
                break;
            }
            plausible::ends(&page.ends, ENDS_PER_PAGE).map_err(|reason| garbage(client, "/ends", reason))?;
            let empty = page.ends.is_empty();
            all.extend(page.ends);
            if empty || page.next <= after {
                break;
            }
            after = page.next;
        }
        Ok(Some((all, after)))
    }

    fn now_us(&self) -> u64 {
        self.clock.unix_us(self.clock.now())
    }
}

impl CounterSource for AgentServerSource {
    fn poll(&mut self, registry: bool) -> Pin<Box<dyn Future<Output = PollResult> + Send + '_>> {
        Box::pin(async move {
            let (limit, address) = (self.timeout, self.address);
            let seen = match tokio::time::timeout(limit, self.read(registry)).await {
                Ok(result) => result,
                Err(_) => Err(CounterError::Timeout { address: address.to_string(), ms: limit.as_millis() as u64 }),
            };
            self.access.secrets.clean(seen)
        })
    }
}

async fn sessions(client: &mut Client) -> Result<Option<Vec<SessionJson>>, CounterError> {
    let mut all = Vec::new();
    let mut path = format!("/sessions?limit={SESSIONS_PER_PAGE}");
    for _ in 0..MAX_PAGES {
        let Some(page) = get::<SessionsPage>(client, &path).await? else { return Ok(None) };
        plausible::sessions(&page.sessions, SESSIONS_PER_PAGE).map_err(|reason| garbage(client, "/sessions", reason))?;
        all.extend(page.sessions);
        let Some(next) = page.next else { break };
        path = format!("/sessions?after={next}&limit={SESSIONS_PER_PAGE}");
    }
    Ok(Some(all))
}

/// `None` for 404: the backend does not offer this.
async fn get<T: DeserializeOwned>(client: &mut Client, path: &str) -> Result<Option<T>, CounterError> {
    let (status, body) = client.get(path, path, &[]).await?;
    match status {
        StatusCode::OK => serde_json::from_slice(&body).map(Some).map_err(|error| garbage(client, path, error.to_string())),
        StatusCode::NOT_FOUND => Ok(None),
        other => Err(wrong_status(client, path, other)),
    }
}

fn wrong_status(client: &Client, path: &str, status: StatusCode) -> CounterError {
    let wants = "it wants its admin token; see `connection.admin_token` and --admin-token";
    CounterError::Status { address: client.address().to_owned(), path: path.to_owned(), status: status.as_u16(), wants }
}

fn garbage(client: &Client, path: &str, reason: String) -> CounterError {
    CounterError::Garbage { address: client.address().to_owned(), path: path.to_owned(), reason }
}
