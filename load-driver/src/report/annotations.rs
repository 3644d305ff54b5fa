//! What is wrong, as annotations of a GitHub Actions workflow: lines on standard output that the runner turns into marks on the run.

use std::io::{self, Write};

use super::{Event, Sink, Summary, build, comparison, summary::CountersStatus, terminal::figure, text::count};
use crate::{
    compare::{self, BaselineComparison, Verdict},
    threshold::Status,
    voice::VoiceStatus,
};

/// GitHub shows so many of each kind for a step.
pub const LIMIT: usize = 10;
/// Characters of one message.
const LONGEST: usize = 1_000;

/// How loud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It fails the run.
    Error,
    /// It does not fail the run, and somebody should know.
    Warning,
    /// To be read.
    Notice,
}

impl Level {
    const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Notice];

    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
        }
    }
}

/// One mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// How loud.
    pub level: Level,
    /// A few words.
    pub title: String,
    /// All of it.
    pub message: String,
}

/// Prints the annotations when the run is over.
#[derive(Debug)]
pub struct Annotations<W> {
    out: W,
}

impl<W: Write> Annotations<W> {
    /// Onto the standard output of a step.
    pub fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write> Sink for Annotations<W> {
    fn name(&self) -> &'static str {
        "annotations"
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        let Event::Finished(summary) = event else { return Ok(()) };
        self.out.write_all(render(&of(summary)).as_bytes())?;
        self.out.flush()
    }
}

/// Everything that a run has to say, worst first.
pub fn of(summary: &Summary) -> Vec<Annotation> {
    let s = summary;
    let mut all = Vec::new();
    let mut mark = |level: Level, title: String, message: String| all.push(Annotation { level, title, message });
    for r in s.thresholds.iter().filter(|r| !r.ok || r.status == Status::NoData) {
        let what = format!("{} must be {}", r.key, r.expression);
        match (r.ok, r.status) {
            (true, _) => mark(
                Level::Notice,
                format!("threshold without data: {}", r.key),
                format!("{what}, and nothing was measured, which the profile allows"),
            ),
            (false, Status::NoData) => {
                mark(Level::Error, format!("threshold without data: {}", r.key), format!("{what}, and nothing was measured"));
            }
            (false, _) => mark(Level::Error, format!("threshold: {}", r.key), format!("{what}, and is {}", figure(r))),
        }
    }
    for f in &s.counters.findings {
        mark(
            Level::Error,
            format!("counters: {} x {}", f.name, count(f.size)),
            std::iter::once(&f.evidence).chain(&f.consequences).cloned().collect::<Vec<_>>().join("; "),
        );
    }
    match s.counters.status {
        CountersStatus::Unverified if s.counters.findings.is_empty() => {
            mark(Level::Error, "counters not proven".to_owned(), s.counters.basis.clone());
        }
        CountersStatus::NotChecked => {
            mark(Level::Notice, "counters not checked".to_owned(), format!("nothing is claimed of them: {}", s.counters.basis));
        }
        _ => {}
    }
    for f in &s.voice.findings {
        let level = if f.allowed { Level::Warning } else { Level::Error };
        mark(level, format!("voice fault: {} x {}", f.kind.name(), count(f.size)), f.detail.clone());
    }
    for broken in s.invariants.iter().filter(|i| i.holds == Some(false) && i.name != build::COUNTERS) {
        mark(Level::Error, format!("broken: {}", broken.name), broken.detail.clone());
    }
    let unjudged: Vec<&str> = s.voice.kinds.iter().filter(|row| row.status == VoiceStatus::NotJudged).map(|row| row.kind.name()).collect();
    if let Some(why) = &s.stopped_early {
        mark(Level::Warning, "stopped early".to_owned(), why.clone());
    }
    if s.unfinished {
        mark(
            Level::Warning,
            "unfinished".to_owned(),
            "the run is not over, or was cut off: this is what the last checkpoint knew".to_owned(),
        );
    }
    for row in &s.faults {
        if let Some(why) = row.not_made() {
            mark(Level::Warning, format!("fault: {}", row.kind.name()), format!("planned at {} s: {why}", row.planned_s));
        }
    }
    if !unjudged.is_empty() {
        mark(Level::Notice, "voice faults not judged".to_owned(), unjudged.join(", "));
    }
    // Of a run that failed for a reason that nothing above tells.
    if s.exit.code != 0 && all.iter().all(|one| one.level != Level::Error) && s.comparison.as_ref().is_none_or(|c| c.exit().code() == 0) {
        all.push(Annotation { level: Level::Error, title: format!("exit code {}", s.exit.code), message: s.exit.reason.text().to_owned() });
    }
    all.extend(s.comparison.as_ref().map(of_comparison).unwrap_or_default());
    all
}

