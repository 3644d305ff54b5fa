//! The summary at the end, for people: thresholds first, then the counters, then what explains them.

use std::io::{self, Write};

use super::{
    Event, Exit, RunInfo, Sink, Style, Summary, build, rows,
    summary::{CountersStatus, FaultRow, LatencyRow, ProcessCost, ScenarioSummary},
    text::{Lines, bytes, count, ms, ms_or_dash, percent, seconds, table},
};
use crate::{
    balance::Balance,
    leak::LeakRow,
    record::{Counter, histogram::LIMIT_US},
    threshold::{Status, ThresholdResult, Unit},
    voice::{VoiceSection, VoiceStatus},
};

/// Prints what is run when it starts, and the summary when it is over.
#[derive(Debug)]
pub struct Terminal<W> {
    out: W,
    style: Style,
}

impl<W: Write> Terminal<W> {
    /// Onto this writer.
    pub fn new(out: W, style: Style) -> Self {
        Self { out, style }
    }
}

impl<W: Write> Sink for Terminal<W> {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Started(run) => self.out.write_all(self.style.harmless(&opening(run)).as_bytes())?,
            Event::Finished(summary) => self.out.write_all(self.style.harmless(&render(summary, self.style)).as_bytes())?,
            Event::Tick(_) | Event::Second(_) => return Ok(()),
        }
        self.out.flush()
    }
}

/// Faults in the table: a soak has hundreds.
const MOST_FAULTS: usize = 40;

/// How long it will take is said before it takes that long.
pub fn opening(run: &RunInfo) -> String {
    let warmup = if run.warmup_s > 0.0 { format!(", the first {} are warm-up", seconds(run.warmup_s)) } else { String::new() };
    let injected =
        if run.injected.is_empty() { String::new() } else { format!("  injected into the backends: {}\n", run.injected.join(", ")) };
    format!(
        "run {} of {} (seed {}) on {}\n  takes {}, then up to {} for sessions to finish{warmup}\n  scenarios: {}\n{injected}",
        run.run_id,
        run.profile,
        run.seed,
        run.targets.join(", "),
        seconds(run.planned_s),
        seconds(run.graceful_stop_s),
        run.scenarios.join(", "),
    )
}

/// The whole summary.
pub fn render(summary: &Summary, style: Style) -> String {
    let s = summary;
    let sections = [
        thresholds(&s.thresholds, style),
        segments(s, style),
        counters(s, style),
        s.comparison.as_ref().map(|c| super::comparison::render(c, style)).unwrap_or_default(),
        voice(&s.voice, style),
        invariants(s, style),
        funnel(s, style),
        latencies(&s.latencies, style),
        section(style, "conversation", &s.behaviour.describe()),
        scenarios(&s.scenarios, style),
        convergence(s, style),
        faults(&s.faults, style),
        balance(s.balance.as_ref(), style),
        errors(s, style),
        generator(s, style),
        costs(&s.costs, style),
        leaks(s, style),
        totals(s, style),
        verdict(s, style),
    ];
    let shown: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    format!("\n{}", shown.join("\n"))
}

fn section(style: Style, title: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("{}\n{body}", style.bold(title)) }
}

fn thresholds(results: &[ThresholdResult], style: Style) -> String {
    if results.is_empty() {
        return section(style, "thresholds", "  none: nothing but the counters and the generator decides this run\n");
    }
    let key = results.iter().map(|r| r.key.chars().count()).max().unwrap_or(0);
    let expression = results.iter().map(|r| r.expression.chars().count()).max().unwrap_or(0);
    let line = |r: &ThresholdResult| {
        let mark = match (r.ok, r.status) {
            (true, Status::NoData) => style.unsure("○"),
            (true, _) => style.good("✓"),
            (false, _) => style.bad("✗"),
        };
        let mut notes = Vec::new();
        if r.status != Status::NoData {
            notes.push(format!("{} samples", count(r.samples)));
        } else if r.ok {
            notes.push("allowed".to_owned());
        }
        if let Some(window) = r.window_s {
            notes.push(format!("in every {}", seconds(window)));
        }
        if let Some(at) = r.broken_at_s {
            notes.push(format!("broken at {}", seconds(at)));
        }
        if r.aborted_run {
            notes.push("ended the run".to_owned());
        }
        let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
        format!("  {mark} {:<key$}  {:<expression$}  {}{notes}\n", r.key, r.expression, figure(r))
    };
    section(style, "thresholds", &results.iter().map(line).collect::<Vec<_>>().concat())
}

