//! Wakes a shard every millisecond: a timerfd where the kernel has one, tokio's timer elsewhere.

use std::io;

/// A periodic tick of one millisecond on absolute time; missed ticks fold into one.
#[derive(Debug)]
pub struct Ticker;

impl Ticker {
    /// Must be called inside a runtime with IO enabled.
    pub fn new() -> io::Result<Self> {
        todo!()
    }

    /// Waits for the next tick.
    pub async fn tick(&mut self) -> io::Result<()> {
        todo!()
    }
}
