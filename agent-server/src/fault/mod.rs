//! What goes wrong on purpose, off by default: a validator is worth nothing if it cannot fail. Defects make the counters wrong, faults the
//! conversations. The honest paths hold none of this.

pub mod defect;
pub mod defects;
mod fates;
pub mod faults;
pub mod kind;
mod rate;

pub use defect::{Defect, DefectKind, ParseDefectError};
pub use defects::Defects;
pub use fates::{Fate, Fates};
pub use faults::{Faults, SessionFates};
pub use kind::{Fault, FaultKind, ParseFaultError};
pub use rate::{Diffusion, Rate};
