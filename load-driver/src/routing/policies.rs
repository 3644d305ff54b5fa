//! Every policy, one after the other, and the list of them: all that a new one needs is here.

use super::Policy;

/// A policy in the list.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// As in profiles.
    pub name: &'static str,
    /// One sentence for editors and tables.
    pub about: &'static str,
    /// A fresh one.
    pub make: fn(&super::RouterConfig) -> Box<dyn Policy>,
}

/// In the order of every table.
pub const ALL: &[Made] = &[];