/// The figure of a threshold with its unit.
pub(super) fn figure(result: &ThresholdResult) -> String {
    let Some(value) = result.value else { return "no data".to_owned() };
    match result.unit {
        Unit::Ms => format!("{} ms", ms(value)),
        Unit::Count => count(value.round().max(0.0) as u64),
        Unit::Fraction => format!("{value:.4}"),
        Unit::PerSecond => format!("{value:.1}/s"),
        Unit::PerHour => format!("{value:.1}/h"),
        Unit::MibPerHour => format!("{value:.1} MiB/h"),
        Unit::SessionSeconds => format!("{value:.1} session-s"),
    }
}

fn segments(s: &Summary, style: Style) -> String {
    let mut body = Lines::default();
    for segment in s.segments.iter().filter(|_| s.segments.len() > 1) {
        let (what, end) = rows::segment(segment);
        let end = end.map_or_else(String::new, |end| format!("  {}", style.unsure(&end)));
        body.line(format_args!("  {what}{end}"));
        for note in &segment.notes {
            body.line(format_args!("      {note}"));
        }
    }
    section(style, "segments", &body.into_text())
}

fn counters(s: &Summary, style: Style) -> String {
    let verdict = match s.counters.status {
        CountersStatus::Agree => style.good("agree with the ledger"),
        CountersStatus::Disagree => style.bad("DISAGREE with the ledger"),
        CountersStatus::Unverified => style.bad("NOT PROVEN"),
        CountersStatus::NotChecked => style.unsure("NOT CHECKED"),
    };
    let mut body = Lines::default();
    let basis = if s.counters.basis.is_empty() { "no backend was asked" } else { &s.counters.basis };
    body.line(format_args!("  {verdict}: {basis}"));
    if let Some(confidence) = rows::confidence(&s.counters) {
        body.line(format_args!("  {confidence}"));
    }
    if !s.counters.cannot_see.is_empty() {
        body.line(format_args!("  cannot see: {}", s.counters.cannot_see.join("; ")));
    }
    for finding in &s.counters.findings {
        body.line(format_args!("  {} {} x {}: {}", style.bad("✗"), finding.name, count(finding.size), finding.evidence));
        for consequence in &finding.consequences {
            body.line(format_args!("      {consequence}"));
        }
        if !finding.session_ids.is_empty() {
            let more = finding.size.saturating_sub(finding.session_ids.len() as u64);
            let more = if more > 0 { format!(" and {} more", count(more)) } else { String::new() };
            body.line(format_args!("      sessions: {}{more}", finding.session_ids.join(", ")));
        }
    }
    for line in rows::drift(&s.counters) {
        body.line(format_args!("  {line}"));
    }
    section(style, "counters", &body.into_text())
}

fn voice(voice: &VoiceSection, style: Style) -> String {
    let mut body = Lines::default();
    let names =
        |status: VoiceStatus| -> Vec<&str> { voice.kinds.iter().filter(|row| row.status == status).map(|row| row.kind.name()).collect() };
    for finding in &voice.findings {
        let (mark, note) = if finding.allowed { (style.unsure("○"), " (allowed)") } else { (style.bad("✗"), "") };
        body.line(format_args!("  {mark} {} x {}{note}: {}", finding.kind.name(), count(finding.size), finding.detail));
        if !finding.session_refs.is_empty() {
            let more = finding.sessions.saturating_sub(finding.session_refs.len() as u64);
            let more = if more > 0 { format!(" and {} more", count(more)) } else { String::new() };
            body.line(format_args!("      sessions: {}{more}", finding.session_refs.join(", ")));
        }
    }
    let clean = names(VoiceStatus::Clean);
    if !clean.is_empty() {
        body.line(format_args!("  {} {}", style.good("not found:"), clean.join(", ")));
    }
    let excused: Vec<String> = voice.excused().map(|row| format!("{} in {} sessions", row.kind.name(), count(row.excused))).collect();
    if !excused.is_empty() {
        body.line(format_args!("  {} {} (struck meanwhile by faults of this run)", style.unsure("not counted:"), excused.join(", ")));
    }
    let mut unjudged: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in voice.kinds.iter().filter(|row| row.status == VoiceStatus::NotJudged) {
        match unjudged.iter_mut().find(|(reason, _)| *reason == row.reason) {
            Some((_, kinds)) => kinds.push(row.kind.name()),
            None => unjudged.push((&row.reason, vec![row.kind.name()])),
        }
    }
    for (reason, kinds) in unjudged {
        let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        body.line(format_args!("  {} {}{why}", style.unsure("not judged:"), kinds.join(", ")));
    }
    section(style, "voice faults", &body.into_text())
}

