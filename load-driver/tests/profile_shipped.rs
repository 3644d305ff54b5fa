//! The shipped profiles are valid, say what they promise, and survive the way to a worker.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use load_driver::{
    cli,
    plan::{EndKind, Plan, Protocol, Wait},
    profile::{self, Override, Profile, SHIPPED, Source, from_json, load, open, open_text},
    routing,
    threshold::{Spec, Threshold},
};
use proto::time::Micros;

fn shipped(name: &str) -> (Profile, Plan) {
    let profile = load(&Source::of(name), &[]).unwrap_or_else(|error| panic!("{error}"));
    let plan = Plan::build(&profile, "0badcafe").unwrap();
    (profile, plan)
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles")
}

/// Every YAML file of a folder, as its path within `profiles`.
fn yaml_files(within: &str) -> Vec<String> {
    let paths = fs::read_dir(folder().join(within)).unwrap().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| format!("{within}{}", path.file_name().unwrap().to_string_lossy()))
        .collect()
}

#[test]
fn each_is_valid_by_name_and_by_path_and_none_is_forgotten() {
    let mut files = yaml_files("");
    files.extend(yaml_files("routing/"));
    files.sort();
    let mut paths: Vec<&str> = SHIPPED.iter().map(|profile| profile.path).collect();
    paths.sort_unstable();
    assert_eq!(files, paths);
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    for shipped in SHIPPED {
        let name = shipped.name;
        assert!(readme.contains(&format!("| {name} |")), "{name} is not in the README");
        let carried = load(&Source::of(name), &[]).unwrap_or_else(|error| panic!("{error}"));
        let mut from_file =
            load(&Source::of(&folder().join(shipped.path).to_string_lossy()), &[]).unwrap_or_else(|error| panic!("{error}"));
        assert!(from_file.audio_dir.is_some());
        from_file.audio_dir = None;
        assert_eq!(carried, from_file);
        assert_eq!(carried.name, name);
        assert!(!carried.description.is_empty() && !carried.thresholds.is_empty());
    }
}

/// Read back from JSON, as a worker does, and from a file, as a user may, it is the same.
fn survives(profile: Profile) {
    assert_eq!(from_json(&serde_json::to_string(&profile).unwrap()).unwrap(), profile);
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    // Clips stay where they are: the folder is part of what is resolved.
    let resolved = Profile { audio_dir: Some(fs::canonicalize(folder()).unwrap()), ..profile };
    fs::write(file.path(), serde_yaml::to_string(&resolved).unwrap()).unwrap();
    let again = load(&Source::File(file.path().to_owned()), &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again, resolved);
}

#[test]
fn a_resolved_profile_reads_back_the_same_as_json_and_as_yaml() {
    for shipped in SHIPPED {
        survives(load(&Source::of(shipped.name), &[]).unwrap());
    }
    for backends in [
        "backends=[{count: 2, server: {cpu_cores: 0.5, think: '1s'}}, {}, {killed: 3s, dead_for: 500ms}]",
        "backends=['127.0.0.1:7000', {address: '127.0.0.1:7010', admin: '127.0.0.1:9000'}]",
        "backends={dns: 'agents:7000', admin_port: 9000}",
        "target={embedded: {backends: 5}}",
    ] {
        let overrides = [Override::parse(backends).unwrap()];
        // Where the file names a target, addresses would contradict it.
        let text = profile::shipped("arrivals").unwrap().text.replace("\ntarget: embedded\n", "\n");
        let loaded = open_text(&Source::of("arrivals"), "arrivals", &text, &overrides).unwrap_or_else(|error| panic!("{error}"));
        survives(loaded.profile);
    }
}

