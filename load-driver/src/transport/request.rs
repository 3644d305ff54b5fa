//! The head of a stream's request: the dialect's own, what the target says instead, and what the profile adds.
//!
//! Path: the target's, else the dialect's. Query: the parameters of the dialect, the target and the profile; of one name the last of these
//! holds. Headers: the profile's over the dialect's. Subprotocols: the dialect's, then the profile's.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::Endpoint;
use crate::{
    dialect::Channel,
    plan::{
        Connection,
        variables::{VariableError, environment, expand},
    },
    profile::encoded,
};

/// What cannot be sent, without its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A variable is not set.
    #[error("{0}")]
    Variable(#[from] VariableError),
    /// What the variable holds is not for HTTP.
    #[error("its value cannot be sent: it has line breaks, or characters that are not ASCII")]
    Value,
}

/// Path and query of a stream.
pub(super) fn path_and_query(endpoint: &Endpoint, channel: &Channel, connection: &Connection) -> Result<String, RequestError> {
    let own = channel.dialect().path();
    let (own_path, own_query) = own.split_once('?').unwrap_or((&own, ""));
    let path = endpoint.path.as_deref().unwrap_or(own_path);
    let mut added = Vec::with_capacity(connection.query.len());
    for (name, value) in &connection.query {
        added.push(format!("{}={}", encoded(name), encoded(&expand(value, environment)?)));
    }
    let theirs: Vec<&str> = parameters(endpoint.query.as_deref().unwrap_or_default()).collect();
    let is_in = |name: &str, later: &[&str]| later.iter().any(|pair| name_of(pair) == name);
    let added_names: Vec<&str> = added.iter().map(String::as_str).collect();
    let mut all: Vec<&str> = Vec::new();
    all.extend(parameters(own_query).filter(|pair| !is_in(name_of(pair), &theirs) && !is_in(name_of(pair), &added_names)));
    all.extend(theirs.iter().filter(|pair| !is_in(name_of(pair), &added_names)));
    all.extend(&added_names);
    Ok(if all.is_empty() { path.to_owned() } else { format!("{path}?{}", all.join("&")) })
}

fn parameters(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|pair| !pair.is_empty())
}

fn name_of(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

/// Headers of a stream, without those of its protocol.
pub(super) fn headers(channel: &Channel, connection: &Connection) -> Result<HeaderMap, RequestError> {
    let mut headers: HeaderMap = channel.dialect().headers().into_iter().collect();
    for (name, value) in given_headers(connection)? {
        headers.insert(name, value);
    }
    headers.extend(channel.client_ref_header());
    Ok(headers)
}

/// The profile's headers, variables and all.
pub fn given_headers(connection: &Connection) -> Result<Vec<(HeaderName, HeaderValue)>, RequestError> {
    let one = |(name, value): (&String, &String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| RequestError::Value)?;
        let mut value = HeaderValue::from_str(&expand(value, environment)?).map_err(|_| RequestError::Value)?;
        value.set_sensitive(true);
        Ok((name, value))
    };
    connection.headers.iter().map(one).collect()
}

/// The header that offers subprotocols, if there are any.
pub(super) fn offered(channel: &Channel, connection: &Connection) -> Result<Option<(HeaderName, HeaderValue)>, RequestError> {
    let mut names = channel.dialect().subprotocols();
    for name in &connection.subprotocols {
        let name = expand(name, environment)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Ok(None);
    }
    let value = HeaderValue::from_str(&names.join(", ")).map_err(|_| RequestError::Value)?;
    Ok(Some((header::SEC_WEBSOCKET_PROTOCOL, value)))
}

/// What of the connection cannot be sent as the environment is now: the path of the key, and why.
pub fn unsendable(connection: &Connection) -> Option<([String; 2], RequestError)> {
    connection.values().find_map(|(path, value)| {
        let checked = expand(value, environment).map_err(RequestError::from).and_then(|text| {
            let in_a_header = path[0] != "query";
            if in_a_header && HeaderValue::from_str(&text).is_err() { Err(RequestError::Value) } else { Ok(()) }
        });
        checked.err().map(|error| (path, error))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plan::{Protocol, Service};

    fn sent(target: (Option<&str>, Option<&str>), query: &[(&str, &str)]) -> String {
        let channel = Channel::new(&Arc::new(Service::default()), Protocol::Websocket, "ref".to_owned());
        let endpoint = Endpoint { path: target.0.map(str::to_owned), query: target.1.map(str::to_owned), ..Endpoint::default() };
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        path_and_query(&endpoint, &channel, &Connection { query, ..Connection::default() }).expect("sendable")
    }

    #[test]
    fn the_target_and_the_profile_say_otherwise() {
        let own = proto::native::WEBSOCKET_PATH;
        assert_eq!(sent((None, None), &[]), own);
        assert_eq!(sent((Some("/other"), None), &[]), "/other");
        assert_eq!(sent((None, Some("a=1&b=2")), &[("b", "x y&z"), ("c", "\u{e9}")]), format!("{own}?a=1&b=x%20y%26z&c=%C3%A9"));
    }

    #[test]
    fn a_header_of_the_profile_is_one_header() {
        let channel = Channel::new(&Arc::new(Service::default()), Protocol::Websocket, "ref".to_owned());
        let connection = Connection { headers: [("X-Client-Kind".to_owned(), "test".to_owned())].into(), ..Connection::default() };
        let headers = headers(&channel, &connection).expect("sendable");
        assert_eq!(headers["x-client-kind"], "test");
        assert!(headers["x-client-kind"].is_sensitive());
    }

    #[test]
    fn what_cannot_be_sent_is_found_beforehand() {
        let none = "LOAD_DRIVER_TEST_OF_A_VARIABLE_THAT_IS_NOT_SET";
        let connection = Connection { headers: [("X-Key".to_owned(), format!("${{{none}}}"))].into(), ..Connection::default() };
        let (path, error) = unsendable(&connection).expect("the variable is not set");
        assert_eq!(path, ["headers", "X-Key"]);
        assert!(error.to_string().contains(none), "{error}");
        assert_eq!(unsendable(&Connection::default()), None);
    }
}
