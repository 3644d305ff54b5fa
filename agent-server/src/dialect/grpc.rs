//! Sessions over gRPC. The task that hyper runs for a stream anyway does it all: polling the response reads the requests.

use std::{
    collections::VecDeque,
    error::Error,
    future::{poll_fn, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::{BoxFuture, Either, FutureExt};
use http::Request;
use proto::{
    frame::{BACKEND_ID_HEADER, BOOT_ID_HEADER, CLIENT_REF_HEADER, ErrorCode, SessionError},
    google::cloud::ces::v1::{
        self as ces_v1,
        session_service_server::{self, SessionService, SessionServiceServer},
    },
    voiceagent::v1::voice_agent_server::{self, VoiceAgent, VoiceAgentServer},
    xds::service::orca::v3::open_rca_service_server::OpenRcaServiceServer,
};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_stream::Stream;
use tonic::{Code, Status, Streaming, async_trait, body::Body, service::Routes};
use tonic_health::server::{HealthReporter, HealthService};
use tower::Service;

use super::{
    Dialect, Exchange, Upgrade,
    body::Whole,
    ces::Ces,
    close::grpc_status,
    native,
    orca::{self, CoreMetrics},
};
use crate::{
    listen::{self, Peer},
    shard::{Close, Conversation, Next, Shard, Shared},
};

/// Longest message of a CES client, bytes: what gRPC's libraries take unless told otherwise. It may hold an image.
const CES_MESSAGE_MAX: usize = 4 * 1024 * 1024;

/// The services of the session port. Cheap to clone.
pub type Grpc = Routes;

/// Sessions, load reports, health and reflection for the connections of one shard. A further dialect over gRPC is a line here.
pub fn routes(shard: &Arc<Shard>, health: &HealthReporter) -> anyhow::Result<Grpc> {
    let limit = shard.shared().config.max_message_bytes;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Ok(Routes::default()
        .add_service(VoiceAgentServer::new(Native(Arc::clone(shard))).max_decoding_message_size(limit))
        .add_service(SessionServiceServer::new(CesSessions(Arc::clone(shard))).max_decoding_message_size(limit.max(CES_MESSAGE_MAX)))
        .add_service(OpenRcaServiceServer::new(CoreMetrics(Arc::clone(shard.shared()))))
        .add_service(tonic_health::pb::health_server::HealthServer::new(HealthService::from_health_reporter(health.clone())))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .prepare())
}

/// Name under which the health service answers for sessions, beside the empty name for the whole server.
pub const HEALTH_NAME: &str = voice_agent_server::SERVICE_NAME;

/// Refuses calls that do not show the server's token, and gives the others their [`Peer`].
#[derive(Debug, Clone)]
pub struct Admitted {
    inner: Grpc,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
}

/// Whoever asks for health may: probes have no token.
const OPEN_TO_ALL: &str = "/grpc.health.v1.Health/";

impl Admitted {
    /// Around the services of a connection.
    pub const fn new(inner: Grpc, peer: Arc<Peer>, shared: Arc<Shared>) -> Self {
        Self { inner, peer, shared }
    }

    fn admits<B>(&self, request: &Request<B>) -> bool {
        let (uri, headers) = (request.uri(), request.headers());
        let call = Upgrade { path: uri.path(), query: uri.query().unwrap_or_default(), headers };
        uri.path().starts_with(OPEN_TO_ALL) || listen::admits(self.shared.config.auth_token.as_ref(), &call)
    }
}

/// Methods whose streams have bounds of their own.
const SESSIONS: [&str; 2] = [voice_agent_server::SERVICE_NAME, session_service_server::SERVICE_NAME];

impl<B> Service<Request<B>> for Admitted
where
    Grpc: Service<Request<Whole<B>>, Response = http::Response<Body>, Future: Send + 'static, Error: Send + 'static>,
{
    type Response = http::Response<Body>;
    type Error = <Grpc as Service<Request<Whole<B>>>>::Error;
    type Future = Either<<Grpc as Service<Request<Whole<B>>>>::Future, BoxFuture<'static, Result<Self::Response, Self::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if !self.admits(&request) {
            return Either::Right(ready(Ok(Status::unauthenticated(listen::WANTED).into_http())).boxed());
        }
        request.extensions_mut().insert(Arc::clone(&self.peer));
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        let (session, limit) = (SESSIONS.contains(&service), self.shared.config.start_timeout);
        let answer = self.inner.call(request.map(Whole));
        if session {
            return Either::Left(answer);
        }
        // Whatever else is asked is asked in one message, which must come.
        let late = move |_| Ok(Status::deadline_exceeded(format!("no request came within {limit:?}")).into_http());
        Either::Right(timeout(limit, answer).map(move |answered| answered.unwrap_or_else(late)).boxed())
    }
}