/// Only broken ones, and of those only what has no section of its own.
fn invariants(s: &Summary, style: Style) -> String {
    let mut body = Lines::default();
    for broken in s.invariants.iter().filter(|i| i.holds == Some(false)) {
        if ![build::COUNTERS, build::GENERATOR].contains(&broken.name.as_str()) {
            body.line(format_args!("  {} {}: {}", style.bad("✗"), broken.name, broken.detail));
        }
    }
    section(style, "broken invariants", &body.into_text())
}

fn funnel(s: &Summary, style: Style) -> String {
    let f = &s.funnel;
    // One base for all: shares of different wholes look as if they could be added.
    let row = |name: &str, n: u64| vec![name.to_owned(), count(n), percent(n, f.requested)];
    let mut rows = vec![
        vec!["requested".to_owned(), count(f.requested), String::new()],
        row("attempted", f.attempted),
        row("established", f.established),
        row("  completed", f.completed),
        row("  interrupted", f.interrupted),
        row("  failed", f.failed),
    ];
    for (name, n) in [
        ("not attempted", f.not_attempted),
        ("not established", f.not_established),
        ("of these aborted", f.aborted),
        ("of these refused as planned", f.refused_as_planned),
        ("dropped by a kill", f.dropped),
        ("ended early by the backend", s.counts.get(Counter::SessionsCutShort.name()).copied().unwrap_or(0)),
        ("never dialled", f.waiting),
        ("never answered", f.dialling),
        ("never over", f.live),
    ] {
        if n > 0 {
            rows.push(row(name, n));
        }
    }
    section(style, "sessions", &table(&["", "count", "of requested"], &rows))
}

fn latencies(rows: &[LatencyRow], style: Style) -> String {
    let head = ["", "count", "intended p50", "p90", "p99", "max", "service p50", "p99", "clamped"];
    let line = |row: &LatencyRow| {
        let (r, v) = (row.response.as_ref(), row.service.as_ref());
        vec![
            row.metric.clone(),
            count(r.map_or(0, |q| q.count)),
            latency(r.map(|q| q.p50_ms)),
            latency(r.map(|q| q.p90_ms)),
            latency(r.map(|q| q.p99_ms)),
            latency(r.map(|q| q.max_ms)),
            latency(v.map(|q| q.p50_ms)),
            latency(v.map(|q| q.p99_ms)),
            count(row.clamped),
        ]
    };
    section(
        style,
        "latencies, ms (from the intended time | from the actual time)",
        &table(&head, &rows.iter().map(line).collect::<Vec<_>>()),
    )
}

/// What lies at the limit of the histograms was longer than that, nobody knows how long.
pub(super) fn latency(value: Option<f64>) -> String {
    let limit_ms = LIMIT_US as f64 / 1_000.0;
    if value.is_some_and(|v| v >= limit_ms) { format!(">{}", ms(limit_ms.floor())) } else { ms_or_dash(value) }
}

fn scenarios(scenarios: &[ScenarioSummary], style: Style) -> String {
    if scenarios.len() < 2 {
        return String::new();
    }
    let rows: Vec<_> = scenarios.iter().map(|one| rows::scenario(one).to_vec()).collect();
    section(style, "scenarios, ms from the intended time", &table(&rows::SCENARIOS, &rows))
}

