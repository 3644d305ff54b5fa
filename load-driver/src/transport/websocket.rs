//! WebSocket: one connection a session, written by the tick, read by the session's task.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use futures_util::{Sink, StreamExt};
use proto::{
    frame::{ClientEvent, MAX_MESSAGE_BYTES, ServerEvent},
    orca::OrcaLoadReport,
};
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Error as WsError, Message,
        client::IntoClientRequest,
        handshake::client::Request,
        protocol::{CloseFrame, WebSocketConfig},
    },
};

use super::{
    Connector, Dial, How, Inbound, Link, MAX_QUEUED, Net, Reasons, Received, Remains, Stream, TransportOptions, Unsent,
    carrier::Carrier,
    cause::{self, CLOSE_GOING_AWAY},
    orca, request,
    socket::Socket,
    tls::{self, Speaks},
};
use crate::{
    dialect::{Channel, SharedChannel, Wire},
    ledger::FailureCause,
    plan::{Dialect, Protocol, Service},
};

/// Of a connection; the default of 128 KiB is what an idle session would cost.
const READ_BUFFER: usize = 4 * 1024;
/// Frames that may wait for a peer that does not read, and one message of the longest kind.
const WRITE_BUFFER: usize = MAX_QUEUED * 1024 + MAX_MESSAGE_BYTES;

/// One a shard.
pub(super) struct WebSocketConnector {
    net: Net,
    options: TransportOptions,
    reasons: Reasons,
}

impl WebSocketConnector {
    /// Stateless.
    pub(super) fn new(net: Net, options: TransportOptions, reasons: Reasons) -> Self {
        Self { net, options, reasons }
    }
}

/// Longest message of a backend that is not ours: it sends as much audio at once as it likes, and gives settings back in full.
const FOREIGN_MESSAGE_BYTES: usize = 1024 * 1024;

fn config(dialect: Dialect) -> WebSocketConfig {
    let longest = if dialect == Dialect::Native { MAX_MESSAGE_BYTES } else { FOREIGN_MESSAGE_BYTES };
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(longest))
        .max_frame_size(Some(longest))
}

/// The request of an upgrade.
fn request(dial: &Dial, channel: &Channel) -> Result<Request, String> {
    let connection = &dial.service.connection;
    let path = request::path_and_query(&dial.endpoint, channel, connection).map_err(|e| e.to_string())?;
    let mut built = format!("ws://{}{path}", dial.authority).into_client_request().map_err(|e| cause::chain(&e))?;
    let headers = request::headers(channel, connection).map_err(|e| e.to_string())?;
    built.headers_mut().extend(headers);
    built.headers_mut().extend(request::offered(channel, connection).map_err(|e| e.to_string())?);
    Ok(built)
}

async fn connect(net: &Net, dial: Dial, reasons: Reasons) -> Result<Stream, FailureCause> {
    let service = Arc::clone(&dial.service);
    let failed = |cause, said: String| {
        tracing::debug!(address = %dial.address, ?cause, "no stream");
        reasons.note(cause, &service.connection, || said);
        cause
    };
    let socket = Socket::connect(net, dial.address).await.map_err(|e| cause::of_dial(&e))?;
    let mut channel = Channel::new(&dial.service, Protocol::Websocket, dial.client_ref.clone());
    let request = request(&dial, &channel).map_err(|said| failed(FailureCause::Unreachable, said))?;
    let carrier = tls::carry(dial.endpoint.tls.as_ref(), &socket, Speaks::WebSocket).await.map_err(|(cause, said)| failed(cause, said))?;
    let upgraded = client_async_with_config(request, carrier, Some(config(service.dialect))).await;
    let (stream, response) = upgraded.map_err(|error| failed(cause::of_upgrade(&error), cause::told_of_upgrade(&error)))?;
    // The session's task is the one that is polling now, so that a write that blocks in a tick wakes it.
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    channel.named(response.headers());
    let channel = Rc::new(RefCell::new(channel));
    let stream = Rc::new(RefCell::new(stream));
    let link = WebSocketLink { stream: Rc::clone(&stream), channel: Rc::clone(&channel), socket: socket.clone(), waker };
    let report = orca::report(response.headers());
    let inbound = WebSocketInbound { stream, channel, socket, over: None, complaint: None, report, service, reasons: reasons.clone() };
    Ok(Stream { link: Box::new(link), inbound: Box::new(inbound), fresh: true })
}

