//! Clients of both transports that show their wire: what they send may be wrong, how they leave may be rude.

use std::{net::SocketAddr, sync::Arc};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use prost::Message as _;
use proto::{
    frame::{ClientAudio, ClientEvent, ServerEvent, SessionStart, SpeechMarker, TurnHint},
    native,
    voiceagent::v1,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, rustls::ClientConfig};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use super::within;

/// What came from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Got {
    Event(ServerEvent),
    /// gRPC status code, or WebSocket close code; none when the connection just ended.
    Closed(Option<u16>),
}

/// How a client leaves without goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rude {
    /// `RST_STREAM`; a close frame without an end over WebSocket.
    Cancel,
    /// The half-close of its stream, the connection stays; a closed socket over WebSocket.
    Eof,
    Fin,
    Rst,
    /// The socket stays, nobody reads or writes.
    HalfOpen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Grpc,
    Binary,
    Json,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Grpc, Self::Binary, Self::Json];
}

pub enum Client {
    Grpc(Box<Grpc>),
    Ws(Box<Ws>),
}

pub struct Grpc {
    client: h2::client::SendRequest<Bytes>,
    address: SocketAddr,
    send: Option<h2::SendStream<Bytes>>,
    response: Option<h2::client::ResponseFuture>,
    recv: Option<h2::RecvStream>,
    buffer: BytesMut,
    /// The response's headers, once they have come.
    pub head: Option<http::HeaderMap>,
    /// Its trailers.
    pub trailers: Option<http::HeaderMap>,
    connection: JoinHandle<()>,
    freeze: Option<oneshot::Sender<()>>,
    socket: std::net::TcpStream,
}

pub struct Ws {
    stream: Option<WebSocketStream<Box<dyn Io>>>,
    json: bool,
    /// Before the first frame came, the server cannot know the form.
    heard_json: bool,
    socket: std::net::TcpStream,
}

/// Where a server is, and what it must be spoken to.
#[derive(Clone)]
pub struct Way {
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

impl From<SocketAddr> for Way {
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }
}

impl Way {
    /// Over TLS with these settings.
    pub fn tls(address: SocketAddr, config: Arc<ClientConfig>) -> Self {
        Self { address, tls: Some(config) }
    }
}

/// A connection, plain or not.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

async fn connect(way: &Way) -> (Box<dyn Io>, std::net::TcpStream) {
    let stream = TcpStream::connect(way.address).await.unwrap().into_std().unwrap();
    let other = stream.try_clone().unwrap();
    let stream = TcpStream::from_std(stream).unwrap();
    let stream: Box<dyn Io> = match &way.tls {
        None => Box::new(stream),
        Some(config) => {
            let name = way.address.ip().into();
            Box::new(within("the TLS handshake", TlsConnector::from(Arc::clone(config)).connect(name, stream)).await.unwrap())
        }
    };
    (stream, other)
}

impl Client {
    pub async fn open(way: impl Into<Way>, form: Form) -> Self {
        let way = way.into();
        match form {
            Form::Grpc => Self::Grpc(Box::new(Grpc::open(way).await)),
            Form::Binary | Form::Json => {
                let (stream, socket) = connect(&way).await;
                let url = format!("ws://{}{}", way.address, native::WEBSOCKET_PATH);
                let (stream, _) = within("the upgrade", client_async(url, stream)).await.unwrap();
                Self::Ws(Box::new(Ws { stream: Some(stream), json: form == Form::Json, heard_json: false, socket }))
            }
        }
    }

    /// Opens, starts, and waits to be accepted.
    pub async fn started(way: impl Into<Way>, form: Form) -> Self {
        let mut client = Self::open(way, form).await;
        client.send(start("test")).await;
        let got = client.next().await;
        assert!(matches!(got, Got::Event(ServerEvent::Accepted(_))), "{got:?}");
        client
    }

    pub async fn send(&mut self, event: ClientEvent) {
        let message = native::client_message(event).expect("a native event");
        match self {
            Self::Grpc(grpc) => grpc.send(framed(&message.encode_to_vec())),
            Self::Ws(ws) if ws.json => ws.send(Message::Text(native::client_to_json(&message).into())).await,
            Self::Ws(ws) => ws.send(Message::Binary(message.encode_to_vec().into())).await,
        }
    }

