//! Quality of balance: how evenly sessions and load lie on the backends, and what bad decisions cost. Pure; the driver feeds it what it
//! saw and what snapshots said, the simulator what is so.

mod book;
mod expect;
mod quality;

pub use self::{
    book::{Book, BookConfig, Decision, Sight, Trouble},
    expect::{Expectation, ExpectationResult},
    quality::{Balance, METRICS, Measure, Spread},
};