#[test]
fn thousands_is_ten_thousand_at_once_and_one_in_twenty_speaks() {
    let (_, plan) = shipped("thousands");
    let open = |at: u64| {
        plan.scenarios.iter().flat_map(|s| &s.lanes).filter(|lane| (lane.start.0..lane.stop.0).contains(&(at * 1_000_000))).count()
    };
    assert_eq!((open(0), open(40), open(99)), (0, 10_000, 10_000));
    let protocols: Vec<Protocol> = plan.scenarios.iter().map(|scenario| scenario.protocol).collect();
    assert_eq!(protocols, [Protocol::Grpc, Protocol::Websocket]);
    // Walk some of the sessions as a caller does, answers taken to fit into the silence.
    let moments: Vec<u64> = (50..95).map(|second| second * 1_000_000).collect();
    let mut speaking = vec![0_u32; moments.len()];
    let lanes: Vec<_> = plan.scenarios[0].lanes.iter().step_by(5).collect();
    for lane in &lanes {
        let session = plan.session(0, lane.number, 0, lane.start);
        let mut begin = lane.start;
        for n in 0.. {
            let turn = session.turn(n).unwrap();
            begin += match turn.wait {
                Wait::After(wait) | Wait::Cycle(wait) => wait,
                Wait::At(_) => panic!(),
            };
            if begin.0 > 100_000_000 {
                break;
            }
            let end = begin.0 + turn.says.unwrap().speech_us();
            for (moment, count) in moments.iter().zip(&mut speaking) {
                *count += u32::from((begin.0..end).contains(moment));
            }
        }
    }
    let least = f64::from(*speaking.iter().min().unwrap()) / lanes.len() as f64;
    // A fifth of the crowd scatters more than all of it: 0.06 less three standard deviations of 1,000 sessions is 0.037.
    assert!(least > 0.037, "{speaking:?}");
    let mean = speaking.iter().map(|&n| f64::from(n)).sum::<f64>() / speaking.len() as f64 / lanes.len() as f64;
    assert!((mean - 0.06).abs() < 0.004, "{mean}");
}

#[test]
fn forced_kill_kills_enough_in_every_way_and_is_over_in_a_minute() {
    let (profile, plan) = shipped("forced-kill");
    let mut killed: BTreeMap<(EndKind, &str), usize> = BTreeMap::new();
    for scenario in plan.scenarios.iter().filter(|scenario| scenario.expect.is_none() && !scenario.name.starts_with("churn")) {
        let protocol = if scenario.protocol == Protocol::Grpc { "grpc" } else { "websocket" };
        for lane in &scenario.lanes {
            *killed.entry((plan.session(usize::from(scenario.number), lane.number, 0, lane.start).end, protocol)).or_default() += 1;
        }
    }
    for kind in EndKind::ALL {
        for protocol in ["grpc", "websocket"] {
            assert!(killed.get(&(kind, protocol)).is_some_and(|&n| n >= 25), "{kind:?} {protocol}: {killed:?}");
        }
    }
    assert!(plan.ends_at() + profile.counters.settle.0 < Micros::from_millis(55_000), "{}", plan.ends_at());
    for scenario in plan.scenarios.iter().filter(|scenario| scenario.kill_at.is_none() && !scenario.name.starts_with("overtime")) {
        for lane in scenario.lanes.iter().filter(|lane| !lane.repeat) {
            let session = plan.session(usize::from(scenario.number), lane.number, 0, lane.start);
            let over = lane.start + session.length.unwrap() + TURN;
            assert!(over <= lane.stop + lane.grace, "{}: stopped before its own end", session.client_ref);
        }
    }
    let cap = profile.server["max_sessions"].as_u64().unwrap();
    assert!(most_open(&plan, 2) >= cap + 40, "too few are refused");
    for backend in [0, 1] {
        assert!(most_open(&plan, backend) < cap, "backend {backend} would refuse sessions that nobody expects to be refused");
    }
}

/// Longest turn of `forced-kill`: a session ends at the first boundary after its length.
const TURN: Duration = Duration::from_secs(6);

/// Most sessions open at once on a backend, as planned: one that is cut by a kill lives until then, one that times out until the deadline,
/// a half-open one until the keepalive finds it; a turn may take some seconds to its boundary.
fn most_open(plan: &Plan, backend: usize) -> u64 {
    let mut changes: Vec<(Micros, i64)> = Vec::new();
    for scenario in plan.scenarios.iter().filter(|scenario| scenario.backend == Some(backend)) {
        for lane in &scenario.lanes {
            let session = plan.session(usize::from(scenario.number), lane.number, 0, lane.start);
            let over = lane.start + session.length.unwrap() + TURN;
            let over = scenario.kill_at.unwrap_or(over).min(if lane.repeat { lane.stop } else { over });
            let over = if lane.repeat { lane.stop } else { over };
            changes.extend([(lane.start, 1), (over, -1)]);
        }
    }
    changes.sort_unstable();
    let mut open = 0;
    changes
        .into_iter()
        .map(|(_, change)| {
            open += change;
            open
        })
        .max()
        .unwrap_or(0)
        .unsigned_abs()
}

