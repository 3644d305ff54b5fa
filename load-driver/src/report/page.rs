//! Parts of a page of Markdown: escaped text, tables, sections, and a bound on all of it.

use std::fmt::Write as _;

use super::text::column;

/// Bytes of one report. A step's summary may have 1 MiB for all that is written to it.
pub(super) const LIMIT: usize = 200 * 1024;
/// Rows of one table.
pub(super) const ROWS: usize = 100;
/// Characters of one cell or sentence.
const LONGEST: usize = 400;

/// Adds a formatted text.
macro_rules! add {
    ($out:expr, $($arguments:tt)*) => {
        // Writing to a string cannot fail.
        _ = write!($out, $($arguments)*)
    };
}
pub(super) use add;

/// Whole sections as long as there is room; the first one is short.
pub(super) fn bounded(sections: &[String]) -> String {
    let mut out = String::new();
    let mut left_out = 0;
    for section in sections.iter().filter(|section| !section.is_empty()) {
        if out.len() + section.len() + 200 > LIMIT {
            left_out += 1;
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(section);
    }
    if left_out > 0 {
        add!(out, "\n{left_out} sections are too long for this page: summary.json has them.\n");
    }
    out
}

/// Text that shows as it stands, on one line.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for (n, c) in text.chars().enumerate() {
        if n == LONGEST {
            out.push_str("...");
            break;
        }
        match c {
            // What cannot be seen has no place on a page: line ends, control characters, marks that turn the direction of writing.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                out.push(' ');
            }
            // Such as a figure has; none of them means anything inside a line.
            '-' if n > 0 => out.push(c),
            ' ' | '.' | ',' | '%' | '/' | '=' | ';' | '(' | ')' | '+' | '\'' | '"' | '?' => out.push(c),
            c if c.is_ascii_punctuation() => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    // A bare address becomes a link by its first letters alone.
    out.replace("www.", "www\\.")
}

/// A table with a head; of more rows than fit, the first. The first column and those of words ([`column`]) stand to the left.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut rows = rows.into_iter();
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let columns = head.map(column);
    let mut out = line(&columns.map(|(head, _)| escape(head)));
    out.push('|');
    for (n, (_, words)) in columns.into_iter().enumerate() {
        out.push_str(if n == 0 || words { "---|" } else { "---:|" });
    }
    out.push('\n');
    for row in rows.by_ref().take(ROWS) {
        out.push_str(&line(&row.map(|cell| escape(&cell))));
    }
    let more = rows.count();
    if more > 0 {
        add!(out, "\n{more} more are in summary.json.\n");
    }
    out
}

/// With a title; nothing without a body.
pub(super) fn section(title: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("### {title}\n\n{body}") }
}