impl Connector for WebSocketConnector {
    fn open(&self, dial: Dial) -> Pin<Box<dyn Future<Output = Result<Stream, FailureCause>> + '_>> {
        Box::pin(async move {
            let connecting = connect(&self.net, dial, self.reasons.clone());
            timeout(self.options.connect_timeout, connecting).await.unwrap_or(Err(FailureCause::ConnectTimeout))
        })
    }
}

struct WebSocketLink {
    stream: Rc<RefCell<WebSocketStream<Carrier>>>,
    channel: SharedChannel,
    socket: Socket,
    waker: Waker,
}

impl WebSocketLink {
    /// Writes now; what the socket does not take stays in the codec's bounded buffer and the session's task goes on with it.
    fn write(&mut self, message: Message) -> Result<(), Unsent> {
        let mut stream = self.stream.borrow_mut();
        let mut stream = Pin::new(&mut *stream);
        let result = stream.as_mut().start_send(message);
        match stream.poll_flush(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(Err(_)) => return Err(Unsent::Closed),
            // Blocked: the task registers its own interest in the socket.
            Poll::Pending => self.waker.wake_by_ref(),
            Poll::Ready(Ok(())) => {}
        }
        result.map_err(|error| match error {
            WsError::WriteBufferFull(_) => Unsent::Full,
            _ => Unsent::Closed,
        })
    }
}

fn framed(wire: Wire) -> Message {
    match wire {
        Wire::Binary(bytes) => Message::Binary(bytes),
        Wire::Text(text) => Message::Text(text.into()),
        Wire::Close(code) => Message::Close(Some(CloseFrame { code: code.into(), reason: "".into() })),
    }
}

impl Link for WebSocketLink {
    fn send(&mut self, event: ClientEvent) -> Result<(), Unsent> {
        let channel = Rc::clone(&self.channel);
        let mut channel = channel.borrow_mut();
        channel.encode(event);
        let mut result = Ok(());
        while let Some(wire) = channel.next_wire() {
            result = result.and(self.write(framed(wire)));
        }
        if channel.has_events() {
            self.waker.wake_by_ref();
        }
        result
    }

    fn heard(&self) -> Option<String> {
        self.channel.borrow().heard()
    }

    fn end(mut self: Box<Self>, how: How) -> Remains {
        match how {
            // The close that a peer began is answered by the codec while the session's task reads on.
            How::Done => Remains::Nothing,
            How::Cancel => {
                let frame = CloseFrame { code: CLOSE_GOING_AWAY.into(), reason: "".into() };
                if self.write(Message::Close(Some(frame))).is_err() {
                    return Remains::Nothing;
                }
                let stream = self.stream;
                Remains::Closing(Box::pin(async move {
                    while poll_fn(|cx| stream.borrow_mut().poll_next_unpin(cx)).await.is_some_and(|m| m.is_ok()) {}
                }))
            }
            How::Race => {
                let frame = CloseFrame { code: CLOSE_GOING_AWAY.into(), reason: "".into() };
                // What does not go at once loses the race.
                let _ = self.write(Message::Close(Some(frame)));
                self.socket.kill(How::Rst)
            }
            How::Fin | How::Rst | How::Silent => self.socket.kill(how),
        }
    }
}

