//! Transports against peers that behave, misbehave and vanish.

mod engine_support;

use std::{cell::Cell, future::poll_fn, rc::Rc, task::Poll, time::Duration};

use agent_server::runtime::wire::Parked;
use bytes::BytesMut;
use engine_support::*;
use futures_util::{SinkExt, StreamExt};
use load_driver::{
    ledger::FailureCause,
    plan::{Dialect, Protocol, Service},
    transport::{Dial, How, Received, Remains, TransportOptions, Unsent},
};
use proto::frame::{ErrorCode, ServerEvent};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::spawn_local,
};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

const PROTOCOLS: [Protocol; 2] = [Protocol::Grpc, Protocol::Websocket];

#[tokio::test]
async fn a_grpc_session_from_start_to_goodbye() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        spawn_local(async move { serve_h2(listener.accept().await.expect("a dial").0, 100, agent).await });
        let mut stream = grpc().open(dial).await.expect("opens");
        assert!(stream.fresh);
        stream.link.send(start()).expect("sent");
        assert_eq!(event(&mut stream).await, accepted());
        for sequence in 0..200 {
            stream.link.send(audio(sequence)).expect("sent");
            assert_eq!(event(&mut stream).await, ServerEvent::Ack { sequence });
        }
        stream.link.send(goodbye()).expect("sent");
        assert_eq!(event(&mut stream).await, ended());
        assert_eq!(closed(&mut *stream.inbound).await, FailureCause::Eof);
    })
    .await;
}

#[tokio::test]
async fn a_websocket_session_from_start_to_goodbye() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let agent = spawn_local(async move { ws_agent(accept_ws(&listener).await).await });
        let mut stream = websocket().open(dial).await.expect("opens");
        stream.link.send(start()).expect("sent");
        assert_eq!(event(&mut stream).await, accepted());
        for sequence in 0..200 {
            stream.link.send(audio(sequence)).expect("sent");
            assert_eq!(event(&mut stream).await, ServerEvent::Ack { sequence });
        }
        stream.link.send(goodbye()).expect("sent");
        assert_eq!(event(&mut stream).await, ended());
        assert_eq!(closed(&mut *stream.inbound).await, FailureCause::Eof);
        drop(stream);
        agent.await.expect("the peer saw an orderly close");
    })
    .await;
}

/// Who does not read still writes; what came meanwhile is there when it reads again.
#[tokio::test]
async fn a_slow_reader_writes_on_and_loses_nothing() {
    for protocol in PROTOCOLS {
        local(async {
            let listener = listener().await;
            let dial = dial(&listener);
            let (heard, seen) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let (count, counted) = (Rc::clone(&heard), Rc::clone(&seen));
            spawn_local(async move {
                if protocol == Protocol::Grpc {
                    let socket = listener.accept().await.expect("a dial").0;
                    let _ = serve_h2(socket, 100, move |request, respond| agent_that_counts(request, respond, Rc::clone(&count))).await;
                } else {
                    let mut peer = accept_ws(&listener).await;
                    while let Some(Ok(Message::Binary(bytes))) = peer.next().await {
                        count.set(count.get() + 1);
                        peer.send(Message::Binary(encode(answer(&decode(bytes)).expect("an answer")))).await.expect("sends");
                    }
                }
            });
            let mut stream = connector(protocol, TransportOptions::default()).open(dial).await.expect("opens");
            stream.link.send(start()).expect("sent");
            assert_eq!(event(&mut stream).await, accepted());
            for sequence in 0..50 {
                stream.link.send(audio(sequence)).expect("sent");
                while heard.get() < sequence + 2 {
                    poll_fn(|cx| {
                        stream.inbound.poll_unread(cx);
                        Poll::Ready(())
                    })
                    .await;
                    tokio::task::yield_now().await;
                }
            }
            counted.set(heard.get());
            for sequence in 0..50 {
                assert_eq!(event(&mut stream).await, ServerEvent::Ack { sequence });
            }
            assert_eq!(seen.get(), 51, "all of it was heard before any of the answers was read");
        })
        .await;
    }
}