#[test]
fn idle_burst_speaks_at_one_instant() {
    let (_, plan) = shipped("idle-burst");
    let sessions: usize = plan.scenarios.iter().map(|scenario| scenario.lanes.len()).sum();
    assert_eq!(sessions, 500);
    for scenario in 0..2 {
        let session = plan.session(scenario, 100, 0, Micros::ZERO);
        assert_eq!(session.turn(0).unwrap().wait, Wait::At(Micros::from_millis(15_000)));
    }
}

#[test]
fn quickstart_is_over_in_time_and_has_every_kind_of_turn() {
    let (profile, plan) = shipped("quickstart");
    assert!(plan.ends_at() + profile.counters.settle.0 <= Micros::from_millis(40_000));
    let text = serde_yaml::to_string(&profile).unwrap();
    for part in ["barge_in", "tool", "websocket", "grpc", "cancel"] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(plan.scenarios.iter().map(|scenario| scenario.lanes.len()).sum::<usize>(), 40);
}

#[test]
fn overrides_reach_into_defaults_lists_and_new_keys() {
    let set = |text: &str| Override::parse(text).unwrap();
    let environment = Override::from_env([("LOAD_DRIVER_SEED".to_owned(), "5".to_owned()), ("HOME".to_owned(), "x".to_owned())]);
    let mut overrides = environment.clone();
    overrides.extend([
        set("driver.shards=3"),
        set("defaults.duration=7s"),
        set("scenarios.tools.conversations.0.turns.0.tool.takes=uniform(1s, 2s)"),
        set("target={embedded: {backends: 4}}"),
        set("server.max_sessions=9"),
    ]);
    let profile = load(&Source::of("quickstart"), &overrides).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((profile.seed, profile.driver.shards, profile.fleet().members.len()), (5, Some(3), 4));
    assert_eq!(profile.server["max_sessions"], 9);
    let tools = profile.scenarios.get("tools").unwrap();
    assert_eq!(tools.duration.unwrap().0, Duration::from_secs(7));
    assert_eq!(serde_json::to_value(tools).unwrap()["conversations"][0]["turns"][0]["tool"]["takes"], "uniform(1s, 2s)");
    let inherited = load(&Source::of("talkers"), &[set("scenarios.grpc.stages.0.target=7")]).unwrap_or_else(|error| panic!("{error}"));
    let stages = serde_json::to_value(inherited.scenarios.get("grpc").unwrap()).unwrap()["stages"].clone();
    assert_eq!((&stages[0]["target"], &stages[1]["target"]), (&7.0.into(), &500.0.into()), "a value that comes from the defaults");
    overrides.push(Override::seed("8", "--seed 8"));
    assert_eq!(load(&Source::of("quickstart"), &overrides).unwrap().seed, 8, "the flag wins over the environment");
    let target = Override::target("10.0.0.1:7000, 10.0.0.2:7000", "--target ...");
    assert_eq!(load(&Source::of("quickstart"), &[target]).unwrap().fleet().members.len(), 2);
    let fleet = [set("backends=[{count: 2}, {}]"), set("backends.1.server.cpu_cores=0.5"), set("server.report_scaler=4")];
    let members = load(&Source::of("quickstart"), &fleet).unwrap_or_else(|error| panic!("{error}")).fleet().members;
    let settings: Vec<_> = members.iter().map(|member| (&member.server["report_scaler"], member.server.get("cpu_cores"))).collect();
    assert_eq!(settings, [(&4.into(), None), (&4.into(), None), (&4.into(), Some(&0.5.into()))]);
}

