//! What one direction of one connection goes through: bytes and times go in, and what may pass when comes out. Pure.

use std::{collections::VecDeque, time::Duration};

use bytes::{Buf, BytesMut};
use proto::time::Micros;

use crate::plan::FaultKind;

/// Bytes that wait in an impaired lane at most; whoever sends more is not read from until some have passed.
pub const ROOM: usize = 256 * 1024;
/// A narrow lane passes bytes in portions of so much time, so that the clock's millisecond does not matter,
const PORTION: Duration = Duration::from_millis(20);
/// and makes good for no longer than this if it was late.
const BURST: Duration = Duration::from_millis(100);

/// A fault under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Active {
    /// Of the fault.
    pub number: u16,
    /// What it does.
    pub kind: FaultKind,
    /// Since when.
    pub since: Micros,
}

/// What may pass now.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<'a> {
    /// Nothing waits.
    Nothing,
    /// Something waits, until a fault is over.
    Held,
    /// Something waits until then; ask again.
    At(Micros),
    /// These bytes.
    Bytes(&'a [u8]),
    /// The end of what the sender had to say.
    Fin,
    /// The end of the connection.
    Rst,
}

#[derive(Debug)]
enum Load {
    Bytes(BytesMut),
    Fin,
    Rst,
}

#[derive(Debug)]
struct Piece {
    earliest: Micros,
    load: Load,
}

/// Of a fault that lets so many bytes a second pass.
#[derive(Debug)]
struct Bucket {
    number: u16,
    per_s: f64,
    tokens: f64,
    at: Micros,
}

impl Bucket {
    fn refill(&mut self, now: Micros) {
        let passed = Duration::from_micros(now.0.saturating_sub(self.at.0));
        self.at = self.at.max(now);
        self.tokens = (self.tokens + self.per_s * passed.as_secs_f64()).min((self.per_s * BURST.as_secs_f64()).max(1.0));
    }

    /// How many of so many bytes may pass, or when the first portion of them may.
    fn allows(&self, now: Micros, bytes: usize) -> Result<usize, Micros> {
        let portion = (self.per_s * PORTION.as_secs_f64()).clamp(1.0, bytes.max(1) as f64);
        if self.tokens >= portion {
            return Ok(self.tokens as usize);
        }
        Err(Micros(now.0 + ((portion - self.tokens) / self.per_s * 1e6).ceil() as u64 + 1))
    }
}

/// One direction of one connection.
#[derive(Debug)]
pub struct Lane {
    queue: VecDeque<Piece>,
    waiting: usize,
    faults: Vec<Active>,
    buckets: Vec<Bucket>,
    draws: u64,
    ended: bool,
}

impl Lane {
    /// Unimpaired. The seed is of the jitter.
    pub fn new(seed: u64) -> Self {
        Self { queue: VecDeque::new(), waiting: 0, faults: Vec::new(), buckets: Vec::new(), draws: seed, ended: false }
    }

    /// Bytes need not come in here at all: nothing waits, and nothing is wrong.
    pub fn is_clear(&self) -> bool {
        self.faults.is_empty() && self.queue.is_empty()
    }

