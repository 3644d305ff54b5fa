//! Judges thresholds while the run goes on, and at its end.

use std::{collections::VecDeque, time::Duration};

use super::{
    Measure, Source, Status, Threshold, ThresholdResult,
    evaluate::{Figure, Share},
};
use crate::record::Metric;

/// All thresholds of a run. Pure: the caller brings the figures, the figures bring the time.
///
/// - Without a window the whole measured part is judged: at the end, and with `abort_on_fail` after each second.
/// - With a window each span of that length is judged after each second, once a whole one has passed; one broken span breaks the
///   threshold for good. A span with too few samples is not judged; when none ever was, there is no data.
#[derive(Debug)]
pub struct Monitor {
    watched: Vec<Watched>,
    /// Of the measured time, so much was before there was anything to look at.
    from: Duration,
}

#[derive(Debug)]
struct Watched {
    threshold: Threshold,
    /// Of a window over sessions: how they stood after each second of it, the oldest first.
    past: VecDeque<(Duration, Share)>,
    /// Last figure that could be judged.
    last: Option<Figure>,
    /// First judgement that it failed, when, and by which figure; none where a window had no data. Stays.
    broken: Option<(Duration, Option<Figure>)>,
}

impl Monitor {
    /// Watches these.
    pub fn new(thresholds: Vec<Threshold>) -> Self {
        let watched = thresholds.into_iter().map(|threshold| Watched { threshold, past: VecDeque::new(), last: None, broken: None });
        Self { watched: watched.collect(), from: Duration::ZERO }
    }

    /// Of a run that goes on: windows begin anew after this measured time.
    #[must_use]
    pub fn from(mut self, measured: Duration) -> Self {
        self.from = measured;
        self
    }

    /// The thresholds.
    pub fn thresholds(&self) -> impl Iterator<Item = &Threshold> {
        self.watched.iter().map(|w| &w.threshold)
    }

    /// Call after each second. While `loaded`, sessions are still begun: a window without data, once there was some, is then the target's
    /// silence and no end of the run. Returns the result of the first threshold that wants the run to stop.
    pub fn tick(&mut self, source: &impl Source, loaded: bool) -> Option<ThresholdResult> {
        let now = source.measured();
        let mut stop = None;
        for watched in &mut self.watched {
            watched.remember(source, now);
            let spec = &watched.threshold.spec;
            let due = now >= spec.delay_abort_eval && spec.window.is_none_or(|window| now >= self.from + window);
            if due && (spec.abort_on_fail || spec.window.is_some()) {
                watched.judge(source, now, loaded);
            }
            if watched.aborts() && stop.is_none() {
                stop = Some(watched.result(source));
            }
        }
        stop
    }

    /// What the registry must keep: the longest window, and the latencies that windows judge. None without windows.
    pub fn windows(&self) -> Option<(Duration, Vec<Metric>)> {
        let windowed = || self.thresholds().filter_map(|t| Some((t.spec.window?, t.key.measure)));
        let longest = windowed().map(|(window, _)| window).max()?;
        let metrics = windowed().filter_map(|(_, measure)| match measure {
            Measure::Latency(metric, _) => Some(metric),
            _ => None,
        });
        Some((longest, metrics.collect()))
    }

    /// Results in the order of the profile, at the end of the run.
    pub fn results(&self, source: &impl Source) -> Vec<ThresholdResult> {
        self.watched.iter().map(|w| w.result(source)).collect()
    }
}

impl Watched {
    fn holds(&self, figure: Figure) -> bool {
        self.threshold.expression.operator.holds(figure.value, self.threshold.expression.limit)
    }

    fn aborts(&self) -> bool {
        self.threshold.spec.abort_on_fail && self.broken.is_some()
    }

    /// Sessions are counted since the run began: a window needs to know how they stood when it began.
    fn remember(&mut self, source: &impl Source, now: Duration) {
        let Some(window) = self.threshold.spec.window else { return };
        let Some(share) = self.threshold.sessions_by_now(source) else { return };
        self.past.push_back((now, share));
        // The newest of those that are a whole window ago stays the first.
        while self.past.get(1).is_some_and(|(at, _)| *at + window <= now) {
            self.past.pop_front();
        }
    }

    fn judge(&mut self, source: &impl Source, now: Duration, loaded: bool) {
        let spec = &self.threshold.spec;
        let before = self.past.front().map(|(_, share)| *share).unwrap_or_default();
        match self.threshold.figure(source, spec.window, before) {
            Some(figure) => {
                self.last = Some(figure);
                if !self.holds(figure) {
                    self.broken.get_or_insert((now, Some(figure)));
                }
            }
            None if loaded && spec.window.is_some() && self.last.is_some() && !spec.allow_no_data => {
                self.broken.get_or_insert((now, None));
            }
            None => {}
        }
    }

    fn result(&self, source: &impl Source) -> ThresholdResult {
        let spec = &self.threshold.spec;
        let figure = match (spec.window, self.broken) {
            // What broke it stays, even if samples on the way out bend the figure back.
            (_, Some((_, broken))) => broken,
            (Some(_), None) => self.last,
            (None, None) => self.threshold.figure(source, None, Share::default()),
        };
        let status = match figure {
            None => Status::NoData,
            Some(figure) if self.holds(figure) => Status::Passed,
            Some(_) => Status::Failed,
        };
        ThresholdResult {
            key: self.threshold.key.to_string(),
            expression: self.threshold.expression.to_string(),
            status,
            ok: status == Status::Passed || (status == Status::NoData && spec.allow_no_data),
            value: figure.map(|f| f.value),
            limit: self.threshold.expression.limit,
            unit: self.threshold.unit(),
            samples: figure.map_or(0, |f| f.samples),
            window_s: spec.window.map(|w| w.as_secs_f64()),
            broken_at_s: self.broken.map(|(at, _)| at.as_secs_f64()),
            aborted_run: self.aborts(),
        }
    }
}

#[cfg(test)]
#[path = "monitor_tests.rs"]
mod tests;
