//! Which backend gets a session: policies as pure functions of reports and grants, and the balancer that holds their state.
//!
//! A [`Policy`] gives every backend a weight, from nothing but what the balancer knows of it ([`Backend`]: the last report, the grants that
//! no report shows yet), and picks by the weights. The [`Table`] keeps weights in a tree, so that a pick among ten thousand backends
//! costs what a pick among ten does. Backends at their cap, draining, gone or unheard-of-and-down are not in it: no policy can pick them.
//! The [`Router`] is one or several balancers with a table each; the driver and the simulator use the same.
//!
//! To add a policy, edit `policies.rs` and nothing else. One outside of this crate takes no more:
//!
//! ```
//! use std::time::Duration;
//!
//! use load_driver::routing::{Backend, Made, Policy, Report, Router, RouterConfig, Table};
//! use proto::time::Micros;
//! use rand_chacha::ChaCha8Rng;
//!
//! /// Prefers backends where few people speak.
//! #[derive(Debug)]
//! struct Quietest;
//!
//! impl Policy for Quietest {
//!     fn weight(&self, backend: &Backend) -> Option<f64> {
//!         Some(-backend.report?.speaking? - f64::from(backend.granted))
//!     }
//!
//!     fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize> {
//!         table.most(rng)
//!     }
//! }
//!
//! let policy = Made { name: "quietest", about: "fewest speaking sessions", make: |_| Box::new(Quietest) };
//! let mut router = Router::new(RouterConfig {
//!     policy,
//!     backends: 2,
//!     balancers: 1,
//!     share: false,
//!     staleness: Duration::from_secs(30),
//!     error_penalty: 1.0,
//!     seed: 1,
//! });
//! for (backend, speaking) in [(0, 3.0), (1, 1.0)] {
//!     router.report(backend, Report { speaking: Some(speaking), ..Report::default() }, Micros::ZERO);
//! }
//! let backends: Vec<_> = (0..3).filter_map(|session| router.grant(session, None, Micros(1))).map(|grant| grant.backend).collect();
//! assert_eq!(backends[..2], [1, 1]); // Then both count 3, and any will do.
//! assert_eq!(backends.len(), 3);
//! ```

mod backend;
mod policies;
mod router;
mod table;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt;

use rand_chacha::ChaCha8Rng;

pub use self::{
    backend::{Backend, Report},
    policies::{ALL, Made, UnknownPolicy, find},
    router::{Grant, Router, RouterConfig},
    table::Table,
};

/// Picks a backend for each session.
pub trait Policy: fmt::Debug + Send {
    /// How much this backend is wanted; higher is better, and where weights are shares, twice as much is twice as often. It is asked again
    /// only when something about the backend changes. `None` where nothing is known yet: how that is taken is `pick`'s business.
    fn weight(&self, backend: &Backend) -> Option<f64>;

    /// One of the backends in the table, if there is any. One that is not eligible counts as none.
    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize>;
}