    /// As one message, whatever it holds.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        match self {
            Self::Grpc(grpc) => grpc.send(framed(bytes)),
            Self::Ws(ws) if ws.json => ws.send(Message::Text(String::from_utf8(bytes.to_vec()).unwrap().into())).await,
            Self::Ws(ws) => ws.send(Message::Binary(bytes.to_vec().into())).await,
        }
    }

    pub async fn next(&mut self) -> Got {
        within("the server speaks or closes", async {
            match self {
                Self::Grpc(grpc) => grpc.next().await,
                Self::Ws(ws) => ws.next().await,
            }
        })
        .await
    }

    /// To the close.
    pub async fn rest(&mut self) -> (Vec<ServerEvent>, Option<u16>) {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Got::Event(event) => events.push(event),
                Got::Closed(code) => return (events, code),
            }
        }
    }

    /// Says a turn of 200 ms with explicit markers, and asks for an answer of 100 ms.
    pub async fn speak(&mut self) {
        self.ask(100).await;
    }

    /// As [`Self::speak`], for an answer of this length.
    pub async fn ask(&mut self, response_ms: u32) {
        self.send(ClientEvent::Hint(TurnHint { response_ms: Some(response_ms), ..TurnHint::default() })).await;
        self.send(ClientEvent::Speech(SpeechMarker { started: true, timestamp_us: 0 })).await;
        for sequence in 0..10 {
            self.send(audio(sequence, &[0x11; 640])).await;
        }
        self.send(ClientEvent::Speech(SpeechMarker { started: false, timestamp_us: 200_000 })).await;
    }

    /// Leaves; what is returned keeps a half-open connection open.
    pub async fn leave(self, how: Rude) -> Option<Self> {
        match self {
            Self::Grpc(grpc) => grpc.leave(how).map(|grpc| Self::Grpc(Box::new(grpc))),
            Self::Ws(ws) => ws.leave(how).await.map(|ws| Self::Ws(Box::new(ws))),
        }
    }
}

impl Grpc {
    /// Nothing has come in answer, not even headers, for this long.
    pub async fn silent_for(&mut self, time: std::time::Duration) -> bool {
        let response = self.response.as_mut().expect("headers have not come yet");
        match tokio::time::timeout(time, response).await {
            Ok(_) => false,
            Err(_) => self.recv.is_none(),
        }
    }

    pub async fn open(way: impl Into<Way>) -> Self {
        let way = way.into();
        let address = way.address;
        let (stream, socket) = connect(&way).await;
        // Our own limits on streams that we reset must not end the connection: answers to them may be on their way.
        let mut builder = h2::client::Builder::new();
        builder.max_local_error_reset_streams(None);
        let (client, mut connection) = builder.handshake(stream).await.unwrap();
        let (freeze, frozen) = oneshot::channel::<()>();
        let connection = tokio::spawn(async move {
            tokio::select! {
                _ = &mut connection => {}
                Ok(()) = frozen => std::future::pending::<()>().await,
            }
        });
        let (response, send) = open_stream(client.clone(), address).await;
        Self {
            client,
            address,
            send: Some(send),
            response: Some(response),
            recv: None,
            buffer: BytesMut::new(),
            head: None,
            trailers: None,
            connection,
            freeze: Some(freeze),
            socket,
        }
    }

