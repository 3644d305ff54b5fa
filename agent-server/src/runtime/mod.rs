//! What a shard runs on: the clock, the tick and its wheel, what carries connections. The load driver runs its shards on the same.

pub mod clock;
pub mod flat;
pub mod ticker;
pub mod wheel;
pub mod wire;
