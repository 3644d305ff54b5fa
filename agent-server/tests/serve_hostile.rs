//! What a hostile peer may send to a server, and what it gets. Each row is one in the table of SECURITY.md, which says the same; after each the
//! server serves, its counts are exact, and its memory is bounded.
#![allow(unreachable_pub, reason = "rows are public to the suite")]

mod common;
mod hostile;

use hostile::{ADMIN, HTTP1, HTTP2, LIMITS, TCP, WEBSOCKET, hold};

#[tokio::test]
async fn first_bytes() {
    hold(TCP).await;
}

#[tokio::test]
async fn http1() {
    hold(HTTP1).await;
}

#[tokio::test]
async fn websocket() {
    hold(WEBSOCKET).await;
}

#[tokio::test]
async fn http2() {
    hold(HTTP2).await;
}

#[tokio::test]
async fn admin() {
    hold(ADMIN).await;
}

#[tokio::test]
async fn limits() {
    hold(LIMITS).await;
}

/// `| server | `id` | what is sent | what it gets |`
#[test]
fn the_table_of_security_md_is_what_is_tried() {
    let rows: Vec<(String, String)> = include_str!("../../SECURITY.md")
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (side, id, _, got) = (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
            (side == "server").then(|| (id.trim_matches('`').to_owned(), got.to_owned()))
        })
        .collect();
    let tried = [TCP, HTTP1, WEBSOCKET, HTTP2, ADMIN, LIMITS].concat();
    let tried: Vec<(String, String)> = tried.iter().map(|row| (row.id.to_owned(), row.got.to_owned())).collect();
    for row in &tried {
        assert!(rows.contains(row), "SECURITY.md does not say: {row:?}");
    }
    for row in &rows {
        assert!(tried.contains(row), "nobody tries: {row:?}");
    }
    assert_eq!(rows.len(), tried.len(), "a row is there twice");
}