fn convergence(s: &Summary, style: Style) -> String {
    let rows: Vec<_> = s.convergence.iter().filter(|row| row.killed > 0).map(|row| rows::convergence(row).to_vec()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut body = Lines::default();
    for note in rows::convergence_notes(s) {
        body.line(format_args!("  {note}"));
    }
    section(style, "convergence of the counters by kind of end", &(table(&rows::CONVERGENCE, &rows) + &body.into_text()))
}

fn faults(all: &[FaultRow], style: Style) -> String {
    let shown: Vec<_> = all.iter().take(MOST_FAULTS).map(|row| rows::fault(row).to_vec()).collect();
    if shown.is_empty() {
        return String::new();
    }
    let mut rest = Lines::default();
    if all.len() > shown.len() {
        rest.line(format_args!("  and {} more: see summary.json", count((all.len() - shown.len()) as u64)));
    }
    for line in rows::not_made(all.iter().skip(MOST_FAULTS)) {
        rest.line(format_args!("  {line}"));
    }
    section(style, "faults made on purpose", &(table(&rows::FAULTS, &shown) + &rest.into_text()))
}

/// Of one backend there is nothing to say.
fn balance(balance: Option<&Balance>, style: Style) -> String {
    let Some(balance) = balance.filter(|balance| balance.assigned.len() > 1) else { return String::new() };
    section(style, "balance", &crate::balance::describe(balance))
}

fn errors(s: &Summary, style: Style) -> String {
    let mut errors: Vec<(&String, &u64)> = s.errors.iter().collect();
    errors.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let mut body = Lines::default();
    for (cause, n) in errors {
        let hint = hint(cause).map(|hint| format!(": {hint}")).unwrap_or_default();
        body.line(format_args!("  {:>8}  {cause}{hint}", count(*n)));
        if let Some(said) = s.error_messages.get(cause) {
            body.line(format_args!("            first said: {said}"));
        }
    }
    let failed = section(style, "failed sessions by cause", &body.into_text());
    let survived = s.counts.get(Counter::ServerErrors.name()).copied().unwrap_or(0);
    let Some(said) = s.error_messages.get(Counter::ServerErrors.name()).filter(|_| survived > 0) else { return failed };
    let line = format!("  {:>8}  first said: {said}\n", count(survived));
    let errors = section(style, "errors of the backends that ended no session", &line);
    if failed.is_empty() { errors } else { format!("{failed}\n{errors}") }
}

/// The cause that most sessions failed with.
fn dominating(s: &Summary) -> Option<(&String, &u64)> {
    s.errors.iter().max_by_key(|(_, n)| **n)
}

/// Why nothing was tested, where the sessions tell.
fn unusable(s: &Summary) -> Option<String> {
    let why = &s.invariants.iter().find(|i| i.name == build::WORKS && i.holds == Some(false))?.detail;
    let most = dominating(s).map(|(cause, _)| {
        let hint = hint(cause).map(|hint| format!(": {hint}")).unwrap_or_default();
        format!("most for {cause}{hint}")
    });
    Some(match (most, s.funnel.established) {
        (Some(most), 0) => format!("target unusable: no session began, {most}"),
        (Some(most), _) => format!("target unusable: {why}; of all sessions that failed {most}"),
        (None, _) => format!("target unusable: {why}"),
    })
}

/// What to do about a cause that the user can mend.
pub(super) fn hint(cause: &str) -> Option<&'static str> {
    Some(match cause {
        "connection_refused" => "nobody listens there; check host and port",
        "unreachable" => "no route to the target, or its name is not known",
        "connect_timeout" => "no answer in time; check host and port, or raise driver.connect_timeout",
        "too_many_files" => "raise the limit of open files (ulimit -n)",
        "tls" => "check the scheme and the certificates (connection.ca, --ca; certificate and key)",
        "not_an_agent" => "what answers does not speak this protocol; check target, dialect and path",
        "not_resumed" => "the backend did not go on with a session that it gave up; turns_unspoken counts what was not said",
        "unauthorized" => "check the key (connection.headers, --header 'Authorization: Bearer ${NAME}')",
        "not_found" => "check the path of the target and the dialect",
        "rejected" => "the backend is full or limits the rate; ask for fewer sessions, or more slowly",
        "draining" => "the backend is going away",
        "no_backend" => "the balancer had no backend to pick",
        "start_timeout" => "connected, and no session began in time; check dialect and agent",
        "goodbye_timeout" => "the backend kept the connection open for 5 s after the goodbye",
        "eof" => "the connection ended without the goodbye that the dialect has; check the dialect, or the backend's log",
        "reset" => "the backend, or something before it, cut the connection; see its log",
        "policy" => "the backend closed for a rule of its own; its words say which",
        "protocol" => "the backend said what this dialect does not know; check the dialect",
        _ => return None,
    })
}

