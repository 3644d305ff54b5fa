//! Faults that the controller makes on processes: stop, kill, drain, less CPU, connections that come to nothing.

use super::{super::controller::Run, Begun};
use crate::plan::Fault;

/// Begins it.
pub(super) async fn begin(_run: &mut Run, fault: &Fault) -> Begun {
    Begun::Skipped(format!("`{}` is not there yet", fault.kind.name().name()))
}

/// Ends it.
pub(super) async fn end(_run: &mut Run, _fault: &Fault) {}