    /// Another stream of the same connection.
    pub async fn open_another(&self) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        open_stream(self.client.clone(), self.address).await
    }

    fn send(&mut self, bytes: Bytes) {
        // The server may have closed meanwhile; what it said is what tests look at.
        let _ = self.send.as_mut().unwrap().send_data(bytes, false);
    }

    /// As they are: no message need come of it.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.send(Bytes::copy_from_slice(bytes));
    }

    /// Messages in one write.
    pub fn send_together(&mut self, messages: &[Vec<u8>]) {
        let all: Vec<u8> = messages.iter().flat_map(|m| framed(m)).collect();
        self.send(all.into());
    }

    /// Part of a message, so that leaving cuts it short.
    pub fn send_half_a_message(&mut self) {
        self.send(framed(&[0; 100]).slice(..50));
    }

    /// The response headers alone.
    pub async fn headers(&mut self) -> http::StatusCode {
        let response = within("response headers", self.response.take().unwrap()).await.unwrap();
        let status = response.status();
        self.head = Some(response.headers().clone());
        self.recv = Some(response.into_body());
        status
    }

    async fn next(&mut self) -> Got {
        if self.recv.is_none() {
            match self.response.take().unwrap().await {
                Ok(response) => {
                    self.head = Some(response.headers().clone());
                    if let Some(status) = response.headers().get("grpc-status") {
                        return Got::Closed(Some(status.to_str().unwrap().parse().unwrap()));
                    }
                    self.recv = Some(response.into_body());
                }
                Err(_) => return Got::Closed(None),
            }
        }
        let recv = self.recv.as_mut().unwrap();
        loop {
            if self.buffer.len() >= 5 {
                let length = u32::from_be_bytes(self.buffer[1..5].try_into().unwrap()) as usize;
                if self.buffer.len() >= 5 + length {
                    self.buffer.advance(5);
                    let message = v1::ServerMessage::decode(self.buffer.split_to(length).freeze()).unwrap();
                    return Got::Event(native::server_event(message).unwrap());
                }
            }
            match recv.data().await {
                Some(Ok(data)) => {
                    recv.flow_control().release_capacity(data.len()).unwrap();
                    self.buffer.extend_from_slice(&data);
                }
                Some(Err(_)) => return Got::Closed(None),
                None => {
                    let trailers = recv.trailers().await.ok().flatten();
                    self.trailers = trailers;
                    return Got::Closed(self.trailers.as_ref().and_then(|t| t.get("grpc-status")?.to_str().ok()?.parse().ok()));
                }
            }
        }
    }

    fn leave(mut self, how: Rude) -> Option<Self> {
        match how {
            Rude::Cancel => {
                self.send.take().unwrap().send_reset(h2::Reason::CANCEL);
                return Some(self);
            }
            Rude::Eof => {
                let _ = self.send.as_mut().unwrap().send_data(Bytes::new(), true);
                return Some(self);
            }
            Rude::Fin => self.socket.shutdown(std::net::Shutdown::Write).unwrap(),
            Rude::Rst => {
                socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
                self.connection.abort();
                return None;
            }
            Rude::HalfOpen => {
                self.freeze.take().unwrap().send(()).unwrap();
            }
        }
        Some(self)
    }
}

impl Ws {
    async fn send(&mut self, message: Message) {
        let _ = self.stream.as_mut().unwrap().send(message).await;
    }

    pub async fn send_message(&mut self, message: Message) {
        self.send(message).await;
    }

    async fn next(&mut self) -> Got {
        loop {
            let message = match self.stream.as_mut().unwrap().next().await {
                Some(Ok(Message::Text(text))) => {
                    assert!(self.json, "the server answers in the form of the first frame: {text}");
                    self.heard_json = true;
                    native::server_from_json(&text).unwrap()
                }
                Some(Ok(Message::Binary(bytes))) => {
                    assert!(!self.heard_json, "the server answers in the form of the first frame");
                    v1::ServerMessage::decode(bytes).unwrap()
                }
                Some(Ok(Message::Close(frame))) => return Got::Closed(frame.map(|f| f.code.into())),
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => return Got::Closed(None),
            };
            return Got::Event(native::server_event(message).unwrap());
        }
    }

    async fn leave(mut self, how: Rude) -> Option<Self> {
        match how {
            Rude::Cancel => {
                self.stream.as_mut().unwrap().close(None).await.unwrap();
                return Some(self);
            }
            Rude::Eof | Rude::Fin => self.socket.shutdown(std::net::Shutdown::Write).unwrap(),
            Rude::Rst => {
                socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
                return None;
            }
            Rude::HalfOpen => {}
        }
        Some(self)
    }
}

async fn open_stream(client: h2::client::SendRequest<Bytes>, address: SocketAddr) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post(format!("http://{address}/voiceagent.v1.VoiceAgent/Session"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    client.send_request(request, false).unwrap()
}

/// An event as a message with its gRPC prefix.
pub fn grpc_message(event: &ClientEvent) -> Bytes {
    framed(&native::client_message(event.clone()).expect("a native event").encode_to_vec())
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.len());
    bytes.put_u8(0);
    bytes.put_u32(message.len() as u32);
    bytes.extend_from_slice(message);
    bytes.freeze()
}

pub fn start(client_ref: &str) -> ClientEvent {
    ClientEvent::Start(SessionStart { client_ref: client_ref.to_owned(), ..SessionStart::default() })
}

pub fn audio(sequence: u64, payload: &[u8]) -> ClientEvent {
    let payload = Bytes::copy_from_slice(payload);
    ClientEvent::Audio(ClientAudio { sequence, timestamp_us: sequence * 20_000, payload, ack: false })
}

pub fn end() -> ClientEvent {
    ClientEvent::End { reason: "done".to_owned() }
}
