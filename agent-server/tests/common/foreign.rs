//! A bare WebSocket client for dialects other than the native one.

use std::{net::SocketAddr, time::Duration};

use futures_util::{SinkExt, StreamExt};
use proto::audio::AudioFormat;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest, http::HeaderMap},
};

use super::within;

/// What came from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    Json(Value),
    Binary(Vec<u8>),
    /// Close code; none when the connection just ended.
    Closed(Option<u16>),
}

/// An open connection.
pub struct Foreign {
    pub socket: WebSocketStream<TcpStream>,
    /// Of the answer to the upgrade.
    pub headers: HeaderMap,
}

impl Foreign {
    /// Upgrades at `target` (path and query) with further headers.
    pub async fn open(address: SocketAddr, target: &str, headers: &[(&'static str, &str)]) -> Self {
        match Self::try_open(address, target, headers).await {
            Ok(open) => open,
            Err((status, body)) => panic!("{target} was refused: {status} {body}"),
        }
    }

    /// As [`Self::open`]; the status and body of a refusal otherwise.
    pub async fn try_open(address: SocketAddr, target: &str, headers: &[(&'static str, &str)]) -> Result<Self, (u16, String)> {
        let mut request = format!("ws://{address}{target}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        match within("the upgrade", client_async(request, stream)).await {
            Ok((socket, response)) => Ok(Self { socket, headers: response.headers().clone() }),
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                Err((response.status().as_u16(), String::from_utf8_lossy(&body).into_owned()))
            }
            Err(error) => panic!("{target}: {error}"),
        }
    }

    pub async fn json(&mut self, message: Value) {
        self.text(&message.to_string()).await;
    }

    pub async fn text(&mut self, text: &str) {
        self.socket.send(Message::Text(text.into())).await.unwrap();
    }

    pub async fn binary(&mut self, bytes: &[u8]) {
        self.socket.send(Message::Binary(bytes.to_vec().into())).await.unwrap();
    }

    /// The next thing that is no ping.
    pub async fn next(&mut self) -> Heard {
        loop {
            return match within("a message", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => Heard::Json(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))),
                Some(Ok(Message::Binary(bytes))) => Heard::Binary(bytes.to_vec()),
                Some(Ok(Message::Close(frame))) => Heard::Closed(frame.map(|frame| frame.code.into())),
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => Heard::Closed(None),
            };
        }
    }

    /// The next JSON message for which `wanted` holds; all before it are dropped.
    pub async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            match self.next().await {
                Heard::Json(value) if wanted(&value) => return value,
                Heard::Closed(code) => panic!("closed with {code:?}"),
                _ => {}
            }
        }
    }

    /// The next JSON message whose `type` is this; all before it are dropped.
    pub async fn until_type(&mut self, kind: &str) -> Value {
        self.until(|value| value["type"] == kind).await
    }
}

/// `ms` of a tone that every detector takes for speech, in frames of 20 ms.
pub fn speech(format: AudioFormat, ms: u64) -> Vec<Vec<u8>> {
    let samples: Vec<i16> = (0..format.frame_samples()).map(|n| if n / 8 % 2 == 0 { 6_000 } else { -6_000 }).collect();
    (0..ms / 20).map(|_| format.encode(&samples).to_vec()).collect()
}

/// `ms` of silence, in frames of 20 ms.
pub fn silence(format: AudioFormat, ms: u64) -> Vec<Vec<u8>> {
    (0..ms / 20).map(|_| vec![format.silence_byte(); format.frame_bytes()]).collect()
}

/// Waits one frame.
pub async fn frame_time() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
