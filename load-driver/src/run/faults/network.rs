//! Faults of the network: by the relay, or by the kernel in the namespaces of the backends.

use super::{super::controller::Run, Begun};
use crate::plan::Fault;

/// Begins it.
pub(super) fn begin(_run: &mut Run, fault: &Fault) -> Begun {
    Begun::Skipped(format!("`{}` is not there yet", fault.kind.name().name()))
}

/// Ends it.
pub(super) fn end(_run: &mut Run, _fault: &Fault) {}
