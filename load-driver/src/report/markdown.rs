//! `summary.md`: the summary for people who read it on a page, in GitHub's Markdown. Also appended to the summary of a GitHub Actions step.
//!
//! Whatever comes from outside (names, words of a backend) is escaped: it shows as it stands, and makes no link, no markup and no new cell.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::{self, Write},
    path::PathBuf,
};

use super::{
    Event, Sink, Summary, comparison,
    json::write_whole,
    page::{ROWS, add, bounded, escape, section, table},
    rows,
    summary::{CountersStatus, LatencyRow},
    terminal::{figure, hint, latency},
    text::{bytes, count, ms_or_dash, percent, seconds},
};
use crate::{compare::BaselineComparison, threshold::Status, voice::VoiceStatus};

/// Writes the report when the run is over.
#[derive(Debug)]
pub struct Markdown {
    path: PathBuf,
    name: String,
    append: bool,
}

impl Markdown {
    /// Into this file, whole or not at all.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::of(path.into(), false)
    }

    /// At the end of this file, which others write to.
    pub fn append(path: impl Into<PathBuf>) -> Self {
        Self::of(path.into(), true)
    }

    fn of(path: PathBuf, append: bool) -> Self {
        Self { name: path.display().to_string(), path, append }
    }
}

impl Sink for Markdown {
    fn name(&self) -> &str {
        &self.name
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        let Event::Finished(summary) = event else { return Ok(()) };
        let text = render(summary);
        if self.append {
            // No result is lost with it: they are in files of their own.
            if let Err(error) = append(&self.path, &text) {
                tracing::warn!("failed to append to {}: {error}", self.name);
            }
            return Ok(());
        }
        write_whole(&self.path, text.as_bytes())
    }
}

/// One write, so that what others append does not land in between; an empty line before it, so that what stood there does not run into it.
pub fn append(path: &std::path::Path, text: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("\n{text}").as_bytes())
}

/// The whole report, short enough for the page of a CI step.
pub fn render(summary: &Summary) -> String {
    let s = summary;
    let sections = [
        verdict(s),
        thresholds(s),
        segments(s),
        counters(s),
        s.comparison.as_ref().map(baseline).unwrap_or_default(),
        voice(s),
        broken(s),
        sessions(s),
        latencies(&s.latencies),
        errors(s),
        scenarios(s),
        convergence(s),
        faults(s),
        generator(s),
        costs(s),
        growth(s),
        run(s),
    ];
    bounded(&sections)
}

/// A comparison alone.
pub fn render_comparison(comparison: &BaselineComparison) -> String {
    bounded(&[baseline(comparison)])
}

fn verdict(s: &Summary) -> String {
    let state = match (s.unfinished, s.exit.code) {
        (true, _) => "⏳ UNFINISHED".to_owned(),
        (false, 0) => "✅ PASSED".to_owned(),
        (false, code) => format!("❌ FAILED (exit code {code})"),
    };
    let mut out = format!("## {state}: {}\n", escape(&s.run.profile));
    let mut item = |text: &str| add!(out, "\n- {}", escape(text));
    if s.unfinished {
        item("the run is not over, or was cut off: this is what the last checkpoint knew");
    }
    if let Some(why) = &s.stopped_early {
        item(&format!("stopped early: {why}"));
    }
    for reason in &s.exit.reasons {
        item(&format!("{}: {}", reason.code(), reason.text()));
    }
    out.push('\n');
    out
}

fn thresholds(s: &Summary) -> String {
    if s.thresholds.is_empty() {
        return section("Thresholds", "None: nothing but the counters and the generator decides this run.\n");
    }
    let rows = s.thresholds.iter().map(|r| {
        let mut notes = Vec::new();
        if let Some(window) = r.window_s {
            notes.push(format!("in every {}", seconds(window)));
        }
        if let Some(at) = r.broken_at_s {
            notes.push(format!("broken at {}", seconds(at)));
        }
        if r.aborted_run {
            notes.push("ended the run".to_owned());
        }
        let state = match (r.ok, r.status) {
            (true, Status::NoData) => "no data, allowed",
            (true, _) => "kept",
            (false, Status::NoData) => "NO DATA",
            (false, _) => "BROKEN",
        };
        [r.key.clone(), r.expression.clone(), figure(r), count(r.samples), state.to_owned(), notes.join(", ")]
    });
    section("Thresholds", &table(["", "<must be", "is", "samples", "<", "<notes"], rows))
}

fn segments(s: &Summary) -> String {
    let mut body = String::new();
    for segment in s.segments.iter().filter(|_| s.segments.len() > 1) {
        let (what, end) = rows::segment(segment);
        let words: Vec<&str> =
            std::iter::once(what.as_str()).chain(end.as_deref()).chain(segment.notes.iter().map(String::as_str)).collect();
        add!(body, "- {}\n", escape(&words.join("; ")));
    }
    section("Segments", &body)
}

