//! HTTP/1.1 on the session port: the handshake of a WebSocket, and a helpful refusal of everything else.

use std::{
    convert::Infallible,
    future::{poll_fn, ready},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use proto::{
    frame::{BACKEND_ID_HEADER, BOOT_ID_HEADER, ErrorCode},
    orca,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{Heard, Peer, WANTED, admits, beside_token};
use crate::{
    dialect::{self, Refused, Upgrade, WebSocketDialect},
    shard::{Reservation, Shard, Shared},
};

/// Reading a 960-byte frame needs one read; the default of 128 KiB a connection would be what an idle session costs.
const READ_BUFFER: usize = 4 * 1024;
/// Room for pings, pongs and the like beside a message that the kernel did not take yet; the writer waits when it is behind.
const WRITE_BUFFER_MORE: usize = 256 * 1024;

pub(super) async fn serve(shard: Arc<Shard>, io: Heard, peer: Arc<Peer>) {
    let config = &shard.shared().config;
    let chosen: Arc<Mutex<Option<Chosen>>> = Arc::default();
    let service = {
        let chosen = Arc::clone(&chosen);
        let shard = Arc::clone(&shard);
        service_fn(move |request| ready(Ok::<_, Infallible>(answer(&request, &chosen, &shard))))
    };
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.start_timeout)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(io), service);
    let handshake = poll_fn(|cx| connection.poll_without_shutdown(cx));
    match tokio::time::timeout(config.start_timeout, handshake).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return tracing::debug!("HTTP/1.1 connection ended: {error}"),
        Err(_) => return tracing::debug!("HTTP/1.1 connection closed: no request within {:?}", config.start_timeout),
    }
    let parts = connection.into_parts();
    let io = parts.io.into_inner();
    let Some((dialect, socket, reservation)) = chosen.lock().take() else { return dialect::close_gently(io).await };
    let max_message = if dialect.max_message == 0 { config.max_message_bytes } else { dialect.max_message };
    let websocket = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BUFFER_MORE + config.max_message_bytes.max(dialect::WRITTEN_MAX))
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message));
    let stream = WebSocketStream::from_partially_read(io, parts.read_buf.to_vec(), Role::Server, Some(websocket)).await;
    dialect::serve_websocket(shard, stream, peer, socket, reservation).await;
}

