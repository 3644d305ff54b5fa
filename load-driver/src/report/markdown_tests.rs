use pulldown_cmark::{Event as Piece, Options, Parser, Tag, TagEnd};

use super::*;
use crate::{
    leak::{Leak, LeakRow},
    report::{
        page::LIMIT,
        summary::{FindingRow, SegmentRow},
        tests::{bad, compared, empty, good},
        *,
    },
};

/// Rows of every table, by their number of cells, as GitHub's flavour has them; and everything that is no plain text.
fn parsed(text: &str) -> (Vec<Vec<usize>>, Vec<String>, String) {
    let (mut tables, mut markup, mut shown) = (Vec::new(), Vec::new(), String::new());
    for piece in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        match piece {
            Piece::Start(Tag::Table(_)) => tables.push(Vec::new()),
            Piece::Start(Tag::TableHead | Tag::TableRow) => tables.last_mut().unwrap().push(0),
            Piece::Start(Tag::TableCell) => *tables.last_mut().unwrap().last_mut().unwrap() += 1,
            Piece::End(TagEnd::TableCell) => shown.push('\t'),
            Piece::Text(text) => shown.push_str(&text),
            Piece::Start(Tag::Heading { .. } | Tag::Paragraph | Tag::List(_) | Tag::Item | Tag::Strong) | Piece::End(_) => {}
            Piece::SoftBreak => shown.push(' '),
            other => markup.push(format!("{other:?}")),
        }
    }
    (tables, markup, shown)
}

/// Cells that a line of a table has: GitHub counts pipes that are not escaped.
fn cells(line: &str) -> usize {
    line.replace("\\\\", "").replace("\\|", "").matches('|').count() - 1
}

#[test]
fn tables_are_well_formed() {
    for summary in [good(), bad(), empty(), compared()] {
        let text = render(&summary);
        let (tables, markup, _) = parsed(&text);
        assert!(!tables.is_empty() && markup.is_empty(), "{markup:?}\n{text}");
        for table in tables {
            assert!(table.iter().all(|cells| *cells == table[0]), "{table:?}");
        }
        // The parser fills short rows up: so the lines themselves.
        let mut width = None;
        for line in text.lines() {
            width = line.starts_with('|').then(|| {
                assert!(width.is_none_or(|width| width == cells(line)), "{line}");
                cells(line)
            });
        }
    }
}

#[test]
fn the_verdict_comes_first() {
    assert!(render(&good()).starts_with("## ✅ PASSED: profiles/quickstart.yaml\n"));
    let text = render(&bad());
    assert!(text.starts_with("## ❌ FAILED (exit code 98)"), "{text}");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {text}"));
    assert!(at("### Thresholds") < at("### Counters") && at("### Counters") < at("### Latencies") && at("### Latencies") < at("### Cost"));
    let unfinished = Summary { unfinished: true, ..good() };
    assert!(render(&unfinished).starts_with("## ⏳ UNFINISHED"));
}

#[test]
fn the_whole_page() {
    insta::assert_snapshot!(render(&bad()));
}

/// Words of a backend are shown as they are, whatever they try.
#[test]
fn hostile_words_stay_words() {
    let hostile = "a | b\n\n# h\r\n| x |\n<img src=x onerror=y> [l](http://e.example) ![i](u) `c` **b** ~~s~~ <!-- www.e.example @user #1 \\| \u{202e}\u{7}:x: &amp;";
    let mut summary = bad();
    summary.counters.findings[0].evidence = hostile.to_owned();
    summary.counters.basis = hostile.to_owned();
    summary.run.profile = hostile.to_owned();
    summary.scenarios[0].name = hostile.to_owned();
    summary.error_messages.insert("connection_refused".to_owned(), hostile.to_owned());
    summary.stopped_early = Some(hostile.to_owned());
    let text = render(&summary);
    let (_, markup, shown) = parsed(&text);
    assert_eq!(markup, Vec::<String>::new(), "{text}");
    assert!(shown.contains("<img src=x onerror=y> [l](http://e.example) ![i](u) `c` **b** ~~s~~"), "{shown}");
    assert!(!text.contains("http://") && !text.contains("www.e") && !text.contains('\u{202e}') && !text.contains('\u{7}'), "{text}");
    let head = text.lines().next().unwrap();
    assert!(head.starts_with("## ") && head.contains("a \\| b"), "{head}");
}

