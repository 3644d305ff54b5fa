//! Who may ask the admin port: whoever shows its token, where it has one. Health is for all; probes have no token.

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::Admin;
use crate::{dialect::Upgrade, listen::admits};

/// What is asked without a token.
const OPEN_TO_ALL: &str = "/healthz";
const WANTED: &str =
    "the admin token of this server is missing or wrong: show it as `Authorization: Bearer TOKEN`, or in a header x-api-key\n";
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"agent-server admin\"");
/// A web page may send such a request to whatever its visitor can reach, and needs no answer for it to do its work.
const FROM_A_PAGE: &str = "requests of web pages change nothing here: ask without the header Origin\n";

/// Passes on what may be asked. A query shows no token here: it would stand in every log on the way.
pub(super) async fn guard(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD);
    if !safe && request.headers().contains_key(header::ORIGIN) {
        return refused(StatusCode::FORBIDDEN, FROM_A_PAGE);
    }
    let token = admin.shared.config.admin_token.as_ref();
    let shown = Upgrade { path: request.uri().path(), query: "", headers: request.headers() };
    if (safe && request.uri().path() == OPEN_TO_ALL) || admits(token, &shown) {
        return next.run(request).await;
    }
    let mut response = refused(StatusCode::UNAUTHORIZED, WANTED);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
    response
}

/// Strangers get one answer a connection.
fn refused(status: StatusCode, why: &'static str) -> Response {
    (status, [(header::CONNECTION, HeaderValue::from_static("close"))], why).into_response()
}
