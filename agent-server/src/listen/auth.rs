//! Whether whoever opens a session may: one token, shown the way clients of real services show theirs.

use http::{HeaderValue, header};

use crate::{config::Secret, dialect::Upgrade};

/// Headers whose whole value is the key.
const KEY_HEADERS: [&str; 4] = ["api-key", "x-api-key", "x-goog-api-key", "xi-api-key"];
/// Schemes of `Authorization`.
const SCHEMES: [&str; 2] = ["Bearer", "Token"];
/// Parameters of the query.
const PARAMETERS: [&str; 3] = ["key", "token", "api_key"];
/// Where browsers put a key, who cannot set headers.
const PROTOCOL_PREFIX: &str = "openai-insecure-api-key.";

/// What to tell who did not show it.
pub const WANTED: &str = "the token of this server is missing or wrong: show it as `Authorization: Bearer TOKEN` (or `Token TOKEN`), in a \
     header api-key, x-api-key, x-goog-api-key or xi-api-key, as the query parameter key, token or api_key, or as the WebSocket subprotocol \
     openai-insecure-api-key.TOKEN, or `token, TOKEN` or `bearer, TOKEN`";

/// True where no token is asked for, or the request shows it.
pub fn admits(token: Option<&Secret>, request: &Upgrade<'_>) -> bool {
    token.is_none_or(|token| shows(token, request))
}

fn shows(token: &Secret, request: &Upgrade<'_>) -> bool {
    let authorization = request.header(header::AUTHORIZATION.as_str()).and_then(|value| value.split_once(' '));
    let bearer = authorization.filter(|(scheme, _)| SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)));
    if bearer.is_some_and(|(_, value)| token.is(value.trim()))
        || KEY_HEADERS.iter().any(|name| request.header(name).is_some_and(|v| token.is(v)))
    {
        return true;
    }
    if PARAMETERS.iter().any(|name| request.parameter(name).is_some_and(|value| token.is(&value))) {
        return true;
    }
    let mut after_scheme = false;
    request.subprotocols().any(|offered| {
        let named = offered.strip_prefix(PROTOCOL_PREFIX).is_some_and(|value| token.is(value));
        named || (std::mem::replace(&mut after_scheme, matches!(offered, "token" | "bearer")) && token.is(offered))
    })
}

/// The subprotocol to select of a client that brings a token in one: browsers, and some libraries, give up when none is. It is the name beside the token,
/// never the token, nor what holds it; a client that offers nothing else gets none.
pub fn beside_token(request: &Upgrade<'_>) -> Option<HeaderValue> {
    let keyed = request.subprotocols().any(|offered| offered.starts_with(PROTOCOL_PREFIX));
    // A scheme comes before its token, so the first known name is none.
    request.subprotocols().find_map(|offered| match offered {
        "token" => Some(HeaderValue::from_static("token")),
        "bearer" => Some(HeaderValue::from_static("bearer")),
        "realtime" if keyed => Some(HeaderValue::from_static("realtime")),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn shown(query: &str, headers: &[(&'static str, &str)]) -> bool {
        let token: Secret = "s3cret+/=".parse().unwrap();
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect();
        admits(Some(&token), &Upgrade { path: "/", query, headers: &headers })
    }

    #[test]
    fn the_name_beside_a_token_is_selected_and_never_the_token() {
        for (offered, selected) in [
            ("token, s3cret", Some("token")),
            ("bearer, s3cret", Some("bearer")),
            ("bearer, token", Some("bearer")),
            ("other, token, s3cret", Some("token")),
            ("realtime, openai-insecure-api-key.s3cret", Some("realtime")),
            ("openai-insecure-api-key.s3cret, realtime", Some("realtime")),
            ("openai-insecure-api-key.s3cret", None),
            ("realtime", None),
            ("s3cret", None),
        ] {
            let headers = HeaderMap::from_iter([(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(offered).unwrap())]);
            let found = beside_token(&Upgrade { path: "/", query: "", headers: &headers });
            assert_eq!(found.as_ref().map(|name| name.to_str().unwrap()), selected, "{offered}");
        }
        assert_eq!(beside_token(&Upgrade { path: "/", query: "", headers: &HeaderMap::new() }), None);
    }

    #[test]
    fn each_way_of_showing_it_is_taken_and_only_with_the_right_token() {
        for (name, before) in [
            ("authorization", "Bearer "),
            ("authorization", "bearer "),
            ("authorization", "Token "),
            ("api-key", ""),
            ("x-api-key", ""),
            ("x-goog-api-key", ""),
            ("xi-api-key", ""),
            ("sec-websocket-protocol", "realtime, openai-insecure-api-key."),
            ("sec-websocket-protocol", "token, "),
        ] {
            assert!(shown("", &[(name, &format!("{before}s3cret+/="))]), "{name}: {before}");
            assert!(!shown("", &[(name, &format!("{before}s3cret+/"))]), "{name}: {before}");
        }
        for name in PARAMETERS {
            assert!(shown(&format!("model=m&{name}=s3cret%2B%2F%3D"), &[]), "{name}");
            assert!(!shown(&format!("{name}=other"), &[]), "{name}");
        }
        assert!(!shown("", &[]));
        assert!(!shown("", &[("authorization", "s3cret+/=")]));
        assert!(!shown("", &[("authorization", "Basic s3cret+/=")]));
        assert!(!shown("", &[("sec-websocket-protocol", "s3cret+/=")]));
        assert!(admits(None, &Upgrade { path: "/", query: "", headers: &HeaderMap::new() }));
    }
}