#[test]
fn a_target_over_a_profile_with_backends_says_what_to_drop() {
    let target = |to: &str| Override::target(to, "--target");
    let set = |text: &str| Override::parse(text).unwrap();
    for (over, told) in [
        (vec![set("backends=[{}, {}]"), target("10.0.0.1:7000")], "--set backends=null"),
        (vec![set("backends=['a:1']"), target("embedded")], "those in `backends` run already"),
        (vec![set("backends={dns: 'a:1'}"), target("10.0.0.1:7000")], "both say where sessions go"),
    ] {
        let error = load(&Source::of("quickstart"), &over).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let plain = load(&Source::of("quickstart"), &[set("backends=[{}, {}]"), target("10.0.0.1:7000"), set("backends=null")]);
    assert_eq!(plain.unwrap().fleet().members.len(), 1);
}

#[test]
fn every_policy_is_in_the_readme() {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    for policy in routing::ALL {
        assert!(readme.contains(&format!("\n| `{}` | ", policy.name)), "{} is not in the README", policy.name);
    }
}

#[test]
fn a_policy_is_chosen_from_the_command_line() {
    let set = |text: &str| Override::parse(text).unwrap();
    let names = |over: &[Override]| load(&Source::of("quickstart"), over).map(|profile| profile.routing.unwrap().policy.names().to_vec());
    assert_eq!(names(&[set("routing.policy=hybrid")]).unwrap(), ["hybrid"]);
    assert_eq!(names(&[set("routing.policy=[hybrid, least_cpu]"), set("routing.balancers=3")]).unwrap(), ["hybrid", "least_cpu"]);
    assert_eq!(names(&[set("routing.policy=all")]).unwrap().len(), routing::ALL.len());
    assert_eq!(names(&[set("routing={}")]).unwrap(), ["round_robin"]);
    let error = names(&[set("routing.policy=hybird")]).unwrap_err().to_string();
    assert!(error.contains("there is no policy `hybird`") && error.contains("did you mean `hybrid`?"), "{error}");
    // A comparison without one of its sides is none.
    let error = load(&Source::of("routing-live"), &[set("routing.policy=hybrid")]).unwrap_err().to_string();
    assert!(error.contains("about `round_robin`") && error.contains("--set 'expectations=[]'"), "{error}");
    assert!(load(&Source::of("routing-live"), &[set("routing.policy=hybrid"), set("expectations=[]")]).is_ok());
}

#[test]
fn the_place_of_a_path_is_known_after_loading() {
    let loaded = open(&Source::File(folder().join("soak-5m.yaml")), &[]).unwrap();
    let error = loaded.document.error(&["thresholds", "turn_response", "0", "threshold"], "no", Some("yes".to_owned())).to_string();
    assert!(error.contains("{threshold: 'p(95)<3000', window: 1m}"), "{error}");
    assert!(error.contains("= help: yes"), "{error}");
}

#[test]
fn check_prints_a_profile_that_can_be_run_and_the_plan() {
    let printed = cli::check::check(&Source::of("arrivals"), &[]);
    assert!(printed.ok);
    assert!(
        printed.text.contains("\n# sessions begin for 45.0s, and get up to 15s more to finish: at most 60.0s in all\n"),
        "{}",
        printed.text
    );
    assert!(printed.text.contains("\n# ramp "), "{}", printed.text);
    let file = folder().join("again.tmp");
    fs::write(&file, &printed.text).unwrap();
    let again = load(&Source::File(file.clone()), &[]);
    fs::remove_file(&file).unwrap();
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}")).scenarios, load(&Source::of("arrivals"), &[]).unwrap().scenarios);
    assert!(printed.text.contains("\n# backends: 1 backend that the run starts\n"), "{}", printed.text);
    let printed = cli::check::check(&Source::of("arrivals"), &[Override::parse("target={embedded: {backends: 70}}").unwrap()]);
    assert!(printed.text.contains("\n# backends: 70 backends that the run starts\n# these are too many for `run`"), "{}", printed.text);
    assert!(printed.text.contains("\n# routing: none, sessions take the backends in turn\n"), "{}", printed.text);
    let printed = cli::check::check(&Source::of("nothing"), &[]);
    assert!(!printed.ok && printed.text.contains("the shipped ones are"));
}

#[test]
fn profiles_lists_every_shipped_one() {
    let printed = cli::profiles::profiles();
    assert!(printed.ok, "{}", printed.text);
    assert_eq!(printed.text.lines().count(), SHIPPED.len());
    assert!(printed.text.starts_with("quickstart "));
}

#[test]
fn the_committed_schema_is_the_one_that_the_types_give() {
    let path = folder().join("profile.schema.json");
    let schema = cli::schema::schema().text;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == schema,
        "profiles/profile.schema.json is stale: run UPDATE_GOLDEN=1 cargo test -p load-driver --test profile_shipped"
    );
}

