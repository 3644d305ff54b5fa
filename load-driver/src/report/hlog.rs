//! HdrHistogram interval log, version 1.3: one line per metric and second, readable by the Java tools.
//!
//! - Payloads are V2 compressed, values are microseconds, the maximum column is microseconds too.
//! - `BaseTime` is the start of the run, `StartTime` the end of the warm-up; seconds of the warm-up are left out, so that the log adds up
//!   to the summary.
//! - A line `Tag=turn_response` is the response from the intended time, `Tag=turn_response.service` the service time.
//! - A line `Tag=turn_response{scenario:talk}` is that response of one scenario, in runs with several.
//! - The untagged line of a second is what the Java processor shows when asked for no tag: all response times that tell of the agent
//!   (without the driver's own `schedule_lag`, and without `counter_convergence`, which tells of the counters).

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    time::Duration,
};

use hdrhistogram::{
    Histogram,
    serialization::{
        V2DeflateSerializer,
        interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag},
    },
};

use super::{Event, RunInfo, Sink};
use crate::record::{Metric, Second, histogram};

/// Writes each second as it closes, so that a run that dies leaves what it had.
pub struct Hlog<W: Write = BufWriter<File>> {
    out: W,
    name: String,
    serializer: V2DeflateSerializer,
    scratch: Histogram<u64>,
    aggregate: Histogram<u64>,
    base_us: u64,
    scenarios: Vec<String>,
}

impl<W: Write> std::fmt::Debug for Hlog<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hlog").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Hlog {
    /// Into a new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::new(BufWriter::new(File::create(path)?), path.display().to_string()))
    }
}

impl<W: Write> Hlog<W> {
    /// Into any writer; `name` is for error messages.
    pub fn new(out: W, name: impl Into<String>) -> Self {
        Self {
            out,
            name: name.into(),
            serializer: V2DeflateSerializer::new(),
            // The same range in every line: some readers take the range of the first for all.
            scratch: histogram::full_range(),
            aggregate: histogram::full_range(),
            base_us: 0,
            scenarios: Vec::new(),
        }
    }

    fn header(&mut self, run: &RunInfo) -> io::Result<()> {
        self.base_us = run.started_at_us;
        self.scenarios.clone_from(&run.scenarios);
        let seconds = |us: u64| us as f64 / 1e6;
        let start_us = run.started_at_us + (run.warmup_s.max(0.0) * 1e6) as u64;
        writeln!(self.out, "#[Logged with load-driver {}, run {}]", run.version, run.run_id)?;
        writeln!(self.out, "#[Histogram log format version 1.3]")?;
        writeln!(
            self.out,
            "#[values in microseconds; untagged: response times of the agent; NAME.service: service times; NAME{{scenario:S}}: of one scenario]"
        )?;
        writeln!(self.out, "#[StartTime: {:.3} (seconds since epoch)]", seconds(start_us))?;
        writeln!(self.out, "#[BaseTime: {:.3} (seconds since epoch)]", seconds(self.base_us))?;
        writeln!(self.out, "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"")?;
        self.out.flush()
    }

    fn second(&mut self, second: &Second) -> io::Result<()> {
        if second.warmup || second.latencies.is_empty() {
            return Ok(());
        }
        let from = Duration::from_micros(second.from_us.saturating_sub(self.base_us));
        let length = Duration::from_micros(second.to_us.saturating_sub(second.from_us));
        self.aggregate.reset();
        for (_, (response, _)) in second.latencies.iter().filter(|(metric, _)| tells_of_the_agent(**metric)) {
            histogram::merge(&mut self.aggregate, response);
        }
        if !self.aggregate.is_empty() {
            line(&mut self.out, &mut self.serializer, &self.aggregate, (from, length), None)?;
        }
        for (metric, (response, service)) in &second.latencies {
            for (samples, suffix) in [(response, ""), (service, ".service")] {
                self.scratch.reset();
                histogram::merge(&mut self.scratch, samples);
                let tag = format!("{}{suffix}", metric.name());
                line(&mut self.out, &mut self.serializer, &self.scratch, (from, length), Tag::new(&tag))?;
            }
        }
        for ((metric, scenario), samples) in &second.by_scenario {
            let Some(scenario) = self.scenarios.get(usize::from(*scenario)) else { continue };
            self.scratch.reset();
            histogram::merge(&mut self.scratch, samples);
            let tag = crate::compare::key(metric.name(), Some(scenario));
            // Names of scenarios have no commas and no spaces; a line without its tag would count as the sum of all.
            if let Some(tag) = Tag::new(&tag) {
                line(&mut self.out, &mut self.serializer, &self.scratch, (from, length), Some(tag))?;
            }
        }
        self.out.flush()
    }
}

fn tells_of_the_agent(metric: Metric) -> bool {
    !matches!(metric, Metric::ScheduleLag | Metric::CounterConvergence)
}

fn line(
    out: &mut impl Write,
    serializer: &mut V2DeflateSerializer,
    samples: &Histogram<u64>,
    (from, length): (Duration, Duration),
    tag: Option<Tag<'_>>,
) -> io::Result<()> {
    // Without comments or times of its own the builder writes no header, so a writer per line costs nothing and borrows nothing.
    let mut writer = IntervalLogWriterBuilder::new().begin_log_with(out, serializer)?;
    writer.write_histogram(samples, from, length, tag).map_err(|error| match error {
        IntervalLogWriterError::IoError(error) => error,
        IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
    })
}

impl<W: Write> Sink for Hlog<W> {
    fn name(&self) -> &str {
        &self.name
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Started(run) => self.header(run),
            Event::Second(second) => self.second(second),
            Event::Tick(_) => Ok(()),
            Event::Finished(_) => self.out.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    };

