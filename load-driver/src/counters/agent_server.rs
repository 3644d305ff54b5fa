//! Counters of an `agent-server`: plain HTTP/1.1 on its admin port, a connection for each poll.

use std::{future::Future, net::SocketAddr, pin::Pin, time::Duration};

use agent_server::{
    admin::wire::{EndRecord, EndsPage, SessionJson, SessionsPage, SnapshotJson},
    runtime::clock::Clock,
};
use bytes::Bytes;
use http::{Request, StatusCode, header::HOST};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;

use super::{CounterError, CounterSample, CounterSource, PollResult};
use crate::transport::Net;

const MAX_BODY: usize = 16 << 20;
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
    boot_id: String,
    /// Next end to ask for.
    after: u64,
}

impl AgentServerSource {
    /// `backend` is the index into the targets, `timeout` bounds a whole poll.
    pub fn new(backend: usize, address: SocketAddr, clock: Clock, timeout: Duration) -> Self {
        Self { backend, address, clock, net: Net::Tcp, timeout, boot_id: String::new(), after: 0 }
    }

    /// The same over another network.
    pub fn over(mut self, net: Net) -> Self {
        self.net = net;
        self
    }

    async fn read(&mut self, registry: bool) -> PollResult {
        let mut client = Client::connect(&self.net, self.address).await?;
        let asked_at_us = self.now_us();
        let snapshot: SnapshotJson = client.get("/snapshot").await?.ok_or_else(|| client.status("/snapshot", StatusCode::NOT_FOUND))?;
        let answered_at_us = self.now_us();
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
        Ok(CounterSample { backend: self.backend, asked_at_us, answered_at_us, snapshot, ends: ends.map(|(ends, _)| ends), sessions })
    }

    async fn ends(&self, client: &mut Client) -> Result<Option<(Vec<EndRecord>, u64)>, CounterError> {
        let (mut all, mut after) = (Vec::new(), self.after);
        for _ in 0..MAX_PAGES {
            let Some(page) = client.get::<EndsPage>(&format!("/ends?after={after}&limit={ENDS_PER_PAGE}")).await? else { return Ok(None) };
            // The process was replaced between two requests: its ends are another boot's.
            if page.boot_id != self.boot_id {
                break;
            }
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
            match tokio::time::timeout(limit, self.read(registry)).await {
                Ok(result) => result,
                Err(_) => Err(CounterError::Timeout { address: address.to_string(), ms: limit.as_millis() as u64 }),
            }
        })
    }
}

async fn sessions(client: &mut Client) -> Result<Option<Vec<SessionJson>>, CounterError> {
    let mut all = Vec::new();
    let mut path = format!("/sessions?limit={SESSIONS_PER_PAGE}");
    for _ in 0..MAX_PAGES {
        let Some(page) = client.get::<SessionsPage>(&path).await? else { return Ok(None) };
        all.extend(page.sessions);
        let Some(next) = page.next else { break };
        path = format!("/sessions?after={next}&limit={SESSIONS_PER_PAGE}");
    }
    Ok(Some(all))
}

/// One connection; it and its driver task end with it.
struct Client {
    address: SocketAddr,
    send: SendRequest<Empty<Bytes>>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    async fn connect(net: &Net, address: SocketAddr) -> Result<Self, CounterError> {
        let socket = net.connect(address).await.map_err(|error| {
            if error.kind() == std::io::ErrorKind::ConnectionRefused {
                CounterError::Refused { address: address.to_string() }
            } else {
                CounterError::Broken { address: address.to_string(), reason: error.to_string() }
            }
        })?;
        let (send, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(|error| broken(address, &error))?;
        // The request's own error tells what a broken connection means for the poll.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { address, send, driver })
    }

    /// `None` for 404: the backend does not offer this.
    async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<Option<T>, CounterError> {
        let garbage = |reason: String| CounterError::Garbage { address: self.address.to_string(), path: path.to_owned(), reason };
        let request = Request::get(path)
            .header(HOST, self.address.to_string())
            .body(Empty::new())
            .map_err(|error| garbage(format!("its pages cannot be asked for: {error}")))?;
        self.send.ready().await.map_err(|error| broken(self.address, &error))?;
        let response = self.send.send_request(request).await.map_err(|error| broken(self.address, &error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                CounterError::TooLarge { address: self.address.to_string(), path: path.to_owned(), limit: MAX_BODY }
            } else {
                CounterError::Broken { address: self.address.to_string(), reason: error.to_string() }
            }
        })?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body.to_bytes()).map(Some).map_err(|error| garbage(error.to_string())),
            StatusCode::NOT_FOUND => Ok(None),
            other => Err(self.status(path, other)),
        }
    }

    fn status(&self, path: &str, status: StatusCode) -> CounterError {
        CounterError::Status { address: self.address.to_string(), path: path.to_owned(), status: status.as_u16() }
    }
}

fn broken(address: SocketAddr, error: &hyper::Error) -> CounterError {
    CounterError::Broken { address: address.to_string(), reason: error.to_string() }
}
