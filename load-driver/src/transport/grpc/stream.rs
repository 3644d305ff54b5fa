//! One gRPC call: length-prefixed messages in DATA frames, a status in the trailers.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream, client};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};
use proto::{
    frame::{ClientEvent, MAX_MESSAGE_BYTES},
    orca::OrcaLoadReport,
};

use super::{Driver, Place};
use crate::{
    dialect::{Channel, SharedChannel, Wire},
    ledger::FailureCause,
    plan::Service,
    transport::{
        Dial, How, Inbound, Link, MAX_QUEUED, Reasons, Received, Remains, RequestError, Stream, Unsent, cause, orca, request,
        socket::Socket,
    },
};

/// Compression flag and length.
const PREFIX: usize = 5;
/// Said of it where nothing closer is known.
const BROKEN: &str = "no gRPC: a message that is compressed or too long, a broken HTTP/2 stream, or a status that is no number";
/// A message is written when this much of it fits; h2 keeps the rest.
const WRITE_AHEAD: usize = 8 * 1024;

/// What a stream is made of.
pub(super) struct Opening<'a> {
    pub(super) requests: client::SendRequest<Bytes>,
    pub(super) socket: Socket,
    pub(super) place: Place,
    pub(super) own: Option<Driver>,
    pub(super) channel: Channel,
    pub(super) dial: &'a Dial,
    pub(super) reasons: Reasons,
    pub(super) fresh: bool,
}

/// Sends the request's head. The answer's head comes with the first event.
pub(super) async fn open(opening: Opening<'_>) -> Result<Stream, FailureCause> {
    let Opening { mut requests, socket, place, own, channel, dial, reasons, fresh } = opening;
    let service = Arc::clone(&dial.service);
    let unsendable = |error: RequestError| {
        reasons.note(FailureCause::Unreachable, &service.connection, || error.to_string());
        FailureCause::Unreachable
    };
    let path = request::path_and_query(&dial.endpoint, &channel, &service.connection).map_err(unsendable)?;
    let headers = request::headers(&channel, &service.connection).map_err(unsendable)?;
    let scheme = if dial.endpoint.tls.is_some() { "https" } else { "http" };
    poll_fn(|cx| requests.poll_ready(cx)).await.map_err(|e| cause::of_h2(&e))?;
    let mut request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("{scheme}://{}{path}", dial.authority))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, concat!("load-driver/", env!("CARGO_PKG_VERSION")))
        .body(())
        .map_err(|_| FailureCause::Unreachable)?;
    request.headers_mut().extend(headers);
    let channel = Rc::new(RefCell::new(channel));
    let (response, send) = requests.send_request(request, false).map_err(|e| cause::of_h2(&e))?;
    let outbound = Rc::new(RefCell::new(Outbound { send, queue: VecDeque::new(), waker: None }));
    let place = Rc::new(place);
    let link = GrpcLink { outbound: Rc::clone(&outbound), channel: Rc::clone(&channel), socket, own, _place: Rc::clone(&place) };
    let state = State::Head(response);
    let inbound = GrpcInbound {
        outbound,
        channel,
        state,
        partial: BytesMut::new(),
        in_order: false,
        told: false,
        report: None,
        service,
        reasons,
        _place: place,
    };
    Ok(Stream { link: Box::new(link), inbound: Box::new(inbound), fresh })
}

/// What is on its way out.
struct Outbound {
    send: SendStream<Bytes>,
    queue: VecDeque<(Bytes, bool)>,
    waker: Option<Waker>,
}

impl Outbound {
    /// Hands the message to h2 if flow control lets it through.
    fn try_write(&mut self, message: &Bytes, last: bool) -> Result<bool, h2::Error> {
        self.send.reserve_capacity(message.len());
        if self.send.capacity() < message.len().min(WRITE_AHEAD) {
            return Ok(false);
        }
        self.send.send_data(message.clone(), last)?;
        Ok(true)
    }

    /// Sends what the dialect wants sent. A half-close goes with the message before it.
    fn send_all(&mut self, channel: &mut Channel) -> Result<(), Unsent> {
        let mut result = Ok(());
        let mut next = channel.next_wire();
        while let Some(wire) = next {
            next = channel.next_wire();
            let mut message = match wire {
                Wire::Binary(bytes) => framed(&bytes),
                Wire::Text(text) => framed(text.as_bytes()),
                Wire::Close(_) => Bytes::new(),
            };
            let mut last = message.is_empty();
            if matches!(next, Some(Wire::Close(_))) && !last {
                (last, next) = (true, channel.next_wire());
            }
            result = result.and(self.send_one(std::mem::take(&mut message), last));
        }
        result
    }

    fn send_one(&mut self, message: Bytes, last: bool) -> Result<(), Unsent> {
        if self.queue.is_empty() && self.try_write(&message, last).map_err(|_| Unsent::Closed)? {
            return Ok(());
        }
        if self.queue.len() >= MAX_QUEUED && !last {
            return Err(Unsent::Full);
        }
        self.queue.push_back((message, last));
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
        Ok(())
    }