fn generator(s: &Summary, style: Style) -> String {
    let g = &s.generator;
    let mut body = Lines::default();
    let verdict = if g.saturation.saturated { style.bad("SATURATED: these figures are its own") } else { style.good("not saturated") };
    body.line(format_args!("  {verdict}"));
    for reason in &g.saturation.reasons {
        body.line(format_args!("  {} {reason}", style.bad("✗")));
    }
    let lag = g.schedule_lag_p99_ms.map_or_else(|| "nothing was sent".to_owned(), |lag| format!("p99 {} ms", ms(lag)));
    let cpu = g.cpu_mean_cores.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.2}"));
    body.line(format_args!(
        "  schedule_lag {lag} (limit {} ms), cpu {cpu} of {:.0} cores (busiest second {:.2})",
        ms(g.schedule_lag_limit_ms),
        g.cores,
        g.cpu_busiest_cores
    ));
    if g.send_drops > 0 {
        body.line(format_args!("  {}", style.bad(&format!("{} frames dropped: a stream's queue was full", count(g.send_drops)))));
    }
    section(style, "generator", &body.into_text())
}

fn costs(costs: &[ProcessCost], style: Style) -> String {
    if costs.is_empty() {
        return String::new();
    }
    let dash = || "-".to_owned();
    let line = |cost: &ProcessCost| {
        vec![
            cost.name.clone(),
            cost.dialect.clone(),
            format!("{:.1}", cost.cpu_s),
            count(cost.frames),
            cost.cpu_us_per_frame.map_or_else(dash, |us| format!("{us:.1}")),
            bytes(cost.rss_peak_bytes as f64),
            count(cost.sessions_peak),
            cost.rss_per_session_bytes.map_or_else(dash, bytes),
        ]
    };
    let head = ["", "<dialect", "cpu s", "frames", "cpu us/frame", "peak memory", "sessions", "memory/session"];
    section(style, "cost", &table(&head, &costs.iter().map(line).collect::<Vec<_>>()))
}

fn leaks(s: &Summary, style: Style) -> String {
    let line = |row: &LeakRow| {
        let mut cells = rows::growth(row)?;
        if row.grows() {
            cells[5] = style.bad(&cells[5]);
        }
        Some(cells.to_vec())
    };
    let lines: Vec<_> = s.leaks.iter().filter_map(line).collect();
    let shown = if lines.is_empty() { String::new() } else { table(&rows::GROWTH, &lines) };
    let mut untold = Lines::default();
    for why in rows::untold_growth(s) {
        untold.line(format_args!("  {why}"));
    }
    section(style, "growth", &(shown + &untold.into_text()))
}

fn totals(s: &Summary, style: Style) -> String {
    let of = |name: &str| s.counts.get(name).copied().unwrap_or(0);
    let rate =
        |n: u64| if s.measured_s > 0.0 { format!(" ({}/s)", count((n as f64 / s.measured_s).round() as u64)) } else { String::new() };
    let (sent, received) = (of("frames_sent"), of("frames_received"));
    let mut body = Lines::default();
    body.line(format_args!(
        "  {} in all, {} measured; frames sent {}{}, received {}{}",
        seconds(s.duration_s),
        seconds(s.measured_s),
        count(sent),
        rate(sent),
        count(received),
        rate(received),
    ));
    if s.warmup_samples > 0 {
        body.line(format_args!("  {} samples of the warm-up are in no figure", count(s.warmup_samples)));
    }
    let rest = s.counts.iter().filter(|(name, n)| **n > 0 && !name.starts_with("frames_"));
    let rest: Vec<String> = rest.map(|(name, n)| format!("{name} {}", count(*n))).collect();
    for chunk in rest.chunks(5) {
        body.line(format_args!("  {}", chunk.join(", ")));
    }
    section(style, "totals", &body.into_text())
}

fn verdict(s: &Summary, style: Style) -> String {
    let mut out = Lines::default();
    if s.unfinished {
        out.line(format_args!(
            "{}",
            style.unsure("UNFINISHED: the run is not over, or was cut off; this is what the last checkpoint knew")
        ));
    }
    if let Some(why) = &s.stopped_early {
        out.line(format_args!("{}", style.unsure(&format!("stopped early: {why}"))));
    }
    if s.exit.code == 0 && s.unfinished {
        out.line(format_args!("no verdict: nothing failed so far"));
    } else if s.exit.code == 0 {
        out.line(format_args!("{} exit 0", style.good("PASSED")));
    } else {
        out.line(format_args!("{} exit {}", style.bad("FAILED"), s.exit.code));
        for reason in &s.exit.reasons {
            match unusable(s).filter(|_| *reason == Exit::TargetUnusable) {
                Some(why) => out.line(format_args!("  {why}")),
                None => out.line(format_args!("  {}", reason.text())),
            }
        }
    }
    out.into_text()
}
