//! Figures and tables for people.

use std::fmt::{Arguments, Write as _};

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// Colour only on a terminal, and not when the user said no: `no_color` is the value of `NO_COLOR`, which counts unless empty.
    pub fn detect(terminal: bool, no_color: Option<&std::ffi::OsStr>) -> Self {
        Self { colour: terminal && no_color.is_none_or(std::ffi::OsStr::is_empty) }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The text with nothing that a terminal obeys but the colours of this style: it may quote what a backend or a file said.
    pub fn harmless(self, text: &str) -> String {
        const OWN: [&str; 5] = ["\x1b[0m", "\x1b[1m", "\x1b[32m", "\x1b[1;31m", "\x1b[33m"];
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let own = OWN.iter().find(|code| self.colour && rest.starts_with(**code));
            let taken = own.map_or(first.len_utf8(), |code| code.len());
            match own {
                Some(code) => out.push_str(code),
                None if deceives(first) => out.push(char::REPLACEMENT_CHARACTER),
                None => out.push(first),
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
        uncommanding(&out)
    }

    /// For headings.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// For what is well.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// For what is not.
    pub fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// For what is unknown.
    pub fn unsure(self, text: &str) -> String {
        self.paint("33", text)
    }
}

/// The text with nothing that GitHub's runner obeys, which reads all that a step prints: `##[NAME]` anywhere in a line, and `::NAME` at its begin, spaces
/// aside. A sign of each is replaced.
pub fn uncommanding(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Signs of this line that are no spaces, so far.
    let mut signs = 0_usize;
    for c in text.chars() {
        let obeyed = match c {
            '[' => out.ends_with("##"),
            ':' => signs == 1 && out.ends_with(':'),
            _ => false,
        };
        out.push(if obeyed { char::REPLACEMENT_CHARACTER } else { c });
        match c {
            '\n' | '\r' => signs = 0,
            c if c.is_whitespace() && signs == 0 => {}
            _ => signs += 1,
        }
    }
    out
}

/// It commands a terminal, or turns the order of what follows, so that it reads as something else.
fn deceives(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && !matches!(c, '\n' | '\t')
}

/// Text that grows by lines.
#[derive(Debug, Default)]
pub struct Lines(String);

impl Lines {
    /// Adds a line.
    pub fn line(&mut self, text: Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{text}");
    }

    /// All of it.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Milliseconds with three digits, which is what the histograms hold.
pub fn ms(value: f64) -> String {
    match value {
        v if !v.is_finite() => "-".to_owned(),
        v if v.abs() < 9.995 => format!("{v:.2}"),
        v if v.abs() < 99.95 => format!("{v:.1}"),
        v => count(v.round().max(0.0) as u64),
    }
}

/// As [`ms`], `-` for none.
pub fn ms_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), ms)
}

/// A number with thousands apart: 12,345.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share as a percentage; `-` of nothing.
pub fn percent(part: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / of as f64) }
}

/// Bytes in KiB or MiB.
pub fn bytes(value: f64) -> String {
    if value < 1024.0 * 1024.0 { format!("{:.1} KiB", value / 1024.0) } else { format!("{:.1} MiB", value / 1024.0 / 1024.0) }
}

/// Seconds as a person says them: `850ms`, `45s`, `20m05s`.
pub fn seconds(value: f64) -> String {
    let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    let whole = value.round() as u64;
    match whole {
        0 => format!("{:.0}ms", value * 1_000.0),
        1..60 if (value - value.round()).abs() > 0.05 => format!("{value:.1}s"),
        1..60 => format!("{whole}s"),
        60..3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m{:02}s", whole / 3_600, whole / 60 % 60, whole % 60),
    }
}

/// The head of a column as it reads, and whether it is one of words, which stand to the left: `<notes`.
pub fn column(head: &str) -> (&str, bool) {
    head.strip_prefix('<').map_or((head, false), |head| (head, true))
}

