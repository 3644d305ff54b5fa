//! Defects on purpose, off by default: a validator is worth nothing if it cannot fail. The honest paths hold none of this.

pub mod defect;
pub mod defects;
mod fates;

pub use defect::{Defect, DefectKind, ParseDefectError};
pub use defects::Defects;
pub use fates::{Fate, Fates};
