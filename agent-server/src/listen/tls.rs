//! What the ports that speak TLS show their clients, and what they ask of them.

use std::{net::IpAddr, path::Path, sync::Arc};

use anyhow::{Context, ensure};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        Error, RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
        server::{NoClientAuth, WebPkiClientVerifier},
    },
};

use crate::config::{Identity, TlsConfig};

/// Of the session port, in the order of our liking: who can speak both gets HTTP/2.
pub const SESSIONS: &[&[u8]] = &[b"h2", b"http/1.1"];
/// Of the admin port.
pub const ADMIN: &[&[u8]] = &[b"http/1.1"];

/// Certificate, key and rules, read once for all ports.
pub struct Tls(ServerConfig);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// For ports at these addresses. Writes the certificate that it makes, if it makes one.
    pub fn load(config: &TlsConfig, addresses: &[IpAddr]) -> anyhow::Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let (chain, key) = match &config.identity {
            Identity::Files { cert, key } => (certificates(cert)?, private_key(key)?),
            Identity::SelfSigned(file) => self_signed(file, addresses)?,
        };
        let verifier = match &config.client_ca {
            None => Arc::new(NoClientAuth),
            Some(file) => client_verifier(file, &provider)?,
        };
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("failed to choose the versions of TLS")?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| match (error, &config.identity) {
                (Error::InconsistentKeys(_), Identity::Files { cert, key }) => {
                    anyhow::anyhow!("tls_key {} does not belong to the certificate in {}", key.display(), cert.display())
                }
                (error, _) => anyhow::anyhow!("failed to use the certificate for TLS: {error}"),
            })?;
        Ok(Self(server))
    }

    /// The acceptor of a port that speaks these protocols.
    pub fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let mut server = self.0.clone();
        server.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(server))
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    let chain = read().with_context(|| format!("failed to read certificates (PEM) from {}", file.display()))?;
    ensure!(!chain.is_empty(), "{} holds no certificate in PEM", file.display());
    Ok(chain)
}

fn private_key(file: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file).with_context(|| format!("failed to read a private key (PEM) from {}", file.display()))
}

fn client_verifier(
    file: &Path,
    provider: &Arc<CryptoProvider>,
) -> anyhow::Result<Arc<dyn tokio_rustls::rustls::server::danger::ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).with_context(|| format!("{} holds a certificate that is no authority's", file.display()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .with_context(|| format!("failed to take the authorities in {} for those of clients", file.display()))
}

/// A new key, and a certificate of its own for this machine's names of itself. Its PEM goes to `file`.
fn self_signed(file: &Path, addresses: &[IpAddr]) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let mut names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    for own in addresses.iter().filter(|ip| !ip.is_unspecified()).map(ToString::to_string) {
        if !names.contains(&own) {
            names.push(own);
        }
    }
    let make = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "agent-server");
        // No more constraints than this: stock clients must take it both as the server's and as the authority that signed it.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.self_signed(&key)?;
        Ok::<_, rcgen::Error>((certificate, key))
    };
    let (certificate, key) = make().context("failed to make a certificate")?;
    std::fs::write(file, certificate.pem()).with_context(|| format!("failed to write the certificate to {}", file.display()))?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok((vec![certificate.der().clone()], key))
}