#[test]
fn the_thresholds_of_the_shipped_profiles_can_be_judged() {
    for shipped in SHIPPED {
        let profile = load(&Source::of(shipped.name), &[]).unwrap();
        let names: Vec<&str> = profile.scenarios.iter().map(|(name, _)| name).collect();
        for (key, all) in profile.thresholds.iter() {
            for one in all {
                let spec = Spec { window: one.window.map(|span| span.0), ..Spec::short(&one.threshold) };
                if let Err(error) = Threshold::parse(key, &spec, &names) {
                    panic!("{}: {key}: {error}", shipped.name);
                }
            }
        }
    }
}

/// A target is all that must be given to leave the embedded backends.
#[test]
fn each_dialect_is_pointed_at_a_service_by_the_target_alone() {
    for (name, url) in [
        ("openai-realtime", "wss://service.example/v1/realtime?model=m"),
        ("twilio", "wss://service.example/twilio"),
        ("pipecat", "ws://service.example/ws-client"),
        ("gemini-live", "wss://service.example"),
        ("ces", "https://service.example"),
        ("elevenlabs", "wss://service.example"),
        ("deepgram", "wss://service.example"),
    ] {
        let profile = load(&Source::of(name), &[Override::target(url, "--target")]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(profile.server.is_empty(), "{name}");
        assert!(!load(&Source::of(name), &[]).unwrap().server.is_empty(), "{name} shapes its own backends");
    }
}

/// The grammar in `profiles/README.md` has every key that people write.
#[test]
fn the_documented_grammar_has_every_key_of_the_schema() {
    let schema: serde_json::Value = serde_json::from_str(&cli::schema::schema().text).unwrap();
    let page = fs::read_to_string(folder().join("README.md")).unwrap();
    let grammar = page.split_once("## Grammar").unwrap().1.split_once("## Thresholds").unwrap().0;
    // A table is known by its head; one key may stand in several.
    let tables = |head: &str| {
        let found: Vec<&str> = grammar.split("\n\n").filter(|part| part.starts_with(&format!("| {head}"))).collect();
        assert!(!found.is_empty(), "no table of {head}");
        found.concat()
    };
    let is_named = |text: &str, key: &str| {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        text.split('`').skip(1).step_by(2).any(|code| code.split(|c| !word(c)).any(|one| one == key))
    };
    for (place, head) in [
        ("/properties", "top level"),
        ("/$defs/Scenario/properties", "scenario"),
        ("/$defs/Driver/properties", "top level"),
        ("/$defs/Counters/properties", "top level"),
        ("/$defs/Turn/properties", "turn"),
        ("/$defs/BargeIn/properties", "turn"),
        ("/$defs/Agent/properties", "agent"),
        ("/$defs/FaultEntry/properties", "faults"),
        ("/$defs/Routing/properties", "routing"),
    ] {
        let text = tables(head);
        for key in schema.pointer(place).and_then(serde_json::Value::as_object).unwrap_or_else(|| panic!("no {place}")).keys() {
            assert!(is_named(&text, key), "profiles/README.md does not have `{key}` in its table of {head}");
        }
    }
    for (kind, head) in [("Format", "scenario"), ("Dialect", "scenario"), ("EndKind", "scenario"), ("TurnDetection", "agent")] {
        let of = &schema["$defs"][kind];
        let listed = of["enum"].as_array().cloned().unwrap_or_default().into_iter();
        let each = of["oneOf"].as_array().cloned().unwrap_or_default().into_iter().map(|one| one["const"].clone());
        let names: Vec<_> = listed.chain(each).filter_map(|name| name.as_str().map(str::to_owned)).collect();
        assert!(names.len() > 2, "{kind}");
        for name in names {
            assert!(is_named(&tables(head), &name), "profiles/README.md does not have `{name}`, a {kind}");
        }
    }
}

/// What the document says of the keys of `agent` is what the driver holds them to.
#[test]
fn the_documented_keys_of_agent_are_those_of_each_dialect() {
    use load_driver::plan::Dialect;
    let page = fs::read_to_string(folder().join("README.md")).unwrap();
    let row = |key: &str| {
        page.lines().find(|line| line.starts_with(&format!("| `{key}` |"))).unwrap_or_else(|| panic!("no row of {key}")).to_owned()
    };
    for key in ["model", "id", "voice", "instructions", "turn_detection", "beta", "without_rtvi"] {
        for dialect in Dialect::ALL {
            assert_eq!(row(key).contains(dialect.name()), dialect.agent_keys().contains(&key), "`{key}` of {}", dialect.name());
        }
    }
}
