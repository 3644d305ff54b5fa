//! What counting costs: a start and its end, and a snapshot, for the tracker and for the designs it was chosen over.
//!
//! `cargo bench -p agent-server --bench tracker`. Contention is only measured when threads run at the same time, so every figure is
//! printed with the parallelism that it was taken at (CPU time of the threads over wall time); at 1.0 the threads took turns, and
//! the figure says nothing of contention. More threads than cores prove nothing more.

use std::{
    array,
    collections::BTreeMap,
    fmt::Write as _,
    hint::black_box,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use agent_server::tracker::{Outcome, Sessions, Tracker};
use criterion::{Criterion, criterion_group, criterion_main};
use crossbeam_utils::CachePadded;
use rustix::time::{ClockId, clock_gettime};

const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const SHARDS: usize = 16;

/// A way to count sessions.
trait Design: Sync {
    fn pair(&self, thread: usize);
    /// Started, ended, active, as a reader would report them.
    fn read(&self) -> (u64, u64, i64);
}

/// Started and ended under one lock: exact, and one line for everybody.
#[derive(Default)]
struct Locked(Mutex<(u64, u64)>);

impl Design for Locked {
    fn pair(&self, _thread: usize) {
        self.0.lock().expect("no holder panics").0 += 1;
        self.0.lock().expect("no holder panics").1 += 1;
    }

    fn read(&self) -> (u64, u64, i64) {
        let (started, ended) = *self.0.lock().expect("no holder panics");
        (started, ended, started as i64 - ended as i64)
    }
}

/// One atomic each for started and ended, on lines of their own.
#[derive(Default)]
struct Atomics(CachePadded<AtomicU64>, CachePadded<AtomicU64>);

impl Design for Atomics {
    fn pair(&self, _thread: usize) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.fetch_add(1, Ordering::SeqCst);
    }

    fn read(&self) -> (u64, u64, i64) {
        let (started, ended) = (self.0.load(Ordering::SeqCst), self.1.load(Ordering::SeqCst));
        (started, ended, started as i64 - ended as i64)
    }
}

/// Signed cells as in Java's `LongAdder`: cheap, and its sum is no snapshot. A cell belongs to the thread that acts, so a session
/// that another thread ends goes down on another cell: here each thread has one for starts and one for ends.
struct Adder([CachePadded<AtomicI64>; 2 * SHARDS]);

impl Design for Adder {
    fn pair(&self, thread: usize) {
        self.0[thread % SHARDS].fetch_add(1, Ordering::SeqCst);
        self.0[SHARDS + thread % SHARDS].fetch_sub(1, Ordering::SeqCst);
    }

    fn read(&self) -> (u64, u64, i64) {
        (0, 0, self.0.iter().map(|cell| cell.load(Ordering::SeqCst)).sum())
    }
}

/// What this crate uses, with its session state, its phases and its single end. Without a cap.
struct Ours(Tracker);

impl Design for Ours {
    fn pair(&self, thread: usize) {
        if let Ok(seat) = self.0.start(thread) {
            self.0.end(&seat, Outcome::Completed);
        }
    }

    fn read(&self) -> (u64, u64, i64) {
        let snapshot = self.0.snapshot();
        EXACT[usize::from(snapshot.exact)].fetch_add(1, Ordering::Relaxed);
        (snapshot.started, snapshot.ended.iter().sum(), snapshot.active)
    }
}

/// Intervals and exact snapshots of [`Ours`].
static EXACT: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn designs() -> Vec<(&'static str, Box<dyn Design>)> {
    vec![
        ("mutex", Box::new(Locked::default())),
        ("atomic", Box::new(Atomics::default())),
        ("adder", Box::new(Adder(array::from_fn(|_| CachePadded::default())))),
        ("sharded", Box::new(Ours(Tracker::new(SHARDS, None)))),
        ("sharded_capped", Box::new(Ours(Tracker::new(SHARDS, Some(1_000_000))))),
    ]
}

fn clock(id: ClockId) -> Duration {
    Duration::try_from(clock_gettime(id)).unwrap_or_default()
}

/// Pairs by all threads together, their wall time and the CPU time of the threads.
#[derive(Default, Clone, Copy)]
struct Spent {
    pairs: u64,
    wall: Duration,
    cpu: Duration,
}

impl Spent {
    fn add(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.wall += other.wall;
        self.cpu += other.cpu;
    }

    /// CPU time of one pair, which is what a thread pays; a thread that sleeps on a lock pays in wall time instead.
    fn cpu_ns(self) -> f64 {
        self.cpu.as_nanos() as f64 / self.pairs.max(1) as f64
    }

    fn wall_ns(self) -> f64 {
        self.wall.as_nanos() as f64 / self.pairs.max(1) as f64
    }

    fn parallelism(self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }
}