/// Indented columns, the first and those of words ([`column()`]) to the left and the others to the right; no trailing space. Cells must be plain text.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let columns = head.len();
    let (head, words): (Vec<&str>, Vec<bool>) = head.iter().map(|head| column(head)).unzip();
    let mut widths: Vec<usize> = head.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::from("  ");
        for (n, (cell, (width, words))) in cells.zip(widths.iter().zip(&words)).enumerate().take(columns) {
            // Writing to a string cannot fail.
            let _ = match n {
                0 => write!(text, "{cell:<width$}"),
                _ if *words => write!(text, "  {cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut head.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_but_our_own_colours() {
        let (plain, coloured) = (Style { colour: false }, Style { colour: true });
        let quoted = "a\u{1b}]0;b\u{7}\r\u{1b}[2J\u{9b}c\n\td\u{e9}";
        let harmless = "a\u{fffd}]0;b\u{fffd}\u{fffd}\u{fffd}[2J\u{fffd}c\n\td\u{e9}";
        for style in [plain, coloured] {
            assert_eq!(style.harmless(quoted), harmless);
            assert_eq!(style.harmless(&style.bad("x")), style.bad("x"));
        }
        assert_eq!(plain.harmless("\u{1b}[32mx"), "\u{fffd}[32mx");
        assert_eq!(plain.harmless("a\u{202e}b\u{2066}\u{200b}"), "a\u{fffd}b\u{fffd}\u{200b}");
    }

    #[test]
    fn a_runner_obeys_nothing_that_is_quoted() {
        for (said, shown) in [
            ("said: ##[stop-commands]x", "said: ##\u{fffd}stop-commands]x"),
            ("###[error]", "###\u{fffd}error]"),
            ("##[a]##[b]", "##\u{fffd}a]##\u{fffd}b]"),
            ("::error::x", ":\u{fffd}error::x"),
            ("a\n \t\u{3000}::error::x", "a\n \t\u{3000}:\u{fffd}error::x"),
            ("a\r::error::x", "a\r:\u{fffd}error::x"),
            (":::error", ":\u{fffd}:error"),
            (": :a::b #[c] # #[d] [::1]:70", ": :a::b #[c] # #[d] [::1]:70"),
        ] {
            assert_eq!(uncommanding(said), shown);
        }
        let style = Style { colour: false };
        assert_eq!(
            style.harmless("first said: ##[stop-commands]x\n  ::warning::y"),
            "first said: ##\u{fffd}stop-commands]x\n  :\u{fffd}warning::y"
        );
    }

    #[test]
    fn figures() {
        let shown = [0.0, 0.0234, 9.994, 9.996, 99.94, 99.96, 812.4, 12_345.6].map(ms);
        assert_eq!(shown, ["0.00", "0.02", "9.99", "10.0", "99.9", "100", "812", "12,346"]);
        assert_eq!([f64::NAN, f64::INFINITY].map(ms), ["-", "-"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((percent(1, 0), percent(1, 3)), ("-".into(), "33.3 %".into()));
        assert_eq!(
            [0.0, 0.85, 1.5, 45.0, 59.9, 1_205.0, 7_384.0].map(seconds),
            ["0ms", "0.8s", "1.5s", "45s", "1m00s", "20m05s", "2h03m04s"]
        );
        assert_eq!([2_048.0, 3.5 * 1_048_576.0].map(bytes), ["2.0 KiB", "3.5 MiB"]);
    }

    /// No colour when not a terminal or `NO_COLOR` is set.
    #[test]
    fn colour_only_where_it_is_wanted() {
        use std::ffi::OsStr;
        assert_eq!(Style::detect(true, None).good("x"), "\x1b[32mx\x1b[0m");
        assert_eq!(Style::detect(true, Some(OsStr::new(""))).good("x"), "\x1b[32mx\x1b[0m");
        for style in [Style::detect(false, None), Style::detect(true, Some(OsStr::new("1")))] {
            assert_eq!(style.bad("x"), "x");
        }
    }

    #[test]
    fn tables_line_up() {
        let shown = table(&["metric", "p50"], &[vec!["a".into(), "1".into()], vec!["longer_name".into(), "1,000".into()]]);
        assert_eq!(shown, "  metric         p50\n  a                1\n  longer_name  1,000\n");
        let words =
            table(&["", "<why", "n"], &[vec!["a".into(), "so".into(), "1".into()], vec!["b".into(), "because".into(), "10".into()]]);
        assert_eq!(words, "     why       n\n  a  so        1\n  b  because  10\n");
    }
}