type Answer = Response<Full<Bytes>>;
/// The dialect of the upgrade that was taken, its translator, and the place of the session where the upgrade implies one.
type Chosen = (&'static WebSocketDialect, dialect::Socket, Option<Reservation>);
/// What a client that did not show the token is asked for.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"agent-server\"");
/// What a client that was refused for want of room is told to wait, seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Takes the upgrade of a known path; says what would have been right otherwise; and says the load either way.
fn answer(request: &Request<Incoming>, chosen: &Mutex<Option<Chosen>>, shard: &Arc<Shard>) -> Answer {
    let shared = shard.shared();
    let path = collapsed(request.uri().path());
    let upgrade = Upgrade { path: &path, query: request.uri().query().unwrap_or_default(), headers: request.headers() };
    let result = served(&path)
        .and_then(|dialect| authorized(shared, &upgrade).map(|()| dialect))
        .and_then(|dialect| handshake(request.method(), &path, request.headers()).map(|accept| (dialect, accept)))
        .and_then(|(dialect, accept)| admitted(dialect, shard, &upgrade).map(|place| (dialect, accept, place)))
        .and_then(|(dialect, accept, place)| match (dialect.open)(&upgrade) {
            Ok(opened) => Ok((dialect, accept, opened, place)),
            Err(Refused { status, body }) => Err((status, body)),
        });
    let mut response = match result {
        Ok((dialect, accept, opened, place)) => {
            // One request a connection: a refusal closes it, and an upgrade ends HTTP.
            *chosen.lock() = Some((dialect, opened.dialect, place));
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
            let subprotocol = opened.subprotocol.or_else(|| beside_token(&upgrade));
            headers.extend(subprotocol.map(|name| (header::SEC_WEBSOCKET_PROTOCOL, name)));
            headers.extend(opened.headers);
            response
        }
        Err((status, message)) => {
            let content = if message.starts_with('{') { "application/json" } else { "text/plain; charset=utf-8" };
            let mut response = Response::new(Full::from(message + "\n"));
            *response.status_mut() = status;
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
            if status == StatusCode::UNAUTHORIZED {
                headers.insert(header::WWW_AUTHENTICATE, CHALLENGE);
            }
            if status == StatusCode::METHOD_NOT_ALLOWED {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET"));
            }
            if status == StatusCode::SERVICE_UNAVAILABLE {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER);
            }
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            if status == StatusCode::UPGRADE_REQUIRED {
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade, close"));
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static(orca::TEXT_HEADER), shared.board.latest().text.clone());
    for (name, value) in [(BACKEND_ID_HEADER, &shared.session.backend_id), (BOOT_ID_HEADER, &shared.session.boot_id)] {
        headers.extend(HeaderValue::from_str(value).ok().map(|value| (HeaderName::from_static(name), value)));
    }
    response
}

/// Holds a place for the session that the connection implies, or refuses it, and counts that as the refusal of a session. To look for room here
/// and take it at the start would not do: several upgrades would be taken for one place, and all but one of their clients believe in sessions
/// that never were.
fn admitted(dialect: &WebSocketDialect, shard: &Arc<Shard>, upgrade: &Upgrade<'_>) -> Result<Option<Reservation>, (StatusCode, String)> {
    if !dialect.starts_at_once {
        return Ok(None);
    }
    let shared = shard.shared();
    let going = || if shared.draining() { Err((ErrorCode::Draining, "the server is going away")) } else { Ok(()) };
    let place = going()
        .and_then(|()| Reservation::new(shard, &upgrade.client_ref()).map_err(|_| (ErrorCode::Overloaded, "the server is full")))
        // A drain that began meanwhile may not have seen the place.
        .and_then(|place| going().map(|()| place));
    let (code, why) = match place {
        Ok(place) => return Ok(Some(place)),
        Err(refused) => refused,
    };
    shared.count_refusal(code);
    Err((StatusCode::SERVICE_UNAVAILABLE, format!("{why}: retry later or on another backend")))
}

/// Without empty segments: some clients put two slashes before the path.
fn collapsed(path: &str) -> String {
    path.split('/').filter(|segment| !segment.is_empty()).fold(String::new(), |path, segment| path + "/" + segment)
}

/// The dialect that is found at a path.
fn served(path: &str) -> Result<&'static WebSocketDialect, (StatusCode, String)> {
    dialect::WEBSOCKET.iter().find(|dialect| (dialect.serves)(path)).ok_or_else(|| {
        let paths = dialect::WEBSOCKET.iter().map(|d| format!("{} ({})", d.paths, d.name)).collect::<Vec<_>>().join(", ");
        let message = format!("no dialect is served at `{path}`: open a WebSocket at {paths}, or gRPC (HTTP/2) on this port");
        (StatusCode::NOT_FOUND, message)
    })
}

fn authorized(shared: &Shared, upgrade: &Upgrade<'_>) -> Result<(), (StatusCode, String)> {
    if admits(shared.config.auth_token.as_ref(), upgrade) { Ok(()) } else { Err((StatusCode::UNAUTHORIZED, WANTED.to_owned())) }
}

/// Answers the key of an upgrade that is in order.
fn handshake(method: &Method, path: &str, headers: &HeaderMap) -> Result<HeaderValue, (StatusCode, String)> {
    let has = |name: header::HeaderName, token: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .any(|v| v.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
    };
    if method != Method::GET {
        return Err((StatusCode::METHOD_NOT_ALLOWED, format!("`{path}` is a WebSocket: open it with GET, not {method}")));
    }
    if !has(header::UPGRADE, "websocket") || !has(header::CONNECTION, "upgrade") {
        return Err((StatusCode::UPGRADE_REQUIRED, format!("`{path}` is a WebSocket: ask for the upgrade, with websocat for one")));
    }
    if !has(header::SEC_WEBSOCKET_VERSION, "13") {
        return Err((StatusCode::UPGRADE_REQUIRED, "version 13 of the WebSocket protocol is spoken here".to_owned()));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).filter(|key| key.len() == 24);
    let Some(key) = key else {
        return Err((StatusCode::BAD_REQUEST, "the header Sec-WebSocket-Key is missing or not 16 bytes in base64".to_owned()));
    };
    HeaderValue::from_str(&derive_accept_key(key))
        .map_err(|_| (StatusCode::BAD_REQUEST, "the header Sec-WebSocket-Key cannot be answered".to_owned()))
}