    use super::*;

    fn pair(values: &[u64]) -> (Histogram<u64>, Histogram<u64>) {
        let (mut response, mut service) = (histogram::empty(), histogram::empty());
        for value in values {
            histogram::record(&mut response, *value);
            histogram::record(&mut service, value / 2);
        }
        (response, service)
    }

    fn second(at_s: u64, warmup: bool, metrics: &[(Metric, &[u64])]) -> Second {
        let from_us = 1_700_000_000_000_000 + at_s * 1_000_000;
        let latencies = metrics.iter().map(|(metric, values)| (*metric, pair(values))).collect();
        Second { at_s, from_us, to_us: from_us + 1_000_000, warmup, latencies, ..Second::default() }
    }

    fn base64(text: &str) -> Vec<u8> {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let bits: Vec<u32> = text.bytes().filter(|b| *b != b'=').map(|b| ALPHABET.iter().position(|a| *a == b).unwrap() as u32).collect();
        let whole = bits.chunks(4).flat_map(|c| {
            let word = c.iter().fold(0, |word, six| word << 6 | six) << (6 * (4 - c.len()));
            word.to_be_bytes()[1..c.len()].to_vec()
        });
        whole.collect()
    }

    #[test]
    fn round_trip_through_the_reader() {
        let mut log = Hlog::new(Vec::new(), "log");
        let run = RunInfo { started_at_us: 1_700_000_000_000_000, warmup_s: 2.0, ..RunInfo::default() };
        log.event(Event::Started(&run)).unwrap();
        let values: &[u64] = &[5, 900, 300_000, 70_000_000, histogram::LIMIT_US];
        for event in [
            second(1, true, &[(Metric::Connect, &[1])]),
            second(2, false, &[(Metric::Connect, &[7, 8]), (Metric::ScheduleLag, &[0, 0, 3])]),
            second(3, false, &[]),
            second(4, false, &[(Metric::TurnResponse, values)]),
        ] {
            log.event(Event::Second(&event)).unwrap();
        }
        let text = String::from_utf8(log.out).unwrap();
        assert!(text.contains("#[Histogram log format version 1.3]\n"));
        assert!(text.contains("\n\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"));
        let mut lines = Vec::new();
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            match entry.unwrap() {
                LogEntry::BaseTime(at) => assert_eq!(at.as_secs(), 1_700_000_000),
                LogEntry::StartTime(at) => assert_eq!(at.as_secs(), 1_700_000_002),
                LogEntry::Interval(interval) => {
                    let bytes = base64(interval.encoded_histogram());
                    assert_eq!(bytes[..4], 0x1c84_9314_u32.to_be_bytes(), "the cookie of V2 compressed");
                    let samples: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
                    let tag = interval.tag().map_or(String::new(), |t| t.as_str().to_owned());
                    lines.push((interval.start_timestamp().as_secs(), tag, interval.duration().as_secs(), samples));
                }
            }
        }
        let shape: Vec<_> = lines.iter().map(|l| (l.0, l.1.as_str(), l.2, l.3.len())).collect();
        assert_eq!(
            shape,
            [
                (2, "", 1, 2),
                (2, "connect", 1, 2),
                (2, "connect.service", 1, 2),
                (2, "schedule_lag", 1, 3),
                (2, "schedule_lag.service", 1, 3),
                (4, "", 1, 5),
                (4, "turn_response", 1, 5),
                (4, "turn_response.service", 1, 5),
            ]
        );
        let (response, service) = pair(values);
        for (read, recorded) in [(&lines[6].3, &response), (&lines[7].3, &service)] {
            let bins = |h: &Histogram<u64>| h.iter_recorded().map(|s| (s.value_iterated_to(), s.count_at_value())).collect::<Vec<_>>();
            assert_eq!(bins(read), bins(recorded), "what was recorded is what is read");
            assert_eq!((read.min(), read.max()), (recorded.min(), recorded.max()));
        }
        assert_eq!(histogram::clamped(&lines[6].3), 1);
    }
}
