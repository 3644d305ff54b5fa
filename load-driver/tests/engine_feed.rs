//! The feed against servers of load reports that a test can kill.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    thread,
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use load_driver::{
    engine::Targets,
    feed::{Feed, FeedOptions, Hear},
    profile::ReportSource,
};
use proto::{
    orca::OrcaLoadReport,
    time::Micros,
    xds::service::orca::v3::{
        OrcaLoadReportRequest,
        open_rca_service_server::{OpenRcaService, OpenRcaServiceServer},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    sync::{oneshot, watch},
    time::{Interval, interval},
};
use tonic::{Request, Response, Status, codegen::tokio_stream::Stream, transport::server::TcpIncoming};

/// What the feed said, in order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Word {
    Up(usize),
    Down(usize),
    Load(usize, f64),
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Word>>);

impl Heard {
    fn push(&self, word: Word) {
        self.0.lock().expect("no panic").push(word);
    }

    fn words(&self) -> Vec<Word> {
        self.0.lock().expect("no panic").clone()
    }

    /// Without what was said before.
    fn forget(&self) {
        self.0.lock().expect("no panic").clear();
    }

    /// Polls for ten seconds.
    fn eventually(&self, what: &str, wanted: impl Fn(&[Word]) -> bool) {
        for _ in 0..1_000 {
            if wanted(&self.words()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("never {what}: {:?}", self.words());
    }
}

impl Hear for Heard {
    fn up(&self, backend: usize) {
        self.push(Word::Up(backend));
    }

    fn down(&self, backend: usize) {
        self.push(Word::Down(backend));
    }

    fn report(&self, backend: usize, report: &OrcaLoadReport) {
        self.push(Word::Load(backend, report.cpu_utilization));
    }
}

/// Says the same each interval.
struct Reporter(f64);

struct Reports(Interval, f64);

impl Stream for Reports {
    type Item = Result<OrcaLoadReport, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let cpu_utilization = self.1;
        self.0.poll_tick(cx).map(|_| Some(Ok(OrcaLoadReport { cpu_utilization, ..OrcaLoadReport::default() })))
    }
}

#[tonic::async_trait]
impl OpenRcaService for Reporter {
    type StreamCoreMetricsStream = Reports;

    async fn stream_core_metrics(&self, request: Request<OrcaLoadReportRequest>) -> Result<Response<Reports>, Status> {
        let wanted = request.into_inner().report_interval.ok_or_else(|| Status::invalid_argument("no interval"))?;
        let wanted = Duration::try_from(wanted).map_err(|e| Status::invalid_argument(e.to_string()))?;
        Ok(Response::new(Reports(interval(wanted), self.0)))
    }
}

/// A server in a thread; dropping it closes every socket of it.
struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start<F: Future<Output = ()> + Send + 'static>(address: SocketAddr, serve: impl FnOnce(TcpListener) -> F + Send + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(async {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_reuseaddr(true).expect("set");
            socket.bind(address).expect("binds");
            socket.listen(16).expect("listens")
        });
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    fn reporter(address: SocketAddr, cpu: f64) -> Self {
        Self::start(address, move |listener| async move {
            let service = OpenRcaServiceServer::new(Reporter(cpu));
            let served = tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener));
            served.await.expect("serves");
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().expect("once").join().expect("no panic");
    }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

struct Run {
    heard: Arc<Heard>,
    feed: Feed,
    clock: watch::Sender<Option<Clock>>,
}

fn follow(source: ReportSource, joins: Vec<Micros>, addresses: &[SocketAddr]) -> Run {
    let targets = Targets::resolve(&addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>()).expect("addresses");
    let heard = Arc::new(Heard::default());
    let clock = watch::Sender::new(None);
    let options = FeedOptions { source, report_interval: Duration::from_millis(20), joins };
    let hear: Arc<dyn Hear> = Arc::clone(&heard) as _;
    let feed = Feed::start(&options, &Arc::new(targets), &clock.subscribe(), &hear).expect("starts");
    Run { heard, feed, clock }
}