    /// Writes what is queued as capacity comes; the inbound task calls it, because it is the one that can wait.
    fn pump(&mut self, cx: &mut Context<'_>) {
        while let Some((message, last)) = self.queue.front().cloned() {
            match self.try_write(&message, last) {
                Ok(true) => {
                    self.queue.pop_front();
                }
                Ok(false) => match self.send.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(_) => self.queue.clear(),
                    Poll::Pending => break,
                },
                // The inbound side sees why.
                Err(_) => self.queue.clear(),
            }
        }
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }
}

struct GrpcLink {
    outbound: Rc<RefCell<Outbound>>,
    channel: SharedChannel,
    socket: Socket,
    own: Option<Driver>,
    _place: Rc<Place>,
}

/// The message with its prefix.
fn framed(payload: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(PREFIX + payload.len());
    message.put_u8(0);
    // Bounded by MAX_MESSAGE_BYTES.
    message.put_u32(payload.len() as u32);
    message.put_slice(payload);
    message.freeze()
}

impl Link for GrpcLink {
    fn send(&mut self, event: ClientEvent) -> Result<(), Unsent> {
        let mut channel = self.channel.borrow_mut();
        channel.encode(event);
        let outbound = &mut *self.outbound.borrow_mut();
        let result = outbound.send_all(&mut channel);
        if channel.has_events()
            && let Some(waker) = &outbound.waker
        {
            waker.wake_by_ref();
        }
        result
    }

    fn heard(&self) -> Option<String> {
        self.channel.borrow().heard()
    }

    fn end(self: Box<Self>, how: How) -> Remains {
        if matches!(how, How::Cancel | How::Race) {
            self.outbound.borrow_mut().send.send_reset(Reason::CANCEL);
        }
        let Some(own) = self.own else { return Remains::Nothing };
        if how == How::Race {
            let socket = self.socket;
            return Remains::Closing(Box::pin(async move {
                // The connection's task has its turn, and the cancel is on its way.
                tokio::task::yield_now().await;
                // A reset leaves nothing to be driven.
                drop(socket.kill(How::Rst));
                drop(own);
            }));
        }
        match self.socket.kill(how) {
            Remains::Nothing if matches!(how, How::Done | How::Cancel) => Remains::Closing(Box::pin(own.finished())),
            remains => remains,
        }
    }
}

enum State {
    Head(client::ResponseFuture),
    Body(RecvStream),
    Over(FailureCause),
}

/// What a stream is made of, on the way in.
enum Piece {
    /// The response's head: a dialect may have heard something in it.
    Head,
    Message(Bytes),
    Report(Box<OrcaLoadReport>),
}

struct GrpcInbound {
    outbound: Rc<RefCell<Outbound>>,
    channel: SharedChannel,
    state: State,
    /// The beginning of a message that came in pieces.
    partial: BytesMut,
    /// The server ended the stream, and said `OK`.
    in_order: bool,
    /// The dialect knows that.
    told: bool,
    /// Heard, and not told yet.
    report: Option<Box<OrcaLoadReport>>,
    service: Arc<Service>,
    reasons: Reasons,
    _place: Rc<Place>,
}

/// What a response's head says when it does not open a stream of messages.
fn refusal(head: &Response<RecvStream>) -> Option<FailureCause> {
    let grpc = head.headers().get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"));
    if head.status() != StatusCode::OK {
        return Some(cause::of_http(head.status(), head.headers(), ""));
    }
    if !grpc {
        return Some(FailureCause::NotAnAgent);
    }
    head.headers().get("grpc-status").map(|_| status(Some(head.headers())))
}

/// What a refusal or the trailers say for people.
fn told(status: Option<StatusCode>, headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let http = status.filter(|status| *status != StatusCode::OK).map(|status| status.to_string()).unwrap_or_default();
    let code = headers.get("grpc-status").map(|_| format!("grpc-status {}", text("grpc-status"))).unwrap_or_default();
    format!("{http} {code} {}", unescaped(text("grpc-message")))
}

/// `%20` as what it stands for.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [a, b, after @ ..]) => {
                char::from(*a).to_digit(16).zip(char::from(*b).to_digit(16)).map(|(a, b)| ((a * 16 + b) as u8, after))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, tail));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn is_ok(headers: &HeaderMap) -> bool {
    headers.get("grpc-status").is_some_and(|code| code == "0")
}

/// What the trailers say; none are an end without a status.
fn status(trailers: Option<&HeaderMap>) -> FailureCause {
    let Some(code) = trailers.and_then(|t| t.get("grpc-status")) else { return FailureCause::Eof };
    let code = code.to_str().ok().and_then(|code| code.parse().ok());
    if let Some(message) = trailers.and_then(|t| t.get("grpc-message")) {
        tracing::debug!(?code, ?message, "stream ended");
    }
    code.map_or(FailureCause::Protocol, cause::of_grpc_status)
}

