//! A run against its baseline, in words and figures for every sink.

use super::{
    Style,
    text::{Lines, ms, table},
};
use crate::compare::{BaselineComparison, Kind, Row, Status, Verdict};

/// Heads of the columns of [`cells`].
pub const HEAD: [&str; 6] = ["", "baseline", "current", "change", "95 % interval", "<verdict"];

/// What must be read comes first; the order within stays.
pub const fn rank(row: &Row) -> u8 {
    match row.verdict {
        Verdict::Worse => 0,
        Verdict::Better => 1,
        Verdict::Unclear => 2,
        Verdict::NoDifference => 3,
        Verdict::NotComparable => 4,
    }
}

/// One row, plain text.
pub fn cells(row: &Row) -> [String; 6] {
    let dash = || "-".to_owned();
    let figure = |value: Option<f64>| match (value, row.kind) {
        (None, _) => dash(),
        (Some(value), Kind::Latency) => ms(value),
        (Some(value), Kind::Share) => format!("{:.3} %", value * 100.0),
    };
    let change = |value: f64| match row.kind {
        Kind::Latency => format!("{:+.1} %", value * 100.0),
        Kind::Share => format!("{:+.3} pp", value * 100.0),
    };
    let interval = match (row.change_low, row.change_high) {
        (Some(low), Some(high)) => format!("{} .. {}", change(low), change(high)),
        _ => dash(),
    };
    [
        name(row),
        figure(row.baseline),
        figure(row.current),
        row.change.map_or_else(dash, change),
        interval,
        if row.reason.is_empty() { row.verdict.name().to_owned() } else { format!("{}: {}", row.verdict.name(), row.reason) },
    ]
}

/// What a row is of.
pub fn name(row: &Row) -> String {
    format!("{} {}", row.key, row.statistic)
}

/// A row in a sentence.
pub fn sentence(row: &Row) -> String {
    let [name, was, is, change, interval, _] = cells(row);
    if row.reason.is_empty() { format!("{name} was {was} and is {is}: {change} ({interval})") } else { format!("{name}: {}", row.reason) }
}

/// What came of it, in a sentence.
pub fn verdict(comparison: &BaselineComparison) -> String {
    let count = |verdict| comparison.of(verdict).count();
    let counts: Vec<String> = [Verdict::Worse, Verdict::Better, Verdict::NoDifference, Verdict::Unclear, Verdict::NotComparable]
        .into_iter()
        .map(|verdict| (verdict, count(verdict)))
        .filter(|(_, n)| *n > 0)
        .map(|(verdict, n)| format!("{n} {}", verdict.name()))
        .collect();
    match comparison.status {
        Status::NoRegression => format!("no regression: {}", counts.join(", ")),
        Status::Regression => format!("REGRESSION: {}", counts.join(", ")),
        Status::Undecided => format!(
            "UNDECIDED, and that is no pass: the runs are too short, or too noisy, to show a difference that matters ({})",
            counts.join(", ")
        ),
        Status::NotComparable => "NOT COMPARABLE".to_owned(),
        Status::Saturated => "NOT COMPARABLE: a generator was saturated".to_owned(),
    }
}

/// What matters, in a sentence.
pub fn rule(comparison: &BaselineComparison) -> String {
    format!(
        "worse or better: by more than {} % (latencies: and {} ms), and at most {} % chance of one false alarm among all figures",
        trim(comparison.tolerance * 100.0),
        trim(comparison.floor_ms),
        trim(comparison.level * 100.0),
    )
}

fn trim(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// For a terminal. Rows that show no difference, and those that can show none, are counted only: they would hide the one that does. But where nothing
/// could be told, why not is shown for the run as a whole.
pub fn render(comparison: &BaselineComparison, style: Style) -> String {
    let mut out = Lines::default();
    let (was, is) = (&comparison.baseline, &comparison.current);
    out.line(format_args!("{}", style.bold(&format!("run {} against the baseline {}", is.run_id, was.run_id))));
    let verdict = verdict(comparison);
    let painted = match comparison.status {
        Status::NoRegression => style.good(&verdict),
        Status::Regression | Status::Undecided | Status::NotComparable | Status::Saturated => style.bad(&verdict),
    };
    out.line(format_args!("  {painted}"));
    for why in &comparison.refused {
        out.line(format_args!("  {} {why}", style.bad("✗")));
    }
    let undecided = comparison.status == Status::Undecided;
    let hidden = |row: &Row| match row.verdict {
        Verdict::NoDifference => true,
        Verdict::NotComparable => !undecided || row.key.contains('{'),
        Verdict::Worse | Verdict::Better | Verdict::Unclear => false,
    };
    let mut shown: Vec<&Row> = comparison.rows.iter().filter(|row| !hidden(row)).collect();
    shown.sort_by_key(|row| rank(row));
    let rows: Vec<Vec<String>> = shown.into_iter().map(|row| cells(row).to_vec()).collect();
    let left_out = |verdict| comparison.of(verdict).filter(|row| hidden(row)).count();
    let mut text = out.into_text();
    if !rows.is_empty() {
        text.push_str(&table(&HEAD, &rows));
    }
    let mut rest = Lines::default();
    for (verdict, what) in [
        (Verdict::NoDifference, "without a difference are not shown"),
        (Verdict::NotComparable, "are not comparable: summary.json, or compare --format json, says why"),
    ] {
        let left_out = left_out(verdict);
        if left_out > 0 {
            rest.line(format_args!("  {left_out} figures {what}"));
        }
    }
    if !comparison.rows.is_empty() {
        rest.line(format_args!("  {}", rule(comparison)));
    }
    for note in &comparison.notes {
        rest.line(format_args!("  {} {note}", style.unsure("note:")));
    }
    text + &rest.into_text()
}
