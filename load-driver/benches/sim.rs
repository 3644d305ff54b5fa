//! What a simulated event costs: the shipped fleet of `routing-million` at two sizes, sessions and backends in the same proportion.
//!
//! `cargo bench -p load-driver --bench sim`. The figure is events; a session of this profile takes some 16 of them, and reports, looks at the
//! counters and the book of balance are in it.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use load_driver::{
    profile::{Override, Source, load},
    routing,
    sim::Simulation,
};

/// The profile at `tens` times 10 backends and 4,000 sessions: a fifth of its time, so that a sample is short.
fn simulation(tens: u32) -> Simulation {
    let counts = [4, 4, 2].into_iter().enumerate().map(|(entry, count)| format!("backends.{entry}.count={}", count * tens));
    let set: Vec<String> = counts.chain([format!("defaults.rate={}", 20 * tens), "defaults.duration=40s".to_owned()]).collect();
    let set: Vec<Override> = set.iter().map(|text| Override::parse(text).expect("an override")).collect();
    let profile = load(&Source::of("routing-million"), &set).expect("the shipped profile");
    Simulation::new(&profile, &[]).expect("a plan")
}

fn events(c: &mut Criterion) {
    let hybrid = routing::ALL.iter().copied().find(|policy| policy.name == "hybrid").expect("it is there");
    let mut group = c.benchmark_group("events");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    for tens in [1, 10] {
        let simulation = simulation(tens);
        let simulated = simulation.run(hybrid);
        group.throughput(Throughput::Elements(simulated.events));
        let name = format!("{} sessions over {} backends", simulated.sessions, 10 * tens);
        group.bench_function(BenchmarkId::new("hybrid", name), |b| b.iter(|| simulation.run(hybrid)));
    }
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