/// A default tonic server lets streams beyond its limit wait for ever, and the client sees nothing.
#[tokio::test]
async fn streams_beyond_the_peers_limit_go_to_other_connections() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let connections = Rc::new(Cell::new(0));
        let counter = Rc::clone(&connections);
        spawn_local(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a dial");
                counter.set(counter.get() + 1);
                spawn_local(serve_h2(socket, 2, agent));
            }
        });
        let connector = grpc();
        // All at once, so that they are let in before the limit is known.
        let opened = futures_util::future::join_all((0..7).map(|_| connector.open(dial.clone()))).await;
        let mut streams: Vec<_> = opened.into_iter().map(|stream| stream.expect("opens")).collect();
        for stream in &mut streams {
            stream.link.send(start()).expect("sent");
            assert_eq!(event(stream).await, accepted());
        }
        assert_eq!(connections.get(), 4);
        assert!(streams.iter().any(|stream| stream.fresh));
        // A place that is given back is taken again.
        streams.truncate(6);
        let _seventh = connector.open(dial).await.expect("opens");
        assert_eq!(connections.get(), 4);
    })
    .await;
}

#[tokio::test]
async fn a_refused_port_is_a_cause() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        drop(listener);
        for protocol in PROTOCOLS {
            let connector = connector(protocol, TransportOptions::default());
            assert_eq!(failure(&*connector, dial.clone()).await, FailureCause::ConnectionRefused, "{protocol:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_never_answers_runs_into_the_timeout() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        for protocol in PROTOCOLS {
            let options = TransportOptions { connect_timeout: Duration::from_millis(50), ..TransportOptions::default() };
            let connector = connector(protocol, options);
            assert_eq!(failure(&*connector, dial.clone()).await, FailureCause::ConnectTimeout, "{protocol:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_speaks_plain_http_is_no_agent() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        spawn_local(async move {
            loop {
                let (mut socket, _) = listener.accept().await.expect("a dial");
                spawn_local(async move {
                    let mut request = [0; 1024];
                    let _ = socket.read(&mut request).await;
                    let _ = socket.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
                    while matches!(socket.read(&mut request).await, Ok(n) if n > 0) {}
                });
            }
        });
        for protocol in PROTOCOLS {
            let connector = connector(protocol, TransportOptions::default());
            // A WebSocket begins with HTTP, and hears what is wrong with its path.
            let cause = if protocol == Protocol::Grpc { FailureCause::NotAnAgent } else { FailureCause::NotFound };
            assert_eq!(failure(&*connector, dial.clone()).await, cause, "{protocol:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn grpc_statuses_have_their_causes() {
    let table = [
        (0, FailureCause::Eof),
        (3, FailureCause::ServerError(ErrorCode::InvalidArgument)),
        (8, FailureCause::Rejected),
        (5, FailureCause::NotFound),
        (7, FailureCause::Unauthorized),
        (12, FailureCause::NotFound),
        (13, FailureCause::ServerError(ErrorCode::Internal)),
        (14, FailureCause::Draining),
        (16, FailureCause::Unauthorized),
    ];
    for (code, cause) in table {
        // With and without a body before it.
        for early in [true, false] {
            local(async {
                let listener = listener().await;
                let dial = dial(&listener);
                spawn_local(async move {
                    let refuse = move |_: Request, mut respond: Respond| async move {
                        if early {
                            let mut head = head();
                            head.headers_mut().extend(trailers(code));
                            respond.send_response(head, true).expect("sent");
                        } else {
                            respond.send_response(head(), false).expect("sent").send_trailers(trailers(code)).expect("sent");
                        }
                    };
                    serve_h2(listener.accept().await.expect("a dial").0, 100, refuse).await
                });
                assert_eq!(failure(&*grpc(), dial).await, cause, "status {code}, early {early}");
            })
            .await;
        }
    }
}

#[tokio::test]
async fn close_codes_have_their_causes() {
    let table = [
        (1000, FailureCause::Eof),
        (1001, FailureCause::Draining),
        (1002, FailureCause::Protocol),
        (1011, FailureCause::ServerError(ErrorCode::Internal)),
        (1012, FailureCause::Draining),
        (1013, FailureCause::Rejected),
    ];
    for (code, cause) in table {
        local(async {
            let listener = listener().await;
            let dial = dial(&listener);
            spawn_local(async move {
                let mut peer = accept_ws(&listener).await;
                peer.close(Some(CloseFrame { code: CloseCode::from(code), reason: "".into() })).await.expect("closes");
                while peer.next().await.is_some() {}
            });
            assert_eq!(failure(&*websocket(), dial).await, cause, "close code {code}");
        })
        .await;
    }
}

#[tokio::test]
async fn messages_that_are_none_break_the_protocol() {
    for message in [Message::text("hello"), Message::binary(vec![0xff; 40])] {
        local(async {
            let listener = listener().await;
            let dial = dial(&listener);
            let sent = message.clone();
            spawn_local(async move {
                let mut peer = accept_ws(&listener).await;
                peer.send(sent).await.expect("sends");
                while peer.next().await.is_some() {}
            });
            assert_eq!(failure(&*websocket(), dial).await, FailureCause::Protocol, "{message:?}");
        })
        .await;
    }
    // Compressed, too long, undecodable.
    for bytes in [&[1, 0, 0, 0, 0][..], &[0, 0xff, 0, 0, 0], &[0, 0, 0, 0, 2, 0xff, 0xff]] {
        local(async {
            let listener = listener().await;
            let dial = dial(&listener);
            let bytes = bytes::Bytes::copy_from_slice(bytes);
            spawn_local(async move {
                let babble = move |_: Request, mut respond: Respond| {
                    let bytes = bytes.clone();
                    async move {
                        let mut send = respond.send_response(head(), false).expect("sent");
                        send.send_data(bytes, false).expect("sent");
                        std::future::pending::<()>().await;
                    }
                };
                serve_h2(listener.accept().await.expect("a dial").0, 100, babble).await
            });
            assert_eq!(failure(&*grpc(), dial).await, FailureCause::Protocol);
        })
        .await;
    }
}

#[tokio::test]
async fn grpc_messages_are_put_together_from_any_pieces() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        spawn_local(async move {
            let crumbs = |_: Request, mut respond: Respond| async move {
                let mut send = respond.send_response(head(), false).expect("sent");
                let mut all = BytesMut::new();
                (0..20).for_each(|sequence| all.extend_from_slice(&framed(ServerEvent::Ack { sequence })));
                for piece in all.chunks(3) {
                    send.send_data(bytes::Bytes::copy_from_slice(piece), false).expect("sent");
                    tokio::task::yield_now().await;
                }
                let mut tail = framed(ServerEvent::Ack { sequence: 20 }).to_vec();
                tail.extend_from_slice(&framed(ServerEvent::Ack { sequence: 21 }));
                send.send_data(tail.into(), false).expect("sent");
                send.send_trailers(trailers(0)).expect("sent");
            };
            serve_h2(listener.accept().await.expect("a dial").0, 100, crumbs).await
        });
        let mut stream = grpc().open(dial).await.expect("opens");
        for sequence in 0..22 {
            assert_eq!(event(&mut stream).await, ServerEvent::Ack { sequence });
        }
        assert_eq!(closed(&mut *stream.inbound).await, FailureCause::Eof);
    })
    .await;
}