#[test]
fn reports_come_and_a_backend_that_goes_and_comes_back_is_down_meanwhile() {
    let server = Server::reporter(ANY, 0.25);
    let address = server.address;
    let mut run = follow(ReportSource::OutOfBand, Vec::new(), &[address]);
    run.feed.wait_heard();
    assert_eq!(run.heard.words()[..2], [Word::Up(0), Word::Load(0, 0.25)]);
    run.heard.eventually("one report after the other", |words| words.len() >= 4);
    drop(server);
    run.heard.eventually("down", |words| words.last() == Some(&Word::Down(0)));
    run.heard.forget();
    let _server = Server::reporter(address, 0.5);
    run.heard.eventually("up again", |words| words.contains(&Word::Load(0, 0.5)));
    let words = run.heard.words();
    let first = words.iter().position(|word| *word != Word::Down(0)).expect("something");
    assert_eq!(words[first..][..2], [Word::Up(0), Word::Load(0, 0.5)]);
}

#[test]
fn a_backend_without_the_service_is_up_as_long_as_it_is_there() {
    let server = Server::start(ANY, |listener| async move {
        let service = tonic::service::Routes::default();
        tonic::transport::Server::builder().add_routes(service).serve_with_incoming(TcpIncoming::from(listener)).await.expect("serves");
    });
    let address = server.address;
    let mut run = follow(ReportSource::OutOfBand, Vec::new(), &[address]);
    run.feed.wait_heard();
    assert_eq!(run.heard.words(), [Word::Up(0)]);
    drop(server);
    run.heard.eventually("down", |words| words.last() == Some(&Word::Down(0)));
    // It is not asked a second time: what it says now is not wanted any more.
    let _server = Server::reporter(address, 0.5);
    run.heard.eventually("up again", |words| words.last() == Some(&Word::Up(0)));
}

#[test]
fn a_backend_that_speaks_another_protocol_is_up_in_the_end() {
    let server = Server::start(ANY, |listener| async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = [0; 64];
            let _ = socket.read(&mut head).await;
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
        }
    });
    let mut run = follow(ReportSource::OutOfBand, Vec::new(), &[server.address]);
    run.feed.wait_heard();
    assert_eq!(run.heard.words().last(), Some(&Word::Up(0)));
}

#[test]
fn where_reports_come_in_band_backends_are_only_watched() {
    let server = Server::reporter(ANY, 0.25);
    let address = server.address;
    let mut run = follow(ReportSource::InBand, Vec::new(), &[address]);
    run.feed.wait_heard();
    assert_eq!(run.heard.words(), [Word::Up(0)]);
    drop(server);
    run.heard.eventually("down", |words| words == [Word::Up(0), Word::Down(0)]);
    let _server = Server::reporter(address, 0.25);
    run.heard.eventually("up again", |words| words == [Word::Up(0), Word::Down(0), Word::Up(0)]);
}

#[test]
fn a_backend_that_joins_later_is_down_until_then_and_nobody_waits_for_it() {
    let servers = [Server::reporter(ANY, 0.1), Server::reporter(ANY, 0.2)];
    let joins = vec![Micros::ZERO, Micros::from_millis(300)];
    let mut run = follow(ReportSource::OutOfBand, joins, &servers.each_ref().map(|server| server.address));
    assert!(run.heard.words().contains(&Word::Down(1)), "known too early: {:?}", run.heard.words());
    run.feed.wait_heard();
    let of_second = |words: &[Word]| words.iter().any(|word| matches!(word, Word::Up(1) | Word::Load(1, _)));
    assert!(run.heard.words().contains(&Word::Up(0)));
    assert!(!of_second(&run.heard.words()));
    let clock = Clock::start();
    run.clock.send_replace(Some(clock));
    run.heard.eventually("joined", of_second);
    assert!(clock.now() >= Micros::from_millis(300), "{}", clock.now());
}

#[test]
fn nobody_waits_for_ever_for_a_backend_that_is_not_there() {
    let server = Server::reporter(ANY, 0.1);
    let address = server.address;
    drop(server);
    let clock = Clock::start();
    let mut run = follow(ReportSource::OutOfBand, Vec::new(), &[address]);
    run.feed.wait_heard();
    assert!((Micros::from_millis(1_900)..Micros::from_millis(8_000)).contains(&clock.now()), "{}", clock.now());
    assert!(run.heard.words().iter().all(|word| *word == Word::Down(0)), "{:?}", run.heard.words());
}