fn counters(s: &Summary) -> String {
    let c = &s.counters;
    let state = match c.status {
        CountersStatus::Agree => "Agree with the ledger",
        CountersStatus::Disagree => "**DISAGREE with the ledger**",
        CountersStatus::Unverified => "**NOT PROVEN**",
        CountersStatus::NotChecked => "NOT CHECKED",
    };
    let basis = if c.basis.is_empty() { "no backend was asked" } else { &c.basis };
    let mut body = format!("{state}: {}\n", escape(basis));
    let blind = c.cannot_see.iter().map(|what| format!("cannot see: {what}"));
    let worth: Vec<String> = rows::confidence(c).into_iter().chain(blind).collect();
    for line in &worth {
        add!(body, "\n- {}", escape(line));
    }
    if !worth.is_empty() {
        body.push('\n');
    }
    if !c.findings.is_empty() {
        let rows = c.findings.iter().map(|f| {
            let words: Vec<&str> = std::iter::once(&f.evidence).chain(&f.consequences).map(String::as_str).collect();
            [f.name.clone(), count(f.size), words.join("; "), f.session_ids.join(", ")]
        });
        body.push('\n');
        body.push_str(&table(["finding", "size", "<evidence", "<sessions, the first"], rows));
    }
    for line in rows::drift(c) {
        add!(body, "\n- {}", escape(&line));
    }
    if c.drift.iter().any(|row| row.looks > 0) {
        body.push('\n');
    }
    section("Counters", &body)
}

fn baseline(c: &BaselineComparison) -> String {
    let mut body =
        format!("Run {} against {}: **{}**\n", escape(&c.current.run_id), escape(&c.baseline.run_id), escape(&comparison::verdict(c)));
    for why in &c.refused {
        add!(body, "\n- {}", escape(why));
    }
    if !c.refused.is_empty() {
        body.push('\n');
    }
    let mut rows: Vec<_> = c.rows.iter().collect();
    rows.sort_by_key(|row| comparison::rank(row));
    if !rows.is_empty() {
        let mut head = comparison::HEAD;
        head[0] = "figure";
        body.push('\n');
        body.push_str(&table(head, rows.into_iter().map(comparison::cells)));
        add!(body, "\n{}\n", escape(&comparison::rule(c)));
    }
    for note in &c.notes {
        add!(body, "\n- {}", escape(note));
    }
    if !c.notes.is_empty() {
        body.push('\n');
    }
    section("Against the baseline", &body)
}

fn voice(s: &Summary) -> String {
    let names =
        |status: VoiceStatus| -> Vec<&str> { s.voice.kinds.iter().filter(|row| row.status == status).map(|row| row.kind.name()).collect() };
    let mut body = String::new();
    if !s.voice.findings.is_empty() {
        let rows = s.voice.findings.iter().map(|f| {
            let state = if f.allowed { "allowed" } else { "FOUND" };
            [f.kind.name().to_owned(), state.to_owned(), count(f.size), f.detail.clone(), f.session_refs.join(", ")]
        });
        body.push_str(&table(["fault", "<", "size", "<evidence", "<sessions, the first"], rows));
    }
    for (title, names) in [("Not found", names(VoiceStatus::Clean)), ("Not judged", names(VoiceStatus::NotJudged))] {
        if !names.is_empty() {
            add!(body, "{}{title}: {}\n", if body.is_empty() { "" } else { "\n" }, escape(&names.join(", ")));
        }
    }
    let excused: Vec<String> = s.voice.excused().map(|row| format!("{} in {} sessions", row.kind.name(), count(row.excused))).collect();
    if !excused.is_empty() {
        add!(body, "\nNot counted: {} (struck meanwhile by faults of this run)\n", escape(&excused.join(", ")));
    }
    section("Voice faults", &body)
}

fn broken(s: &Summary) -> String {
    let broken = s.invariants.iter().filter(|i| i.holds == Some(false));
    let items: Vec<String> = broken.map(|i| format!("- {}: {}\n", escape(&i.name), escape(&i.detail))).collect();
    section("Broken invariants", &items.concat())
}

fn sessions(s: &Summary) -> String {
    let f = &s.funnel;
    // One base for all, as in the terminal.
    let row = |name: &str, n: u64| [name.to_owned(), count(n), percent(n, f.requested)];
    let rows = [
        row("requested", f.requested),
        row("attempted", f.attempted),
        row("established", f.established),
        row("completed", f.completed),
        row("interrupted", f.interrupted),
        row("failed, of all", f.sessions_failed()),
    ];
    section("Sessions", &table(["", "count", "of requested"], rows))
}

