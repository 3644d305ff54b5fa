//! Events in order of time; at one time, in the order in which they were put.
//!
//! A ring of short buckets: an event goes to the end of its bucket, and a bucket is sorted when its time comes. That costs the same for ten
//! events and for ten million, where a heap's cost grows with every level that falls out of the cache.

use std::collections::BTreeMap;

/// Buckets of the ring.
const RING: usize = 1 << 13;

/// Something that happens to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// When, microseconds.
    pub(super) at: u64,
    /// The session's place in the slab.
    pub(super) slot: u32,
    /// Which session of that place.
    pub(super) serial: u32,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// A bucket is `1 << shift` microseconds long.
    shift: u32,
    /// The bucket under way, sorted; what lies before `cursor` has happened.
    current: Vec<Event>,
    cursor: usize,
    /// Its number from time zero.
    bucket: u64,
    /// Later buckets of the round of the ring under way.
    ring: Vec<Vec<Event>>,
    /// Events in it.
    in_ring: usize,
    /// Later rounds.
    far: BTreeMap<u64, Vec<Event>>,
    /// Emptied buckets, so that memory follows the events that wait and not those that ever did.
    spare: Vec<Vec<Event>>,
    len: usize,
}

impl Queue {
    /// Empty, at time zero, for about `density` events in each second.
    pub(super) fn new(density: f64) -> Self {
        // Some 64 events a bucket, which lasts 64 us to 131 ms.
        let width = (64.0 / density.max(1.0) * 1e6).clamp(64.0, 131_072.0);
        Self {
            shift: width.log2() as u32,
            current: Vec::new(),
            cursor: 0,
            bucket: 0,
            ring: vec![Vec::new(); RING],
            in_ring: 0,
            far: BTreeMap::new(),
            spare: Vec::new(),
            len: 0,
        }
    }

    /// Events that wait.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    /// Puts an event; one of the past happens next.
    pub(super) fn push(&mut self, event: Event) {
        self.len += 1;
        let bucket = event.at >> self.shift;
        if bucket <= self.bucket {
            let later = self.current[self.cursor..].partition_point(|other| other.at <= event.at);
            self.current.insert(self.cursor + later, event);
        } else if bucket / RING as u64 == self.bucket / RING as u64 {
            self.put(bucket, event);
        } else {
            self.far.entry(bucket / RING as u64).or_default().push(event);
        }
    }

    fn put(&mut self, bucket: u64, event: Event) {
        let Some(slot) = self.ring.get_mut((bucket % RING as u64) as usize) else { return };
        if slot.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            *slot = spare;
        }
        slot.push(event);
        self.in_ring += 1;
    }

    /// When the next event is.
    pub(super) fn next_at(&mut self) -> Option<u64> {
        self.turn();
        self.current.get(self.cursor).map(|event| event.at)
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.turn();
        let event = self.current.get(self.cursor).copied()?;
        self.cursor += 1;
        self.len -= 1;
        Some(event)
    }

    /// Goes on to the next bucket that has events when this one has none left.
    fn turn(&mut self) {
        while self.cursor == self.current.len() && self.len > 0 {
            let mut emptied = std::mem::take(&mut self.current);
            emptied.clear();
            self.cursor = 0;
            if emptied.capacity() > 0 && self.spare.len() < RING {
                self.spare.push(emptied);
            }
            if self.in_ring == 0 {
                let Some((round, events)) = self.far.pop_first() else { return };
                self.bucket = round * RING as u64;
                for event in events {
                    self.put(event.at >> self.shift, event);
                }
            } else {
                self.bucket += 1;
            }
            let Some(slot) = self.ring.get_mut((self.bucket % RING as u64) as usize) else { return };
            self.current = std::mem::take(slot);
            self.in_ring -= self.current.len();
            // Stable: events of one time stay in the order in which they were put.
            self.current.sort_by_key(|event| event.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the plainest queue there is.
        #[test]
        fn events_come_in_order_of_time_and_then_of_putting(
            density in 0.1f64..1e7,
            steps in proptest::collection::vec((any::<bool>(), 0u64..4, 0u64..1_000), 1..400),
        ) {
            let (mut queue, mut naive) = (Queue::new(density), Vec::<(u64, u32)>::new());
            let mut now = 0;
            for (number, (pop, scale, delay)) in steps.into_iter().enumerate() {
                if pop {
                    let first = naive.iter().enumerate().min_by_key(|(_, event)| **event).map(|(at, _)| at);
                    let expected = first.map(|at| naive.remove(at));
                    prop_assert_eq!(queue.next_at(), expected.map(|event| event.0));
                    prop_assert_eq!(queue.pop().map(|event| (event.at, event.slot)), expected);
                    now = expected.map_or(now, |event| event.0);
                } else {
                    let at = now + delay * [1, 1_000, 100_000, 100_000_000][scale as usize];
                    naive.push((at, number as u32));
                    queue.push(Event { at, slot: number as u32, serial: 0 });
                }
                prop_assert_eq!(queue.len(), naive.len());
            }
        }
    }

    #[test]
    fn an_event_of_the_past_is_next() {
        let mut queue = Queue::new(1_000.0);
        for at in [5_000_000, 9_000_000] {
            queue.push(Event { at, slot: 0, serial: 0 });
        }
        assert_eq!(queue.pop().map(|event| event.at), Some(5_000_000));
        queue.push(Event { at: 1, slot: 1, serial: 0 });
        assert_eq!(queue.pop().map(|event| event.at), Some(1));
        assert_eq!(queue.pop().map(|event| event.at), Some(9_000_000));
        assert_eq!(queue.pop(), None);
    }
}