/// What a comparison has to say.
pub fn of_comparison(c: &BaselineComparison) -> Vec<Annotation> {
    let mark = |level, title: &str, message: String| Annotation { level, title: title.to_owned(), message };
    let mut all: Vec<Annotation> = c
        .of(Verdict::Worse)
        .map(|row| mark(Level::Error, &format!("worse than the baseline: {}", comparison::name(row)), comparison::sentence(row)))
        .collect();
    all.extend(
        c.of(Verdict::Better)
            .map(|row| mark(Level::Notice, &format!("better than the baseline: {}", comparison::name(row)), comparison::sentence(row))),
    );
    match c.status {
        compare::Status::NotComparable | compare::Status::Saturated => {
            all.push(mark(Level::Error, "not comparable with the baseline", c.refused.join("; ")));
        }
        compare::Status::Undecided => all.push(mark(Level::Error, "no verdict against the baseline", comparison::verdict(c))),
        compare::Status::Regression | compare::Status::NoRegression => {}
    }
    all
}

/// As the runner reads them: at most [`LIMIT`] of each level, the last of which says how many more there are.
pub fn render(all: &[Annotation]) -> String {
    let mut out = String::new();
    for level in Level::ALL {
        let of_level: Vec<&Annotation> = all.iter().filter(|one| one.level == level).collect();
        let shown = if of_level.len() > LIMIT { LIMIT - 1 } else { of_level.len() };
        for one in of_level.iter().take(shown) {
            out.push_str(&line(level, &one.title, &one.message));
        }
        let more = of_level.len() - shown;
        if more > 0 {
            out.push_str(&line(level, &format!("{more} more"), "the summary of the step and summary.json have them all"));
        }
    }
    out
}

fn line(level: Level, title: &str, message: &str) -> String {
    format!("::{} title={}::{}\n", level.name(), property(title), data(message))
}

/// A message: the runner ends it at a line end, and undoes these.
fn data(text: &str) -> String {
    let cut: String = text.chars().take(LONGEST).collect();
    let rest = if cut.len() < text.len() { "..." } else { "" };
    // The runner's older commands begin anywhere in a line.
    (cut + rest).replace("##[", "##\u{fffd}").replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property: the runner ends it at a comma or a colon too.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runner's own way back.
    fn undone(text: &str) -> String {
        text.replace("%3A", ":").replace("%2C", ",").replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    }

    fn one(level: Level, title: &str, message: &str) -> Annotation {
        Annotation { level, title: title.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn what_the_runner_would_read_otherwise_is_escaped() {
        let hostile = "a:b,c%0A::error::x\r\n::set-output name=x::y";
        let line = render(&[one(Level::Error, hostile, hostile)]);
        assert_eq!(line.matches('\n').count(), 1, "one line, whatever is in it: {line}");
        assert!(line.starts_with("::error title=a%3Ab%2Cc%250A%3A%3Aerror"), "{line}");
        let (head, message) = line.trim_end().strip_prefix("::error title=").unwrap().split_once("::").unwrap();
        assert_eq!((undone(head).as_str(), undone(message).as_str()), (hostile, hostile));
        let older = render(&[one(Level::Error, "##[a]", "x ##[stop-commands]y")]);
        assert!(!older.contains("##["), "{older}");
    }

    #[test]
    fn ten_of_each_at_most() {
        let of = |level, n: usize| (0..n).map(move |n| one(level, &format!("t{n}"), "m"));
        let all: Vec<Annotation> = of(Level::Error, 25).chain(of(Level::Warning, 10)).chain(of(Level::Notice, 1)).collect();
        let text = render(&all);
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!((lines("::error "), lines("::warning "), lines("::notice ")), (10, 10, 1));
        assert!(text.contains("::error title=16 more::"), "{text}");
        let long = render(&[one(Level::Notice, "t", &"ä".repeat(5_000))]);
        assert!(long.chars().count() < 1_100 && long.ends_with("...\n"));
    }
}
