//! How the admin port of an `agent-server` is asked: by a token, over TLS, or just so.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

use http::HeaderValue;

use super::secrets::Secrets;
use crate::{
    plan::{
        Connection,
        variables::{environment, expand},
    },
    profile::TargetUrl,
    transport::{TlsClient, TlsHost},
};

/// What an admin port is shown.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Of the header `authorization`.
    pub(super) authorization: Option<HeaderValue>,
    /// Where it speaks TLS.
    pub(super) tls: Option<TlsHost>,
    /// What it may not be heard to repeat.
    pub(super) secrets: Secrets,
}

impl Access {
    /// The address of an admin port, `host:port` or `https://host:port`, and how it is asked. Blocks on the resolver.
    pub fn of(admin: &str, connection: &Connection) -> io::Result<(SocketAddr, Self)> {
        let url = TargetUrl::parse(admin).map_err(io::Error::other)?;
        let address = (url.host.as_str(), url.port).to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
        let tls = if url.tls() {
            let host = TlsClient::load(connection).and_then(|client| client.for_host(&url.host));
            Some(host.map_err(io::Error::other)?)
        } else {
            None
        };
        let authorization = connection.admin_token.as_deref().map(bearer).transpose()?;
        let secrets = Secrets::of(connection, &[]).with_header(authorization.as_ref().and_then(|shown| shown.to_str().ok()));
        Ok((address, Self { authorization, tls, secrets }))
    }
}

fn bearer(token: &str) -> io::Result<HeaderValue> {
    let token = expand(token, environment).map_err(io::Error::other)?;
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value =
        value.map_err(|_| io::Error::other("the admin token cannot be sent: it has line breaks, or characters that are not ASCII"))?;
    value.set_sensitive(true);
    Ok(value)
}