struct WebSocketInbound {
    stream: Rc<RefCell<WebSocketStream<Carrier>>>,
    channel: SharedChannel,
    socket: Socket,
    /// Why there will be no more, once what was said before is told.
    over: Option<FailureCause>,
    /// What the peer said is wrong, before it closes for that.
    complaint: Option<String>,
    /// From the head of the upgrade, not told yet.
    report: Option<Box<OrcaLoadReport>>,
    service: Arc<Service>,
    reasons: Reasons,
}

impl WebSocketInbound {
    /// The stream broke.
    fn broken(&self, error: &WsError) -> FailureCause {
        let cause = match cause::of_websocket(error) {
            FailureCause::Eof if self.socket.was_reset() => FailureCause::Reset,
            cause => cause,
        };
        if matches!(cause, FailureCause::Tls | FailureCause::Protocol) {
            self.reasons.note(cause, &self.service.connection, || cause::chain(error));
        }
        cause
    }

    /// The peer closed it.
    fn closed(&self, code: u16, reason: &str) -> FailureCause {
        let cause = cause::of_close(code, reason);
        if cause != FailureCause::Eof {
            let before = self.complaint.as_ref().map(|said| format!("{said}; ")).unwrap_or_default();
            self.reasons.note(cause, &self.service.connection, || format!("{before}closed with {code} {reason}"));
        }
        cause
    }
}

impl Inbound for WebSocketInbound {
    fn poll_unread(&mut self, cx: &mut Context<'_>) {
        // An error shows again when something is read.
        let _ = Pin::new(&mut *self.stream.borrow_mut()).poll_ready(cx);
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        if let Some(report) = self.report.take() {
            return Poll::Ready(Received::Report(report));
        }
        loop {
            match self.channel.borrow_mut().next_event() {
                Some(Ok(event)) => {
                    if let ServerEvent::Error(error) = &event
                        && error.fatal
                    {
                        self.complaint = Some(error.message.clone());
                    }
                    return Poll::Ready(Received::Event(event));
                }
                Some(Err(error)) => {
                    self.reasons.note(FailureCause::Protocol, &self.service.connection, || error.message);
                    return Poll::Ready(Received::Closed(FailureCause::Protocol));
                }
                None => {}
            }
            if let Some(cause) = self.over {
                return Poll::Ready(Received::Closed(cause));
            }
            let mut stream = self.stream.borrow_mut();
            if let Poll::Ready(Err(error)) = Pin::new(&mut *stream).poll_ready(cx) {
                drop(stream);
                return Poll::Ready(Received::Closed(self.broken(&error)));
            }
            let message = match ready!(stream.poll_next_unpin(cx)) {
                None => {
                    let cause = if self.socket.was_reset() { FailureCause::Reset } else { FailureCause::Eof };
                    return Poll::Ready(Received::Closed(cause));
                }
                Some(Err(error)) => {
                    drop(stream);
                    return Poll::Ready(Received::Closed(self.broken(&error)));
                }
                Some(Ok(message)) => message,
            };
            if message.is_close() {
                // The codec has its answer ready; it fits, or the peer reads no answers.
                let _ = Pin::new(&mut *stream).poll_flush(cx);
            }
            drop(stream);
            let wire = match message {
                Message::Binary(bytes) => Wire::Binary(bytes),
                Message::Text(text) => Wire::Text(text.to_string()),
                Message::Close(frame) => {
                    let (code, reason) = frame.map_or((1005, "".into()), |frame| (frame.code.into(), frame.reason));
                    self.over = Some(self.closed(code, &reason));
                    self.channel.borrow_mut().closed(code);
                    continue;
                }
                // The codec answers pings itself, on the poll that follows.
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            };
            let mut channel = self.channel.borrow_mut();
            channel.decode(wire);
            let mut stream = self.stream.borrow_mut();
            while let Some(wire) = channel.next_wire() {
                // A full buffer drops the answer, as it drops what the caller says; a broken stream shows on the next poll.
                let _ = Pin::new(&mut *stream).start_send(framed(wire));
            }
        }
    }
}
