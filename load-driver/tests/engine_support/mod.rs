//! Peers for transports: written by hand on h2 and tungstenite, so that a test decides every frame.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod backend;

use std::{cell::Cell, future::poll_fn, rc::Rc, sync::Arc, time::Duration};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use load_driver::{
    ledger::FailureCause,
    plan::Protocol,
    transport::{self, Connector, Dial, Endpoint, Inbound, Received, Stream, TransportOptions},
};
use prost::Message as _;
use proto::{
    audio::AudioFormat,
    frame::{ClientAudio, ClientEvent, Outcome, ServerEvent, SessionAccepted, SessionEnded, SessionStart},
    native,
    voiceagent::v1,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

/// Nothing here takes so long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a test on a shard-like thread.
pub async fn local<T>(test: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().run_until(tokio::time::timeout(PATIENCE, test)).await.expect("the test hangs")
}

pub async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("binds")
}

pub fn dial(listener: &TcpListener) -> Dial {
    let address = listener.local_addr().expect("bound");
    Dial {
        backend: 0,
        address,
        authority: address.to_string(),
        endpoint: Endpoint::default(),
        service: Arc::default(),
        client_ref: "t-0".to_owned(),
        own_connection: false,
    }
}

pub fn alone(listener: &TcpListener) -> Dial {
    Dial { own_connection: true, ..dial(listener) }
}

pub fn connector(protocol: Protocol, options: TransportOptions) -> Box<dyn Connector> {
    transport::connector(protocol, transport::Net::Tcp, options, transport::Reasons::default())
}

pub fn grpc() -> Box<dyn Connector> {
    connector(Protocol::Grpc, TransportOptions { connections: 1, ..TransportOptions::default() })
}

pub fn websocket() -> Box<dyn Connector> {
    connector(Protocol::Websocket, TransportOptions::default())
}

/// Opens and drops the stream: only why it failed is wanted.
pub async fn failure(connector: &dyn Connector, dial: Dial) -> FailureCause {
    match connector.open(dial).await {
        Err(cause) => cause,
        Ok(mut stream) => {
            stream.link.send(start()).ok();
            closed(&mut *stream.inbound).await
        }
    }
}

pub async fn next(inbound: &mut dyn Inbound) -> Received {
    poll_fn(|cx| inbound.poll_next(cx)).await
}

pub async fn event(stream: &mut Stream) -> ServerEvent {
    loop {
        match next(&mut *stream.inbound).await {
            Received::Event(event) => return event,
            Received::Report(_) => {}
            Received::Closed(cause) => panic!("closed: {cause:?}"),
        }
    }
}

pub async fn closed(inbound: &mut dyn Inbound) -> FailureCause {
    loop {
        if let Received::Closed(cause) = next(inbound).await {
            return cause;
        }
    }
}

pub fn start() -> ClientEvent {
    ClientEvent::Start(SessionStart { client_ref: "t-0".to_owned(), ..SessionStart::default() })
}

pub fn audio(sequence: u64) -> ClientEvent {
    ClientEvent::Audio(ClientAudio { sequence, timestamp_us: sequence * 20_000, payload: Bytes::from(vec![7; 960]), ack: true })
}

pub fn goodbye() -> ClientEvent {
    ClientEvent::End { reason: "done".to_owned() }
}

pub fn accepted() -> ServerEvent {
    ServerEvent::Accepted(SessionAccepted {
        session_id: "s-1".to_owned(),
        backend_id: "b".to_owned(),
        boot_id: "boot".to_owned(),
        input: AudioFormat::default(),
        output: AudioFormat::default(),
        max_duration_ms: 1,
        idle_timeout_ms: 1,
    })
}

pub fn ended() -> ServerEvent {
    ServerEvent::Ended(SessionEnded { outcome: Outcome::Completed, duration_ms: 1, frames_in: 0, frames_out: 0 })
}

/// What a minimal agent answers.
pub fn answer(event: &ClientEvent) -> Option<ServerEvent> {
    match event {
        ClientEvent::Start(_) => Some(accepted()),
        ClientEvent::Audio(audio) => Some(ServerEvent::Ack { sequence: audio.sequence }),
        ClientEvent::End { .. } => Some(ended()),
        _ => None,
    }
}

pub fn decode(bytes: Bytes) -> ClientEvent {
    native::client_event(v1::ClientMessage::decode(bytes).expect("a message")).expect("an event")
}

pub fn encode(event: ServerEvent) -> Bytes {
    native::server_message(event).expect("a native event").encode_to_vec().into()
}

pub fn framed(event: ServerEvent) -> Bytes {
    let payload = encode(event);
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(payload.len() as u32);
    frame.put(payload);
    frame.freeze()
}

/// One whole message out of a request body.
pub fn take(buffer: &mut BytesMut) -> Option<ClientEvent> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().ok()?) as usize;
    if buffer.len() < 5 + length {
        return None;
    }
    buffer.advance(5);
    Some(decode(buffer.split_to(length).freeze()))
}

pub fn head() -> http::Response<()> {
    http::Response::builder().header("content-type", "application/grpc").body(()).expect("valid")
}

pub fn trailers(code: u32) -> http::HeaderMap {
    let mut map = http::HeaderMap::new();
    map.insert("grpc-status", code.into());
    map
}

pub type Respond = h2::server::SendResponse<Bytes>;
pub type Request = http::Request<h2::RecvStream>;

/// Serves one connection: each call goes to `handle`, as a task.
pub async fn serve_h2<F: Future<Output = ()> + 'static>(
    socket: TcpStream,
    max_streams: u32,
    handle: impl Fn(Request, Respond) -> F,
) -> Result<(), h2::Error> {
    let mut connection =
        h2::server::Builder::new().max_concurrent_streams(max_streams).max_pending_accept_reset_streams(10_000).handshake(socket).await?;
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        tokio::task::spawn_local(handle(request, respond));
    }
    Ok(())
}

/// A minimal agent.
pub async fn agent(request: Request, respond: Respond) {
    agent_that_counts(request, respond, Rc::default()).await;
}

/// The same; it says how much it has heard.
pub async fn agent_that_counts(request: Request, mut respond: Respond, heard: Rc<Cell<u64>>) {
    let mut body = request.into_body();
    let Ok(mut send) = respond.send_response(head(), false) else { return };
    let mut buffer = BytesMut::new();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).ok();
        buffer.extend_from_slice(&data);
        while let Some(event) = take(&mut buffer) {
            heard.set(heard.get() + 1);
            if let Some(answer) = answer(&event)
                && send.send_data(framed(answer), false).is_err()
            {
                return;
            }
        }
    }
    send.send_trailers(trailers(0)).ok();
}

pub type Peer = WebSocketStream<TcpStream>;

pub async fn accept_ws(listener: &TcpListener) -> Peer {
    let (socket, _) = listener.accept().await.expect("a dial");
    tokio_tungstenite::accept_async(socket).await.expect("an upgrade")
}

/// A minimal agent.
pub async fn ws_agent(mut peer: Peer) -> Peer {
    while let Some(Ok(message)) = peer.next().await {
        if let Message::Binary(bytes) = message
            && let Some(answer) = answer(&decode(bytes))
        {
            let last = matches!(answer, ServerEvent::Ended(_));
            peer.send(Message::Binary(encode(answer))).await.expect("sends");
            if last {
                peer.close(None).await.expect("closes");
                assert!(peer.next().await.expect("an answer to the close").expect("no error").is_close());
            }
        }
    }
    peer
}