    /// What comes is lost, and nobody hears of it.
    pub fn vanishes(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::Blackhole)
    }

    /// More may come in. An unimpaired lane holds nothing back by itself, and takes nothing while the receiver takes nothing.
    pub fn has_room(&self) -> bool {
        !self.ended && (self.vanishes() || if self.faults.is_empty() { self.waiting == 0 } else { self.waiting < ROOM })
    }

    /// These faults are under way from now on, and no others.
    pub fn obey(&mut self, now: Micros, faults: &[Active]) {
        let was = self.delays();
        self.faults.clear();
        self.faults.extend_from_slice(faults);
        self.buckets.retain(|bucket| faults.iter().any(|fault| fault.number == bucket.number));
        for fault in faults {
            if let FaultKind::Bandwidth { bytes_per_s } = fault.kind
                && !self.buckets.iter().any(|bucket| bucket.number == fault.number)
            {
                self.buckets.push(Bucket { number: fault.number, per_s: bytes_per_s as f64, tokens: 0.0, at: now });
            }
        }
        if was && !self.delays() {
            // What is under way comes at once.
            for piece in &mut self.queue {
                piece.earliest = piece.earliest.min(now);
            }
        }
        if self.vanishes() {
            self.queue.clear();
            self.waiting = 0;
        }
    }

    fn delays(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Delay { .. }))
    }

    /// Bytes came.
    pub fn accept(&mut self, now: Micros, bytes: &[u8]) {
        if bytes.is_empty() || self.ended || self.vanishes() {
            return;
        }
        self.waiting += bytes.len();
        let earliest = self.release(now);
        match self.queue.back_mut() {
            Some(Piece { earliest: before, load: Load::Bytes(all) }) if *before <= now && earliest <= now => all.extend_from_slice(bytes),
            _ => self.queue.push_back(Piece { earliest, load: Load::Bytes(BytesMut::from(bytes)) }),
        }
    }

    /// The sender has no more to say.
    pub fn finish(&mut self, now: Micros) {
        self.end(now, Load::Fin);
    }

    /// The sender is gone.
    pub fn reset(&mut self, now: Micros) {
        self.end(now, Load::Rst);
    }

    fn end(&mut self, now: Micros, load: Load) {
        if !self.ended && !self.vanishes() {
            let earliest = self.release(now);
            self.queue.push_back(Piece { earliest, load });
        }
        self.ended = true;
    }

    /// When what comes now may pass: later than what came before.
    fn release(&mut self, now: Micros) -> Micros {
        let mut later = Duration::ZERO;
        for index in 0..self.faults.len() {
            if let Some(Active { kind: FaultKind::Delay { delay, jitter }, .. }) = self.faults.get(index).copied() {
                later += delay + jitter.mul_f64(self.draw());
            }
        }
        let before = self.queue.back().map_or(Micros::ZERO, |piece| piece.earliest);
        (now + later).max(before)
    }

    /// Uniform in 0..1 (`SplitMix64`).
    fn draw(&mut self) -> f64 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.draws;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// What may pass now. Of bytes, tell with [`Self::passed`] how many did.
    pub fn due(&mut self, now: Micros) -> Due<'_> {
        for bucket in &mut self.buckets {
            bucket.refill(now);
        }
        let Some(front) = self.queue.front() else { return Due::Nothing };
        let mut at = front.earliest;
        for fault in &self.faults {
            match fault.kind {
                FaultKind::Stall | FaultKind::Blackhole => return Due::Held,
                FaultKind::Gaps { gap, period } => at = at.max(after_gap(now, fault.since, gap, period)),
                _ => {}
            }
        }
        let mut allowed = usize::MAX;
        if let Load::Bytes(bytes) = &front.load {
            for bucket in &self.buckets {
                match bucket.allows(now, bytes.len()) {
                    Ok(some) => allowed = allowed.min(some),
                    Err(later) => at = at.max(later),
                }
            }
        }
        if at > now {
            return Due::At(at);
        }
        match &front.load {
            Load::Bytes(bytes) => Due::Bytes(bytes.get(..allowed.min(bytes.len())).unwrap_or_default()),
            Load::Fin => Due::Fin,
            Load::Rst => Due::Rst,
        }
    }

    /// So many of the bytes that were due are on their way.
    pub fn passed(&mut self, bytes: usize) {
        for bucket in &mut self.buckets {
            bucket.tokens -= bytes as f64;
        }
        self.waiting = self.waiting.saturating_sub(bytes);
        if let Some(Piece { load: Load::Bytes(all), .. }) = self.queue.front_mut() {
            all.advance(bytes.min(all.len()));
            if all.is_empty() {
                self.queue.pop_front();
            }
        }
    }
}

