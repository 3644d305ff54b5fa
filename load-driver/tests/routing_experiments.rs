//! The shipped experiments show in simulation what they say they show, and show it for the reason that they give: without it, they do not.

use std::collections::BTreeMap;

use load_driver::{
    balance::{Balance, Expectation},
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

/// Those that do not hold.
fn failures(name: &str, set: &[&str]) -> Vec<String> {
    let profile = profile(name, set);
    let figures = figures(&profile);
    let judged = profile.expectations.iter().map(|text| Expectation::parse(text).expect("an expectation").judge(&figures));
    judged.filter(|result| result.holds != Some(true)).map(|result| format!("{result:?}")).collect()
}

#[test]
fn every_experiment_shows_what_it_says() {
    let experiments = SHIPPED.iter().filter(|shipped| shipped.path.starts_with("routing/") && !shipped.path.contains("million"));
    let mut seen = 0;
    for shipped in experiments {
        assert!(!profile(shipped.name, &[]).expectations.is_empty(), "{} expects nothing", shipped.name);
        assert_eq!(failures(shipped.name, &[]), Vec::<String>::new(), "{}", shipped.name);
        seen += 1;
    }
    assert_eq!(seen, 12);
}

#[test]
fn without_its_cause_none_of_them_does() {
    for (name, cause) in [
        // One more short session a second: the long ones no longer fall on the same backend.
        ("routing-qps-lies", "scenarios.task-a.rate=20"),
        // They do not all speak at once: they never do.
        ("routing-cpu-lies", "server.cost=virtual:idle=4us"),
        // The dear backends are as fast as the others.
        ("routing-remaining-lies", "backends.1.server.cpu_cores=1"),
        // The ten sessions cost little.
        ("routing-hybrid-feeds", "backends.0.server.cost=virtual:idle=1us"),
        ("routing-ghosts", "backends.0.server.defect=[]"),
        ("routing-false-capacity", "backends.0.server.defect=[]"),
        ("routing-balancers", "routing.share=true"),
        ("routing-lag", "routing.report_lag=0s"),
        // A sixth of a second to live: nobody is left of the time before.
        ("routing-scale-up", "scenarios.crowd.session_length=150ms"),
        // Nobody is killed.
        ("routing-kill", "backends.0={}"),
    ] {
        assert!(!failures(name, &[cause]).is_empty(), "{name} with {cause} shows the same: what it shows has another cause");
    }
}
