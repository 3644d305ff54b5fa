//! TLS towards backends: whom the driver trusts, and what it shows of itself.

use std::{path::Path, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        client::Resumption,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use super::{carrier::Carrier, socket::Socket};
use crate::{ledger::FailureCause, plan::Connection};

/// Files of certificates that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    fn of(what: &str, file: &Path, why: impl std::fmt::Display) -> Self {
        Self(format!("failed to read {what} (PEM) from {}: {why}", file.display()))
    }
}

/// How the driver speaks TLS, for each protocol.
#[derive(Clone)]
pub struct TlsClient {
    websocket: TlsConnector,
    grpc: TlsConnector,
}

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

impl TlsClient {
    /// Reads the files that the connection names; without a `ca`, the system's.
    pub fn load(connection: &Connection) -> Result<Self, TlsError> {
        let roots = Arc::new(match &connection.ca {
            Some(file) => from_file(file)?,
            None => of_the_system()?,
        });
        let own = match (&connection.certificate, &connection.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates("the driver's certificate", certificate)?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::of("its key", key, error))?;
                Some((chain, key))
            }
            _ => None,
        };
        let for_protocol = |protocol: &[u8]| {
            let wrong = |error: tokio_rustls::rustls::Error| TlsError(format!("failed to use the driver's certificate and key: {error}"));
            let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(wrong)?
                .with_root_certificates(Arc::clone(&roots));
            let mut config = match &own {
                Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key()).map_err(wrong)?,
                None => builder.with_no_client_auth(),
            };
            // Callers are strangers to each other: each pays for the whole handshake.
            config.resumption = Resumption::disabled();
            config.alpn_protocols = vec![protocol.to_vec()];
            Ok::<_, TlsError>(TlsConnector::from(Arc::new(config)))
        };
        Ok(Self { websocket: for_protocol(b"http/1.1")?, grpc: for_protocol(b"h2")? })
    }

    /// Towards the host of a URL.
    pub fn for_host(&self, host: &str) -> Result<TlsHost, TlsError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError(format!("`{host}` cannot be the name of a TLS server")))?;
        Ok(TlsHost { client: self.clone(), name })
    }
}

/// How one backend is spoken to over TLS.
#[derive(Debug, Clone)]
pub struct TlsHost {
    client: TlsClient,
    name: ServerName<'static>,
}

impl TlsHost {
    /// Shakes hands for HTTP/1.1, on a socket that is nobody's to kill.
    pub(crate) async fn connect_http<S: AsyncRead + AsyncWrite + Unpin>(&self, socket: S) -> std::io::Result<TlsStream<S>> {
        self.client.websocket.connect(self.name.clone(), socket).await
    }
}

/// What is due of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    WebSocket,
    Grpc,
}

/// Shakes hands where the backend is spoken to over TLS. The socket stays killable under what comes of it.
pub(super) async fn carry(tls: Option<&TlsHost>, socket: &Socket, speaks: Speaks) -> Result<Carrier, (FailureCause, String)> {
    let Some(TlsHost { client, name }) = tls else { return Ok(Carrier::Plain(socket.clone())) };
    let connector = if speaks == Speaks::Grpc { &client.grpc } else { &client.websocket };
    let stream = connector.connect(name.clone(), socket.clone()).await.map_err(|error| (FailureCause::Tls, told(&error)))?;
    if speaks == Speaks::Grpc && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err((FailureCause::NotAnAgent, "the server does not offer HTTP/2, which gRPC needs".to_owned()));
    }
    Ok(Carrier::Tls(Box::new(stream)))
}

fn told(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
            format!("the server closed the connection in the TLS handshake ({error}): is this a port for TLS?")
        }
        _ => format!("TLS handshake failed: {error}"),
    }
}

fn certificates(what: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    let all = read().map_err(|error| TlsError::of(what, file, error))?;
    if all.is_empty() { Err(TlsError::of(what, file, "it holds none")) } else { Ok(all) }
}

fn from_file(file: &Path) -> Result<RootCertStore, TlsError> {
    const WHAT: &str = "the certificates to trust";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(WHAT, file)? {
        roots.add(certificate).map_err(|error| TlsError::of(WHAT, file, error))?;
    }
    Ok(roots)
}

fn of_the_system() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken > 0 {
        return Ok(roots);
    }
    let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
    Err(TlsError(format!("this system has no certificates to trust{why}; name a file of them: `connection.ca`, or --ca FILE")))
}