/// The end of the gap that a moment lies in, or the moment itself.
fn after_gap(now: Micros, since: Micros, gap: Duration, period: Duration) -> Micros {
    let period_us = (period.as_micros() as u64).max(1);
    let into = now.0.saturating_sub(since.0) % period_us;
    let gap_us = gap.as_micros() as u64;
    if into < gap_us { Micros(now.0 + gap_us - into) } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Micros {
        Micros(ms * 1_000)
    }

    fn active(number: u16, kind: FaultKind, since_ms: u64) -> Active {
        Active { number, kind, since: ms(since_ms) }
    }

    /// Lets pass what may until a time, a millisecond a step at most: what came out when, in milliseconds.
    fn run(lane: &mut Lane, from_ms: u64, to_ms: u64) -> Vec<(u64, String)> {
        let mut out = Vec::new();
        let mut now = ms(from_ms);
        while now <= ms(to_ms) {
            match lane.due(now) {
                Due::Nothing | Due::Held => break,
                Due::At(at) => {
                    assert!(at > now, "time goes on");
                    now = at;
                }
                Due::Bytes(bytes) => {
                    let some = bytes.len();
                    assert!(some > 0, "bytes that are due are some");
                    out.push((now.0 / 1_000, String::from_utf8_lossy(bytes).into_owned()));
                    lane.passed(some);
                }
                Due::Fin => {
                    out.push((now.0 / 1_000, "FIN".to_owned()));
                    break;
                }
                Due::Rst => {
                    out.push((now.0 / 1_000, "RST".to_owned()));
                    break;
                }
            }
        }
        out
    }

    fn shown(out: &[(u64, &str)]) -> Vec<(u64, String)> {
        out.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
    }

    #[test]
    fn an_unimpaired_lane_passes_all_at_once_and_takes_no_more_than_the_receiver() {
        let mut lane = Lane::new(1);
        assert!(lane.is_clear() && lane.has_room());
        lane.accept(ms(5), b"left over");
        assert!(!lane.is_clear() && !lane.has_room());
        lane.passed(4);
        assert_eq!(lane.due(ms(6)), Due::Bytes(b" over"));
        lane.passed(5);
        assert!(lane.is_clear() && lane.has_room());
        lane.finish(ms(7));
        assert_eq!(lane.due(ms(7)), Due::Fin);
        assert!(!lane.has_room());
    }

    #[test]
    fn a_delay_is_kept_to_the_microsecond_and_its_end_lets_all_go() {
        let mut lane = Lane::new(1);
        let kind = FaultKind::Delay { delay: Duration::from_millis(100), jitter: Duration::ZERO };
        lane.obey(ms(0), &[active(0, kind, 0)]);
        lane.accept(ms(10), b"a");
        lane.accept(ms(30), b"b");
        lane.finish(ms(40));
        assert_eq!(lane.due(Micros(109_999)), Due::At(ms(110)));
        assert_eq!(run(&mut lane, 50, 135), shown(&[(110, "a"), (130, "b")]));
        assert_eq!(lane.due(ms(135)), Due::At(ms(140)));
        lane.obey(ms(136), &[]);
        assert_eq!(lane.due(ms(136)), Due::Fin);
    }

    #[test]
    fn jitter_is_drawn_within_its_bounds_and_keeps_the_order() {
        let mut lane = Lane::new(7);
        let kind = FaultKind::Delay { delay: Duration::from_millis(20), jitter: Duration::from_millis(50) };
        lane.obey(ms(0), &[active(0, kind, 0)]);
        for at in 0..100 {
            lane.accept(ms(at * 10), format!("{at},").as_bytes());
        }
        let out = run(&mut lane, 0, 10_000);
        let text: String = out.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(text, (0..100).map(|at| format!("{at},")).collect::<Vec<_>>().concat(), "in order");
        let late: Vec<u64> = out.iter().map(|(at, text)| at - text.trim_end_matches(',').parse::<u64>().unwrap() * 10).collect();
        assert!(late.iter().all(|late| (20..=70).contains(late)), "{late:?}");
        assert!(late.iter().max().unwrap() - late.iter().min().unwrap() > 20, "{late:?}");
    }

    #[test]
    fn a_stall_holds_everything_even_the_end_until_it_is_over() {
        let mut lane = Lane::new(1);
        lane.obey(ms(0), &[active(3, FaultKind::Stall, 0)]);
        lane.accept(ms(1), b"one ");
        lane.accept(ms(2), b"two");
        lane.reset(ms(3));
        assert_eq!(lane.due(ms(9_999)), Due::Held);
        lane.obey(ms(10_000), &[]);
        assert_eq!(run(&mut lane, 10_000, 10_000), shown(&[(10_000, "one two"), (10_000, "RST")]));
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut lane = Lane::new(1);
        lane.obey(ms(0), &[active(0, FaultKind::Stall, 0)]);
        let mut taken = 0;
        while lane.has_room() {
            lane.accept(ms(1), &[0; 10_000]);
            taken += 10_000;
        }
        assert!((ROOM..ROOM + 10_000).contains(&taken), "{taken}");
    }

    #[test]
    fn bandwidth_is_never_exceeded_and_used_to_the_full() {
        for per_s in [100_u64, 8_000, 1_000_000] {
            let mut lane = Lane::new(1);
            lane.obey(ms(0), &[active(0, FaultKind::Bandwidth { bytes_per_s: per_s }, 0)]);
            let (mut now, mut passed) = (ms(0), 0_u64);
            while now < ms(2_000) {
                if lane.has_room() {
                    lane.accept(now, &[0; 4_096]);
                }
                match lane.due(now) {
                    Due::Bytes(bytes) => {
                        let some = bytes.len();
                        passed += some as u64;
                        lane.passed(some);
                    }
                    Due::At(at) => now = at,
                    other => panic!("{other:?}"),
                }
                let allowed = per_s as f64 * now.0 as f64 / 1e6;
                assert!(passed as f64 <= allowed + 1.0, "{per_s}: {passed} of {allowed} at {now}");
            }
            assert!(passed as f64 >= per_s as f64 * 2.0 * 0.97 - 2.0, "{per_s}: {passed}");
        }
    }

    #[test]
    fn a_lane_that_was_idle_saves_no_more_than_a_moment() {
        let mut lane = Lane::new(1);
        lane.obey(ms(0), &[active(0, FaultKind::Bandwidth { bytes_per_s: 1_000 }, 0)]);
        lane.accept(ms(10_000), &[b'x'; 1_000]);
        let Due::Bytes(first) = lane.due(ms(10_000)) else { panic!() };
        assert!(first.len() <= 100, "{}", first.len());
    }

    #[test]
    fn gaps_come_once_a_period_and_then_all_of_it() {
        let mut lane = Lane::new(1);
        let kind = FaultKind::Gaps { gap: Duration::from_millis(30), period: Duration::from_millis(100) };
        lane.obey(ms(1_000), &[active(0, kind, 1_000)]);
        let mut out = Vec::new();
        for at in (1_000..1_200).step_by(10) {
            lane.accept(ms(at), format!("{at} ").as_bytes());
            out.extend(run(&mut lane, at, at + 9));
        }
        let at: Vec<u64> = out.iter().map(|(at, _)| *at).collect();
        assert!(at.iter().all(|at| (at - 1_000) % 100 >= 30), "{at:?}");
        assert_eq!(out[0], (1_030, "1000 1010 1020 1030 ".to_owned()));
        assert_eq!(out.iter().map(|(_, text)| text.split_whitespace().count()).sum::<usize>(), 20);
    }

    #[test]
    fn a_black_hole_swallows_what_waits_and_what_comes() {
        let mut lane = Lane::new(1);
        lane.obey(ms(0), &[active(0, FaultKind::Stall, 0)]);
        lane.accept(ms(1), b"waits");
        lane.obey(ms(2), &[active(0, FaultKind::Stall, 0), active(1, FaultKind::Blackhole, 2)]);
        lane.accept(ms(3), b"comes");
        assert!(lane.vanishes() && lane.has_room());
        lane.finish(ms(4));
        assert_eq!(lane.due(ms(5)), Due::Nothing);
    }

    #[test]
    fn two_faults_at_once_add_up() {
        let mut lane = Lane::new(1);
        let delay = |ms| FaultKind::Delay { delay: Duration::from_millis(ms), jitter: Duration::ZERO };
        lane.obey(ms(0), &[active(0, delay(100), 0), active(1, delay(50), 0)]);
        lane.accept(ms(0), b"a");
        lane.obey(ms(1), &[active(0, delay(100), 0)]);
        assert_eq!(lane.due(ms(2)), Due::At(ms(150)), "one of both goes on");
    }
}