fn latencies(rows: &[LatencyRow]) -> String {
    let measured = rows.iter().filter(|row| row.response.is_some());
    let cells = measured.map(|row| {
        let (r, v) = (row.response.as_ref(), row.service.as_ref());
        [
            row.metric.clone(),
            count(r.map_or(0, |q| q.count)),
            latency(r.map(|q| q.p50_ms)),
            latency(r.map(|q| q.p95_ms)),
            latency(r.map(|q| q.p99_ms)),
            latency(r.map(|q| q.max_ms)),
            latency(v.map(|q| q.p50_ms)),
            latency(v.map(|q| q.p99_ms)),
        ]
    });
    let cells: Vec<_> = cells.collect();
    if cells.is_empty() {
        return section("Latencies", "Nothing was measured.\n");
    }
    section("Latencies, ms, from the intended time", &table(["", "count", "p50", "p95", "p99", "max", "service p50", "service p99"], cells))
}

fn errors(s: &Summary) -> String {
    let mut errors: Vec<(&String, &u64)> = s.errors.iter().collect();
    errors.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    if errors.is_empty() {
        return String::new();
    }
    let rows = errors.into_iter().map(|(cause, n)| {
        let said = s.error_messages.get(cause).cloned().unwrap_or_default();
        [cause.clone(), count(*n), hint(cause).unwrap_or_default().to_owned(), said]
    });
    section("Failed sessions by cause", &table(["", "count", "<what to do", "<first said"], rows))
}

fn scenarios(s: &Summary) -> String {
    if s.scenarios.len() < 2 {
        return String::new();
    }
    section("Scenarios, ms from the intended time", &table(rows::SCENARIOS, s.scenarios.iter().map(rows::scenario)))
}

fn convergence(s: &Summary) -> String {
    let mut made = s.convergence.iter().filter(|row| row.killed > 0).map(rows::convergence).peekable();
    if made.peek().is_none() {
        return String::new();
    }
    let mut body = table(rows::CONVERGENCE, made);
    for note in rows::convergence_notes(s) {
        add!(body, "\n{}\n", escape(&note));
    }
    section("Convergence of the counters by kind of end", &body)
}

fn faults(s: &Summary) -> String {
    if s.faults.is_empty() {
        return String::new();
    }
    let mut body = table(rows::FAULTS, s.faults.iter().map(rows::fault));
    let beyond = rows::not_made(s.faults.iter().skip(ROWS));
    for line in &beyond {
        add!(body, "\n- {}", escape(line));
    }
    if !beyond.is_empty() {
        body.push('\n');
    }
    section("Faults made on purpose", &body)
}

fn generator(s: &Summary) -> String {
    let g = &s.generator;
    let lag = g.schedule_lag_p99_ms.map_or_else(|| "nothing was sent".to_owned(), |lag| format!("p99 {} ms", ms_or_dash(Some(lag))));
    let state = if g.saturation.saturated { "**SATURATED: these figures are its own**" } else { "Not saturated" };
    let mut body = format!("{state}; schedule\\_lag {}, limit {} ms\n", escape(&lag), escape(&ms_or_dash(Some(g.schedule_lag_limit_ms))));
    for reason in &g.saturation.reasons {
        add!(body, "\n- {}", escape(reason));
    }
    if !g.saturation.reasons.is_empty() {
        body.push('\n');
    }
    section("Generator", &body)
}

fn growth(s: &Summary) -> String {
    let mut judged = s.leaks.iter().filter_map(rows::growth).peekable();
    let mut body = if judged.peek().is_none() { String::new() } else { table(rows::GROWTH, judged) };
    for why in rows::untold_growth(s) {
        add!(body, "{}{}\n", if body.is_empty() { "" } else { "\n" }, escape(&why));
    }
    section("Growth", &body)
}

fn costs(s: &Summary) -> String {
    if s.costs.is_empty() {
        return String::new();
    }
    let dash = || "-".to_owned();
    let rows = s.costs.iter().map(|cost| {
        [
            cost.name.clone(),
            format!("{:.1}", cost.cpu_s),
            count(cost.frames),
            cost.cpu_us_per_frame.map_or_else(dash, |us| format!("{us:.1}")),
            bytes(cost.rss_peak_bytes as f64),
            count(cost.sessions_peak),
            cost.rss_per_session_bytes.map_or_else(dash, bytes),
        ]
    });
    section("Cost", &table(["", "cpu s", "frames", "cpu us/frame", "peak memory", "sessions", "memory/session"], rows))
}

fn run(s: &Summary) -> String {
    let text = format!(
        "Run {} of {} (seed {}) on {}, load-driver {}; {} in all, {} measured.",
        s.run.run_id,
        s.run.profile,
        s.run.seed,
        s.run.targets.join(", "),
        s.run.version,
        seconds(s.duration_s),
        seconds(s.measured_s),
    );
    format!("{}\n", escape(&text))
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
