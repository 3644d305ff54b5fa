//! What is written into files.

use super::*;

/// The schema is published; a change of the summary that is not in it is a mistake. `UPDATE_GOLDEN=1` writes it.
#[test]
fn the_published_schema_is_that_of_the_summary() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/summary.schema.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, json::schema()).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == json::schema(), "summary.schema.json is stale: run this test with UPDATE_GOLDEN=1 and see SCHEMA_VERSION");
}

#[test]
fn the_json_reads_back() {
    for summary in [good(), bad(), empty()] {
        let text = json::render(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
    }
}

/// k6 1120: no JUnit.
#[test]
fn junit_has_a_case_per_threshold_and_invariant() {
    let xml = junit::render(&bad()).unwrap();
    assert_eq!(xml.matches("<testcase ").count(), 4 + 2 + 7 + 2 + 1);
    // Of two faults one was made.
    assert_eq!(xml.matches("skipped: ").count(), 1, "{xml}");
    // turn_response, barge_in_stop (no data), sessions_failed; the counters and their finding; counters, generator, workers; the verdict.
    assert_eq!(xml.matches("<failure").count(), 3 + 2 + 3 + 1);
    // Both ways of showing a failure have the text.
    let text = "nothing was measured, so nothing was proven";
    assert!(xml.contains(&format!(r#"<failure message="{text}" type="no data">{text}</failure>"#)), "{xml}");
    assert!(
        xml.contains("3 sessions: 3 sessions that ended are still counted\nthe backend looks full by 3\nsessions, the first: a-1, a-2"),
        "{xml}"
    );
    let green = junit::render(&good()).unwrap();
    assert!(!green.contains("<failure") && green.matches("<testcase ").count() == 3 + 1 + 7 + 1);
    // Counters that nobody could read are neither green nor red.
    assert!(junit::render(&empty()).unwrap().contains("<skipped"));
}

#[test]
fn files_are_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut reporters = Reporters::default();
    reporters.add(Json::new(dir.path().join("summary.json")));
    reporters.add(Junit::new(dir.path().join("junit.xml")));
    reporters.add(Json::new(dir.path().join("no/such/dir.json")));
    let summary = good();
    assert!(reporters.emit(Event::Started(&summary.run)).is_empty());
    let errors = reporters.emit(Event::Finished(&summary));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().starts_with("failed to write ") && errors[0].to_string().contains("no/such/dir.json"));
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["junit.xml", "summary.json"]);
    assert!(reporters.emit(Event::Finished(&summary)).is_empty(), "the broken sink is gone");
}
