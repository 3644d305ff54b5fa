//! Sessions over WebSocket: one task a connection reads, writes, pings and closes.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use proto::{
    frame::{ErrorCode, SessionError},
    time::Micros,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::coop::has_budget_remaining,
    time::{Instant, Sleep, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WsError, Message, Utf8Bytes, error::CapacityError, error::ProtocolError, protocol::frame::coding::CloseCode},
};

use super::{Exchange, Socket as AnySocket, close::websocket_frame};
use crate::{
    listen::{Heard, Peer},
    shard::{Close, Conversation, Ending, Next, Reservation, Shard},
};

/// How long a close may take: our last words, and the peer's.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// Answers of the dialect that may wait for the connection before no more is read: messages, bytes.
const OUTBOX_MAX: (usize, usize) = (256, 1024 * 1024);
/// What a peer may still send us while we close.
const CLOSE_READ_MAX: u64 = 1024 * 1024;

/// A data frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// UTF-8.
    Text(Utf8Bytes),
    /// Bytes.
    Binary(Bytes),
}

impl Frame {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// Encoded, and not yet taken by the connection.
#[derive(Debug, Default)]
struct Outbox {
    frames: VecDeque<Frame>,
    bytes: usize,
}

impl Outbox {
    fn push(&mut self, frame: Frame) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }

    fn is_full(&self) -> bool {
        self.frames.len() >= OUTBOX_MAX.0 || self.bytes >= OUTBOX_MAX.1
    }
}

/// Serves one connection to its end.
pub async fn serve(
    shard: Arc<Shard>,
    stream: WebSocketStream<Heard>,
    peer: Arc<Peer>,
    dialect: AnySocket,
    reservation: Option<Reservation>,
) {
    let clock = shard.shared().clock;
    let config = &shard.shared().config;
    let now = clock.now();
    let timer = Box::pin(sleep_until(Instant::from_std(clock.instant(now))));
    let ending = Ending::default();
    let mut socket = Socket {
        conversation: Conversation::new(Arc::clone(&shard), Arc::clone(&peer), ending.clone()).reserved(reservation),
        ending,
        leave_by: Micros::NEVER,
        dialect,
        outbox: Outbox::default(),
        stream,
        reading: true,
        starved: false,
        left: false,
        broken: false,
        unframed: false,
        start_by: now + config.start_timeout,
        pinged: Micros::ZERO,
        timer,
        peer,
        shard,
    };
    socket.tell(|dialect, to| dialect.open(to));
    let close = poll_fn(|cx| socket.poll(cx)).await;
    socket.close(&close).await;
}

#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct Socket {
    conversation: Conversation,
    ending: Ending,
    /// For the last words of a session, once there are only those; nobody need read them.
    leave_by: Micros,
    dialect: AnySocket,
    outbox: Outbox,
    stream: WebSocketStream<Heard>,
    reading: bool,
    /// Reading took all that the runtime grants a task at a time: the next time, what else there is to do comes first. A peer that sends without end
    /// must not keep its own deadlines and its answers from their turn.
    starved: bool,
    /// The peer closed: the answer to that is all that may still be written, and the library has it ready.
    left: bool,
    /// Nothing can be written any more.
    broken: bool,
    /// The client sent what is no WebSocket frame.
    unframed: bool,
    start_by: Micros,
    pinged: Micros,
    timer: Pin<Box<Sleep>>,
    peer: Arc<Peer>,
    shard: Arc<Shard>,
}

impl Socket {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Close> {
        let mut close;
        // What is over says so before it hears that its peer leaves too: to that the answer would be the peer's own close code.
        if std::mem::take(&mut self.starved) || self.reading && self.ending.closing(cx) {
            self.watch(cx);
            close = self.write(cx);
            if close.is_ready() {
                return close;
            }
        }
        loop {
            let behind = self.read(cx);
            self.starved = !has_budget_remaining();
            self.watch(cx);
            close = self.write(cx);
            // Reading stopped for what was written just now: nothing else would wake it.
            if !(behind && close.is_pending() && !self.must_wait()) {
                break;
            }
        }
        if close.is_pending() && self.leave_by == Micros::NEVER && self.ending.closing(cx) {
            self.leave_by = self.shard.shared().clock.now() + self.shard.shared().config.keepalive_timeout;
            self.watch_by(self.leave_by);
            self.watch(cx);
        }
        close
    }