#[tokio::test]
async fn a_grpc_peer_that_does_not_read_fills_a_bounded_queue_and_loses_nothing_of_it() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let wait = Rc::new(Cell::new(Some(wait)));
        let seen = Rc::new(Cell::new(0));
        let sink = Rc::clone(&seen);
        spawn_local(async move {
            let slow = move |request: Request, mut respond: Respond| {
                let (wait, seen) = (wait.take(), Rc::clone(&sink));
                async move {
                    let mut send = respond.send_response(head(), false).expect("sent");
                    send.send_data(framed(accepted()), false).expect("sent");
                    wait.expect("one call").await.expect("told to read");
                    let mut body = request.into_body();
                    let mut buffer = BytesMut::new();
                    while let Some(Ok(data)) = body.data().await {
                        body.flow_control().release_capacity(data.len()).ok();
                        buffer.extend_from_slice(&data);
                        while take(&mut buffer).is_some() {
                            seen.set(seen.get() + 1);
                        }
                    }
                    send.send_trailers(trailers(0)).ok();
                }
            };
            serve_h2(listener.accept().await.expect("a dial").0, 100, slow).await
        });
        let mut stream = grpc().open(dial).await.expect("opens");
        assert_eq!(event(&mut stream).await, accepted());
        let mut sent = 0;
        while stream.link.send(audio(sent)).is_ok() {
            sent += 1;
            assert!(sent < 1_000, "the queue has no bound");
            tokio::task::yield_now().await;
        }
        assert_eq!(stream.link.send(audio(sent)), Err(Unsent::Full));
        // Goodbye finds room, or nobody would ever hear it.
        stream.link.send(goodbye()).expect("sent");
        go.send(()).expect("the peer waits");
        assert_eq!(closed(&mut *stream.inbound).await, FailureCause::Eof);
        assert_eq!(seen.get(), sent + 1);
    })
    .await;
}

