//! Counts each session once. Lift this folder into a real backend: it knows no network, no runtime and no clock.
//!
//! [`Sessions`] is the way in: `admit` gives a [`LiveSession`], `end` or its drop counts the end, `snapshot`, `listing` and
//! `ends` show it all. [`Tracker`] and [`Seat`] (`counters.rs`) alone are enough for a backend that wants counts without names.
//! To lift it: copy the folder, and replace the `Outcome` that is re-exported here by your own.
//!
//! # How it counts
//!
//! A shard is a padded row of monotone counters: `started`, `moves[from][to]` for each pair of phases, and
//! `ended[phase][outcome]`. A transition of a session is exactly one `fetch_add` on one of them, on the session's home shard.
//! Gauges are never stored, only computed: a phase holds what came (starts and moves to it) less what left (moves from it and
//! ends in it), and `active = started - sum(ended)`. Every move appears once as coming and once as leaving, so the phases sum to
//! `active` in any set of values whatever.
//!
//! # Why a snapshot is exact
//!
//! It reads every counter, then every counter again, and takes the values only when both readings agree. A monotone counter
//! that shows one value twice did not move in between; all of those spans contain the instant at which the first reading was
//! complete; so the values are what all counters held at that one instant. After eight disagreeing pairs it reads ends, starts
//! and ends again, and reports `exact: false` with an interval for `active`: starts less the later ends, to starts less the
//! earlier ends. The increments are sequentially consistent, so "instant" means the same to every thread.
//!
//! # Why one session ends once, and no gauge is negative
//!
//! The session's byte is `In(phase)`, `MovingTo(phase)` or `Ended(outcome)`. An end is the compare-exchange to `Ended`; only one
//! wins, the others add to `late_ends`. A move is: compare-exchange to `MovingTo`, count, compare-exchange to `In`. An end from
//! `In(p)` is counted by its winner after the move into `p` was counted. An end that meets `MovingTo` leaves the counting to the
//! mover, whose second exchange fails and who then counts the end in the new phase. So the counts of one session always grow in
//! the order start, moves, end, and a cut never shows a session leave where it has not come. Nobody waits for anybody.
//!
//! # The cap
//!
//! One compare-exchange on one counter of permits, taken before `started` and given back after `ended`: permits are never
//! fewer than the active sessions of any instant, so no cut shows more than the cap, and a race for the last place has one winner.
//! Where a connection implies its session, the permit is taken for the connection ([`Place`]) and becomes the session's at its start.
//!
//! What it cannot see: a session whose owner leaks it, or whose peer is gone without a sign. Deadlines must end those.

pub mod counters;
pub mod endlog;
mod phase;
pub mod registry;
pub mod sessions;
mod sync;

pub use counters::{AtCapacity, Seat, Snapshot, Tracker};
pub use endlog::{EndPage, EndRow};
pub use phase::Phase;
pub use proto::frame::Outcome;
pub use registry::{BadCursor, Entry, Frames, LivePage, LiveRow};
pub use sessions::{LiveSession, Meddler, Place, SessionEnder, Sessions, UnixClock};
