//! `connection`: checks of what is sent with every stream, and the flags of the command line over it.

use http::{HeaderName, HeaderValue};

use super::{Profile, Target, TargetUrl, validate::Checker};
use crate::plan::{Connection, variables::expand};

/// Headers that the handshake needs as they are.
const OF_THE_HANDSHAKE: [&str; 13] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-version",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What is wrong with a header, and what to do.
pub fn header_error(name: &str, value: &str) -> Option<(String, String)> {
    let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
        return Some((format!("`{name}` is no name of an HTTP header"), "write letters, digits and `-`".to_owned()));
    };
    if OF_THE_HANDSHAKE.contains(&parsed.as_str()) {
        return Some((format!("the header `{name}` is set by the driver itself"), "drop it".to_owned()));
    }
    if parsed == http::header::SEC_WEBSOCKET_PROTOCOL {
        return Some((format!("`{name}` is not set as a header"), "list them under `connection.subprotocols`".to_owned()));
    }
    // The variables' own values are known when the run begins.
    let literal = match expand(value, |_| Some(String::new())) {
        Ok(literal) => literal,
        Err(error) => return Some((format!("the header `{name}`: {error}"), "as in `Bearer ${API_KEY}`".to_owned())),
    };
    HeaderValue::from_str(&literal).err().map(|_| {
        (format!("the value of the header `{name}` cannot be sent"), "write visible ASCII characters and spaces, in one line".to_owned())
    })
}

/// A subprotocol is a token.
pub fn is_wrong_subprotocol(text: &str) -> bool {
    // As a header's name is one.
    !expand(text, |_| Some("x".to_owned())).is_ok_and(|text| HeaderName::from_bytes(text.as_bytes()).is_ok())
}

pub(super) fn check(connection: &Connection, c: &mut Checker<'_>) {
    c.within("headers", |c| {
        for (name, value) in &connection.headers {
            if let Some((message, help)) = header_error(name, value) {
                c.error(name, message, help);
            }
        }
    });
    c.within("query", |c| {
        for (name, value) in &connection.query {
            if name.is_empty() {
                c.here("a parameter of the query has no name", "write name: value");
            }
            if let Err(error) = expand(value, |_| Some(String::new())) {
                c.error(name, format!("the parameter `{name}`: {error}"), "as in `${API_KEY}`");
            }
        }
    });
    c.within("subprotocols", |c| {
        for (at, name) in connection.subprotocols.iter().enumerate() {
            if is_wrong_subprotocol(name) {
                c.within(at, |c| c.here("this cannot be a WebSocket subprotocol", "write one word, without commas"));
            }
        }
    });
    if let Some(token) = &connection.admin_token
        && let Err(error) = expand(token, |_| Some(String::new()))
    {
        c.error("admin_token", format!("the admin token: {error}"), "as in `${AGENT_ADMIN_TOKEN}`");
    }
    if connection.certificate.is_some() != connection.key.is_some() {
        let (given, missing) = if connection.key.is_some() { ("key", "certificate") } else { ("certificate", "key") };
        c.error(given, format!("`{given}` is given and `{missing}` is not"), format!("add `{missing}: FILE`"));
    }
}

impl Profile {
    /// What each target is spoken to with must be what the scenarios speak.
    pub(super) fn check_schemes(&self, c: &mut Checker<'_>) {
        let Target::Addresses(all) = &self.target else { return };
        for (at, address) in all.iter().enumerate() {
            let Ok(TargetUrl { scheme: Some(scheme), .. }) = TargetUrl::parse(&address.address) else { continue };
            let other = self.scenarios.iter().find(|(_, scenario)| scenario.protocol() != scheme.protocol());
            let Some((name, scenario)) = other else { continue };
            let (speaks, schemes, protocol) = match scenario.protocol() {
                crate::plan::Protocol::Grpc => ("gRPC", "http:// or https://", "websocket"),
                crate::plan::Protocol::Websocket => ("WebSocket", "ws:// or wss://", "grpc"),
            };
            let dialect = scenario.dialect.name();
            let message = format!("the target is {}://, and the scenario `{name}` ({dialect}) speaks {speaks}", scheme.name());
            let help = if scenario.dialect.protocol().is_some() {
                format!("write the target with {schemes}")
            } else {
                format!("write the target with {schemes}, or `protocol: {protocol}` in the scenario")
            };
            c.within("target", |c| c.within(at, |c| c.here(message, help)));
        }
    }
}
