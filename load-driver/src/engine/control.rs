//! What the controller wants of the shards; they look at every tick.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use proto::time::Micros;

/// What a shard is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As planned.
    Run,
    /// Begin nothing; goodbyes by then.
    Stop(Micros),
    /// Cut everything.
    Abort,
    /// The run is over: let silent sockets go and leave.
    Release,
}

const RUN: u8 = 0;
const STOP: u8 = 1;
const ABORT: u8 = 2;
const RELEASE: u8 = 3;

/// Orders only ever get harsher.
#[derive(Debug, Default)]
pub(super) struct Control {
    level: AtomicU8,
    deadline: AtomicU64,
}

impl Control {
    /// Gives an order.
    pub(super) fn give(&self, order: Order) {
        let level = match order {
            Order::Run => RUN,
            Order::Stop(deadline) => {
                self.deadline.store(deadline.0, Ordering::Relaxed);
                STOP
            }
            Order::Abort => ABORT,
            Order::Release => RELEASE,
        };
        self.level.fetch_max(level, Ordering::Release);
    }

    /// The order that holds.
    pub(super) fn order(&self) -> Order {
        match self.level.load(Ordering::Acquire) {
            RUN => Order::Run,
            STOP => Order::Stop(Micros(self.deadline.load(Ordering::Relaxed))),
            ABORT => Order::Abort,
            _ => Order::Release,
        }
    }
}