    fn watch_by(&mut self, at: Micros) {
        self.timer.as_mut().reset(Instant::from_std(self.shard.shared().clock.instant(at)));
    }

    /// Lets the dialect say something.
    fn tell(&mut self, f: impl FnOnce(&mut AnySocket, &mut Exchange<'_, Frame>)) {
        let Self { conversation, dialect, outbox, .. } = self;
        f(dialect, &mut Exchange::new(&mut |event| conversation.receive(event), &mut |frame| outbox.push(frame)));
    }

    /// No more may be read before something is written.
    fn must_wait(&self) -> bool {
        self.outbox.is_full() || self.dialect.must_wait()
    }

    /// Reads what has come, all of it unless it must wait: then true.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        while self.reading {
            if self.must_wait() {
                return true;
            }
            match Pin::new(&mut self.stream).poll_next(cx) {
                Poll::Pending => return false,
                Poll::Ready(Some(Ok(Message::Text(text)))) => self.tell(|dialect, to| dialect.decode(Frame::Text(text), to)),
                Poll::Ready(Some(Ok(Message::Binary(bytes)))) => self.tell(|dialect, to| dialect.decode(Frame::Binary(bytes), to)),
                Poll::Ready(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
                Poll::Ready(Some(Ok(Message::Close(frame)))) => {
                    (self.reading, self.left) = (false, true);
                    self.tell(|dialect, to| dialect.closed(frame.map_or(1005, |frame| frame.code.into()), to));
                    self.conversation.lost();
                }
                Poll::Ready(None) => {
                    (self.reading, self.left) = (false, true);
                    self.conversation.lost();
                }
                Poll::Ready(Some(Err(error))) => {
                    self.reading = false;
                    self.unframed = matches!(error, WsError::Protocol(_));
                    if let Some(error) = wrong_frame(&error) {
                        self.conversation.receive(Err(error));
                    } else {
                        self.broken = true;
                        self.conversation.lost();
                    }
                }
            }
        }
        false
    }

    /// Start in time? Peer alive? One timer a connection, which fires every few seconds.
    fn watch(&mut self, cx: &mut Context<'_>) {
        while self.timer.as_mut().poll(cx).is_ready() {
            let shared = self.shard.shared();
            let (interval, limit) = (shared.config.keepalive_interval, shared.config.keepalive_timeout);
            let now = shared.clock.now();
            if self.conversation.waiting() && now >= self.start_by {
                self.conversation.start_timed_out();
            }
            let heard = self.peer.heard();
            let mut next = if now < heard + interval {
                heard + interval
            } else {
                if self.pinged <= heard && !self.broken {
                    self.pinged = now;
                    // A pong comes by itself and is noted as heard; a ping that cannot be written fails with the next message.
                    self.broken |= Pin::new(&mut self.stream).start_send(Message::Ping(Bytes::new())).is_err();
                }
                // Looked at again before its deadline: once it is answered the next is due, and that one must have its whole time too.
                (now + interval).min(heard + interval + limit)
            };
            if self.peer.check(interval + limit).is_err() {
                if !self.broken {
                    self.shard.count_silent();
                }
                (self.reading, self.broken) = (false, true);
                self.conversation.lost();
                next = Micros::from_millis(now.as_millis()) + limit;
            }
            if self.conversation.waiting() {
                next = next.min(self.start_by);
            }
            if now >= self.leave_by && !self.broken {
                self.shard.count_unread();
                (self.reading, self.broken) = (false, true);
            }
            self.watch_by(if self.broken { next } else { next.min(self.leave_by) });
        }
    }