/// A stream of whatever this says.
struct PollFn<F>(F);

impl<F: FnMut(&mut Context<'_>) -> Poll<Option<Result<OrcaLoadReport, Status>>> + Unpin> Stream for PollFn<F> {
    type Item = Result<OrcaLoadReport, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        (self.0)(cx)
    }
}

fn poll_fn<F: FnMut(&mut Context<'_>) -> Poll<Option<Result<OrcaLoadReport, Status>>> + Unpin>(say: F) -> PollFn<F> {
    PollFn(say)
}

/// What a liar streams.
type Lies = Pin<Box<dyn Stream<Item = Result<OrcaLoadReport, Status>> + Send>>;

/// Answers each request with what this makes.
struct Liar(fn() -> Lies);

#[tonic::async_trait]
impl OpenRcaService for Liar {
    type StreamCoreMetricsStream = Lies;

    async fn stream_core_metrics(&self, _: Request<OrcaLoadReportRequest>) -> Result<Response<Lies>, Status> {
        Ok(Response::new((self.0)()))
    }
}

impl Server {
    fn liar(address: SocketAddr, lies: fn() -> Lies) -> Self {
        Self::start(address, move |listener| async move {
            let service = OpenRcaServiceServer::new(Liar(lies));
            let served = tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener));
            served.await.expect("serves");
        })
    }
}

fn load(cpu_utilization: f64) -> OrcaLoadReport {
    OrcaLoadReport { cpu_utilization, ..OrcaLoadReport::default() }
}

#[test]
fn a_backend_whose_reports_are_no_reports_is_up_all_the_same_also_when_it_comes_back() {
    let nonsense: fn() -> Lies = || {
        let mut ticks = interval(Duration::from_millis(10));
        Box::pin(poll_fn(move |cx| ticks.poll_tick(cx).map(|_| Some(Ok(load(f64::NAN))))))
    };
    let server = Server::liar(ANY, nonsense);
    let address = server.address;
    let mut run = follow(ReportSource::OutOfBand, Vec::new(), &[address]);
    run.feed.wait_heard();
    assert_eq!(run.heard.words(), [Word::Up(0)], "and nothing that was read from it");
    drop(server);
    run.heard.eventually("down", |words| words.last() == Some(&Word::Down(0)));
    let _server = Server::liar(address, nonsense);
    run.heard.eventually("up again", |words| words.last() == Some(&Word::Up(0)));
}

#[test]
fn streams_that_end_at_once_are_not_asked_for_for_ever() {
    for lies in [
        || Box::pin(poll_fn(|_| Poll::Ready(None))) as Lies,
        || Box::pin(poll_fn(|_| Poll::Ready(Some(Err(Status::internal("no")))))),
        // 10 MiB of names: more than anybody reads.
        || Box::pin(poll_fn(|_| Poll::Ready(Some(Ok(named(100_000)))))),
    ] as [fn() -> Lies; 3]
    {
        let server = Server::liar(ANY, lies);
        let run = follow(ReportSource::OutOfBand, Vec::new(), &[server.address]);
        // From then on its connection is watched.
        run.heard.eventually("up", |words| words.last() == Some(&Word::Up(0)));
        assert!(!run.heard.words().iter().any(|word| matches!(word, Word::Load(..))), "{:?}", run.heard.words());
    }
}

fn named(count: u32) -> OrcaLoadReport {
    OrcaLoadReport { named_metrics: (0..count).map(|n| (format!("{n:0100}"), f64::from(n))).collect(), ..OrcaLoadReport::default() }
}

#[test]
fn a_flood_of_reports_is_heard_and_the_feed_still_ends() {
    // As fast as the wire takes them.
    let server = Server::liar(ANY, || Box::pin(poll_fn(|_| Poll::Ready(Some(Ok(load(1e300)))))));
    let run = follow(ReportSource::OutOfBand, Vec::new(), &[server.address]);
    run.heard.eventually("heard", |words| words.len() > 10_000);
    let clock = Clock::start();
    drop(run);
    assert!(clock.now() < Micros::from_millis(2_000), "{}", clock.now());
}
