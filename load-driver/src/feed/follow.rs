//! One backend, followed for as long as the feed lives.

use std::{error::Error, io, sync::Arc, time::Duration};

use agent_server::runtime::clock::Clock;
use http::{HeaderName, HeaderValue};
use proto::{
    orca::{self, OrcaError},
    time::Micros,
    xds::{
        data::orca::v3::OrcaLoadReport,
        service::orca::v3::{OrcaLoadReportRequest, open_rca_service_client::OpenRcaServiceClient},
    },
};
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    sync::{mpsc, watch},
    time::{sleep, sleep_until, timeout},
};
use tonic::{Code, Status, Streaming, transport::Endpoint};

use super::Hear;
use crate::{
    engine::{Target, Targets},
    plan::variables::environment,
    profile::ReportSource,
    transport::{cause::chain, given_headers, one_line},
};

/// Longest wait for TCP, and for the head of the answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Before the first try to reach a backend again; doubled up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A peer that answers no ping for so long is gone, though its connection stands.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// A backend that took so many connections one after the other, and never gave a report, has none to give.
const MAX_MUTE: u32 = 3;
/// Of a report.
const MAX_REPORT_BYTES: usize = 64 * 1024;
/// Longest word of a backend in the log, characters.
const SAID: usize = 300;

/// Follows one backend.
pub(super) struct Follower {
    pub(super) backend: usize,
    pub(super) joins: Micros,
    pub(super) source: ReportSource,
    pub(super) report_interval: Duration,
    pub(super) targets: Arc<Targets>,
    pub(super) clock: watch::Receiver<Option<Clock>>,
    pub(super) hear: Arc<dyn Hear>,
    /// Let go at the first word.
    pub(super) silent: Option<mpsc::Sender<()>>,
    /// It was said that its reports are none.
    pub(super) bad: bool,
}

/// Why a subscription is over.
#[derive(Debug)]
pub(crate) enum Over {
    /// It cannot be connected to.
    Unreachable(Status),
    /// It was connected to, and does not know the service.
    Unimplemented(Status),
    /// It was connected to.
    Broken(Status),
}

impl From<Status> for Over {
    fn from(status: Status) -> Self {
        if status.code() == Code::Unimplemented { Self::Unimplemented(status) } else { Self::Broken(status) }
    }
}

impl Follower {
    pub(super) async fn follow(mut self) {
        self.join().await;
        if self.source == ReportSource::OutOfBand && self.is_asked_plainly() {
            self.listen().await;
        }
        self.watch().await;
    }

    /// Until the backend is to be known.
    async fn join(&mut self) {
        if self.joins == Micros::ZERO {
            return;
        }
        let known = self.clock.wait_for(Option::is_some).await.ok().and_then(|clock| *clock);
        match known {
            Some(clock) => sleep_until(clock.instant(self.joins).into()).await,
            // Nobody balances any more.
            None => std::future::pending().await,
        }
    }

