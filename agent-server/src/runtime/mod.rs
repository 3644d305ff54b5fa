//! What a shard runs on: the clock, the tick and its wheel, sockets that write flat. The load driver runs its shards on the same.
//!

pub mod clock;
pub mod flat;
pub mod ticker;
pub mod wheel;
