//! Where a target is: `host:port`, or a URL that also says how it is spoken to.

use std::{borrow::Cow, fmt};

use http::Uri;

use crate::plan::Protocol;

/// How a target that is given as a URL is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// WebSocket.
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// gRPC.
    Http,
    /// gRPC over TLS.
    Https,
}

impl Scheme {
    const ALL: [(Self, &str); 4] = [(Self::Ws, "ws"), (Self::Wss, "wss"), (Self::Http, "http"), (Self::Https, "https")];

    /// As in URLs.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(scheme, _)| *scheme == self).map_or("", |(_, name)| name)
    }

    /// What travels by it.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Ws | Self::Wss => Protocol::Websocket,
            Self::Http | Self::Https => Protocol::Grpc,
        }
    }

    /// It is encrypted.
    pub const fn tls(self) -> bool {
        matches!(self, Self::Wss | Self::Https)
    }

    const fn default_port(self) -> u16 {
        if self.tls() { 443 } else { 80 }
    }
}

/// A target, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetUrl {
    /// None for a bare `host:port`, which is plain and serves either protocol.
    pub scheme: Option<Scheme>,
    /// Name or address, without the brackets of an IPv6 address.
    pub host: String,
    /// As given, or the scheme's.
    pub port: u16,
    /// Path, where it says one that is more than `/`.
    pub path: Option<String>,
    /// Query, as given.
    pub query: Option<String>,
}

impl TargetUrl {
    /// Takes a target apart; else says what is wrong with it. Secrets of its query are in no message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((scheme, _)) = text.split_once("://") else {
            if !is_host_port(text) {
                return Err(format!("`{}` is neither host:port nor a URL (ws, wss, http, https)", shown(text)));
            }
            let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
            return Ok(Self { scheme: None, host: bare(host), port: port.parse().unwrap_or(0), path: None, query: None });
        };
        let wrong = |why: &str| format!("`{}` is no URL of a target: {why}", shown(text));
        let known = Scheme::ALL.iter().find(|(_, name)| name.eq_ignore_ascii_case(scheme));
        let scheme = known.map(|(scheme, _)| *scheme).ok_or_else(|| wrong("the schemes are ws, wss, http and https"))?;
        if text.contains('#') {
            return Err(wrong("a fragment (`#`) is never sent; write %23 for the character"));
        }
        if text.contains("${") {
            return Err(wrong("a target has no ${NAME}: put it into `connection.query` or `connection.headers`"));
        }
        let uri: Uri = text.parse().map_err(|error| wrong(&format!("{error}")))?;
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a user name is not sent; put what the server asks for into `connection.headers`"));
        }
        if authority.host().is_empty() {
            return Err(wrong("it has no host"));
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().rsplit(']').next().is_some_and(|rest| rest.contains(':')) => {
                return Err(wrong("its port is none; ports are 1 to 65535"));
            }
            None => scheme.default_port(),
        };
        if port == 0 {
            return Err(wrong("its port is 0"));
        }
        let path = Some(uri.path().to_owned()).filter(|path| !matches!(path.as_str(), "" | "/"));
        Ok(Self { scheme: Some(scheme), host: bare(authority.host()), port, path, query: uri.query().map(str::to_owned) })
    }

    /// For the `host` header and `:authority`: without the port that the scheme implies.
    pub fn authority(&self) -> String {
        if self.scheme.is_some_and(|scheme| scheme.default_port() == self.port) {
            self.bracketed().into_owned()
        } else {
            format!("{}:{}", self.bracketed(), self.port)
        }
    }

    /// Always with the port.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    /// It is encrypted.
    pub fn tls(&self) -> bool {
        self.scheme.is_some_and(Scheme::tls)
    }

    fn bracketed(&self) -> Cow<'_, str> {
        if self.host.contains(':') { format!("[{}]", self.host).into() } else { self.host.as_str().into() }
    }
}

impl fmt::Debug for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetUrl({})", self.authority())
    }
}

fn bare(host: &str) -> String {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned()
}

