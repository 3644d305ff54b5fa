//! A run as its results tell of it. Only what a comparison needs is read, so that results of another version can be compared too.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};
use serde::Deserialize;

use super::quantile::{Bins, MOST};
use crate::{
    record::Series,
    report::{hlog, results},
};

/// Results that cannot be compared at all.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// There is no summary.
    #[error(transparent)]
    Missing(#[from] results::ResultsError),
    /// A file cannot be read.
    #[error("failed to read {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no summary.
    #[error("{} is no summary of load-driver: {reason}", path.display())]
    NoSummary {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// A run.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// What its summary says.
    pub summary: Told,
    /// Its interval log; empty without one.
    pub intervals: Intervals,
    /// It is not over, or was cut off: there is only a checkpoint.
    pub unfinished: bool,
}

/// The parts of `summary.json` that are compared.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in the summary")]
pub struct Told {
    pub run: Run,
    pub stopped_early: Option<String>,
    pub unfinished: bool,
    pub workers_lost: u64,
    pub generator: Generator,
    pub funnel: Funnel,
    pub counts: BTreeMap<String, u64>,
    pub latencies: Vec<Latency>,
    pub scenarios: Vec<Scenario>,
    pub series: Option<Series>,
    pub resolved_profile: serde_json::Value,
}

/// As in the summary.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in the summary")]
pub struct Run {
    pub run_id: String,
    pub profile: String,
    pub version: String,
    pub seed: u64,
    pub targets: Vec<String>,
    pub started_at_us: u64,
}

/// As in the summary.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in the summary")]
pub struct Generator {
    pub saturation: Saturation,
    pub cores: f64,
}

/// As in the summary.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in the summary")]
pub struct Saturation {
    pub saturated: bool,
    pub reasons: Vec<String>,
}

/// As in the summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in the summary")]
pub struct Funnel {
    pub requested: u64,
    pub failed: u64,
    pub not_attempted: u64,
    pub not_established: u64,
    pub aborted: u64,
    pub refused_as_planned: u64,
}

impl Funnel {
    /// As `ledger::Funnel` says.
    pub fn sessions_failed(&self) -> u64 {
        (self.failed + self.not_attempted + self.not_established).saturating_sub(self.aborted + self.refused_as_planned)
    }
}

/// As in the summary.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in the summary")]
pub struct Latency {
    pub metric: String,
    pub response: Option<Samples>,
}

/// As in the summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in the summary")]
pub struct Samples {
    pub count: u64,
}

/// As in the summary.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "as in the summary")]
pub struct Scenario {
    pub name: String,
    pub funnel: Funnel,
    pub counts: BTreeMap<String, u64>,
    pub latencies: Vec<Latency>,
}

impl Recorded {
    /// From a folder of results, or its `summary.json`; the interval log lies beside that.
    pub fn read(path: &Path) -> Result<Self, RecordedError> {
        let found = results::find(path)?;
        let text = fs::read_to_string(&found.file).map_err(|source| RecordedError::Unreadable { path: found.file.clone(), source })?;
        let summary = Told::parse(&text).map_err(|reason| RecordedError::NoSummary { path: found.file.clone(), reason })?;
        Ok(Self { unfinished: found.unfinished || summary.unfinished, summary, intervals: Intervals::of(&found.folder)? })
    }
}

impl Told {
    /// From the text of a summary; why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !value.get("schema_version").is_some_and(serde_json::Value::is_u64) {
            return Err("it has no schema_version".to_owned());
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

/// Response times by tag and time, in bounded memory: with more than [`MOST`] intervals each two become one.
#[derive(Debug, Clone, Default)]
pub struct Intervals {
    width_s: u64,
    by_tag: BTreeMap<String, BTreeMap<u64, BTreeMap<u64, u64>>>,
    /// Lines that could not be read: of a log whose writer was killed, the last one.
    pub damaged: u64,
}

impl Intervals {
    /// The log of a folder of results.
    pub fn of(folder: &Path) -> Result<Self, RecordedError> {
        let mut intervals = Self::default();
        let parts = hlog::parts(folder).map_err(|source| RecordedError::Unreadable { path: folder.to_owned(), source })?;
        for (path, _) in parts {
            let read = File::open(&path).and_then(|file| intervals.read(BufReader::new(file)));
            read.map_err(|source| RecordedError::Unreadable { path, source })?;
        }
        Ok(intervals)
    }

    /// There is no log, or nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.by_tag.is_empty()
    }

    /// Samples under a tag.
    pub fn samples(&self, tag: &str) -> u64 {
        let all = self.by_tag.get(tag).into_iter().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        all.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Tags with samples.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.by_tag.keys().map(String::as_str)
    }

    fn read(&mut self, mut log: impl BufRead) -> std::io::Result<()> {
        let mut deserializer = Deserializer::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            if log.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            // Comments, the heading; lines without a tag are sums of others, service times are no response times.
            if !line.starts_with(b"Tag=") || line.split(|byte| *byte == b',').next().is_some_and(|tag| tag.ends_with(b".service")) {
                continue;
            }
            if self.line(&line, &mut deserializer).is_none() {
                self.damaged += 1;
            }
        }
    }

    fn line(&mut self, line: &[u8], deserializer: &mut Deserializer) -> Option<()> {
        // A line that was cut short may still look like one.
        if !line.ends_with(b"\n") {
            return None;
        }
        let Some(Ok(LogEntry::Interval(interval))) = IntervalLogIterator::new(line).next() else { return None };
        let tag = interval.tag()?.as_str();
        let bytes = proto::base64::decode(interval.encoded_histogram())?;
        let samples: Histogram<u64> = deserializer.deserialize(&mut bytes.as_slice()).ok()?;
        let at_s = (interval.start_timestamp() + interval.duration() / 2).as_secs();
        self.add(tag, at_s, samples.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value())));
        Some(())
    }

    /// One more interval of a second.
    pub fn add(&mut self, tag: &str, at_s: u64, samples: impl IntoIterator<Item = (u64, u64)>) {
        self.width_s = self.width_s.max(1);
        while at_s / self.width_s >= MOST as u64 {
            self.widen(self.width_s * 2);
        }
        let intervals = self.by_tag.entry(tag.to_owned()).or_default();
        let bins = intervals.entry(at_s / self.width_s).or_default();
        for (value, count) in samples {
            let bin = bins.entry(value).or_default();
            *bin = bin.saturating_add(count);
        }
    }

    fn widen(&mut self, width_s: u64) {
        let by = width_s / self.width_s.max(1);
        for intervals in self.by_tag.values_mut() {
            for (at, bins) in std::mem::take(intervals) {
                let wide: &mut BTreeMap<u64, u64> = intervals.entry(at / by.max(1)).or_default();
                for (value, count) in bins {
                    *wide.entry(value).or_default() += count;
                }
            }
        }
        self.width_s = width_s;
    }

    /// Both at the same times: from the first interval that either has, of any tag, to the last. A tail that only one run has is not cut off.
    pub fn aligned(&self, other: &Self, tag: &str) -> (Vec<Bins>, Vec<Bins>) {
        let width_s = self.width_s.max(other.width_s);
        let wide = |one: &Self| {
            let mut one = Self {
                width_s: one.width_s,
                by_tag: one.by_tag.get_key_value(tag).map(|(k, v)| (k.clone(), v.clone())).into_iter().collect(),
                damaged: 0,
            };
            if one.width_s < width_s {
                one.widen(width_s);
            }
            one.by_tag.remove(tag).unwrap_or_default()
        };
        let ends = |one: &Self| {
            let by = width_s / one.width_s.max(1);
            let keys = one.by_tag.values().flat_map(|intervals| [intervals.keys().next(), intervals.keys().next_back()]);
            keys.flatten().map(move |at| at / by.max(1)).collect::<Vec<_>>()
        };
        let all = [ends(self), ends(other)].concat();
        let (Some(first), Some(last)) = (all.iter().min().copied(), all.iter().max().copied()) else { return Default::default() };
        let (mut a, mut b) = (wide(self), wide(other));
        let take = |of: &mut BTreeMap<u64, BTreeMap<u64, u64>>, at| of.remove(&at).unwrap_or_default().into_iter().collect();
        (first..=last).map(|at| (take(&mut a, at), take(&mut b, at))).unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_merged_and_lines_up_with_a_short_one() {
        let (mut long, mut short) = (Intervals::default(), Intervals::default());
        for at in 0..1_000 {
            long.add("a", at, [(at, 1)]);
        }
        for at in 4..20 {
            short.add("a", at, [(7, 2)]);
        }
        assert_eq!(long.width_s, 4);
        let (a, b) = long.aligned(&short, "a");
        assert_eq!((a.len(), b.len()), (250, 250));
        assert_eq!(a[1], [(4, 1), (5, 1), (6, 1), (7, 1)]);
        assert_eq!((b[0].clone(), b[1].clone(), b[4].clone(), b[5].clone()), (vec![], vec![(7, 8)], vec![(7, 8)], vec![]));
        assert_eq!(a.iter().flatten().map(|(_, n)| n).sum::<u64>(), 1_000, "nothing is lost");
        let (none, _) = long.aligned(&short, "b");
        assert!(none.iter().all(Vec::is_empty));
        assert_eq!(Intervals::default().aligned(&Intervals::default(), "a"), (vec![], vec![]));
    }

    #[test]
    fn only_the_files_of_a_log_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let line = |tag: &str| {
            let mut bytes = Vec::new();
            let mut samples = crate::record::histogram::empty();
            crate::record::histogram::record(&mut samples, 100);
            let mut log = crate::report::Hlog::new(&mut bytes, "log");
            let second = crate::record::Second {
                latencies: [(crate::record::Metric::Connect, (samples, crate::record::histogram::empty()))].into(),
                to_us: 1_000_000,
                ..Default::default()
            };
            crate::report::Sink::event(&mut log, crate::report::Event::Second(&second)).unwrap();
            drop(log);
            fs::write(folder.path().join(tag), bytes).unwrap();
        };
        for name in ["latencies.hlog", "latencies.0002.hlog", "latencies.backup.hlog", "latencies.0004.hlog"] {
            line(name);
        }
        assert_eq!(Intervals::of(folder.path()).unwrap().samples("connect"), 2);
    }

    /// The writer was killed in the middle of a line: the rest counts.
    #[test]
    fn a_cut_log_is_read_to_the_cut() {
        use crate::{
            record::{Metric, Second, histogram},
            report::{Event, Hlog, RunInfo, Sink},
        };
        let mut bytes = Vec::new();
        let mut log = Hlog::new(&mut bytes, "log");
        log.event(Event::Started(&RunInfo { started_at_us: 1_000_000, ..RunInfo::default() })).unwrap();
        for at_s in 0..3u64 {
            let mut samples = histogram::empty();
            histogram::record(&mut samples, 100 + at_s);
            let latencies = [(Metric::Connect, (samples, histogram::empty()))].into();
            let from_us = 1_000_000 + at_s * 1_000_000 + 3_000;
            log.event(Event::Second(&Second { at_s, from_us, to_us: from_us + 1_000_000, latencies, ..Second::default() })).unwrap();
        }
        drop(log);
        let mut whole = Intervals::default();
        whole.read(bytes.as_slice()).unwrap();
        assert_eq!((whole.tags().collect::<Vec<_>>(), whole.damaged), (vec!["connect"], 0));
        let (seconds, _) = whole.aligned(&Intervals::default(), "connect");
        assert_eq!(seconds, [vec![(100, 1)], vec![(101, 1)], vec![(102, 1)]]);
        let last_tag = bytes.windows(12).rposition(|w| w == b"Tag=connect,").unwrap();
        let mut cut = Intervals::default();
        cut.read(&bytes[..last_tag + 40]).unwrap();
        assert_eq!((cut.aligned(&Intervals::default(), "connect").0.len(), cut.damaged), (2, 1));
    }
}
