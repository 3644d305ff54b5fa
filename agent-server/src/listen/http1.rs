//! HTTP/1.1 on the session port: the handshake of a WebSocket, and a helpful refusal of everything else.

use std::{
    convert::Infallible,
    future::{poll_fn, ready},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use proto::orca;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{Heard, Peer};
use crate::{
    dialect::{self, WebSocketDialect},
    shard::{Shard, Shared},
};

/// Reading a 960-byte frame needs one read; the default of 128 KiB a connection would be what an idle session costs.
const READ_BUFFER: usize = 4 * 1024;
/// Frames that the kernel did not take yet; the writer waits when it is behind, so one message more than none.
const WRITE_BUFFER_MAX: usize = 256 * 1024;

pub(super) async fn serve(shard: Arc<Shard>, io: Heard, peer: Arc<Peer>) {
    let config = &shard.shared().config;
    let chosen: Arc<OnceLock<&'static WebSocketDialect>> = Arc::default();
    let service = {
        let chosen = Arc::clone(&chosen);
        let shared = Arc::clone(shard.shared());
        service_fn(move |request| ready(Ok::<_, Infallible>(answer(&request, &chosen, &shared))))
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
    let Some(dialect) = chosen.get() else { return dialect::close_gently(io).await };
    let websocket = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BUFFER_MAX + config.max_message_bytes)
        .max_message_size(Some(config.max_message_bytes))
        .max_frame_size(Some(config.max_message_bytes));
    let stream = WebSocketStream::from_partially_read(io, parts.read_buf.to_vec(), Role::Server, Some(websocket)).await;
    dialect::serve_websocket(shard, stream, peer, (dialect.open)()).await;
}

type Answer = Response<Full<Bytes>>;

/// Takes the upgrade of a known path; says what would have been right otherwise; and says the load either way.
fn answer(request: &Request<Incoming>, chosen: &OnceLock<&'static WebSocketDialect>, shared: &Shared) -> Answer {
    let result = handshake(request.method(), request.uri().path(), request.headers());
    let mut response = match result {
        Ok((dialect, accept)) => {
            // One request a connection: a refusal closes it, and an upgrade ends HTTP.
            let _ = chosen.set(dialect);
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
            response
        }
        Err((status, message)) => {
            let mut response = Response::new(Full::from(message + "\n"));
            *response.status_mut() = status;
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            if status == StatusCode::UPGRADE_REQUIRED {
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade, close"));
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            response
        }
    };
    response.headers_mut().insert(HeaderName::from_static(orca::TEXT_HEADER), shared.board.latest().text.clone());
    response
}

fn handshake(method: &Method, path: &str, headers: &HeaderMap) -> Result<(&'static WebSocketDialect, HeaderValue), (StatusCode, String)> {
    let paths = || dialect::WEBSOCKET.iter().map(|d| format!("{} ({})", d.path, d.name)).collect::<Vec<_>>().join(", ");
    let has = |name: header::HeaderName, token: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .any(|v| v.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
    };
    let Some(dialect) = dialect::WEBSOCKET.iter().find(|d| d.path == path) else {
        let message = format!("no dialect is served at `{path}`: open a WebSocket at {}, or gRPC (HTTP/2) on this port", paths());
        return Err((StatusCode::NOT_FOUND, message));
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
    match HeaderValue::from_str(&derive_accept_key(key)) {
        Ok(accept) => Ok((dialect, accept)),
        Err(_) => Err((StatusCode::BAD_REQUEST, "the header Sec-WebSocket-Key cannot be answered".to_owned())),
    }
}
