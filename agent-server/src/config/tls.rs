//! Ports that speak TLS: a second one of sessions, and the admin port.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::bail;
use serde::Serialize;

use super::ServeArgs;

/// Which ports speak TLS, and what they show and ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TlsConfig {
    /// Of a port that serves what the session port serves, if there is one; port 0 is not yet resolved.
    pub listen: Option<SocketAddr>,
    /// The admin port is another.
    pub admin: bool,
    /// What they show to their clients.
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
        let admin = args.admin_tls.unwrap_or(false);
        if args.tls_listen.is_none() && !admin {
            let given = [
                ("tls_cert", &args.tls_cert),
                ("tls_key", &args.tls_key),
                ("tls_self_signed", &args.tls_self_signed),
                ("tls_client_ca", &args.tls_client_ca),
            ];
            if let Some((name, _)) = given.iter().find(|(_, path)| path.is_some()) {
                bail!("{name} is set and no port speaks TLS: add --tls-listen ADDR (port 0 takes a free one) or --admin-tls, or drop it");
            }
            return Ok(None);
        }
        let asks = if args.tls_listen.is_some() { "tls_listen" } else { "admin_tls" };
        let identity = match (&args.tls_cert, &args.tls_key, &args.tls_self_signed) {
            (Some(cert), Some(key), None) => Identity::Files { cert: cert.clone(), key: key.clone() },
            (None, None, Some(file)) => Identity::SelfSigned(file.clone()),
            (None, None, None) => {
                bail!("{asks} needs a certificate: add --tls-cert FILE and --tls-key FILE, or --tls-self-signed FILE")
            }
            (Some(_), None, None) => bail!("tls_cert is set and its key is not: add --tls-key FILE"),
            (None, Some(_), None) => bail!("tls_key is set and its certificate is not: add --tls-cert FILE"),
            (_, _, Some(_)) => {
                bail!("tls_self_signed makes a certificate and a key of its own: drop it, or drop --tls-cert and --tls-key")
            }
        };
        Ok(Some(Self { listen: args.tls_listen, admin, identity, client_ca: args.tls_client_ca.clone() }))
    }
}
