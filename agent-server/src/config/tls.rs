//! The second port of sessions, which speaks TLS.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::bail;
use serde::Serialize;

use super::ServeArgs;

/// A port that serves what the session port serves, over TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TlsConfig {
    /// Address as asked for; port 0 is not yet resolved.
    pub listen: SocketAddr,
    /// What it shows to its clients.
    pub identity: Identity,
    /// PEM file of authorities, one of which must have signed the certificate that a client shows.
    pub client_ca: Option<PathBuf>,
}

/// Where certificate and key come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// PEM files.
    Files {
        /// The certificate, and those between it and its authority.
        cert: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// Made at the start; the certificate is written to this file, the key to none.
    SelfSigned(PathBuf),
}

impl TlsConfig {
    /// None when no setting asks for TLS.
    pub(super) fn resolve(args: &ServeArgs) -> anyhow::Result<Option<Self>> {
        let Some(listen) = args.tls_listen else {
            let given = [
                ("tls_cert", &args.tls_cert),
                ("tls_key", &args.tls_key),
                ("tls_self_signed", &args.tls_self_signed),
                ("tls_client_ca", &args.tls_client_ca),
            ];
            if let Some((name, _)) = given.iter().find(|(_, path)| path.is_some()) {
                bail!("{name} is set and no port speaks TLS: add --tls-listen ADDR (port 0 takes a free one), or drop it");
            }
            return Ok(None);
        };
        let identity = match (&args.tls_cert, &args.tls_key, &args.tls_self_signed) {
            (Some(cert), Some(key), None) => Identity::Files { cert: cert.clone(), key: key.clone() },
            (None, None, Some(file)) => Identity::SelfSigned(file.clone()),
            (None, None, None) => {
                bail!("tls_listen needs a certificate: add --tls-cert FILE and --tls-key FILE, or --tls-self-signed FILE")
            }
            (Some(_), None, None) => bail!("tls_cert is set and its key is not: add --tls-key FILE"),
            (None, Some(_), None) => bail!("tls_key is set and its certificate is not: add --tls-cert FILE"),
            (_, _, Some(_)) => {
                bail!("tls_self_signed makes a certificate and a key of its own: drop it, or drop --tls-cert and --tls-key")
            }
        };
        Ok(Some(Self { listen, identity, client_ca: args.tls_client_ca.clone() }))
    }
}