/// A target as it may be shown: what its query holds under the name of a secret is masked. Anything else is left as it is.
pub fn shown(target: &str) -> Cow<'_, str> {
    let without_user = match (target.split_once("://"), target.split(['/', '?']).nth(2)) {
        (Some((scheme, rest)), Some(authority)) if authority.contains('@') => {
            let host = rest.split_once('@').map_or(rest, |(_, host)| host);
            Cow::Owned(format!("{scheme}://{MASK}@{host}"))
        }
        _ => Cow::Borrowed(target),
    };
    let Some((head, query)) = without_user.split_once('?') else { return without_user };
    let masked: Vec<Cow<'_, str>> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, _)) if is_secret_name(name) => format!("{name}={MASK}").into(),
            _ => pair.into(),
        })
        .collect();
    format!("{head}?{}", masked.join("&")).into()
}

/// For a query: everything but what never needs it as `%41`.
pub fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The text that was encoded for a query; what is no code stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.first_chunk::<2>().filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the query of a target holds under the names of secrets, as it is sent and as it reads.
pub fn secrets_of(target: &str) -> Vec<String> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let secret = query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(name, _)| is_secret_name(name));
    secret.flat_map(|(_, value)| [value.to_owned(), decoded(value)]).collect()
}

/// What stands for a value that is not shown.
pub const MASK: &str = "***";

/// What goes by this name, of a header or a parameter, is most likely a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "auth", "cookie", "credential", "signature", "jwt"].iter().any(|part| name.contains(part))
        || name == "sig"
}

/// `host:port` of an admin port, or `https://host:port` of one that speaks TLS.
pub(super) fn is_admin(text: &str) -> bool {
    is_host_port(text.strip_prefix("https://").unwrap_or(text))
}

/// `host:port`, the host a name, an IPv4 address or an IPv6 address in brackets.
pub(super) fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(['/', ' ', '@', '?'])
            && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> TargetUrl {
        TargetUrl::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn urls_are_taken_apart() {
        for (text, authority, port, tls, path, query) in [
            ("127.0.0.1:7000", "127.0.0.1:7000", 7000, false, None, None),
            ("[::1]:7000", "[::1]:7000", 7000, false, None, None),
            ("ws://agents.example", "agents.example", 80, false, None, None),
            ("WSS://agents.example/", "agents.example", 443, true, None, None),
            ("wss://agents.example:8443/v1/realtime?model=m&x", "agents.example:8443", 8443, true, Some("/v1/realtime"), Some("model=m&x")),
            ("https://[::1]", "[::1]", 443, true, None, None),
            ("http://agents.example:443?a=b", "agents.example:443", 443, false, None, Some("a=b")),
        ] {
            let url = parsed(text);
            assert_eq!((url.authority().as_str(), url.port, url.tls()), (authority, port, tls), "{text}");
            assert_eq!((url.path.as_deref(), url.query.as_deref()), (path, query), "{text}");
        }
        assert_eq!(parsed("https://[::1]").host, "::1");
    }

    #[test]
    fn what_is_no_target_is_told_without_its_secrets() {
        for (text, complaint) in [
            ("agents.example", "neither host:port nor a URL"),
            ("ftp://agents.example", "schemes are"),
            ("wss://", "no URL of a target"),
            ("wss://user:hunter2@agents.example", "user name"),
            ("wss://agents.example:0", "port is 0"),
            ("wss://agents.example:99999", "no URL of a target"),
            ("wss://agents.example/#top", "fragment"),
            ("wss://agents.example/?key=${KEY}", "connection.query"),
            ("wss://agents.example/a b?token=hunter2", "no URL of a target"),
        ] {
            let error = TargetUrl::parse(text).expect_err(text);
            assert!(error.contains(complaint), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn secrets_of_a_query_are_masked() {
        assert_eq!(shown("wss://a/b?model=m&api_key=s&Token=t&x"), "wss://a/b?model=m&api_key=***&Token=***&x");
        assert_eq!(shown("wss://a/b"), "wss://a/b");
        assert_eq!(secrets_of("wss://a/b?model=m&api_key=s%2Ft%&x"), ["s%2Ft%", "s/t%"]);
        assert!(secrets_of("wss://a/b").is_empty());
        for text in ["a b/\u{e9}%2F", ""] {
            assert_eq!(decoded(&encoded(text)), text);
        }
        for name in ["Authorization", "x-goog-api-key", "Cookie", "access_token", "X-Amz-Signature"] {
            assert!(is_secret_name(name), "{name}");
        }
        assert!(!is_secret_name("OpenAI-Beta"));
    }
}
