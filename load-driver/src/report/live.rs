//! How it goes: a progress line per scenario on a terminal, plain lines every few seconds without one.

use std::{
    io::{self, Write},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    Event, RunInfo, Sink,
    text::{Lines, count, ms_or_dash, seconds},
};

/// What the run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// Not measured yet.
    Warmup,
    /// Sessions begin and end.
    #[default]
    Running,
    /// No session begins; the live ones may finish.
    Stopping,
    /// All sessions are over; the backends' counters must follow.
    Converging,
}

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Self::Warmup => "warm-up",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Converging => "converging",
        }
    }
}

/// What a scenario's target and actual figures are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadUnit {
    /// Live sessions: closed model.
    #[default]
    Sessions,
    /// New sessions a second: open model.
    PerSecond,
}

/// A scenario now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScenarioTick {
    /// From the profile.
    pub name: String,
    /// Of the next two.
    pub unit: LoadUnit,
    /// As planned for now.
    pub target: f64,
    /// As it is.
    pub actual: f64,
    /// Live sessions.
    pub active: u64,
    /// Sessions that failed so far.
    pub failed: u64,
    /// 0 to 1.
    pub progress: f64,
}

/// The run now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tick {
    /// Since the start.
    pub at: Duration,
    /// As planned.
    pub planned: Duration,
    /// What it does.
    pub stage: Stage,
    /// In the order of the plan.
    pub scenarios: Vec<ScenarioTick>,
    /// Live sessions.
    pub active: u64,
    /// Users who speak.
    pub speaking: u64,
    /// Of the last second; none when nothing was sent.
    pub lag_p99_ms: Option<f64>,
    /// Of the driver, cores.
    pub cpu_cores: Option<f64>,
}

/// Where to show it.
pub enum LiveMode {
    /// Bars, drawn over each other.
    Bars(ProgressDrawTarget),
    /// A block of lines, at most this often.
    Lines {
        /// Where.
        out: Box<dyn Write + Send>,
        /// How often.
        every: Duration,
    },
}

impl std::fmt::Debug for LiveMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bars(_) => "Bars",
            Self::Lines { .. } => "Lines",
        })
    }
}

impl LiveMode {
    /// Bars on a terminal, else a line per scenario every 5 s; both on standard error, so that standard output holds the summary alone.
    pub fn detect(terminal: bool) -> Self {
        if terminal {
            Self::Bars(ProgressDrawTarget::stderr())
        } else {
            Self::Lines { out: Box::new(io::stderr()), every: Duration::from_secs(5) }
        }
    }
}

/// The progress display. It owns no thread and draws only when told, so it cannot hold up the end of the process.
#[derive(Debug)]
pub struct Live {
    shown: Shown,
}

enum Shown {
    Bars { all: MultiProgress, scenarios: Vec<ProgressBar>, run: ProgressBar },
    Lines { out: Box<dyn Write + Send>, every: Duration, due: Duration, stage: Option<Stage> },
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bars { .. } => "Bars",
            Self::Lines { .. } => "Lines",
        })
    }
}

const STEPS: u64 = 1_000;

impl Live {
    /// Nothing is drawn before the run starts.
    pub fn new(mode: LiveMode) -> Self {
        let shown = match mode {
            LiveMode::Bars(target) => {
                Shown::Bars { all: MultiProgress::with_draw_target(target), scenarios: Vec::new(), run: ProgressBar::hidden() }
            }
            LiveMode::Lines { out, every } => Shown::Lines { out, every, due: Duration::ZERO, stage: None },
        };
        Self { shown }
    }

    #[cfg(test)]
    pub(super) fn bars(&self) -> (&[ProgressBar], &ProgressBar) {
        match &self.shown {
            Shown::Bars { scenarios, run, .. } => (scenarios, run),
            Shown::Lines { .. } => unreachable!("lines have no bars"),
        }
    }

    fn start(&mut self, info: &RunInfo) {
        let Shown::Bars { all, scenarios, run } = &mut self.shown else { return };
        let width = info.scenarios.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let style = |template: &str| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        for name in &info.scenarios {
            let bar = all.add(ProgressBar::new(STEPS).with_style(style("{prefix} [{bar:24}] {msg}").progress_chars("=> ")));
            bar.set_prefix(format!("{name:<width$}"));
            scenarios.push(bar);
        }
        *run = all.add(ProgressBar::new(STEPS).with_style(style("{msg}")));
    }

    fn tick(&mut self, tick: &Tick) -> io::Result<()> {
        match &mut self.shown {
            Shown::Bars { scenarios, run, .. } => {
                for (bar, scenario) in scenarios.iter().zip(&tick.scenarios) {
                    bar.set_message(scenario_line(scenario));
                    bar.set_position((scenario.progress.clamp(0.0, 1.0) * STEPS as f64) as u64);
                }
                run.set_message(run_line(tick));
                run.tick();
                Ok(())
            }
            Shown::Lines { out, every, due, stage } => {
                if tick.at < *due && *stage == Some(tick.stage) {
                    return Ok(());
                }
                *due = tick.at + *every;
                *stage = Some(tick.stage);
                let mut block = Lines::default();
                block.line(format_args!("{}", run_line(tick)));
                for scenario in &tick.scenarios {
                    block.line(format_args!("  {}: {}", scenario.name, scenario_line(scenario)));
                }
                out.write_all(block.into_text().as_bytes())?;
                out.flush()
            }
        }
    }

    fn stop(&mut self) -> io::Result<()> {
        match &mut self.shown {
            Shown::Bars { all, scenarios, run } => {
                scenarios.iter().for_each(ProgressBar::finish_and_clear);
                run.finish_and_clear();
                all.clear()
            }
            Shown::Lines { out, .. } => out.flush(),
        }
    }
}

impl Sink for Live {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Started(run) => self.start(run),
            Event::Tick(tick) => return self.tick(tick),
            Event::Second(_) => {}
            Event::Finished(_) => return self.stop(),
        }
        Ok(())
    }
}

fn scenario_line(s: &ScenarioTick) -> String {
    let load = match s.unit {
        LoadUnit::Sessions => format!("{}/{} sessions", count(s.actual.round().max(0.0) as u64), count(s.target.round().max(0.0) as u64)),
        LoadUnit::PerSecond => format!("{:.1}/{:.1} sessions/s, {} active", s.actual, s.target, count(s.active)),
    };
    let failed = if s.failed > 0 { format!(", {} failed", count(s.failed)) } else { String::new() };
    format!("{load}{failed}")
}

fn run_line(tick: &Tick) -> String {
    let cpu = tick.cpu_cores.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.2}"));
    format!(
        "{} of {} {}: {} active, {} speaking, lag p99 {} ms, cpu {cpu} cores",
        seconds(tick.at.as_secs_f64()),
        seconds(tick.planned.as_secs_f64()),
        tick.stage.name(),
        count(tick.active),
        count(tick.speaking),
        ms_or_dash(tick.lag_p99_ms),
    )
}
