//! Every policy, one after the other, and the list of them: all that a new one needs is here.
//!
//! # To add a policy
//! 1. Write a type with [`Policy::weight`], from what is known of one backend, and [`Policy::pick`], from a [`Table`] of backends that may
//!    be picked: [`Table::draw`] (by share), [`Table::most`], [`Table::any`], [`Table::nth`], [`Table::after`].
//! 2. Add it to [`ALL`]. Profiles, their schema, the command line, the tables and the property tests (never one that is full, draining or
//!    down; some backend whenever there is one) read that list.
//!
//! # What nobody has heard of
//! A backend without a report is not the worst: it may be new, and where reports come with the sessions themselves, none will ever come
//! from one that gets no session. Policies that want the best give the unheard-of the share that chance would ([`best`]).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Backend, Policy, RouterConfig, Table};
use crate::profile::nearest;

/// A policy in the list.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// As in profiles.
    pub name: &'static str,
    /// One sentence for editors and tables.
    pub about: &'static str,
    /// A fresh one.
    pub make: fn(&RouterConfig) -> Box<dyn Policy>,
}

/// In the order of every table.
pub const ALL: &[Made] = &[
    Made { name: "random", about: "Any backend, all alike.", make: |_| Box::new(Random) },
    Made { name: "round_robin", about: "One after the other.", make: |_| Box::new(RoundRobin::default()) },
    Made { name: "least_cpu", about: "Lowest reported CPU utilization.", make: |_| Box::new(LeastCpu) },
    Made {
        name: "remaining_capacity",
        about: "Most sessions left below the cap; without a cap, fewest sessions.",
        make: |_| Box::new(RemainingCapacity),
    },
    Made {
        name: "power_of_two",
        about: "Of two random backends, the one with fewer sessions for its cap.",
        make: |_| Box::new(PowerOfTwo),
    },
    Made {
        name: "orca_wrr",
        about: "Weighted round robin as gRPC does it (A58): requests per second over utilization.",
        make: |config| Box::new(Weighted::new(config, By::Honest)),
    },
    Made {
        name: "rate_wrr",
        about: "Weighted round robin (A58) with the admissible session rate as the weight.",
        make: |config| Box::new(Weighted::new(config, By::Rate)),
    },
    Made { name: "hybrid", about: "By the room left in the effective capacity, own grants debited.", make: |_| Box::new(Hybrid) },
    Made {
        name: "prequal",
        about: "Of 16 random backends, the fastest of those without many sessions (Prequal).",
        make: |_| Box::new(Prequal),
    },
    Made { name: "one_minus_load", about: "Random by 1 - CPU, above 0.75 only when all are.", make: |_| Box::new(OneMinusLoad) },
];

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy `{name}`: {help}")]
pub struct UnknownPolicy {
    /// As given.
    pub name: String,
    /// What to write instead.
    pub help: String,
}

