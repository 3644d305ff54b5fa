//! The shipped experiments show in simulation what they say they show, and show it for the reason that they give: without it, they do not.

use std::collections::{BTreeMap, BTreeSet};

use load_driver::{
    balance::{Balance, Expectation, ExpectationResult},
    profile::{Override, Profile, SHIPPED, Source, load},
    routing, sim,
};

fn profile(name: &str, set: &[&str]) -> Profile {
    let over: Vec<Override> = set.iter().map(|text| Override::parse(text).expect("an override")).collect();
    load(&Source::of(name), &over).unwrap_or_else(|error| panic!("{error}"))
}

fn figures(profile: &Profile) -> BTreeMap<String, Balance> {
    let policies = profile.routing.as_ref().expect("routing").policy.names();
    let simulated = |name: &String| sim::simulate(profile, routing::find(name).expect("a policy")).expect("simulated").balance;
    policies.iter().map(|name| (name.clone(), simulated(name))).collect()
}

fn judged(profile: &Profile) -> Vec<ExpectationResult> {
    let figures = figures(profile);
    profile.expectations.iter().map(|text| Expectation::parse(text).expect("an expectation").judge(&figures)).collect()
}

/// Those that do not hold.
fn failures(profile: &Profile) -> Vec<String> {
    judged(profile).iter().filter(|result| !result.met()).map(|result| format!("{result:?}")).collect()
}

#[test]
fn every_experiment_shows_what_it_says() {
    let experiments = SHIPPED.iter().filter(|shipped| shipped.path.starts_with("routing/") && !shipped.path.contains("million"));
    let mut seen = 0;
    for shipped in experiments {
        let profile = profile(shipped.name, &[]);
        assert!(!profile.expectations.is_empty(), "{} expects nothing", shipped.name);
        assert_eq!(failures(&profile), Vec::<String>::new(), "{}", shipped.name);
        seen += 1;
    }
    assert_eq!(seen, CAUSES.iter().map(|(name, ..)| name).collect::<BTreeSet<_>>().len(), "each has a cause below");
    assert_eq!(seen, 12);
}

/// An experiment, an override that takes its cause away, and what it then shows no more.
const CAUSES: &[(&str, &str, &[&str])] = &[
    // All are as fast as each other, and fast enough.
    (
        "routing-guide",
        "backends=[{count: 20, server: {cpu_cores: 4}}]",
        &["hybrid.overload_rate < round_robin", "hybrid.startup_p99_ms < round_robin"],
    ),
    (
        "routing-live",
        "backends=[{count: 4, server: {cpu_cores: 2}}]",
        &["hybrid.overload_rate < round_robin", "hybrid.startup_p99_ms < round_robin"],
    ),
    // One more short session a second: the long ones no longer fall on the same backend.
    ("routing-qps-lies", "scenarios.task-a.rate=20", &["round_robin.sessions_cv > "]),
    // They do not all speak at once: they never do.
    ("routing-cpu-lies", "server.cost=virtual:idle=4us", &["least_cpu.share_0", "least_cpu.utilization_peak"]),
    // Nobody knows what a session costs whose user speaks.
    ("routing-cpu-lies", "server.report_cost_floor=0", &["hybrid.share_0", "hybrid.utilization_peak"]),
    // The dear backends are as fast as the others.
    (
        "routing-remaining-lies",
        "backends.1.server.cpu_cores=1",
        &["hybrid.utilization_cv", "hybrid.overload_rate", "hybrid.startup_p99_ms"],
    ),
    // The ten sessions cost little.
    ("routing-hybrid-feeds", "backends.0.server.cost=virtual:idle=1us", &["hybrid.share_0", "remaining_capacity.overload_rate"]),
    ("routing-ghosts", "backends.0.server.defect=[]", &["remaining_capacity.share_0", "remaining_capacity.ghosts_left"]),
    ("routing-false-capacity", "backends.0.server.defect=[]", &["remaining_capacity.share_0", "remaining_capacity.counter_error_min"]),
    ("routing-balancers", "routing.share=true", &["hybrid.herd_ratio"]),
    ("routing-balancers", "routing.balancers=1", &["hybrid.herd_ratio"]),
    ("routing-lag", "routing.report_lag=0s", &["least_cpu.utilization_peak", "least_cpu.sessions_cv"]),
    // So short a life that nobody is left of the time before.
    (
        "routing-scale-up",
        "scenarios.crowd.session_length=150ms",
        &["least_cpu.recovery_s", "remaining_capacity.recovery_s", "round_robin.recovery_s"],
    ),
    ("routing-kill", "scenarios.crowd.session_length=1s", &["remaining_capacity.recovery_s", "round_robin.recovery_s", "hybrid.dropped"]),
];

#[test]
fn without_its_cause_none_of_them_does() {
    for (name, cause, keys) in CAUSES {
        let judged = judged(&profile(name, &[cause]));
        for key in *keys {
            let result =
                judged.iter().find(|result| result.text.starts_with(key)).unwrap_or_else(|| panic!("{name} expects nothing of {key}"));
            // Measured, and not so: what could not be measured says nothing about the cause.
            assert_eq!(result.holds, Some(false), "{name} with {cause}: what it shows has another cause: {result:?}");
        }
    }
}

/// What these show is no luck of the seed. Left out are those that hang on it: on the guide's fleet `least_cpu` has fewer overloads with some seeds.
#[test]
fn another_seed_shows_the_same() {
    for name in [
        "routing-cpu-lies",
        "routing-remaining-lies",
        "routing-hybrid-feeds",
        "routing-ghosts",
        "routing-balancers",
        "routing-scale-up",
        "routing-kill",
    ] {
        for seed in 2..=9 {
            let seed = format!("seed={seed}");
            assert_eq!(failures(&profile(name, &[&seed])), Vec::<String>::new(), "{name} with {seed}");
        }
    }
}
