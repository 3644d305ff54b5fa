//! Many connections at once. These need servers of their own.

use std::net::SocketAddr;

use tokio::{io::AsyncReadExt, net::TcpStream};

use super::{Row, row};
use crate::common::{
    Server,
    client::{Client, Form, end},
    eventually, within,
};

pub const ROWS: &[Row] = &[
    row!("connection-flood", "closed unheard", |_g| flooded("--max-connections=20", "agent_server_connections_refused_total 30").await),
    row!("connection-flood-of-one", "closed unheard", |_g| flooded(
        "--max-connections-per-ip=20",
        "agent_server_connections_refused_total 30"
    )
    .await),
];

/// Fifty connections where twenty are taken; the session among them goes on, and afterwards there is room again.
async fn flooded(limit: &str, metric: &str) -> String {
    let server = Server::start(&[limit]);
    let mut first = Client::started(server.address, Form::Binary).await;
    let mut all = Vec::new();
    for _ in 0..49 {
        all.push(TcpStream::connect(server.address).await.unwrap());
    }
    eventually("the others are refused", async || server.request("GET", "/metrics").1.contains(metric).then_some(())).await;
    for refused in all.iter_mut().skip(19) {
        assert!(matches!(within("the close", refused.read(&mut [0])).await, Ok(0) | Err(_)));
    }
    assert_eq!(server.snapshot().active, 1);
    first.send(end()).await;
    assert_eq!(first.rest().await.1, Some(1000));
    drop(all);
    eventually("there is room again", async || room(server.address).await.then_some(())).await;
    server.expect_ends(&[("completed", 1)]).await;
    "closed unheard".to_owned()
}

async fn room(address: SocketAddr) -> bool {
    // A connection that is served is not closed while it may still say something.
    let mut stream = TcpStream::connect(address).await.unwrap();
    tokio::time::timeout(super::DRIP, stream.read(&mut [0])).await.is_err()
}
