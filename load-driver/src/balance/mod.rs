//! Quality of balance: how evenly sessions and load lie on the backends, and what bad decisions cost. Pure; the driver feeds it what it
//! saw and what snapshots said, the simulator what is so. `docs/balance.md` defines every figure.

mod book;
mod compare;
mod expect;
mod herd;
mod prediction;
mod quality;
mod recovery;
mod spread;

#[cfg(test)]
mod tests;

pub(crate) use self::compare::shown;
pub use self::{
    book::{Book, BookConfig, Decision, Sight, Trouble},
    compare::{Comparison, PolicyRow, SHOWN, describe, schema, table},
    expect::{Expectation, ExpectationResult},
    prediction::{Prediction, PredictionResult, Tolerance, judge},
    quality::{Balance, METRICS, Measure, Spread, figure},
};
