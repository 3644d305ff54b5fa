//! Documents over HTTP/1.1, with TLS or without: a connection for each look.

use ::http::{
    HeaderName, HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, HOST},
};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::{CounterError, Opening, url_of};
use crate::{
    plan::{
        Connection,
        variables::{environment, expand},
    },
    profile::{TargetUrl, encoded, read_at},
    transport::{Net, TlsClient, TlsHost, cause::chain, given_headers},
};

const MAX_BODY: usize = 16 << 20;

/// One connection; it and its driver task end with it.
pub(super) struct Client {
    address: String,
    authority: String,
    authorization: Option<HeaderValue>,
    send: SendRequest<Empty<Bytes>>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    /// Connects to a host; `authority` is for the `host` header.
    pub(super) async fn connect(
        net: &Net,
        (host, port): (&str, u16),
        authority: &str,
        tls: Option<&TlsHost>,
    ) -> Result<Self, CounterError> {
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let broken = |reason: String| CounterError::Broken { address: address.clone(), reason };
        let socket = net.connect_to(host, port).await.map_err(|error| {
            if error.kind() == std::io::ErrorKind::ConnectionRefused {
                CounterError::Refused { address: address.clone() }
            } else {
                broken(error.to_string())
            }
        })?;
        // The request's own error tells what a broken connection means for the poll.
        let (send, driver) = if let Some(tls) = tls {
            let socket = tls.connect_http(socket).await.map_err(|error| broken(format!("TLS handshake failed: {error}")))?;
            let (send, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(|error| broken(error.to_string()))?;
            (send, tokio::spawn(async move { drop(connection.await) }))
        } else {
            let (send, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(|error| broken(error.to_string()))?;
            (send, tokio::spawn(async move { drop(connection.await) }))
        };
        Ok(Self { address, authority: authority.to_owned(), authorization: None, send, driver })
    }

    /// Shows this with every request.
    pub(super) fn authorize(&mut self, authorization: Option<HeaderValue>) {
        self.authorization = authorization;
    }

    /// Asked, for messages.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The answer's status and body. `shown` is the path for messages.
    pub(super) async fn get(
        &mut self,
        path: &str,
        shown: &str,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<(StatusCode, Bytes), CounterError> {
        let broken = |reason: String| CounterError::Broken { address: self.address.clone(), reason };
        let mut request = Request::get(path).header(HOST, &self.authority);
        if let Some(shown) = &self.authorization {
            request = request.header(AUTHORIZATION, shown);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::new()).map_err(|error| CounterError::Garbage {
            address: self.address.clone(),
            path: shown.to_owned(),
            reason: format!("it cannot be asked for: {error}"),
        })?;
        // What the peer did not like is further down: an alert of TLS, for one.
        self.send.ready().await.map_err(|error| broken(chain(&error)))?;
        let response = self.send.send_request(request).await.map_err(|error| broken(chain(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                CounterError::TooLarge { address: self.address.clone(), path: shown.to_owned(), limit: MAX_BODY }
            } else {
                broken(chain(&*error))
            }
        })?;
        Ok((status, body.to_bytes()))
    }
}

/// A URL to be read again and again.
#[derive(Debug)]
pub(super) struct Resource {
    url: TargetUrl,
    tls: Option<TlsHost>,
    connection: Connection,
    /// For people: without secrets.
    pub(super) shown: String,
    accept: HeaderValue,
}

impl Resource {
    /// As the profile says.
    pub(super) fn open(opening: &Opening<'_>, accept: &'static str) -> Result<Self, CounterError> {
        let text = url_of(opening).ok_or_else(|| CounterError::Unusable("no URL is given to read counters from".to_owned()))?;
        let url = read_at(opening.site, text).map_err(CounterError::Unusable)?;
        let connection = opening.counters.connection.clone();
        let tls = if url.tls() {
            let unusable = |error: crate::transport::TlsError| CounterError::Unusable(error.to_string());
            Some(TlsClient::load(&connection).map_err(unusable)?.for_host(&url.host).map_err(unusable)?)
        } else {
            None
        };
        let shown = format!("{}{}", url.authority(), url.path.as_deref().unwrap_or("/"));
        Ok(Self { url, tls, connection, shown, accept: HeaderValue::from_static(accept) })
    }

    /// What is there now.
    pub(super) async fn get(&self) -> Result<Bytes, CounterError> {
        let unusable = |error: &dyn std::fmt::Display| CounterError::Unusable(format!("`counters.connection`: {error}"));
        let mut headers = vec![(::http::header::ACCEPT, self.accept.clone())];
        headers.extend(given_headers(&self.connection).map_err(|error| unusable(&error))?);
        let mut query: Vec<String> = self.url.query.iter().cloned().collect();
        for (name, value) in &self.connection.query {
            query.push(format!("{}={}", encoded(name), encoded(&expand(value, environment).map_err(|error| unusable(&error))?)));
        }
        let path = self.url.path.as_deref().unwrap_or("/");
        let asked = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
        let mut client = Client::connect(&Net::Tcp, (&self.url.host, self.url.port), &self.url.authority(), self.tls.as_ref()).await?;
        match client.get(&asked, path, &headers).await? {
            (StatusCode::OK, body) => Ok(body),
            (status, _) => {
                let (address, path, status) = (client.address().to_owned(), path.to_owned(), status.as_u16());
                Err(CounterError::Status { address, path, status, wants: "it wants to know who asks; see `counters.connection`" })
            }
        }
    }

    /// What is there is no such document, or not with these counters.
    pub(super) fn unreadable(&self, reason: impl Into<String>) -> CounterError {
        CounterError::Unreadable { address: self.shown.clone(), reason: reason.into() }
    }
}
