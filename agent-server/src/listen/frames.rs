//! The frames of an HTTP/2 client by their heads, read beside the library: how long one takes to come, and how many carry nothing.
//!
//! The library bounds what it keeps. What it does not bound is time: a frame that comes a byte at a time keeps its connection alive for as long as
//! its sender likes, and frames that carry nothing (pings, settings, resets, empty data) cost the shard's thread, which is others' too.

use proto::time::Micros;

/// What every client says first.
const PREFACE: usize = 24;
const HEAD: usize = 9;
/// Frames that carry nothing, which one connection may send at once, and for each second that passes. A client that pings at every frame of
/// audio has less.
const EMPTY: Budget = Budget { burst: 65_536, per_second: 16_384 };

/// Streams that one may reset: each has cost a task. To cancel all of a connection's streams in one moment, and some times over, is no attack.
const fn resets(max_streams: u32) -> Budget {
    Budget { burst: max_streams as u64 * 4, per_second: max_streams as u64 / 4 + 1 }
}

mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
}

/// Follows one connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes to come of the preface, or of a payload.
    skip: usize,
    head: [u8; HEAD],
    have: usize,
    /// Headers are to be continued.
    block: bool,
    /// When what is not yet whole began.
    since: Option<Micros>,
    empty: Allowance,
    resets: Allowance,
}

/// Too many frames of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flood;

#[derive(Debug, Clone, Copy)]
struct Budget {
    burst: u64,
    per_second: u64,
}

/// What is left of a budget, in millionths of a frame.
#[derive(Debug)]
struct Allowance {
    budget: Budget,
    left: u64,
    at: Micros,
}

const WHOLE: u64 = 1_000_000;

impl Allowance {
    const fn new(budget: Budget, now: Micros) -> Self {
        Self { budget, left: budget.burst * WHOLE, at: now }
    }

    fn spend(&mut self, now: Micros) -> Result<(), Flood> {
        let earned = now.0.saturating_sub(self.at.0).saturating_mul(self.budget.per_second);
        self.left = self.left.saturating_add(earned).min(self.budget.burst * WHOLE);
        self.at = now;
        self.left = self.left.checked_sub(WHOLE).ok_or(Flood)?;
        Ok(())
    }
}

impl Frames {
    /// Of a connection that is new, and may have so many streams open.
    pub(super) const fn new(now: Micros, max_streams: u32) -> Self {
        let (empty, resets) = (Allowance::new(EMPTY, now), Allowance::new(resets(max_streams), now));
        Self { skip: PREFACE, head: [0; HEAD], have: 0, block: false, since: Some(now), empty, resets }
    }

    /// Since when there is a frame, or a block of headers, of which only a part has come.
    pub(super) const fn unfinished(&self) -> Option<Micros> {
        self.since
    }

    /// These bytes came.
    pub(super) fn read(&mut self, mut bytes: &[u8], now: Micros) -> Result<(), Flood> {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let taken = self.skip.min(bytes.len());
                self.skip -= taken;
                bytes = &bytes[taken..];
                if self.skip == 0 {
                    self.whole();
                }
                continue;
            }
            let taken = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            self.since.get_or_insert(now);
            if self.have == HEAD {
                self.have = 0;
                self.begin(now)?;
            }
        }
        Ok(())
    }

    /// The head of a frame is there.
    fn begin(&mut self, now: Micros) -> Result<(), Flood> {
        let [a, b, c, frame, flags, ..] = self.head;
        self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let budget = match frame {
            kind::DATA if self.skip > 0 || flags & kind::END_STREAM != 0 => None,
            kind::HEADERS | kind::CONTINUATION => {
                self.block = flags & kind::END_HEADERS == 0;
                None
            }
            // What a reader has taken; it comes as often as what is written.
            kind::WINDOW_UPDATE => None,
            kind::RST_STREAM => Some(&mut self.resets),
            _ => Some(&mut self.empty),
        };
        let spent = budget.map_or(Ok(()), |budget| budget.spend(now));
        if self.skip == 0 {
            self.whole();
        }
        spent
    }

    const fn whole(&mut self) {
        if !self.block {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: u32 = 4_096;

    fn frame(payload: usize, kind: u8, flags: u8) -> Vec<u8> {
        let mut bytes = vec![(payload >> 16) as u8, (payload >> 8) as u8, payload as u8, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD + payload, 0);
        bytes
    }

    #[test]
    fn what_is_not_whole_has_a_begin_however_it_is_cut() {
        let settings = frame(6, 4, 0);
        let all = [vec![0; PREFACE], settings.clone(), frame(3, 1, 0), frame(0, 9, 0), frame(5, 9, 4), frame(0, 0, 1)].concat();
        for cut in 1..all.len() {
            let mut frames = Frames::new(Micros(1), STREAMS);
            for (n, part) in all.chunks(cut).enumerate() {
                frames.read(part, Micros(2 + n as u64)).unwrap();
            }
            assert_eq!(frames.unfinished(), None, "cut by {cut}");
        }
        let mut frames = Frames::new(Micros(1), STREAMS);
        frames.read(&all[..PREFACE - 1], Micros(5)).unwrap();
        assert_eq!(frames.unfinished(), Some(Micros(1)), "the preface");
        frames.read(&all[PREFACE - 1..PREFACE + 4], Micros(6)).unwrap();
        assert_eq!(frames.unfinished(), Some(Micros(6)), "a head");
        frames.read(&all[PREFACE + 4..PREFACE + settings.len() + HEAD + 3], Micros(9)).unwrap();
        assert_eq!(frames.unfinished(), Some(Micros(9)), "headers that are to be continued");
        frames.read(&frame(0, 9, 0), Micros(12)).unwrap();
        assert_eq!(frames.unfinished(), Some(Micros(9)), "and still are");
        frames.read(&frame(0, 9, 4), Micros(13)).unwrap();
        assert_eq!(frames.unfinished(), None);
    }

    #[test]
    fn frames_that_carry_nothing_are_limited_and_others_are_not() {
        let ready = || {
            let mut frames = Frames::new(Micros(0), STREAMS);
            frames.read(&[0; PREFACE], Micros(0)).unwrap();
            frames
        };
        let kinds = [(8, 6, 0, EMPTY), (0, 4, 0, EMPTY), (5, 2, 0, EMPTY), (4, 3, 0, resets(STREAMS)), (0, 0, 0, EMPTY), (1, 99, 0, EMPTY)];
        for (payload, kind, flags, budget) in kinds {
            let (mut frames, bytes) = (ready(), frame(payload, kind, flags));
            let mut taken = |at| {
                let n = (0..=EMPTY.burst).take_while(|_| frames.read(&bytes, Micros(at)).is_ok()).count() as u64;
                // What was refused is not read on.
                frames.skip = 0;
                n
            };
            assert_eq!(taken(0), budget.burst, "kind {kind}");
            assert_eq!(taken(1_000_000), budget.per_second, "kind {kind}, a second later");
        }
        for (payload, kind, flags) in [(1, 0, 0), (0, 0, 1), (4, 8, 0), (9, 1, 4)] {
            let (mut frames, bytes) = (ready(), frame(payload, kind, flags));
            assert!((0..2 * EMPTY.burst).all(|_| frames.read(&bytes, Micros(0)).is_ok()), "kind {kind}");
        }
    }
}
