//! Load reports out of band: one thread follows every backend and tells [`Hear`] what it says and whether it is there.
//!
//! | state | what happens | then |
//! |---|---|---|
//! | not joined | its time has come | connecting |
//! | connecting | refused, no answer in time | **down**; waits 100 ms, twice as long each time, up to 1 s; connecting |
//! | connecting | the stream of reports is there | listening |
//! | connecting | the backend does not know the service | said once; **up**; watching |
//! | listening | a report, the first of this stream | **up**; heard |
//! | listening | a further report | heard |
//! | listening | a report with a figure that is none | said once; not heard, and **up** all the same |
//! | listening | the stream ends or breaks | **down**; waits 100 ms; connecting |
//! | watching | its idle connection ends | connects another; **down** only where that fails |
//!
//! Where reports are wanted in band, backends are only watched. An idle TCP connection is enough for that, and any server will do.

mod follow;

use std::{
    fmt, io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use agent_server::runtime::clock::Clock;
use proto::{orca::OrcaLoadReport, time::Micros};
use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::timeout,
};

use self::follow::Follower;
pub(crate) use self::follow::{Over, endpoint, subscribe};
use crate::{engine::Targets, profile::ReportSource};

/// Longest wait for the first word of every backend, before the first session.
const FIRST_WORD: Duration = Duration::from_secs(2);

/// Who wants to know. Called on the feed's thread: not to block.
pub trait Hear: Send + Sync + 'static {
    /// The backend can be reached (again).
    fn up(&self, backend: usize);

    /// The backend cannot be reached, or is not to be known yet.
    fn down(&self, backend: usize);

    /// What the backend says of its load.
    fn report(&self, backend: usize, report: &OrcaLoadReport);
}

/// How backends are followed.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// Whether they are asked for reports, or only watched.
    pub source: ReportSource,
    /// Between two reports; a backend may raise it.
    pub report_interval: Duration,
    /// Run time from which a backend is known; those not named are known from the beginning.
    pub joins: Vec<Micros>,
}

/// The thread that follows the backends. Dropping it ends the thread and waits for it.
pub struct Feed {
    /// Dropped, it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    heard: Option<oneshot::Receiver<()>>,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl Feed {
    /// Follows every target. Backends that join later are down when this returns, and until `clock` is there and says that it is their time.
    pub fn start(
        options: &FeedOptions,
        targets: &Arc<Targets>,
        clock: &watch::Receiver<Option<Clock>>,
        hear: &Arc<dyn Hear>,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (tell, heard) = oneshot::channel();
        let (silent, silence) = mpsc::channel(1);
        let mut followers = Vec::new();
        for backend in 0..targets.count() {
            let joins = options.joins.get(backend).copied().unwrap_or(Micros::ZERO);
            let known = joins == Micros::ZERO;
            if !known {
                hear.down(backend);
            }
            followers.push(Follower {
                backend,
                joins,
                source: options.source,
                report_interval: options.report_interval,
                targets: Arc::clone(targets),
                clock: clock.clone(),
                hear: Arc::clone(hear),
                silent: known.then(|| silent.clone()),
                bad: false,
            });
        }
        drop(silent);
        let run = move || runtime.block_on(run(followers, silence, tell, stopped));
        let thread = thread::Builder::new().name("feed".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), heard: Some(heard) })
    }

    /// Until every backend that is known from the beginning has said something, two seconds at most.
    pub async fn heard(&mut self) {
        if let Some(heard) = self.heard.take() {
            // An end without a word is the end of the thread: nobody is left to wait for.
            let _ = heard.await;
        }
    }

    /// As [`Self::heard`], on a thread without a runtime.
    pub fn wait_heard(&mut self) {
        if let Some(heard) = self.heard.take() {
            let _ = heard.blocking_recv();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed; what it followed is unheard of from then on, which is what the staleness of reports is for.
            let _ = thread.join();
        }
    }
}

/// The whole life of the thread. What still runs at its end is dropped with the set.
async fn run(followers: Vec<Follower>, mut silence: mpsc::Receiver<()>, tell: oneshot::Sender<()>, stopped: oneshot::Receiver<()>) {
    let mut tasks = JoinSet::new();
    for follower in followers {
        tasks.spawn(follower.follow());
    }
    tasks.spawn(async move {
        // Over when the last of the silent has let go of its end. The bound is for those that never do.
        let _ = timeout(FIRST_WORD, silence.recv()).await;
        let _ = tell.send(());
    });
    // Its sender says nothing; it is dropped.
    let _ = stopped.await;
}