#[tokio::test]
async fn a_websocket_peer_that_does_not_read_fills_a_bounded_buffer_and_loses_nothing_of_it() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let peer = spawn_local(async move {
            let mut peer = accept_ws(&listener).await;
            wait.await.expect("told to read");
            let mut seen = 0;
            while let Some(Ok(message)) = peer.next().await {
                seen += u64::from(message.is_binary());
            }
            seen
        });
        let mut stream = websocket().open(dial).await.expect("opens");
        let mut sent = 0;
        while stream.link.send(audio(sent)).is_ok() {
            sent += 1;
            // The kernel's buffers come before ours.
            assert!(sent < 100_000, "the buffer has no bound");
        }
        assert_eq!(stream.link.send(audio(sent)), Err(Unsent::Full));
        go.send(()).expect("the peer waits");
        // The session's task goes on writing what a tick could not.
        let pump = spawn_local(async move { closed(&mut *stream.inbound).await });
        let link = stream.link;
        let mut link = Some(link);
        loop {
            tokio::task::yield_now().await;
            // Once there is room, say goodbye.
            if link.as_mut().expect("kept").send(goodbye()).is_ok() {
                sent += 1;
                break;
            }
        }
        let Remains::Closing(close) = link.take().expect("kept").end(How::Cancel) else { panic!("a close is due") };
        close.await;
        assert_eq!(peer.await.expect("no panic"), sent);
        pump.abort();
    })
    .await;
}

#[tokio::test]
async fn pings_are_answered_by_an_idle_session() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let peer = spawn_local(async move {
            let mut peer = accept_ws(&listener).await;
            peer.send(Message::Ping("are you there".into())).await.expect("sends");
            peer.next().await.expect("an answer").expect("no error")
        });
        let mut stream = websocket().open(dial).await.expect("opens");
        let _reader = spawn_local(async move { closed(&mut *stream.inbound).await });
        assert_eq!(peer.await.expect("no panic"), Message::Pong("are you there".into()));
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_call_resets_its_stream_and_no_other() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let resets = Rc::new(Cell::new(0));
        let seen = Rc::clone(&resets);
        spawn_local(async move {
            let watch = move |mut request: Request, respond: Respond| {
                let seen = Rc::clone(&seen);
                async move {
                    if request.uri().path() != "/voiceagent.v1.VoiceAgent/Session" {
                        return;
                    }
                    let first = request.body_mut().data().await;
                    if let Some(Err(error)) = first {
                        assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
                        seen.set(seen.get() + 1);
                    } else {
                        // Not the victim: echo from the second message on.
                        agent(request, respond).await;
                    }
                }
            };
            serve_h2(listener.accept().await.expect("a dial").0, 1_000, watch).await
        });
        let connector = grpc();
        let mut bystander = connector.open(dial.clone()).await.expect("opens");
        bystander.link.send(audio(0)).expect("sent");
        for _ in 0..200 {
            let victim = connector.open(dial.clone()).await.expect("opens");
            assert!(!victim.fresh);
            assert!(matches!(victim.link.end(How::Cancel), Remains::Nothing));
        }
        bystander.link.send(audio(1)).expect("sent");
        assert_eq!(event(&mut bystander).await, ServerEvent::Ack { sequence: 1 });
        assert!(resets.get() > 0);
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_websocket_closes_without_goodbye() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let peer = spawn_local(async move {
            let mut peer = accept_ws(&listener).await;
            let mut messages = Vec::new();
            while let Some(message) = peer.next().await {
                messages.push(message.expect("no error"));
            }
            messages
        });
        let stream = websocket().open(dial).await.expect("opens");
        let Remains::Closing(close) = stream.link.end(How::Cancel) else { panic!("a close is due") };
        close.await;
        let frame = CloseFrame { code: CloseCode::Away, reason: "".into() };
        assert_eq!(peer.await.expect("no panic"), [Message::Close(Some(frame))]);
    })
    .await;
}

