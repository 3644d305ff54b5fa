//! The plan in numbers, before the run: what `check` prints and what the funnel starts from.

use std::time::Duration;

use proto::time::{Micros, format_duration};

use super::{Plan, ScenarioPlan};

/// What is known of one scenario beforehand.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// Most sessions that may be open at once: places of a closed scenario; of an open one, all of it, since nobody knows how long they take.
    pub lanes: usize,
    /// Sessions that will begin; unknown where the next begins when one ends.
    pub sessions: Option<u64>,
    /// First begin.
    pub from: Micros,
    /// No session begins later.
    pub to: Micros,
    /// Longest grace after that.
    pub grace: Duration,
}

impl ScenarioPlan {
    /// See [`Outlook`].
    pub fn outlook(&self) -> Outlook {
        Outlook {
            lanes: self.lanes.len(),
            sessions: self.lanes.iter().all(|lane| !lane.repeat).then_some(self.lanes.len() as u64),
            from: self.lanes.iter().map(|lane| lane.start).min().unwrap_or_default(),
            to: self.lanes.iter().map(|lane| lane.stop).max().unwrap_or_default(),
            grace: self.lanes.iter().map(|lane| lane.grace).max().unwrap_or_default(),
        }
    }

    /// In `parts` equal stretches up to `end`: sessions that begin (open), or the mean number of places open (closed).
    fn levels(&self, end: Micros, parts: usize) -> Vec<f64> {
        let width = (end.0 as f64 / parts as f64).max(1.0);
        let mut levels = vec![0.0; parts];
        for lane in &self.lanes {
            if lane.repeat {
                let (start, stop) = (lane.start.0 as f64, lane.stop.0 as f64);
                for (at, level) in levels.iter_mut().enumerate() {
                    let (from, to) = (at as f64 * width, (at + 1) as f64 * width);
                    *level += (stop.min(to) - start.max(from)).max(0.0) / width;
                }
            } else if let Some(level) = levels.get_mut(((lane.start.0 as f64 / width) as usize).min(parts - 1)) {
                *level += 1.0;
            }
        }
        levels
    }
}

/// The plan as a table for people.
#[derive(Debug)]
pub struct Outline<'a>(pub &'a Plan);

impl std::fmt::Display for Outline<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const PARTS: usize = 20;
        let plan = self.0;
        let (stop, end) = (plan.stops_at(), plan.ends_at());
        let grace = format_duration(end.since(stop));
        writeln!(f, "sessions begin for {}, and get up to {grace} more to finish: at most {} in all", seconds(stop), seconds(end))?;
        let known: u64 = plan.scenarios.iter().filter_map(|scenario| scenario.outlook().sessions).sum();
        let places: usize = plan.scenarios.iter().filter(|s| s.outlook().sessions.is_none()).map(|s| s.lanes.len()).sum();
        writeln!(f, "places kept filled (closed): {places}; sessions at fixed times (open): {known}")?;
        let width = plan.scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0).max(8);
        writeln!(
            f,
            "\n{:width$}  {:9}  {:>8}  {:>8}  {:PARTS$}  {:>8}  ends",
            "scenario", "protocol", "from", "to", "0 to the end", "most"
        )?;
        for scenario in &plan.scenarios {
            let outlook = scenario.outlook();
            let levels = scenario.levels(stop, PARTS);
            let most = levels.iter().copied().fold(0.0, f64::max);
            let unit = if outlook.sessions.is_some() { "new" } else { "open" };
            let protocol = scenario.protocol.name();
            let ends: Vec<&str> = scenario.ends.iter().filter(|(weight, _)| *weight > 0.0).map(|(_, kind)| kind.name()).collect();
            writeln!(
                f,
                "{:width$}  {protocol:9}  {:>8}  {:>8}  {}  {:>8}  {}",
                scenario.name,
                seconds(outlook.from),
                seconds(outlook.to),
                sparkline(&levels, most),
                format!("{most:.0} {unit}"),
                ends.join(", "),
            )?;
        }
        write!(f, "each column is {} of the run; `open` counts places, `new` sessions that begin", seconds(Micros(stop.0 / PARTS as u64)))
    }
}

fn seconds(at: Micros) -> String {
    // To the tenth: a plan's times are for people here.
    format!("{:.1}s", at.0 as f64 / 1e6)
}

fn sparkline(levels: &[f64], most: f64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |level: &f64| match level / most {
        share if share.is_finite() && share > 0.0 => BARS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1],
        _ => ' ',
    };
    levels.iter().map(bar).collect()
}
