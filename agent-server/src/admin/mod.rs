//! What operators and balancers ask: health, snapshot, sessions, metrics, drain.

pub mod wire;
