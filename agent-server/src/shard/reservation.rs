//! Where a connection implies its session, from the answer to its upgrade to its start.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::Shard;
use crate::tracker::{AtCapacity, Place};

/// A place that is held for the session of a connection. Its client was let in and may take the session as begun from then on without another
/// word, as clients of dialects do that have none: so the session is certain, whoever else comes meanwhile and whether the drain begins or not.
/// Dropped without the session it is given back.
#[derive(Debug)]
pub struct Reservation {
    shard: Arc<Shard>,
    place: Option<Place>,
}

impl Reservation {
    /// On this shard; a full server refuses, and counts that as the refusal of the session.
    pub fn new(shard: &Arc<Shard>, client_ref: &str) -> Result<Self, AtCapacity> {
        let place = shard.shared.sessions.reserve(client_ref)?;
        shard.started.fetch_add(1, Relaxed);
        Ok(Self { shard: Arc::clone(shard), place: Some(place) })
    }

    /// For the session, which is there.
    pub(super) const fn take(&mut self) -> Option<Place> {
        self.place.take()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shard.started.fetch_sub(1, Relaxed);
    }
}