/// What a peer sees on its socket when the driver ends a session in a given way.
async fn seen_by_peer(protocol: Protocol, how: How) -> std::io::Result<()> {
    let listener = listener().await;
    let dial = alone(&listener);
    let peer = spawn_local(async move {
        let mut socket = match protocol {
            Protocol::Websocket => accept_ws(&listener).await.into_inner(),
            Protocol::Grpc => {
                let (mut socket, _) = listener.accept().await.expect("a dial");
                // Preface, settings and window of the client, then our settings and the answer to its ping.
                let mut client = [0; 4096];
                socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("writes");
                let mut got = Vec::new();
                while !got.windows(4).any(|w| w == [0, 0, 8, 6]) {
                    let n = socket.read(&mut client).await.expect("reads");
                    got.extend_from_slice(&client[..n]);
                }
                let at = got.windows(4).position(|w| w == [0, 0, 8, 6]).expect("a ping");
                while got.len() < at + 17 {
                    let n = socket.read(&mut client).await.expect("reads");
                    got.extend_from_slice(&client[..n]);
                }
                let mut pong = got[at..at + 17].to_vec();
                pong[4] = 1;
                socket.write_all(&pong).await.expect("writes");
                socket
            }
        };
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.map(|_| ())
    });
    let stream = connector(protocol, TransportOptions::default()).open(dial).await.expect("opens");
    let reader = spawn_local({
        let mut inbound = stream.inbound;
        async move { closed(&mut *inbound).await }
    });
    match stream.link.end(how) {
        Remains::Closing(close) => close.await,
        Remains::Nothing => {}
        Remains::Held(socket) => {
            // Still connected, and stays so until it is let go.
            let Parked::Tcp(socket) = socket else { panic!("of this machine") };
            assert!(socket.peer_addr().is_ok());
            tokio::task::yield_now().await;
            assert!(!peer.is_finished(), "the peer saw an end");
            socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("set");
        }
    }
    reader.abort();
    peer.await.expect("no panic")
}

#[tokio::test]
async fn fin_is_an_end_and_rst_is_a_reset() {
    for protocol in PROTOCOLS {
        local(async {
            seen_by_peer(protocol, How::Fin).await.expect("an orderly end of the socket");
            let reset = seen_by_peer(protocol, How::Rst).await.expect_err("a reset");
            assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset, "{protocol:?}");
            let held = seen_by_peer(protocol, How::Silent).await.expect_err("a reset once it is let go");
            assert_eq!(held.kind(), std::io::ErrorKind::ConnectionReset, "{protocol:?}");
        })
        .await;
    }
}