#[derive(Debug)]
struct Native(Arc<Shard>);

#[async_trait]
impl VoiceAgent for Native {
    type SessionStream = SessionStream<native::Messages>;

    async fn session(
        &self,
        request: tonic::Request<Streaming<<native::Messages as Dialect>::In>>,
    ) -> Result<tonic::Response<Self::SessionStream>, Status> {
        open(&self.0, request, native::Messages, Head::AtOnce).await
    }
}

#[derive(Debug)]
struct CesSessions(Arc<Shard>);

#[async_trait]
impl SessionService for CesSessions {
    type BidiRunSessionStream = SessionStream<Ces>;

    async fn bidi_run_session(
        &self,
        request: tonic::Request<Streaming<ces_v1::BidiSessionClientMessage>>,
    ) -> Result<tonic::Response<Self::BidiRunSessionStream>, Status> {
        let client_ref = request.metadata().get(CLIENT_REF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        open(&self.0, request, Ces::new(client_ref), Head::Accepts).await
    }
}

/// When the head of an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// Before the first message comes. But while the server would refuse a session it waits for the start, and refuses before any head: that is
    /// what stock balancers and proxies retry elsewhere.
    AtOnce,
    /// With the session's acceptance, of which it is the only word.
    Accepts,
}

async fn open<D>(
    shard: &Arc<Shard>,
    request: tonic::Request<Streaming<D::In>>,
    dialect: D,
    head: Head,
) -> Result<tonic::Response<SessionStream<D>>, Status>
where
    D: Dialect<In: Unpin, Out: Unpin> + Unpin,
{
    let peer = request.extensions().get::<Arc<Peer>>().cloned();
    let peer = peer.ok_or_else(|| Status::internal("the connection of this stream is not known"))?;
    let mut stream = SessionStream::new(shard, peer, request.into_inner(), dialect);
    let shared = shard.shared();
    if head == Head::Accepts || shared.refusing() {
        poll_fn(|cx| stream.poll_start(cx)).await;
        if let Some(close) = stream.conversation.refusal() {
            return Err(status(shared, close));
        }
    }
    if head == Head::Accepts
        && let Some(close) = poll_fn(|cx| stream.poll_accepted(cx)).await
    {
        return Err(status(shared, &close));
    }
    let mut response = tonic::Response::new(stream);
    let headers = response.metadata_mut();
    *headers = orca::metadata(shared);
    for (name, value) in [(BACKEND_ID_HEADER, &shared.session.backend_id), (BOOT_ID_HEADER, &shared.session.boot_id)] {
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

/// How a stream closes, with the load of the server at that moment. Also `OK` is told as an error here: only that way it takes trailers along.
fn status(shared: &Shared, close: &Close) -> Status {
    let mut status = grpc_status(close).unwrap_or_else(|| Status::new(Code::Ok, ""));
    *status.metadata_mut() = orca::metadata(shared);
    status
}

/// A session's response stream, which also reads its requests. When hyper drops it (reset, connection lost) the session ends.
struct SessionStream<D: Dialect> {
    /// None once the client's side has ended.
    inbound: Option<Streaming<D::In>>,
    conversation: Conversation,
    dialect: D,
    /// Messages of an event that makes several.
    more: VecDeque<D::Out>,
    /// Until the start has come.
    start_by: Option<Pin<Box<Sleep>>>,
    closed: bool,
}

impl<D: Dialect> SessionStream<D> {
    fn new(shard: &Arc<Shard>, peer: Arc<Peer>, inbound: Streaming<D::In>, dialect: D) -> Self {
        Self {
            inbound: Some(inbound),
            conversation: Conversation::new(Arc::clone(shard), peer, listen::ending()),
            dialect,
            more: VecDeque::new(),
            start_by: Some(Box::pin(sleep_until(Instant::now() + shard.shared().config.start_timeout))),
            closed: false,
        }
    }

    /// Ready once the stream is a session, or was refused.
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.read(cx);
        if let Some(start_by) = &mut self.start_by {
            if !self.conversation.waiting() {
                self.start_by = None;
            } else if start_by.as_mut().poll(cx).is_ready() {
                self.conversation.start_timed_out();
            }
        }
        if self.conversation.waiting() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Ready once the session's first word is there: its acceptance, or its end if that comes first.
    fn poll_accepted(&mut self, cx: &mut Context<'_>) -> Poll<Option<Close>> {
        self.read(cx);
        self.conversation.poll_next(cx).map(|next| match next {
            Next::Event(event) => {
                self.tell(|dialect, to| dialect.encode(event, to));
                None
            }
            Next::Close(close) => Some(close),
        })
    }

    /// Lets the dialect say something.
    fn tell(&mut self, f: impl FnOnce(&mut D, &mut Exchange<'_, D::Out>)) {
        let Self { conversation, dialect, more, .. } = self;
        f(dialect, &mut Exchange::new(&mut |event| conversation.receive(event), &mut |message| more.push_back(message)));
    }

    /// Reads all that has come.
    fn read(&mut self, cx: &mut Context<'_>) {
        let Self { inbound, conversation, dialect, more, .. } = self;
        while let Some(stream) = inbound {
            match Pin::new(stream).poll_next(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => {
                    dialect.decode(
                        message,
                        &mut Exchange::new(&mut |event| conversation.receive(event), &mut |answer| more.push_back(answer)),
                    );
                }
                Poll::Ready(Some(Err(status))) => {
                    *inbound = None;
                    match wrong_message(&status) {
                        Some(error) => conversation.receive(Err(error)),
                        None => conversation.lost(),
                    }
                }
                // Also what a cancelled stream looks like. After the session's own end it means nothing, before it no goodbye came.
                Poll::Ready(None) => {
                    *inbound = None;
                    dialect.closed(0, &mut Exchange::new(&mut |event| conversation.receive(event), &mut |answer| more.push_back(answer)));
                    conversation.lost();
                }
            }
        }
    }
}

/// What the client sent that is no message; none when the stream broke.
fn wrong_message(status: &Status) -> Option<SessionError> {
    // An error of the transport carries its cause; a message cut short is what a killed client leaves behind.
    if status.source().is_some() || status.message().starts_with("Unexpected EOF") {
        return None;
    }
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => Some(SessionError::fatal(ErrorCode::MessageTooLarge, status.message())),
        Code::Internal | Code::Unimplemented | Code::InvalidArgument => {
            Some(SessionError::fatal(ErrorCode::MalformedMessage, format!("not a message of this method: {}", status.message())))
        }
        _ => None,
    }
}

impl<D: Dialect<In: Unpin, Out: Unpin> + Unpin> Stream for SessionStream<D> {
    type Item = Result<D::Out, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.closed {
            return Poll::Ready(None);
        }
        if this.more.is_empty() {
            let _ = this.poll_start(cx);
        }
        loop {
            if let Some(message) = this.more.pop_front() {
                return Poll::Ready(Some(Ok(message)));
            }
            match this.conversation.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Next::Event(event)) => this.tell(|dialect, to| dialect.encode(event, to)),
                Poll::Ready(Next::Close(close)) => {
                    this.closed = true;
                    return Poll::Ready(Some(Err(status(this.conversation.shared(), &close))));
                }
            }
        }
    }
}
