//! Which backend gets a session: policies as pure functions of reports and grants, and the balancer that holds their state.
//!
//! A [`Policy`] gives every backend a weight, from nothing but what the balancer knows of it ([`Backend`]: the last report, the grants that
//! no report shows yet), and picks by the weights. The [`Table`] keeps weights in a tree, so that a pick among ten thousand backends
//! costs what a pick among ten does. Backends at their cap, draining, gone or unheard-of-and-down are not in it: no policy can pick them.
//! The [`Router`] is one or several balancers with a table each; the driver and the simulator use the same.
//!
//! To add a policy, edit `policies.rs` and nothing else.

mod backend;
mod policies;
mod router;
mod table;

use std::fmt;

use rand_chacha::ChaCha8Rng;

pub use self::{
    backend::{Backend, Report},
    policies::{ALL, Made},
    router::{Grant, Router, RouterConfig},
    table::Table,
};

/// Picks a backend for each session.
pub trait Policy: fmt::Debug + Send {
    /// How much this backend is wanted; higher is better, and where weights are shares, twice as much is twice as often. It is asked again
    /// only when something about the backend changes. `None` where nothing is known yet: how that is taken is `pick`'s business.
    fn weight(&self, backend: &Backend) -> Option<f64>;

    /// One of the backends in the table, if there is any.
    fn pick(&mut self, table: &Table, rng: &mut ChaCha8Rng) -> Option<usize>;
}