/// A step's summary has 1 MiB in all.
#[test]
fn the_page_is_bounded() {
    let mut summary = bad();
    let finding = summary.counters.findings[0].clone();
    summary.counters.findings = vec![FindingRow { evidence: "é|".repeat(5_000), ..finding }; 5_000];
    summary.scenarios = vec![summary.scenarios[0].clone(); 3_000];
    summary.thresholds = vec![summary.thresholds[0].clone(); 3_000];
    let text = render(&summary);
    assert!(text.len() <= LIMIT, "{}", text.len());
    assert!(text.contains("2900 more are in summary.json."), "{text}");
}

#[test]
fn a_step_summary_is_appended_to_and_costs_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("step.md");
    std::fs::write(&page, "before").unwrap();
    let mut reporters = Reporters::default();
    reporters.add(Markdown::append(&page));
    reporters.add(Markdown::append(dir.path().join("no/such/folder.md")));
    let summary = good();
    for _ in 0..2 {
        assert!(reporters.emit(Event::Finished(&summary)).is_empty());
    }
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("before\n## ✅"));
    assert_eq!(text.matches("## ✅").count(), 2);
}

#[test]
fn segments_and_growth_are_on_the_page_and_in_the_terminal() {
    let segment =
        |number, killed| SegmentRow { number, run_id: format!("0badcaf{number}"), killed, lost_sessions: 3, ..SegmentRow::default() };
    let row = |what, slope: Option<f64>| LeakRow {
        process: "backend 1".into(),
        what,
        slope_per_h: slope,
        interval_per_h: slope.map(|slope| (slope - 1.0, slope + 1.0)),
        per_session: None,
        last: 40.0,
        blocks: 30,
        block_s: 2,
        reason: String::new(),
    };
    let summary = Summary {
        segments: vec![SegmentRow { notes: vec!["backend 0 | was started anew".into()], ..segment(0, true) }, segment(1, false)],
        leaks: vec![row(Leak::Rss, Some(12.0)), row(Leak::Fds, None)],
        ..good()
    };
    let text = render(&summary);
    let (_, markup, shown) = parsed(&text);
    assert!(markup.is_empty(), "{markup:?}");
    for part in ["3 sessions lost with it", "backend 0 | was started anew", "+12.00", "+11.00 to +13.00", "grows"] {
        assert!(shown.contains(part), "no {part} in {shown}");
        assert!(terminal::render(&summary, Style::default()).contains(part), "no {part} in the terminal");
    }
    assert!(!text.contains("fds"), "what could not be told is in summary.json: {text}");
}

#[test]
fn what_sums_do_not_tell_by_kind_is_no_number() {
    let mut summary = bad();
    let named = render(&summary);
    assert!(!named.contains("these counters are sums"), "{named}");
    for row in &mut summary.convergence {
        (row.detected, row.written_off, row.ghosts, row.false_capacity) = (None, None, None, None);
    }
    let (_, markup, shown) = parsed(&render(&summary));
    assert!(markup.is_empty(), "{markup:?}");
    let terminal = terminal::render(&summary, Style::default());
    for text in [shown, terminal] {
        assert_eq!(text.matches("these counters are sums").count(), 1, "{text}");
    }
    let row = rows::convergence(&summary.convergence[0]);
    assert_eq!([2, 3, 4, 5, 9, 10].map(|n| row[n].as_str()), ["20", "-", "-", "12.3", "-", "-"]);
}