/// The policy of that name.
pub fn find(name: &str) -> Result<Made, UnknownPolicy> {
    ALL.iter().find(|made| made.name == name).copied().ok_or_else(|| {
        let names = || ALL.iter().map(|made| made.name);
        let help = match nearest(name, names()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        UnknownPolicy { name: name.to_owned(), help }
    })
}

/// The highest weight; but first, as often as chance would, one of unknown weight.
fn best(table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
    let (choices, known) = (table.choices(), table.known());
    let unknown = known < choices && rng.random_range(0..choices) >= known;
    if unknown { table.any_unknown(rng) } else { table.most(rng) }
}

/// Blind.
#[derive(Debug)]
struct Random;

impl Policy for Random {
    fn weight(&self, _: &Backend) -> Option<f64> {
        None
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        table.any(rng)
    }
}

/// In turn, from a random first one on, as gRPC does: balancers that start alike would all go to the same backend at the same time.
#[derive(Debug, Default)]
struct RoundRobin {
    last: Option<usize>,
}

impl Policy for RoundRobin {
    fn weight(&self, _: &Backend) -> Option<f64> {
        None
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        let next = match self.last {
            Some(last) => table.after(last),
            None => table.any(rng),
        };
        self.last = next.or(self.last);
        next
    }
}

/// By utilization alone. Nothing is debited: until the next report, everybody goes to the same backend. That is how it is done, and its flaw.
#[derive(Debug)]
struct LeastCpu;

impl Policy for LeastCpu {
    fn weight(&self, backend: &Backend) -> Option<f64> {
        Some(-backend.report?.utilization)
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        best(table, rng)
    }
}

/// `max_sessions` - sessions, own grants debited; a fleet is expected to have caps or to have none. Without any report, the better of two
/// by own sessions, which comes close to the fewest.
#[derive(Debug)]
struct RemainingCapacity;

impl Policy for RemainingCapacity {
    fn weight(&self, backend: &Backend) -> Option<f64> {
        Some(backend.report?.max_sessions.unwrap_or(0.0) - backend.sessions())
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        if table.known() == 0 { PowerOfTwo.pick(table, rng) } else { best(table, rng) }
    }
}

/// Two different ones at random, and the one with fewer sessions: relative to the caps where both have one.
#[derive(Debug)]
struct PowerOfTwo;

impl Policy for PowerOfTwo {
    fn weight(&self, _: &Backend) -> Option<f64> {
        None
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        let choices = table.choices();
        if choices < 2 {
            return table.nth(0);
        }
        let first = rng.random_range(0..choices);
        let second = (first + rng.random_range(1..choices)) % choices;
        let (first, second) = (table.nth(first)?, table.nth(second)?);
        let cap = |index| table.backend(index).report.and_then(|report| report.max_sessions);
        let (first_cap, second_cap) = cap(first).zip(cap(second)).unwrap_or((1.0, 1.0));
        let fuller = table.backend(first).sessions() / first_cap > table.backend(second).sessions() / second_cap;
        Some(if fuller { second } else { first })
    }
}

/// Where the weight comes from.
#[derive(Debug, Clone, Copy)]
enum By {
    /// The report's own requests per second and utilization.
    Honest,
    /// The admissible rate: what a backend that reports it as its requests per second, at utilization 1, is weighed by.
    Rate,
}

/// `weighted_round_robin` of gRPC (A58): weight = qps / (utilization + eps / qps × penalty).
///
/// As in its C core, weights are kept within 0.01 and 10 times their mean, a weight of 0 says nothing, unknown weights are the mean, and
/// with fewer than two known it is round robin. So nobody ever gets nothing, which is the trap in a rate of 0. Two things differ. Stock
/// clients deal by a schedule that spreads each backend's turns evenly (earliest deadline, or static strides); this one draws: the same
/// shares in the long run, with the scatter of chance in the short. And a weight of 0 is unknown at once, where stock clients keep the
/// last one for up to three minutes. Nothing is debited: a schedule knows no sessions.
#[derive(Debug)]
struct Weighted {
    by: By,
    penalty: f64,
    in_turn: RoundRobin,
}

impl Weighted {
    /// Of the mean.
    const LEAST: f64 = 0.01;
    const MOST: f64 = 10.0;
    /// A zero rate could not be told from none, so backends report this much.
    const LEAST_QPS: f64 = 0.001;
    /// Draws before it takes anybody. One in a hundred succeeds in the worst of fleets, nearly all in a usual one.
    const TRIES: usize = 2_000;

    fn new(config: &RouterConfig, by: By) -> Self {
        let penalty = if config.error_penalty.is_finite() { config.error_penalty.max(0.0) } else { 0.0 };
        Self { by, penalty, in_turn: RoundRobin::default() }
    }
}

impl Policy for Weighted {
    fn weight(&self, backend: &Backend) -> Option<f64> {
        let report = backend.report?;
        let (qps, utilization) = match self.by {
            By::Honest if report.application_utilization > 0.0 => (report.qps, report.application_utilization),
            By::Honest => (report.qps, report.utilization),
            By::Rate => ((report.rate? * 1000.0).max(Self::LEAST_QPS), 1.0),
        };
        (qps > 0.0 && utilization > 0.0).then(|| qps / (utilization + report.eps / qps * self.penalty)).filter(|weight| *weight > 0.0)
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        let Some(mean) = table.mean().filter(|_| table.known() >= 2) else { return self.in_turn.pick(table, rng) };
        // The limits move with the mean, so the table holds the weights as they are. Drawn by weight + least, which is above every limited
        // weight, and kept as often as the limited weight is of that: in the end, drawn by the limited weight.
        let least = Self::LEAST * mean;
        for _ in 0..Self::TRIES {
            let even = rng.random::<f64>() * (mean + least) < least;
            let index = if even { table.any(rng)? } else { table.draw(rng)? };
            let weight = table.weight(index).unwrap_or(mean);
            if rng.random::<f64>() * (weight + least) < weight.clamp(least, Self::MOST * mean) {
                return Some(index);
            }
        }
        table.any(rng)
    }
}

/// By the room in the effective capacity, with own grants debited at once, so that a report is spent only once.
///
/// A backend without room gets nothing while another has some. When none has, the session must go somewhere all the same (to refuse is
/// the backend's right, at its cap): to the one that is least over for its size. Weights say both: sessions above 0, and below it the part
/// of the capacity that is missing. An unheard-of backend counts as the mean of the others.
#[derive(Debug)]
struct Hybrid;

impl Policy for Hybrid {
    fn weight(&self, backend: &Backend) -> Option<f64> {
        let room = backend.room()?;
        let size = backend.report?.effective_capacity? * backend.share;
        Some(if room > 0.0 { room } else { room / size.max(1.0) })
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        table.draw(rng).or_else(|| best(table, rng))
    }
}

/// Prequal (NSDI '24): of a random pool, those with more sessions than the 0.84 quantile of the pool are hot; of the cold ones the fastest, of
/// hot ones alone the one with the fewest sessions. The original asks the pool by probes; here reports and own startup times tell.
///
/// The quantile lies between two of the pool, so that the fullest is hot even in a pool of four, where otherwise the fastest would take
/// everything. Nobody knows how fast a backend is that had no session yet, and there is no other way to learn it: it counts as
/// the fastest, until its own grants make it hot.
#[derive(Debug)]
struct Prequal;

impl Prequal {
    const POOL: usize = 16;
    const HOT: f64 = 0.84;

    /// The quantile of the sessions of a pool that is not empty, interpolated.
    fn quantile(pool: &[Seen]) -> f64 {
        let mut sessions = [0.0; Self::POOL];
        let sessions = &mut sessions[..pool.len()];
        sessions.iter_mut().zip(pool).for_each(|(to, seen)| *to = seen.sessions);
        let at = Self::HOT * (pool.len() - 1) as f64;
        let (_, low, above) = sessions.select_nth_unstable_by(at as usize, f64::total_cmp);
        let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(*low);
        *low + (high - *low) * at.fract()
    }

    /// Different eligible backends in random order: of equals, the first is any. As many as fit, or all.
    fn sample<'p>(table: &Table, rng: &mut ChaCha8Rng, pool: &'p mut [Seen; Self::POOL]) -> &'p [Seen] {
        let choices = table.choices();
        let mut len = 0;
        // Floyd's way: each step adds one of the first `most + 1` that is not there yet, at a random place.
        for most in choices.saturating_sub(Self::POOL)..choices {
            let n = rng.random_range(0..=most);
            let n = if pool[..len].iter().any(|seen| seen.rank == n) { most } else { n };
            let Some(index) = table.nth(n) else { continue };
            let backend = table.backend(index);
            pool[len] = Seen { rank: n, index, sessions: backend.sessions(), latency: backend.latency };
            pool.swap(len, rng.random_range(0..=len));
            len += 1;
        }
        &pool[..len]
    }
}

