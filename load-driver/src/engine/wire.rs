//! Events of an engine as bytes, for the pipe from a worker process.
//!
//! A frame is the length of its rest (u32, big endian), the length of its head (u32), the head as JSON, and after it the histograms
//! that the head announces, in HdrHistogram's V2 form, so that the merge of workers loses nothing.

use std::io::{self, Read, Write};

use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer, V2Serializer},
};
use serde::{Deserialize, Serialize};

use super::{EngineEvent, IntervalReport, ScenarioInterval, event::StormStep};
use crate::{
    ledger::LedgerEntry,
    record::{Counter, Metric, histogram::LIMIT_US},
    transport::About,
    voice::VoiceNews,
};

/// Longest frame. A second of sixty scenarios with every histogram full stays below.
const MAX_FRAME: usize = 256 * 1024 * 1024;
/// Ledger entries in one frame; longer batches are cut.
const MAX_ENTRIES: usize = 8_192;
/// First bytes of a histogram in the V2 form.
const V2_COOKIE: u64 = 0x1c84_9313;
/// Of a histogram, before its counts.
const HEADER_BYTES: u64 = 40;
/// Finest histogram taken.
const MAX_DIGITS: u64 = 3;
/// Widest histogram taken: room for one that grew to the limit of latencies.
const MAX_HIGH: u64 = 4 * LIMIT_US;

