//! How long the counters took to follow a forced end, by kind of end, protocol and dialect.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use proto::time::Micros;
use serde::{Deserialize, Serialize};

use crate::{
    plan::{Dialect, EndKind, Protocol},
    record::{Metric, Sample},
};

/// Samples that wait to be taken away; more are counted as dropped (the rows keep them all).
const MAX_WAITING: usize = 65_536;
const MAX_US: u64 = 3_600_000_000;
const PROTOCOLS: [Protocol; 2] = [Protocol::Grpc, Protocol::Websocket];

/// An end that the driver made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeEnd {
    /// How it ended.
    pub kind: EndKind,
    /// Transport.
    pub protocol: Protocol,
    /// Index into the plan's scenarios.
    pub scenario: u16,
}

/// One forced end and the moment at which the backend's counters agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvergenceSample {
    /// What ended.
    pub end: MadeEnd,
    /// For the histograms, on the run's clock.
    pub sample: Sample,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvergenceRow {
    /// Kind of end.
    pub kind: EndKind,
    /// Transport.
    pub protocol: Protocol,
    /// What was spoken over it.
    pub dialect: Dialect,
    /// Sessions that ended so.
    pub killed: u64,
    /// Of those: the backend's counters followed.
    pub detected: u64,
    /// Of those: the backend itself was killed before its counters could be read.
    pub written_off: u64,
    /// Of those: still counted at the end.
    pub ghosts: u64,
    /// Decrements too many for such sessions.
    pub false_capacity: u64,
    /// Some of them are known by sums only, which name no session. What is counted of those is what looks happened to show: that the counters
    /// did not follow, or followed twice, is not told by kind.
    pub sums: bool,
    /// Forced end to agreement, microseconds; absent without a detected end.
    pub p50_us: Option<u64>,
    /// As above.
    pub p95_us: Option<u64>,
    /// As above.
    pub p99_us: Option<u64>,
    /// As above.
    pub max_us: Option<u64>,
}

/// A row and its times, as a checkpoint holds them: value and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRow {
    row: ConvergenceRow,
    times: Vec<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Cell {
    row: ConvergenceRow,
    times: Option<Histogram<u64>>,
}

impl Cell {
    const fn new(kind: EndKind, protocol: Protocol, dialect: Dialect) -> Self {
        let row = ConvergenceRow {
            kind,
            protocol,
            dialect,
            killed: 0,
            detected: 0,
            written_off: 0,
            ghosts: 0,
            false_capacity: 0,
            sums: false,
            p50_us: None,
            p95_us: None,
            p99_us: None,
            max_us: None,
        };
        Self { row, times: None }
    }
}

/// All kinds, protocols and dialects.
#[derive(Debug, Clone)]
pub struct Convergence {
    cells: Vec<Cell>,
    /// In the order of the plan's scenarios; where one is missing it is the native one.
    dialects: Vec<Dialect>,
    waiting: VecDeque<ConvergenceSample>,
    dropped: u64,
    start_us: u64,
}

impl Convergence {
    /// `start_us`: unix time of the run's start. `dialects`: of the plan's scenarios.
    pub fn new(start_us: u64, dialects: Vec<Dialect>) -> Self {
        let native = EndKind::ALL.into_iter().flat_map(|kind| PROTOCOLS.map(|protocol| Cell::new(kind, protocol, Dialect::Native)));
        Self { cells: native.collect(), dialects, waiting: VecDeque::new(), dropped: 0, start_us }
    }

    /// The cell of such ends; the first of its kind makes it.
    fn cell(&mut self, end: MadeEnd) -> &mut Cell {
        let dialect = self.dialects.get(usize::from(end.scenario)).copied().unwrap_or_default();
        self.cell_of(end.kind, end.protocol, dialect)
    }

    fn cell_of(&mut self, kind: EndKind, protocol: Protocol, dialect: Dialect) -> &mut Cell {
        let key = |cell: &Cell| (cell.row.kind, cell.row.dialect, cell.row.protocol == Protocol::Websocket);
        let wanted = (kind, dialect, protocol == Protocol::Websocket);
        let at = self.cells.partition_point(|cell| key(cell) < wanted);
        if self.cells.get(at).is_none_or(|cell| key(cell) != wanted) {
            self.cells.insert(at, Cell::new(kind, protocol, dialect));
        }
        &mut self.cells[at]
    }

    /// Every row with something in it, and its times, for a checkpoint.
    pub(super) fn stored(&self) -> Vec<StoredRow> {
        let used = self.cells.iter().filter(|cell| cell.row.killed + cell.row.detected + cell.row.written_off > 0);
        let bins = |times: &Histogram<u64>| times.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value())).collect();
        used.map(|cell| StoredRow { row: cell.row.clone(), times: cell.times.as_ref().map(bins).unwrap_or_default() }).collect()
    }

    /// Goes on from these rows.
    pub(super) fn resume(&mut self, rows: &[StoredRow]) {
        for stored in rows {
            let cell = self.cell_of(stored.row.kind, stored.row.protocol, stored.row.dialect);
            cell.row = stored.row.clone();
            cell.times = Histogram::new_with_bounds(1, MAX_US, 3).ok();
            for (value, n) in &stored.times {
                if let Some(times) = &mut cell.times {
                    times.saturating_record_n(*value, *n);
                }
            }
        }
    }

    /// Counts into a row.
    pub fn count(&mut self, end: MadeEnd, step: impl FnOnce(&mut ConvergenceRow)) {
        step(&mut self.cell(end).row);
    }

    /// The counters agree about a session that was forced at `from_us` (unix).
    pub fn detected(&mut self, end: MadeEnd, from_us: u64, agreed_us: u64) {
        let took = agreed_us.saturating_sub(from_us);
        let cell = self.cell(end);
        cell.row.detected += 1;
        cell.row.max_us = cell.row.max_us.max(Some(took));
        // The bounds are constants that the library takes: without a histogram the row has no times, never a panic.
        if cell.times.is_none() {
            cell.times = Histogram::new_with_bounds(1, MAX_US, 3).ok();
        }
        if let Some(times) = &mut cell.times {
            times.saturating_record(took.max(1));
        }
        // The metric is of forced ends: goodbyes, which are many and quick, would hide them.
        if end.kind == EndKind::Graceful {
            return;
        }
        let from = Micros(from_us.saturating_sub(self.start_us));
        let sample = Sample { metric: Metric::CounterConvergence, intended: from, actual: from, to: Micros(from.0 + took) };
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(ConvergenceSample { end, sample });
    }

    /// Takes the samples since the last call, and how many were dropped because nobody called.
    pub fn drain(&mut self) -> (Vec<ConvergenceSample>, u64) {
        (self.waiting.drain(..).collect(), std::mem::take(&mut self.dropped))
    }

    /// The table, in the order of [`EndKind::ALL`], then by dialect, gRPC before WebSocket. What was never made has rows in the native dialect only.
    pub fn rows(&self) -> Vec<ConvergenceRow> {
        self.cells
            .iter()
            .map(|cell| {
                let mut row = cell.row.clone();
                if let Some(times) = cell.times.as_ref().filter(|times| !times.is_empty()) {
                    // The histogram gives the upper edge of a bucket; no quantile may stand above the longest that was.
                    let max = row.max_us.unwrap_or(MAX_US);
                    row.p50_us = Some(times.value_at_quantile(0.5).min(max));
                    row.p95_us = Some(times.value_at_quantile(0.95).min(max));
                    row.p99_us = Some(times.value_at_quantile(0.99).min(max));
                }
                row
            })
            .collect()
    }
}