/// One of the pool.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    rank: usize,
    index: usize,
    sessions: f64,
    latency: f64,
}

impl Policy for Prequal {
    fn weight(&self, _: &Backend) -> Option<f64> {
        None
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        if table.choices() < 2 {
            return table.nth(0);
        }
        let mut pool = [Seen::default(); Self::POOL];
        let pool = Self::sample(table, rng, &mut pool);
        let hot = Self::quantile(pool);
        let fewest = |a: &&Seen, b: &&Seen| a.sessions.total_cmp(&b.sessions);
        let cold = pool.iter().filter(|seen| seen.sessions <= hot);
        let fastest = cold.min_by(|a, b| a.latency.total_cmp(&b.latency).then(fewest(a, b)));
        fastest.or_else(|| pool.iter().min_by(fewest)).map(|seen| seen.index)
    }
}

/// As `LiveKit` does: random by what is left of the CPU; backends above a threshold are out, unless all are.
#[derive(Debug)]
struct OneMinusLoad;

impl OneMinusLoad {
    const THRESHOLD: f64 = 0.75;
    const TRIES: usize = 64;
}

impl Policy for OneMinusLoad {
    /// 1 - CPU, and minus the CPU above the threshold: out, but still in order.
    fn weight(&self, backend: &Backend) -> Option<f64> {
        let load = backend.report?.utilization;
        Some(if load <= Self::THRESHOLD { 1.0 - load } else { -load })
    }

    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
        if let Some(index) = table.draw(rng) {
            return Some(index);
        }
        // All that is known is above the threshold. What is left, below 1 - threshold, decides by keeping as often.
        for _ in 0..Self::TRIES {
            let index = table.any(rng)?;
            if table.weight(index).is_none_or(|weight| rng.random::<f64>() * (1.0 - Self::THRESHOLD) < 1.0 + weight) {
                return Some(index);
            }
        }
        // Hardly anything is left anywhere.
        best(table, rng)
    }
}
