//! Herding: grants that one backend gets before anybody hears what they did to it.

use std::time::Duration;

use proto::time::Micros;

/// Counts grants by backend in fixed windows of one report interval.
#[derive(Debug)]
pub(super) struct Herds {
    window_us: u64,
    /// By backend: the window it was last granted to in, and how often.
    granted: Vec<(u64, u64)>,
    /// What each said at the last look, sessions per second.
    said: Vec<Option<f64>>,
    /// The window in which there was a look after its begin, and what was said before that look.
    frozen: Option<u64>,
    said_before: Vec<Option<f64>>,
    most: u64,
    ratio: Option<f64>,
}

impl Herds {
    pub(super) fn new(backends: usize, interval: Duration) -> Self {
        let window_us = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX).max(1);
        Self {
            window_us,
            granted: vec![(0, 0); backends],
            said: vec![None; backends],
            frozen: None,
            said_before: vec![None; backends],
            most: 0,
            ratio: None,
        }
    }

    /// What backends say they can take, at a look.
    pub(super) fn hear(&mut self, at: Micros, rates: impl Iterator<Item = Option<f64>>) {
        let window = at.0 / self.window_us;
        if self.frozen != Some(window) && !at.0.is_multiple_of(self.window_us) {
            self.said_before.clone_from(&self.said);
            self.frozen = Some(window);
        }
        let sane = |rate: Option<f64>| rate.filter(|rate| rate.is_finite()).map(|rate| rate.max(0.0));
        for (said, rate) in self.said.iter_mut().zip(rates.chain(std::iter::repeat(None))) {
            *said = sane(rate);
        }
    }

    /// One more grant.
    pub(super) fn grant(&mut self, at: Micros, backend: usize) {
        let window = at.0 / self.window_us;
        let said = if self.frozen == Some(window) { &self.said_before } else { &self.said };
        let rate = said.get(backend).copied().flatten();
        let Some((last, count)) = self.granted.get_mut(backend) else { return };
        if *last != window {
            (*last, *count) = (window, 0);
        }
        *count += 1;
        // Less than one session is no number of sessions: a backend that said 0 counts as if it had said 1.
        let ratio = rate.map(|rate| *count as f64 / (rate * self.window_us as f64 / 1e6).max(1.0));
        if *count > self.most {
            (self.most, self.ratio) = (*count, ratio);
        } else if *count == self.most && ratio > self.ratio {
            self.ratio = ratio;
        }
    }

    /// Most grants, and over what that backend had said.
    pub(super) fn worst(&self) -> (u64, Option<f64>) {
        (self.most, self.ratio)
    }
}
