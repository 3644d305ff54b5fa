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
    path::{Path, PathBuf},
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
    /// Where the next file is begun, and when; none for a log that is no file.
    rotation: Option<Rotation<W>>,
    run: RunInfo,
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
    /// Into files of this folder: `latencies.hlog`, then `latencies.0002.hlog` and so on, a new one after so long, or when one has
    /// [`MAX_BYTES`]. Each is a whole log. Those that are there already stay: the run goes on after them.
    pub fn rotating(folder: &Path, every: Duration) -> io::Result<Self> {
        let number = parts(folder)?.len() + 1;
        let path = part(folder, number);
        let mut log = Self::new(open(&path)?, path.display().to_string());
        log.rotation = Some(Rotation { folder: folder.to_owned(), open, every, number, from_us: 0, seconds: 0 });
        Ok(log)
    }
}

fn open(path: &Path) -> io::Result<BufWriter<File>> {
    File::create(path).map(BufWriter::new)
}

/// A file that has grown so large is followed by the next.
pub const MAX_BYTES: u64 = 64 << 20;

struct Rotation<W> {
    folder: PathBuf,
    open: fn(&Path) -> io::Result<W>,
    every: Duration,
    number: usize,
    /// First second in the file, unix microseconds; 0 for none.
    from_us: u64,
    /// So many are in it.
    seconds: u64,
}

fn part(folder: &Path, number: usize) -> PathBuf {
    folder.join(if number == 1 { "latencies.hlog".to_owned() } else { format!("latencies.{number:04}.hlog") })
}

/// The files of a log in order of time, with their sizes.
pub fn parts(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut all = Vec::new();
    loop {
        let path = part(folder, all.len() + 1);
        match std::fs::metadata(&path) {
            Ok(file) => all.push((path, file.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}

impl<W: Write> Hlog<W> {
    /// Into any writer; `name` is for error messages.
    pub fn new(out: W, name: impl Into<String>) -> Self {
        Self {
            out,
            name: name.into(),
            rotation: None,
            run: RunInfo::default(),
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
        self.run = run.clone();
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
        self.rotate(second)?;
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
        // Whatever kills the driver, the kernel has it.
        self.out.flush()
    }

    /// Begins the next file before this second, when it is time.
    fn rotate(&mut self, second: &Second) -> io::Result<()> {
        let Some(rotation) = &mut self.rotation else { return Ok(()) };
        if rotation.from_us == 0 {
            rotation.from_us = second.from_us;
        }
        rotation.seconds += 1;
        let aged = second.from_us.saturating_sub(rotation.from_us) >= rotation.every.as_micros() as u64;
        // A second is a few kilobytes: the size is asked for now and then only.
        let full = || {
            rotation.seconds.is_multiple_of(16) && part(&rotation.folder, rotation.number).metadata().is_ok_and(|f| f.len() >= MAX_BYTES)
        };
        if !aged && !full() {
            return Ok(());
        }
        rotation.number += 1;
        (rotation.from_us, rotation.seconds) = (second.from_us, 0);
        let path = part(&rotation.folder, rotation.number);
        self.name = path.display().to_string();
        self.out = (rotation.open)(&path)?;
        let run = std::mem::take(&mut self.run);
        self.header(&run)
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
    fn files_follow_each_other_and_each_is_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunInfo { started_at_us: 1_700_000_000_000_000, ..RunInfo::default() };
        let write = |seconds: std::ops::Range<u64>| {
            let mut log = Hlog::rotating(folder.path(), Duration::from_secs(10)).unwrap();
            log.event(Event::Started(&run)).unwrap();
            for at in seconds {
                log.event(Event::Second(&second(at, false, &[(Metric::Connect, &[at + 1])]))).unwrap();
            }
        };
        write(0..25);
        // Another driver goes on.
        write(30..35);
        let parts = parts(folder.path()).unwrap();
        let seconds = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains("#[Histogram log format version 1.3]"), "{}", path.display());
            text.lines().filter(|line| line.starts_with("Tag=connect,")).count()
        };
        assert_eq!(parts.iter().map(|(path, _)| seconds(path)).collect::<Vec<_>>(), [10, 10, 5, 5]);
        assert!(parts[3].0.ends_with("latencies.0004.hlog"));
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