    /// Asks for reports, again and again; over when the backend has none to give.
    async fn listen(&mut self) {
        let mut pause = SHORTEST_PAUSE;
        let mut mute = Some(0);
        loop {
            let mut heard = false;
            let over = self.subscription(&mut heard).await;
            if heard {
                mute = None;
                pause = SHORTEST_PAUSE;
            }
            let status = match over {
                Over::Unimplemented(status) => return self.warn(&status),
                Over::Broken(status) => {
                    mute = mute.map(|times| times + 1);
                    if mute.is_some_and(|times| times >= MAX_MUTE) {
                        return self.warn(&status);
                    }
                    status
                }
                Over::Unreachable(status) => status,
            };
            tracing::debug!(backend = self.backend, error = self.said(&chain(&status)), "no load reports");
            self.hear.down(self.backend);
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Load reports are asked for where sessions go, without TLS.
    fn is_asked_plainly(&self) -> bool {
        let Ok(target) = self.target() else { return true };
        if target.endpoint.tls.is_some() {
            tracing::warn!(
                "backend {} ({}) is reached over TLS: its load is heard with its sessions' answers, and not out of band",
                self.backend,
                target.name
            );
        }
        target.endpoint.tls.is_none()
    }

    fn warn(&self, status: &Status) {
        tracing::warn!(
            "backend {} streams no load reports, and is balanced without: it answers OpenRcaService/StreamCoreMetrics with {:?}: {}",
            self.backend,
            status.code(),
            self.said(&chain(status))
        );
    }

    /// Without what the backend was sent, and bounded.
    fn said(&self, text: &str) -> String {
        one_line(&self.targets.connection().scrub(text, environment), SAID)
    }

    fn warn_bad(&mut self, error: &OrcaError) {
        if !std::mem::replace(&mut self.bad, true) {
            tracing::warn!("backend {} sends load reports that are none, and they are not heard: {error}", self.backend);
        }
    }

    /// One stream of reports, from its dial to its end.
    async fn subscription(&mut self, heard: &mut bool) -> Over {
        let mut reports = match self.subscribe().await {
            Ok(reports) => reports,
            Err(over) => return over,
        };
        loop {
            match reports.message().await {
                Ok(Some(report)) => {
                    // One that is no report says nothing of the load, and that the backend is there all the same.
                    if !std::mem::replace(heard, true) {
                        self.hear.up(self.backend);
                    }
                    self.silent = None;
                    match orca::checked(report) {
                        Ok(report) => self.hear.report(self.backend, &report),
                        Err(error) => self.warn_bad(&error),
                    }
                }
                Ok(None) => return Over::Broken(Status::unavailable("the backend ended the stream")),
                Err(status) => return status.into(),
            }
        }
    }

    async fn subscribe(&self) -> Result<Streaming<OrcaLoadReport>, Over> {
        let endpoint =
            self.target().and_then(|target| endpoint(&target.authority, &target.address.to_string())).map_err(Over::Unreachable)?;
        // A server that asks sessions for a key asks for one here as well.
        let headers = given_headers(self.targets.connection()).map_err(|e| Over::Unreachable(Status::unauthenticated(e.to_string())))?;
        subscribe(&endpoint, headers, self.report_interval).await
    }

    /// Sees by an idle connection whether the backend is there.
    async fn watch(&mut self) {
        let mut pause = SHORTEST_PAUSE;
        // Not known yet: the first word must be said, whatever it is.
        let mut up = None;
        loop {
            match self.connect().await {
                Ok(socket) => {
                    if up.replace(true) != Some(true) {
                        self.hear.up(self.backend);
                    }
                    self.silent = None;
                    pause = SHORTEST_PAUSE;
                    // A server may not like idle connections; it is not to be stormed with them.
                    sleep(pause).await;
                    ended(socket).await;
                }
                Err(error) => {
                    tracing::debug!(backend = self.backend, %error, "not there");
                    if up.replace(false) != Some(false) {
                        self.hear.down(self.backend);
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let target = self.target().map_err(io::Error::other)?;
        let socket = timeout(CONNECT_TIMEOUT, TcpStream::connect(target.address)).await??;
        if socket.local_addr()? == socket.peer_addr()? {
            // A free port of this machine can be dialled from itself, and would be taken when the backend comes back.
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(socket)
    }

    /// Where the backend is now.
    fn target(&self) -> Result<Target, Status> {
        self.targets.get(self.backend).ok_or_else(|| Status::unavailable("there is no such target"))
    }
}

/// Reads, and forgets, until the peer closes or is gone.
async fn ended(mut socket: TcpStream) {
    let mut sink = [0; 512];
    while matches!(socket.read(&mut sink).await, Ok(n) if n > 0) {}
}

/// By its address, because a name may have several; by its name in the `:authority`.
pub(crate) fn endpoint(authority: &str, address: &str) -> Result<Endpoint, Status> {
    let bad = |error: &dyn Error| Status::unavailable(format!("{authority} cannot be asked: {error}"));
    let origin = format!("http://{authority}").parse().map_err(|e| bad(&e))?;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|e| bad(&e))?;
    Ok(endpoint.origin(origin).connect_timeout(CONNECT_TIMEOUT).http2_keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE))
}

/// Asks a backend for its load reports.
pub(crate) async fn subscribe(
    endpoint: &Endpoint,
    headers: Vec<(HeaderName, HeaderValue)>,
    report_interval: Duration,
) -> Result<Streaming<OrcaLoadReport>, Over> {
    let unreachable = |error: &dyn Error| Over::Unreachable(Status::unavailable(chain(error)));
    let channel = endpoint.connect().await.map_err(|e| unreachable(&e))?;
    let mut client = OpenRcaServiceClient::new(channel).max_decoding_message_size(MAX_REPORT_BYTES);
    let request =
        OrcaLoadReportRequest { report_interval: prost_types::Duration::try_from(report_interval).ok(), request_cost_names: Vec::new() };
    let mut request = tonic::Request::new(request);
    request.metadata_mut().as_mut().extend(headers);
    let late = |_| Status::deadline_exceeded("no answer in time");
    Ok(timeout(CONNECT_TIMEOUT, client.stream_core_metrics(request)).await.map_err(late)??.into_inner())
}