    /// Writes what waits, as far as the connection takes it.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<Close> {
        loop {
            if self.broken || self.left {
                // Nobody listens: only the end counts.
                self.outbox = Outbox::default();
            } else {
                match Pin::new(&mut self.stream).poll_ready(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => {
                        self.fail();
                        continue;
                    }
                    // The session's queue holds, and drops, what comes meanwhile.
                    Poll::Pending => return Poll::Pending,
                }
                if let Some(frame) = self.outbox.pop() {
                    let message = match frame {
                        Frame::Text(text) => Message::Text(text),
                        Frame::Binary(bytes) => Message::Binary(bytes),
                    };
                    if Pin::new(&mut self.stream).start_send(message).is_err() {
                        self.fail();
                    }
                    continue;
                }
            }
            match self.conversation.poll_next(cx) {
                Poll::Ready(Next::Event(event)) => self.tell(|dialect, to| dialect.encode(event, to)),
                Poll::Ready(Next::Close(close)) => return Poll::Ready(close),
                Poll::Pending => {
                    if !self.broken && matches!(Pin::new(&mut self.stream).poll_flush(cx), Poll::Ready(Err(_))) {
                        self.fail();
                        continue;
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn fail(&mut self) {
        self.broken = true;
        self.conversation.lost();
    }

    /// Says goodbye, bounded.
    async fn close(self, close: &Close) {
        let Self { mut stream, conversation, dialect, reading, left, broken, unframed, .. } = self;
        if broken {
            return;
        }
        let mut frame = dialect.close(close).unwrap_or_else(|| websocket_frame(close));
        if unframed {
            // Whatever a dialect says of messages: this is about frames (RFC 6455, 7.4.1).
            frame.code = CloseCode::Protocol;
        }
        let _ = timeout(CLOSE_LIMIT, async {
            let sent = if left { stream.flush().await } else { stream.send(Message::Close(Some(frame))).await }.is_ok();
            // Our last words are out: whatever waits for the session need not wait for its peer's manners.
            drop(conversation);
            if sent && reading {
                // To the peer's own close frame, so that it has read ours before the connection goes.
                while let Some(Ok(_)) = stream.next().await {}
            }
        })
        .await;
        close_gently(stream.into_inner()).await;
    }
}

/// What the client sent that is no frame; none when the connection broke.
fn wrong_frame(error: &WsError) -> Option<SessionError> {
    match error {
        WsError::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            Some(SessionError::fatal(ErrorCode::MessageTooLarge, format!("a message of {size} bytes is over the limit of {max_size}")))
        }
        WsError::Capacity(error) => Some(SessionError::fatal(ErrorCode::MessageTooLarge, error.to_string())),
        WsError::Utf8(_) => Some(SessionError::fatal(ErrorCode::MalformedMessage, "a text frame is not UTF-8")),
        WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        WsError::Protocol(error) => Some(SessionError::fatal(ErrorCode::MalformedMessage, format!("not a WebSocket frame: {error}"))),
        _ => None,
    }
}

/// Closes our half and reads what the peer still sends, bounded: closing with unread bytes would reset the connection, and a peer that is still
/// sending would lose our last words.
pub async fn close_gently(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    let _ = timeout(CLOSE_LIMIT, async {
        io.shutdown().await?;
        tokio::io::copy(&mut io.take(CLOSE_READ_MAX), &mut tokio::io::sink()).await
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_is_full_of_many_messages_or_of_large_ones() {
        let mut outbox = Outbox::default();
        let large = Frame::Binary(Bytes::from(vec![0; OUTBOX_MAX.1 / 2]));
        outbox.push(large.clone());
        assert!(!outbox.is_full());
        outbox.push(large);
        assert!(outbox.is_full());
        assert!(outbox.pop().is_some() && !outbox.is_full());
        for _ in 1..OUTBOX_MAX.0 {
            assert!(!outbox.is_full());
            outbox.push(Frame::Text("a".into()));
        }
        assert!(outbox.is_full());
        while outbox.pop().is_some() {}
        assert_eq!((outbox.bytes, outbox.is_full()), (0, false));
    }
}