/// The pipe from a worker is broken.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Reading or writing failed.
    #[error("failed to use the pipe between driver and worker: {0}")]
    Io(#[from] io::Error),
    /// It ended in the middle of a frame, as it does when the worker is killed.
    #[error("the worker's events end in the middle of a frame")]
    Truncated,
    /// Not ours.
    #[error("the worker sent what is no event: {0}")]
    Malformed(String),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Head {
    Ledger { shard: usize, entries: Vec<LedgerEntry>, complete_to_us: u64 },
    Interval { shard: usize, from_us: u64, to_us: u64, active: u64, speaking: u64, tasks: u64, warmup: bool, scenarios: Vec<Scenario> },
    Voice(VoiceNews),
    Said { reasons: Vec<(About, String)> },
    Struck { fault: u16, sessions: u64 },
    Storm { fault: u16, steps: Vec<(u64, StormStep)> },
    StoodStill { shard: usize, from_us: u64, to_us: u64 },
    Ready,
    Done { shard: usize },
    Fatal { message: String },
}

#[derive(Serialize, Deserialize)]
struct Scenario {
    number: u16,
    /// Lengths of the two histograms that follow the head.
    latencies: Vec<(Metric, usize, usize)>,
    counts: Vec<(Counter, u64)>,
    clamped: u64,
}

/// Writes one event; does not flush.
pub fn write_event(out: &mut impl Write, event: EngineEvent) -> Result<(), WireError> {
    let mut blobs = Vec::new();
    let head = match event {
        EngineEvent::Ledger { shard, mut entries, complete_to_us } => {
            while entries.len() > MAX_ENTRIES {
                let rest = entries.split_off(MAX_ENTRIES);
                // Entries are in order of time, so this much is certain after the cut.
                let certain = rest.first().map_or(complete_to_us, |entry| entry.at_us);
                write_frame(out, &Head::Ledger { shard, entries, complete_to_us: certain }, &[])?;
                entries = rest;
            }
            Head::Ledger { shard, entries, complete_to_us }
        }
        EngineEvent::Interval(report) => {
            let IntervalReport { shard, from_us, to_us, active, speaking, tasks, warmup, scenarios } = report;
            let scenarios = scenarios.into_iter().map(|s| pack(s, &mut blobs)).collect::<Result<_, _>>()?;
            Head::Interval { shard, from_us, to_us, active, speaking, tasks, warmup, scenarios }
        }
        EngineEvent::Voice(news) => Head::Voice(news),
        EngineEvent::Said { reasons } => Head::Said { reasons },
        EngineEvent::Struck { fault, sessions } => Head::Struck { fault, sessions },
        EngineEvent::Storm { fault, steps } => Head::Storm { fault, steps },
        EngineEvent::StoodStill { shard, from_us, to_us } => Head::StoodStill { shard, from_us, to_us },
        EngineEvent::Ready => Head::Ready,
        EngineEvent::Done { shard } => Head::Done { shard },
        EngineEvent::Fatal { message } => Head::Fatal { message },
    };
    write_frame(out, &head, &blobs)
}

fn pack(interval: ScenarioInterval, blobs: &mut Vec<u8>) -> Result<Scenario, WireError> {
    let ScenarioInterval { scenario, latencies, counts, clamped } = interval;
    let mut serializer = V2Serializer::new();
    let mut put = |histogram: &Histogram<u64>| {
        serializer.serialize(histogram, blobs).map_err(|e| WireError::Malformed(format!("histogram cannot be written: {e}")))
    };
    let latencies = latencies.iter().map(|(metric, a, b)| Ok((*metric, put(a)?, put(b)?))).collect::<Result<Vec<_>, WireError>>()?;
    Ok(Scenario { number: scenario, latencies, counts, clamped })
}

fn write_frame(out: &mut impl Write, head: &Head, blobs: &[u8]) -> Result<(), WireError> {
    let head = serde_json::to_vec(head).map_err(|e| WireError::Malformed(e.to_string()))?;
    let length = 4 + head.len() + blobs.len();
    if length > MAX_FRAME {
        return Err(WireError::Malformed(format!("an event of {length} bytes is over the limit of {MAX_FRAME}")));
    }
    out.write_all(&(length as u32).to_be_bytes())?;
    out.write_all(&(head.len() as u32).to_be_bytes())?;
    out.write_all(&head)?;
    out.write_all(blobs)?;
    Ok(())
}

/// Reads the next event; none at the end of the pipe.
pub fn read_event(input: &mut impl Read) -> Result<Option<EngineEvent>, WireError> {
    let mut prefix = [0; 4];
    let mut filled = 0;
    while filled < prefix.len() {
        match input.read(&mut prefix[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(WireError::Truncated),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let length = u32::from_be_bytes(prefix) as usize;
    if length > MAX_FRAME {
        return Err(WireError::Malformed(format!("a frame of {length} bytes is over the limit of {MAX_FRAME}")));
    }
    // Grows with what arrives, not with what is announced.
    let mut frame = Vec::new();
    input.by_ref().take(length as u64).read_to_end(&mut frame)?;
    if frame.len() < length {
        return Err(WireError::Truncated);
    }
    parse(&frame).map(Some)
}

fn parse(frame: &[u8]) -> Result<EngineEvent, WireError> {
    let malformed = |what: &str| WireError::Malformed(what.to_owned());
    let (prefix, rest) = frame.split_first_chunk::<4>().ok_or_else(|| malformed("frame without a head"))?;
    let (head, mut blobs) =
        rest.split_at_checked(u32::from_be_bytes(*prefix) as usize).ok_or_else(|| malformed("head longer than its frame"))?;
    let head = serde_json::from_slice(head).map_err(|e| WireError::Malformed(e.to_string()))?;
    Ok(match head {
        Head::Ledger { shard, entries, complete_to_us } => EngineEvent::Ledger { shard, entries, complete_to_us },
        Head::Interval { shard, from_us, to_us, active, speaking, tasks, warmup, scenarios } => {
            let scenarios = scenarios.into_iter().map(|s| unpack(s, &mut blobs)).collect::<Result<_, _>>()?;
            EngineEvent::Interval(IntervalReport { shard, from_us, to_us, active, speaking, tasks, warmup, scenarios })
        }
        Head::Voice(news) => EngineEvent::Voice(news),
        Head::Said { reasons } => EngineEvent::Said { reasons },
        Head::Struck { fault, sessions } => EngineEvent::Struck { fault, sessions },
        Head::Storm { fault, steps } => EngineEvent::Storm { fault, steps },
        Head::StoodStill { shard, from_us, to_us } => EngineEvent::StoodStill { shard, from_us, to_us },
        Head::Ready => EngineEvent::Ready,
        Head::Done { shard } => EngineEvent::Done { shard },
        Head::Fatal { message } => EngineEvent::Fatal { message },
    })
}

/// Looks at a histogram's header before it is read: the reader allocates what the header asks for, whatever follows.
fn check_histogram(blob: &[u8]) -> Result<(), WireError> {
    let field = |at: usize, length: usize| {
        let bytes = blob.get(at..at + length).ok_or_else(|| WireError::Malformed("histogram without its header".to_owned()))?;
        Ok::<u64, WireError>(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let (cookie, payload, digits, low, high) = (field(0, 4)?, field(4, 4)?, field(12, 4)?, field(16, 8)?, field(24, 8)?);
    let whole = cookie == V2_COOKIE && payload + HEADER_BYTES == blob.len() as u64;
    if !whole || digits > MAX_DIGITS || low != 1 || high > MAX_HIGH {
        let message = format!("{digits} digits from {low} to {high} in {payload} bytes are no histogram of this driver");
        return Err(WireError::Malformed(message));
    }
    // Nine such bytes are a run of 2^63 empty bins, which the reader negates with overflow.
    if blob[HEADER_BYTES as usize..].windows(9).any(|bytes| bytes == [0xff; 9]) {
        return Err(WireError::Malformed("histogram with more bins than there are".to_owned()));
    }
    Ok(())
}

fn unpack(scenario: Scenario, blobs: &mut &[u8]) -> Result<ScenarioInterval, WireError> {
    let mut deserializer = Deserializer::new();
    let mut take = |length: usize| {
        let (mut blob, rest) =
            blobs.split_at_checked(length).ok_or_else(|| WireError::Malformed("histogram longer than its frame".to_owned()))?;
        *blobs = rest;
        check_histogram(blob)?;
        deserializer.deserialize(&mut blob).map_err(|e| WireError::Malformed(format!("histogram cannot be read: {e}")))
    };
    let Scenario { number, latencies, counts, clamped } = scenario;
    let latencies = latencies.into_iter().map(|(metric, a, b)| Ok((metric, take(a)?, take(b)?))).collect::<Result<_, WireError>>()?;
    Ok(ScenarioInterval { scenario: number, latencies, counts, clamped })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proto::ids::PlanIndex;

    use super::*;
    use crate::ledger::LedgerEvent;

    fn entry(index: u64) -> LedgerEntry {
        LedgerEntry {
            index: PlanIndex(index),
            at_us: index,
            event: LedgerEvent::Failed { cause: crate::ledger::FailureCause::ServerError(proto::frame::ErrorCode::Idle) },
        }
    }

    fn round(event: EngineEvent) -> Vec<EngineEvent> {
        let mut bytes = Vec::new();
        write_event(&mut bytes, event).expect("writes");
        let mut input = bytes.as_slice();
        std::iter::from_fn(|| read_event(&mut input).expect("reads")).collect()
    }

    fn histogram(values: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds");
        for value in values {
            histogram.saturating_record(*value);
        }
        histogram
    }

    proptest! {
        #[test]
        fn intervals_survive_the_pipe(a in prop::collection::vec(0u64..60_000_000, 0..50), b in prop::collection::vec(0u64..60_000_000, 0..50), n in 0u64..u64::MAX) {
            let scenarios = vec![ScenarioInterval {
                scenario: 3,
                latencies: vec![(Metric::FrameRtt, histogram(&a), histogram(&b)), (Metric::Connect, histogram(&b), histogram(&a))],
                counts: vec![(Counter::FramesSent, n)],
                clamped: n / 2,
            }];
            let report = IntervalReport { shard: 1, from_us: n / 3, to_us: n, active: 4, speaking: 5, tasks: 6, warmup: true, scenarios };
            let events = round(EngineEvent::Interval(report));
            let [EngineEvent::Interval(read)] = events.as_slice() else { panic!("one interval is due: {events:?}") };
            prop_assert_eq!((read.shard, read.from_us, read.to_us, read.active, read.speaking, read.warmup), (1, n / 3, n, 4, 5, true));
            let scenario = &read.scenarios[0];
            prop_assert_eq!(&scenario.latencies[0], &(Metric::FrameRtt, histogram(&a), histogram(&b)));
            prop_assert_eq!(&scenario.latencies[1], &(Metric::Connect, histogram(&b), histogram(&a)));
            prop_assert_eq!(&scenario.counts, &vec![(Counter::FramesSent, n)]);
            prop_assert_eq!(scenario.clamped, n / 2);
        }

        #[test]
        fn garbage_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let mut frame = (bytes.len() as u32).to_be_bytes().to_vec();
            frame.extend(&bytes);
            let _ = read_event(&mut frame.as_slice());
            let _ = read_event(&mut bytes.as_slice());
        }
    }

    /// A frame with an interval whose histograms are both `blob`.
    fn interval_with(blob: &[u8]) -> Vec<u8> {
        let scenario = Scenario { number: 0, latencies: vec![(Metric::Connect, blob.len(), blob.len())], counts: Vec::new(), clamped: 0 };
        let head =
            Head::Interval { shard: 0, from_us: 0, to_us: 1, active: 0, speaking: 0, tasks: 0, warmup: false, scenarios: vec![scenario] };
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &head, &[blob, blob].concat()).expect("writes");
        bytes
    }

    #[test]
    fn a_histogram_that_asks_for_more_than_it_is_worth_is_refused_before_it_is_read() {
        let mut good = Vec::new();
        V2Serializer::new().serialize(&histogram(&[1, 1_000, 59_000_000]), &mut good).expect("writes");
        assert!(read_event(&mut interval_with(&good).as_slice()).is_ok());
        // A payload of 4 GiB, five digits, a range from 2^32, a range to the end, the compressed form.
        let lies: [(usize, &[u8]); 5] =
            [(4, &[0xff; 4]), (12, &[0, 0, 0, 5]), (16, &[0, 0, 0, 1, 0, 0, 0, 0]), (24, &[0xff; 8]), (0, &[0x1c, 0x84, 0x93, 0x14])];
        for (at, lie) in lies {
            let mut blob = good.clone();
            blob[at..at + lie.len()].copy_from_slice(lie);
            let error = read_event(&mut interval_with(&blob).as_slice()).expect_err("a lie").to_string();
            assert!(error.contains("no histogram of this driver"), "{error}");
        }
        assert!(read_event(&mut interval_with(&good[..20]).as_slice()).is_err());
    }

    #[test]
    fn a_histogram_with_a_run_of_more_bins_than_there_are_is_an_error_and_no_overflow() {
        let mut blob = Vec::new();
        V2Serializer::new().serialize(&histogram(&[1]), &mut blob).expect("writes");
        blob.truncate(HEADER_BYTES as usize);
        blob.extend([0xff; 9]);
        blob[7] = 9;
        assert!(read_event(&mut interval_with(&blob).as_slice()).is_err());
    }

    #[test]
    fn long_ledgers_are_cut_and_never_promise_too_much() {
        let entries: Vec<_> = (0..20_000).map(entry).collect();
        let events = round(EngineEvent::Ledger { shard: 0, entries: entries.clone(), complete_to_us: 30_000 });
        let mut seen = Vec::new();
        let mut promised = 0;
        for event in events {
            let EngineEvent::Ledger { entries, complete_to_us, .. } = event else { panic!("only ledgers are due") };
            assert!(entries.len() <= MAX_ENTRIES);
            assert!(entries.iter().all(|e| e.at_us >= promised), "an entry older than the watermark");
            promised = complete_to_us;
            seen.extend(entries);
        }
        assert_eq!(seen, entries);
        assert_eq!(promised, 30_000);
    }

    #[test]
    fn what_a_shard_struck_survives_the_pipe() {
        let steps =
            vec![(7, StormStep::Cut), (9, StormStep::Dials), (10, StormStep::Fails), (20, StormStep::Back), (21, StormStep::GivenUp)];
        let [EngineEvent::Storm { fault: 3, steps: read }] = &round(EngineEvent::Storm { fault: 3, steps: steps.clone() })[..] else {
            panic!("a storm is due")
        };
        assert_eq!(*read, steps);
        let read = round(EngineEvent::Struck { fault: 9, sessions: 4 });
        assert!(matches!(&read[..], [EngineEvent::Struck { fault: 9, sessions: 4 }]), "{read:?}");
        let read = round(EngineEvent::StoodStill { shard: 1, from_us: 5, to_us: 8 });
        assert!(matches!(&read[..], [EngineEvent::StoodStill { shard: 1, from_us: 5, to_us: 8 }]), "{read:?}");
    }

    #[test]
    fn a_pipe_cut_in_a_frame_is_told_from_its_end() {
        let mut bytes = Vec::new();
        write_event(&mut bytes, EngineEvent::Done { shard: 7 }).expect("writes");
        for length in 1..bytes.len() {
            assert!(matches!(read_event(&mut &bytes[..length]), Err(WireError::Truncated)), "{length}");
        }
        assert!(matches!(read_event(&mut &bytes[..0]), Ok(None)));
        assert!(matches!(read_event(&mut bytes.as_slice()), Ok(Some(EngineEvent::Done { shard: 7 }))));
    }
}
