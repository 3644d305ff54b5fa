//! ORCA load reports, as `OpenRcaService/StreamCoreMetrics` streams them. A place is the name of a named metric, or of a utilization or request
//! cost that goes by a name.
//!
//! A task listens, so that the report of a look is the newest and never one that waited in a buffer.

use std::{future::Future, pin::Pin, time::Duration};

use ::http::{HeaderName, HeaderValue};
use proto::orca::{OrcaLoadReport, checked};
use tokio::{sync::watch, task::JoinHandle};
use tonic::{Status, transport::Endpoint};

use super::{CounterError, Document, Fetch, FetchResult, Number, Opening, url_of};
use crate::{
    feed::{Over, endpoint, subscribe},
    profile::read_at,
    transport::{cause::chain, given_headers},
};

pub(super) fn check_place(place: &str) -> Result<(), String> {
    if place.is_empty() || place.chars().any(char::is_whitespace) { Err("a name has no spaces".to_owned()) } else { Ok(()) }
}

pub(super) fn open(opening: &Opening<'_>) -> Result<Box<dyn Fetch>, CounterError> {
    let unusable = |error: &dyn std::fmt::Display| CounterError::Unusable(error.to_string());
    let url = read_at(opening.site, url_of(opening).unwrap_or("http://{address}")).map_err(|error| unusable(&error))?;
    let authority = url.host_and_port();
    if url.tls() {
        return Err(unusable(&format!("load reports of {authority} are not asked for over TLS")));
    }
    let headers = given_headers(&opening.counters.connection).map_err(|error| unusable(&format!("`counters.connection`: {error}")))?;
    let endpoint = endpoint(&authority, &authority).map_err(|status| unusable(&chain(&status)))?;
    Ok(Box::new(Orca { authority, endpoint, headers, interval: opening.counters.interval.0, listener: None }))
}

/// The newest report, or why there are no more.
type Newest = Option<Result<OrcaLoadReport, String>>;

struct Orca {
    authority: String,
    endpoint: Endpoint,
    headers: Vec<(HeaderName, HeaderValue)>,
    interval: Duration,
    listener: Option<Listener>,
}

struct Listener {
    newest: watch::Receiver<Newest>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fetch for Orca {
    fn shown(&self) -> String {
        format!("{} OpenRcaService/StreamCoreMetrics", self.authority)
    }

    fn fetch(&mut self) -> Pin<Box<dyn Future<Output = FetchResult> + Send + '_>> {
        Box::pin(async move {
            let broken = |address: &str, reason: String| CounterError::Broken { address: address.to_owned(), reason };
            if self.listener.as_ref().is_none_or(|listener| listener.task.is_finished()) {
                let (tell, newest) = watch::channel(None);
                let (endpoint, headers, interval) = (self.endpoint.clone(), self.headers.clone(), self.interval);
                let task = tokio::spawn(async move { listen(&endpoint, headers, interval, &tell).await });
                self.listener = Some(Listener { newest, task });
            }
            let Some(listener) = &mut self.listener else { return Err(broken(&self.authority, "nobody listens".to_owned())) };
            // One that came after the last look: a stream that fell silent is no reading.
            if listener.newest.changed().await.is_err() {
                return Err(broken(&self.authority, "the stream of load reports ended".to_owned()));
            }
            match listener.newest.borrow_and_update().clone() {
                Some(Ok(report)) => Ok(Box::new(report) as Box<dyn Document>),
                Some(Err(reason)) => Err(broken(&self.authority, reason)),
                None => Err(broken(&self.authority, "no load report came".to_owned())),
            }
        })
    }
}

async fn listen(endpoint: &Endpoint, headers: Vec<(HeaderName, HeaderValue)>, interval: Duration, tell: &watch::Sender<Newest>) {
    let over = |status: &Status| format!("OpenRcaService/StreamCoreMetrics: {:?}: {}", status.code(), chain(status));
    let mut reports = match subscribe(endpoint, headers, interval).await {
        Ok(reports) => reports,
        Err(Over::Unreachable(status) | Over::Unimplemented(status) | Over::Broken(status)) => {
            tell.send_replace(Some(Err(over(&status))));
            return;
        }
    };
    loop {
        let news = match reports.message().await {
            Ok(Some(report)) => checked(report).map_err(|error| error.to_string()),
            Ok(None) => Err("the backend ended the stream of load reports".to_owned()),
            Err(status) => Err(over(&status)),
        };
        let ends = news.is_err();
        tell.send_replace(Some(news));
        if ends {
            return;
        }
    }
}

impl Document for OrcaLoadReport {
    fn number(&self, place: &str) -> Result<Number, String> {
        let maps = [&self.named_metrics, &self.utilization, &self.request_cost];
        Ok(maps.iter().find_map(|map| map.get(place)).map_or(Number::Absent, |value| Number::Is(*value)))
    }

    fn text(&self, place: &str) -> Result<Option<String>, String> {
        Ok(match self.number(place)? {
            Number::Is(value) => Some(value.to_string()),
            Number::Absent | Number::NotYet => None,
        })
    }

    fn known(&self) -> Vec<String> {
        self.named_metrics.keys().cloned().collect()
    }
}