/// The kernel tells a reset once: here to the write, and the read that follows sees an end.
#[tokio::test]
async fn a_reset_that_a_write_hears_of_first_is_a_reset() {
    local(async {
        let listener = listener().await;
        let dial = dial(&listener);
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let peer = spawn_local(async move {
            let (socket, _) = listener.accept().await.expect("a dial");
            socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("set");
            let peer = tokio_tungstenite::accept_async(socket).await.expect("an upgrade");
            wait.await.ok();
            drop(peer);
        });
        let mut stream = websocket().open(dial).await.expect("opens");
        go.send(()).expect("the peer waits");
        peer.await.expect("the peer is gone");
        let mut sequence = 0;
        while stream.link.send(audio(sequence)).is_ok() {
            sequence += 1;
            tokio::task::yield_now().await;
        }
        assert_eq!(closed(&mut *stream.inbound).await, FailureCause::Reset);
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_resets_or_ends_the_connection_is_told_apart() {
    for (linger, cause) in [(true, FailureCause::Reset), (false, FailureCause::Eof)] {
        for protocol in PROTOCOLS {
            local(async {
                let listener = listener().await;
                let dial = dial(&listener);
                let (go, wait) = tokio::sync::oneshot::channel::<()>();
                spawn_local(async move {
                    let (socket, _) = listener.accept().await.expect("a dial");
                    if linger {
                        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("set");
                    }
                    match protocol {
                        Protocol::Grpc => {
                            let own = socket2::SockRef::from(&socket).try_clone().expect("another handle");
                            let serve = serve_h2(socket, 100, |request, respond| async move {
                                agent(request, respond).await;
                            });
                            tokio::pin!(serve);
                            tokio::select! { _ = &mut serve => {}, _ = wait => {} }
                            if !linger {
                                // Closing with unread bytes would reset: the end goes out first, and what comes is read on.
                                own.shutdown(std::net::Shutdown::Write).expect("shuts down");
                                drop(own);
                                serve.await.ok();
                            }
                        }
                        Protocol::Websocket => {
                            let _peer = tokio_tungstenite::accept_async(socket).await.expect("an upgrade");
                            wait.await.ok();
                        }
                    }
                });
                let mut stream = connector(protocol, TransportOptions::default()).open(dial).await.expect("opens");
                tokio::task::yield_now().await;
                go.send(()).expect("the peer waits");
                assert_eq!(closed(&mut *stream.inbound).await, cause, "{protocol:?}");
            })
            .await;
        }
    }
}

/// CES says goodbye by its half-close, and is answered by `OK`. A connection that breaks instead answers nothing: the backend may have ended the
/// session otherwise.
#[tokio::test]
async fn a_connection_that_breaks_is_no_answer_to_a_half_close() {
    for answers in [true, false] {
        local(async {
            let listener = listener().await;
            let service = Service { dialect: Dialect::Ces, ..Service::default() };
            let dial = Dial { service: service.into(), ..alone(&listener) };
            let (gone, half_closed) = tokio::sync::oneshot::channel();
            let gone = Rc::new(Cell::new(Some(gone)));
            spawn_local(async move {
                let (socket, _) = listener.accept().await.expect("a dial");
                let serve = serve_h2(socket, 100, |request, mut respond| {
                    let gone = Rc::clone(&gone);
                    async move {
                        let mut send = respond.send_response(head(), false).expect("a stream");
                        let mut body = request.into_body();
                        while let Some(Ok(data)) = body.data().await {
                            body.flow_control().release_capacity(data.len()).ok();
                        }
                        if answers {
                            send.send_trailers(trailers(0)).expect("a stream");
                        } else {
                            gone.take().expect("one stream").send(()).expect("somebody waits");
                            std::future::pending::<()>().await;
                        }
                    }
                });
                tokio::select! { _ = serve => {}, Ok(()) = half_closed => {} }
            });
            let mut stream = grpc().open(dial).await.expect("opens");
            stream.link.send(start()).expect("sent");
            assert!(matches!(event(&mut stream).await, ServerEvent::Accepted(_)));
            stream.link.send(goodbye()).expect("sent");
            match next(&mut *stream.inbound).await {
                Received::Event(ServerEvent::Ended(_)) if answers => {}
                Received::Closed(FailureCause::Eof) if !answers => {}
                other => panic!("{answers}: {other:?}"),
            }
        })
        .await;
    }
}