/// Each thread runs `pairs` pairs; all begin together.
fn spend(design: &dyn Design, threads: usize, pairs: u64) -> Spent {
    let barrier = Barrier::new(threads);
    let spans: Vec<(Duration, Duration, Duration)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let (begin, cpu) = (clock(ClockId::Monotonic), clock(ClockId::ThreadCPUTime));
                    for _ in 0..pairs {
                        design.pair(black_box(thread));
                    }
                    (begin, clock(ClockId::Monotonic), clock(ClockId::ThreadCPUTime).saturating_sub(cpu))
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a counting thread does not panic")).collect()
    });
    let begin = spans.iter().map(|span| span.0).min().unwrap_or_default();
    let end = spans.iter().map(|span| span.1).max().unwrap_or_default();
    Spent { pairs: pairs * threads as u64, wall: end.saturating_sub(begin), cpu: spans.iter().map(|span| span.2).sum() }
}

/// Criterion's figure is the CPU time of one pair; the table has wall time and parallelism beside it.
fn pairs(criterion: &mut Criterion) {
    let mut table = String::from("\nstart+end pair        threads   cpu ns/pair  wall ns/pair  parallelism\n");
    for threads in THREADS {
        let mut group = criterion.benchmark_group(format!("pair/{threads}_threads"));
        for (name, design) in designs() {
            let mut total = Spent::default();
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|iterations| {
                    // Enough for each thread that starting the threads is nothing beside it.
                    let each = (iterations / threads as u64).max(20_000);
                    let spent = spend(design.as_ref(), threads, each);
                    total.add(spent);
                    spent.cpu.mul_f64(iterations as f64 / spent.pairs as f64)
                });
            });
            if total.pairs > 0 {
                let (cpu, wall, parallelism) = (total.cpu_ns(), total.wall_ns(), total.parallelism());
                let _ = writeln!(table, "{name:<20} {threads:>8} {cpu:>13.1} {wall:>13.1} {parallelism:>12.2}");
            }
        }
        group.finish();
    }
    eprintln!("{table}");
}

/// The way in, with names, listing and log: one thread, as a server's shard does it.
fn facade(criterion: &mut Criterion) {
    let sessions = Sessions::new(2, None, Box::new(|| 0));
    criterion.bench_function("admit_and_end", |bencher| {
        bencher.iter(|| {
            if let Ok(session) = sessions.admit(black_box("client-000001")) {
                session.end(Outcome::Completed);
            }
        });
    });
}

fn snapshots_of_shards(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("snapshot_by_shards");
    for shards in [1, 2, 4, 8, 16] {
        let tracker = Tracker::new(shards, None);
        group.bench_function(format!("{shards}_shards"), |bencher| bencher.iter(|| black_box(tracker.snapshot())));
    }
    group.finish();
}

/// A snapshot at rest and while other threads count, and how often it was wrong: `active` outside what was ever possible.
fn snapshots(criterion: &mut Criterion) {
    let mut wrong: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (load, writers, gap) in [("rest", 0, 0), ("one_writer_1us", 1, 100), ("four_writers_1us", 4, 100), ("one_writer_flat_out", 1, 0)] {
        let mut group = criterion.benchmark_group(format!("snapshot/{load}"));
        for (name, design) in designs() {
            let stop = AtomicBool::new(false);
            let next_thread = AtomicUsize::new(0);
            let counts = wrong.entry(format!("{name:<16} {load}")).or_default();
            thread::scope(|scope| {
                for _ in 0..writers {
                    let (design, stop, next_thread) = (&design, &stop, &next_thread);
                    scope.spawn(move || {
                        let thread = next_thread.fetch_add(1, Ordering::Relaxed);
                        while !stop.load(Ordering::Relaxed) {
                            design.pair(thread);
                            (0..gap).for_each(|_| std::hint::spin_loop());
                        }
                    });
                }
                group.bench_function(name, |bencher| {
                    bencher.iter(|| {
                        let (_, _, active) = black_box(design.read());
                        counts.0 += 1;
                        counts.1 += u64::from(!(0..=writers).contains(&active));
                    });
                });
                stop.store(true, Ordering::Relaxed);
            });
        }
        group.finish();
        let (intervals, exact) = (EXACT[0].swap(0, Ordering::Relaxed), EXACT[1].swap(0, Ordering::Relaxed));
        eprintln!("{load}: {exact} exact snapshots of the tracker, {intervals} intervals");
    }
    eprintln!("\nsnapshot of                             reads     impossible");
    for (name, (reads, impossible)) in wrong.iter().filter(|(_, counts)| counts.0 > 0) {
        eprintln!("{name:<36} {reads:>10} {impossible:>10}");
    }
}

criterion_group!(benches, pairs, facade, snapshots_of_shards, snapshots);
criterion_main!(benches);