impl GrpcInbound {
    /// A whole message out of `partial`, if there is one.
    fn take_message(&mut self) -> Result<Option<Bytes>, FailureCause> {
        let Some(length) = message_length(&self.partial)? else { return Ok(None) };
        if self.partial.len() < PREFIX + length {
            return Ok(None);
        }
        self.partial.advance(PREFIX);
        Ok(Some(self.partial.split_to(length).freeze()))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, FailureCause>> {
        loop {
            if let Some(report) = self.report.take() {
                return Poll::Ready(Ok(Piece::Report(report)));
            }
            if !self.partial.is_empty()
                && let Some(message) = self.take_message()?
            {
                return Poll::Ready(Ok(Piece::Message(message)));
            }
            let body = match &mut self.state {
                State::Over(cause) => return Poll::Ready(Err(*cause)),
                State::Head(response) => {
                    let head = ready!(Pin::new(response).poll(cx)).map_err(|error| {
                        let cause = cause::of_h2(&error);
                        let words =
                            || format!("{}: the connection broke before any answer; does the target speak gRPC?", cause::chain(&error));
                        self.reasons.note(cause, &self.service.connection, words);
                        cause
                    })?;
                    self.report = orca::report(head.headers());
                    self.channel.borrow_mut().named(head.headers());
                    if let Some(cause) = refusal(&head) {
                        self.in_order = is_ok(head.headers());
                        self.reasons.note(cause, &self.service.connection, || told(Some(head.status()), head.headers()));
                        self.state = State::Over(cause);
                        continue;
                    }
                    self.state = State::Body(head.into_body());
                    self.channel.borrow_mut().answered();
                    return Poll::Ready(Ok(Piece::Head));
                }
                State::Body(body) => body,
            };
            match ready!(body.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Read is read: the window bounds what waits unread, not what was seen.
                    let _ = body.flow_control().release_capacity(data.len());
                    if let Some(message) = self.accept(data)? {
                        return Poll::Ready(Ok(Piece::Message(message)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(cause::of_h2(&error))),
                None => {
                    let trailers = ready!(body.poll_trailers(cx)).map_err(|e| cause::of_h2(&e))?;
                    self.report = trailers.as_ref().and_then(orca::report);
                    let cause = status(trailers.as_ref());
                    self.in_order = trailers.as_ref().is_some_and(is_ok);
                    if let (Some(trailers), true) = (&trailers, cause != FailureCause::Eof) {
                        self.reasons.note(cause, &self.service.connection, || told(None, trailers));
                    }
                    self.state = State::Over(cause);
                }
            }
        }
    }

    /// Data that is exactly one message is passed on uncopied; anything else goes through `partial`.
    fn accept(&mut self, mut data: Bytes) -> Result<Option<Bytes>, FailureCause> {
        if self.partial.is_empty() && message_length(&data)?.is_some_and(|length| data.len() == PREFIX + length) {
            data.advance(PREFIX);
            return Ok(Some(data));
        }
        self.partial.extend_from_slice(&data);
        self.take_message()
    }
}

/// The length in a prefix; none when the prefix is not whole.
fn message_length(data: &[u8]) -> Result<Option<usize>, FailureCause> {
    let Some((prefix, _)) = data.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    // Compression was not offered.
    if prefix[0] != 0 || length > MAX_MESSAGE_BYTES { Err(FailureCause::Protocol) } else { Ok(Some(length)) }
}

impl Inbound for GrpcInbound {
    fn poll_unread(&mut self, cx: &mut Context<'_>) {
        self.outbound.borrow_mut().pump(cx);
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        self.outbound.borrow_mut().pump(cx);
        loop {
            match self.channel.borrow_mut().next_event() {
                Some(Ok(event)) => return Poll::Ready(Received::Event(event)),
                Some(Err(error)) => {
                    self.reasons.note(FailureCause::Protocol, &self.service.connection, || error.message);
                    self.state = State::Over(FailureCause::Protocol);
                    return Poll::Ready(Received::Closed(FailureCause::Protocol));
                }
                None => {}
            }
            match ready!(self.poll(cx)) {
                Ok(Piece::Message(message)) => {
                    let channel = Rc::clone(&self.channel);
                    let mut channel = channel.borrow_mut();
                    channel.decode(Wire::Binary(message));
                    // What does not go now is dropped, as what the caller says is; a broken stream shows on the next poll.
                    let _ = self.outbound.borrow_mut().send_all(&mut channel);
                }
                Ok(Piece::Head) => {}
                Ok(Piece::Report(report)) => return Poll::Ready(Received::Report(report)),
                Err(cause) => {
                    // A dialect without a word for goodbye says it now, once. That the connection broke is nobody's goodbye.
                    let told = std::mem::replace(&mut self.told, true);
                    if cause == FailureCause::Protocol {
                        self.reasons.note(cause, &self.service.connection, || BROKEN.to_owned());
                    }
                    self.state = State::Over(cause);
                    let mut channel = self.channel.borrow_mut();
                    if self.in_order && !told {
                        channel.closed(0);
                    }
                    if !channel.has_events() {
                        return Poll::Ready(Received::Closed(cause));
                    }
                }
            }
        }
    }
}
