//! Every way to get a profile wrong, and what the user is told. `profile_errors/NAME.yaml` gives exactly `NAME.txt`; run with
//! `UPDATE_GOLDEN=1` to write them anew, and read the difference.

use std::{collections::BTreeSet, fs, path::Path};

use load_driver::{
    cli::check::check,
    profile::{Override, ProfileError, Source, load},
};

fn said(file: &Path, overrides: &[&str]) -> String {
    let overrides: Vec<Override> = overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    let said = check(&Source::File(file.to_owned()), &overrides);
    assert!(!said.ok, "{} is accepted:\n{}", file.display(), said.text);
    let folder = format!("{}/", file.parent().unwrap().display());
    said.text.replace(&folder, "")
}

#[test]
fn bad_profiles_are_explained() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profile_errors");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    names.sort();
    assert!(names.len() >= 20, "the bad profiles are missing");
    let mut wrong = Vec::new();
    let mut messages = BTreeSet::new();
    for file in names {
        let text = said(&file, &[]);
        let golden = file.with_extension("txt");
        if update {
            fs::write(&golden, &text).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if text != expected {
            wrong.push(format!("{}:\n--- expected\n{expected}--- said\n{text}", file.display()));
        }
        messages.insert(text.lines().next().unwrap().to_owned());
        let stem = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(text.contains(&format!("--> {stem}:")), "no place in the file: {text}");
        assert!(text.contains('^'), "no caret: {text}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(messages.len() >= 20, "too alike: {messages:#?}");
}

#[test]
fn what_an_override_breaks_names_the_override() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles/quickstart.yaml");
    for (given, message, help) in [
        ("seed=many", "expected a whole number, 0 or more, found the text `many`", None),
        ("driver.shard=2", "unknown key `shard`", Some("did you mean `shards`?")),
        ("scenarios.tolk.sessions=2", "there is no scenario `tolk`", Some("did you mean `talk`?")),
        ("scenarios.talk.sessions=0", "0 sessions are no load", Some("write 1 or more")),
        (
            "scenarios.talk.conversations.9.weight=1",
            "`scenarios.talk.conversations` is a list of 1 and has no item `9`",
            Some("its items are 0 to 0"),
        ),
        ("seed.a=1", "`seed` is the number 1 and has no key `a`", Some("set all of it: --set 'seed={a: ...}'")),
        ("warmup=[", "the value is not valid YAML", None),
        ("scenarios.talk.duration=10", "expected a time with its unit, such as 10s, 250ms or 1m30s, found the number 10", None),
    ] {
        let text = said(&file, &[given]);
        assert!(text.starts_with(&format!("error: {message}")), "{text}");
        assert!(text.contains(&format!("\n --> --set {given}  (over ")), "{text}");
        if let Some(help) = help {
            assert!(text.contains(&format!("= help: {help}")), "{text}");
        }
    }
    for text in ["seed", "=1", "a..b=1"] {
        let error = Override::parse(text).unwrap_err().to_string();
        assert_eq!(error, format!("`--set {text}` is not path=value: write for example --set scenarios.talk.sessions=20"));
    }
}

/// What the dialect has a word for is accepted.
#[test]
fn words_that_exist_are_accepted() {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    for (dialect, keys, act) in [
        ("ces", "", "dtmf: '1'"),
        ("pipecat", "", "dtmf: '1', cancel: {after: 1s}"),
        ("pipecat", "", "barge_in: {after: 1s, explicit: true}"),
        ("gemini_live", "agent: {turn_detection: none}", "barge_in: {after: 1s, explicit: true}"),
        ("gemini_live", "agent: {turn_detection: none}, markers: true", "barge_in: {after: 1s, say: {synth: 1s}}"),
        ("native", "agent: {turn_detection: none}, markers: true", "barge_in: {after: 1s, explicit: true, heard: beyond}"),
        ("openai_realtime", "agent: {turn_detection: none}", "barge_in: {after: 1s, heard: 0ms, say: {synth: 1s}}"),
        ("openai_realtime", "", "barge_in: {after: 1s, explicit: true, heard: beyond}"),
        ("deepgram", "agent: {turn_detection: none}", "barge_in: {after: 1s, say: {synth: 1s}}"),
    ] {
        let keys = if keys.is_empty() { String::new() } else { format!("{keys}, ") };
        let turns = format!("conversations: [{{turns: [{{say: {{synth: 1s}}, {act}}}]}}]");
        let text =
            format!("scenarios:\n  talk: {{dialect: {dialect}, executor: constant-sessions, sessions: 1, duration: 10s, {keys}{turns}}}\n");
        fs::write(file.path(), &text).unwrap();
        load(&Source::File(file.path().to_owned()), &[]).unwrap_or_else(|error| panic!("{text}{error}"));
    }
}

#[test]
fn what_cannot_be_read_says_so() {
    let error = load(&Source::of("quickstrat"), &[]).unwrap_err();
    assert!(matches!(error, ProfileError::Unknown { .. }));
    assert!(error.to_string().contains("the shipped ones are quickstart, thousands"), "{error}");
    let error = load(&Source::of("none/such.yaml"), &[]).unwrap_err().to_string();
    assert!(error.starts_with("failed to read the profile none/such.yaml: "), "{error}");
}

/// Whatever a file holds, it is refused in words or accepted and planned, never a panic.
#[test]
fn a_mangled_profile_never_panics() {
    use proptest::prelude::*;
    let texts: Vec<Vec<String>> =
        load_driver::profile::SHIPPED.iter().map(|profile| profile.text.lines().map(str::to_owned).collect()).collect();
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let words =
        ["", "-", "[", "{}", "null", "-1", "1e308", ".nan", "&a", "*a", "<<: *a", "\u{7f}ü: x", "'", "\t", "9999999999999999999999"];
    let strategy = (0..texts.len(), proptest::collection::vec((0usize..80, 0usize..3, 0usize..words.len()), 1..6));
    proptest!(ProptestConfig::with_cases(300), |((which, edits) in strategy)| {
        let mut lines = texts[which].clone();
        for (at, how, word) in edits {
            let at = at % lines.len();
            match how {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, words[word].to_owned()),
                _ => {
                    // The value of a line is another.
                    let key = lines[at].split_once(':').map(|(key, _)| key.to_owned());
                    lines[at] = key.map_or_else(|| words[word].to_owned(), |key| format!("{key}: {}", words[word]));
                }
            }
        }
        fs::write(file.path(), lines.join("\n")).unwrap();
        if let Err(error) = load(&Source::File(file.path().to_owned()), &[]) {
            let text = error.to_string();
            prop_assert!(text.contains("-->"), "{}", text);
        }
    });
}

/// What a smaller run of a shipped profile cannot reach.
#[test]
fn a_threshold_that_is_set_to_nothing_is_dropped() {
    let active = |set: &[&str]| {
        let overrides: Vec<Override> = set.iter().map(|text| Override::parse(text).unwrap()).collect();
        let loaded = load(&Source::of("twilio"), &overrides);
        loaded.map(|loaded| loaded.thresholds.iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>())
    };
    let all = active(&[]).unwrap();
    assert!(all.iter().any(|key| key == "active"));
    for nothing in ["thresholds.active=null", "thresholds.active=[]", "thresholds.active="] {
        let left: Vec<_> = all.iter().filter(|key| *key != "active").cloned().collect();
        assert_eq!(active(&[nothing]).unwrap(), left, "{nothing}");
    }
    let error = active(&["thresholds.activ=null"]).unwrap_err().to_string();
    assert!(error.contains("there is no threshold of `activ`"), "{error}");
}
