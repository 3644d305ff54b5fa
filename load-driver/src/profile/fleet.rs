//! The fleet that follows from `target` and `backends`.
//!
//! | `target` | `backends` | fleet |
//! |---|---|---|
//! | `embedded` (or absent) | absent, or entries without `address` | processes that the run starts |
//! | absent | addresses, or `{dns: host:port}` | those, directly |
//! | list of addresses | absent | those, directly |
//! | one address | entries with `address` | a balancer in front of those: sessions go to it, counters are read from them |

use std::{collections::BTreeMap, fmt, time::Duration};

use proto::time::Micros;

use super::{
    Address, BackendEntry, Backends, Discovery, Document, Loaded, Profile, ProfileError, Span, Target, backends::MAX_BACKENDS,
    validate::Checker,
};

/// How long a killed backend stays dead unless the profile says: as long as a supervisor might need.
pub const DEAD_FOR: Duration = Duration::from_millis(500);

/// How sessions reach the backends.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    /// The run starts them.
    Embedded,
    /// They run, and sessions go to them.
    Direct,
    /// They are the addresses of a name.
    Discovered(Discovery),
    /// They run behind a balancer, and sessions go to it.
    Front(Address),
}

/// One backend of the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Of one that runs already.
    pub address: Option<Address>,
    /// Settings, `server` and its own.
    pub server: BTreeMap<String, serde_json::Value>,
    /// From then on balancers know of it.
    pub joins: Micros,
    /// When it is killed, and for how long.
    pub killed: Option<(Micros, Duration)>,
}

/// Every backend, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// How sessions reach them.
    pub reach: Reach,
    /// Empty when they are yet to be discovered.
    pub members: Vec<Member>,
}

/// Most processes that a run starts: this machine runs them all.
const MAX_PROCESSES: u64 = 64;

impl Profile {
    /// What `target` and `backends` come to. Of a checked profile; made anew by each call.
    pub fn fleet(&self) -> Fleet {
        let plain = |address: Option<&Address>| Member {
            address: address.cloned(),
            server: self.server.clone(),
            joins: Micros::ZERO,
            killed: None,
        };
        let members = match (&self.backends, &self.target) {
            (Some(Backends::Discovered(_)), _) => Vec::new(),
            (Some(Backends::Listed(entries)), _) => {
                entries.iter().flat_map(|entry| vec![self.member(entry); entry.count() as usize]).collect()
            }
            (None, Target::Embedded { backends }) => vec![plain(None); *backends as usize],
            (None, Target::Addresses(all)) => all.iter().map(|address| plain(Some(address))).collect(),
        };
        Fleet { reach: self.reach(), members }
    }

    fn member(&self, entry: &BackendEntry) -> Member {
        let mut server = self.server.clone();
        server.extend(entry.server.clone());
        Member {
            address: entry.address.clone().map(|address| Address { address, admin: entry.admin.clone() }),
            server,
            joins: Micros(entry.joins.map_or(0, Span::micros)),
            killed: entry.killed.map(|at| (Micros(at.micros()), entry.dead_for.map_or(DEAD_FOR, |span| span.0))),
        }
    }

    pub(super) fn reach(&self) -> Reach {
        match (&self.backends, &self.target) {
            (Some(Backends::Discovered(discovery)), _) => Reach::Discovered(discovery.clone()),
            (Some(Backends::Listed(_)), Target::Addresses(front)) if !front.is_empty() => Reach::Front(front[0].clone()),
            (Some(Backends::Listed(entries)), _) if entries.iter().any(|entry| entry.address.is_some()) => Reach::Direct,
            (None, Target::Addresses(_)) => Reach::Direct,
            _ => Reach::Embedded,
        }
    }

    /// The run starts its backends itself.
    pub fn is_embedded(&self) -> bool {
        self.reach() == Reach::Embedded
    }

    /// How many backends a scenario can choose from by number, or why it cannot.
    pub fn choices(&self) -> Result<usize, &'static str> {
        match (self.reach(), &self.backends, &self.target) {
            (Reach::Discovered(_), ..) => Err("how many backends the name gives is not known before the run"),
            (Reach::Front(_), ..) => Err("the balancer that is the target chooses the backend"),
            (_, Some(backends), _) => Ok(backends.count().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)),
            (_, None, Target::Embedded { backends }) => Ok(*backends as usize),
            (_, None, Target::Addresses(all)) => Ok(all.len()),
        }
    }

    /// `target` and `backends`, each by itself and both together.
    pub(super) fn check_fleet(&self, c: &mut Checker<'_>, document: &Document) {
        c.within("target", |c| self.target.check(c));
        let Some(backends) = &self.backends else { return };
        c.within("backends", |c| backends.check(c));
        let given = document.root.get("target").is_some();
        match (backends, &self.target) {
            (Backends::Discovered(_), _) if given => {
                c.error("target", "`target` and the name in `backends` both say where sessions go", "drop one of both");
            }
            (Backends::Listed(entries), Target::Addresses(front)) => check_front(c, front, entries),
            (Backends::Listed(_), Target::Embedded { .. }) if given && !self.is_embedded() => {
                let message = "`target` says that the run starts its backends, and those in `backends` run already";
                c.error("target", message, "drop `target`: sessions go to the addresses in `backends` then");
            }
            (Backends::Listed(_), Target::Embedded { backends }) if *backends != 1 => {
                c.error("target", "`target` and `backends` both say how many backends there are", "drop `target`");
            }
            _ => {}
        }
        for (at, entry) in backends.entries().iter().enumerate() {
            if entry.joins.is_some() && self.routing.is_none() {
                c.within("backends", |c| {
                    c.within(at, |c| c.error("joins", "balancers learn of a backend that joins, and there is none", "add `routing`"));
                });
            }
        }
    }

    /// Joins and kills that would come when all is over never happen: an experiment without its disturbance.
    pub(super) fn check_disturbances(&self, c: &mut Checker<'_>, end: Duration) {
        for (at, entry) in self.backends.iter().flat_map(Backends::entries).enumerate() {
            for (key, when) in [("joins", entry.joins), ("killed", entry.killed)] {
                if when.is_some_and(|when| when.0 >= end) {
                    let message = format!("`{key}` comes when no session begins any more");
                    c.within("backends", |c| c.within(at, |c| c.error(key, message, "choose an earlier run time, or a longer `duration`")));
                }
            }
        }
    }

    /// The entry of a backend by its number.
    pub(super) fn entry(&self, backend: usize) -> Option<&BackendEntry> {
        let mut before = 0;
        self.backends.iter().flat_map(Backends::entries).find(|entry| {
            before += u64::from(entry.count());
            (backend as u64) < before
        })
    }
}

impl Backends {
    fn entries(&self) -> &[BackendEntry] {
        match self {
            Self::Listed(entries) => entries,
            Self::Discovered(_) => &[],
        }
    }
}

fn check_front(c: &mut Checker<'_>, front: &[Address], entries: &[BackendEntry]) {
    if front.len() > 1 {
        let message = format!("`target` is the balancer in front of `backends`, and here are {}", front.len());
        c.error("target", message, "give one address, or drop `backends`");
    }
    c.within("backends", |c| {
        for (at, _) in entries.iter().enumerate().filter(|(_, entry)| entry.address.is_none()) {
            let message = "`target` is the balancer in front of this backend, which then runs already but has no address";
            c.within(at, |c| c.here(message, "add `address: host:port`, or drop `target`; without backends: --set backends=null"));
        }
    });
}

impl Loaded {
    /// What a run on this machine asks beyond what the simulator can do.
    pub fn check_live(&self) -> Result<(), ProfileError> {
        let count = self.profile.choices().unwrap_or(0) as u64;
        if !self.profile.is_embedded() || count <= MAX_PROCESSES {
            return Ok(());
        }
        let path: &[&str] = if self.profile.backends.is_some() { &["backends"] } else { &["target", "embedded", "backends"] };
        let help = format!("write at most {MAX_PROCESSES}, or `load-driver simulate` it");
        Err(self.document.error(path, format!("a run would start {count} processes here"), Some(help)))
    }
}

impl Fleet {
    /// How many addresses sessions go to, as far as is known before the run: at least 1.
    pub fn doors(&self) -> usize {
        match self.reach {
            Reach::Front(_) => 1,
            _ => self.members.len().max(1),
        }
    }
}

impl Target {
    pub(super) fn check_embedded(c: &mut Checker<'_>, backends: u32) {
        if backends == 0 || u64::from(backends) > MAX_BACKENDS {
            let help = format!("write 1 to {MAX_BACKENDS}; a run starts at most {MAX_PROCESSES}");
            c.error("embedded", format!("{backends} embedded backends are out of range"), help);
        }
    }
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = self.members.len();
        let backends = if many == 1 { "backend" } else { "backends" };
        match &self.reach {
            Reach::Embedded => write!(f, "{many} {backends} that the run starts")?,
            Reach::Direct => write!(f, "{many} {backends} that run already")?,
            Reach::Discovered(discovery) => write!(f, "every address of {}", discovery.dns)?,
            Reach::Front(front) => write!(f, "{many} {backends} behind the balancer {}", front.shown())?,
        }
        let joins = self.members.iter().filter(|member| member.joins > Micros::ZERO).map(|member| ("joins", member.joins));
        let killed = self.members.iter().filter_map(|member| member.killed).map(|(at, _)| ("is killed", at));
        let mut events: BTreeMap<(Micros, &str), usize> = BTreeMap::new();
        for (what, at) in joins.chain(killed) {
            *events.entry((at, what)).or_default() += 1;
        }
        for ((at, what), many) in events {
            let what = if many == 1 {
                what
            } else if what == "joins" {
                "join"
            } else {
                "are killed"
            };
            write!(f, "; {many} {what} at {}", Span(Duration::from_micros(at.0)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Source, open_text};

    const TALK: &str = "
scenarios:
  talk:
    executor: constant-sessions
    sessions: 2
    duration: 10s
    conversations: [{turns: [{wait: 1s, say: {synth: 1s}}]}]
";

    fn loaded(text: &str) -> Result<Loaded, String> {
        open_text(&Source::Shipped("test".into()), "test", &format!("{text}{TALK}"), &[]).map_err(|e| e.to_string())
    }

    fn fleet(text: &str) -> Fleet {
        loaded(text).unwrap_or_else(|e| panic!("{e}")).profile.fleet()
    }

    #[test]
    fn the_table_of_target_and_backends_holds() {
        for (text, reach, many) in [
            ("", Reach::Embedded, 1),
            ("target: {embedded: {backends: 3}}", Reach::Embedded, 3),
            ("target: embedded\nbackends: [{count: 2}, {server: {cpu_cores: 0.5}}]", Reach::Embedded, 3),
            ("backends: [{}]", Reach::Embedded, 1),
            ("backends: ['a:1', {address: 'b:2', admin: 'b:9'}]", Reach::Direct, 2),
            ("target: ['a:1', 'b:2']", Reach::Direct, 2),
            ("target: ['lb:1']\nbackends: ['a:1', 'b:2']", Reach::Front(Address { address: "lb:1".into(), admin: None }), 2),
            (
                "backends: {dns: 'agents:7000', admin_port: 9}",
                Reach::Discovered(Discovery { dns: "agents:7000".into(), admin_port: Some(9) }),
                0,
            ),
        ] {
            let fleet = fleet(text);
            assert_eq!((&fleet.reach, fleet.members.len()), (&reach, many), "{text}");
        }
        let direct = fleet("backends: ['a:1', {address: 'b:2', admin: 'b:9'}]");
        let admins: Vec<Option<String>> = direct.members.iter().map(|m| m.address.as_ref().and_then(Address::admin)).collect();
        assert_eq!(admins, [Some("a:2".to_owned()), Some("b:9".to_owned())]);
    }

    #[test]
    fn settings_of_a_backend_go_over_those_of_all() {
        let text = "server: {max_sessions: 9, cpu_cores: 4}\nbackends: [{count: 2, server: {cpu_cores: 0.5}}, {killed: 5s, dead_for: 2s}]";
        let members = fleet(text).members;
        let cores: Vec<f64> = members.iter().filter_map(|member| member.server["cpu_cores"].as_f64()).collect();
        assert_eq!(cores, [0.5, 0.5, 4.0]);
        assert!(members.iter().all(|member| member.server["max_sessions"] == 9));
        assert_eq!(members[2].killed, Some((Micros::from_millis(5_000), Duration::from_secs(2))));
        assert_eq!((members[0].killed, members[0].joins), (None, Micros::ZERO));
    }

    #[test]
    fn a_large_fleet_is_for_the_simulator() {
        let large = loaded("backends: [{count: 40}, {count: 25}]").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(large.profile.fleet().members.len(), 65);
        let error = large.check_live().unwrap_err().to_string();
        assert!(error.starts_with("error: a run would start 65 processes here\n --> test:1:1\n"), "{error}");
        assert!(error.contains("load-driver simulate"), "{error}");
        let large = loaded("target: {embedded: {backends: 20000}}").unwrap_or_else(|e| panic!("{e}"));
        assert!(large.check_live().unwrap_err().to_string().contains("20000 processes"));
        for small in ["", "target: {embedded: {backends: 64}}", "backends: [{count: 64}]", "backends: {dns: 'a:1'}", "target: ['a:1']"] {
            loaded(small).unwrap_or_else(|e| panic!("{e}")).check_live().unwrap_or_else(|e| panic!("{small}: {e}"));
        }
        for most in ["target: {embedded: {backends: 20001}}", "backends: [{count: 20000}, {}]", "backends: [{count: 4294967295}]"] {
            assert!(loaded(most).unwrap_err().contains("20000"), "{most}");
        }
    }

    #[test]
    fn a_backend_is_found_by_its_number() {
        let profile = loaded("backends: [{count: 2}, {killed: 5s}]").unwrap_or_else(|e| panic!("{e}")).profile;
        let killed: Vec<Option<bool>> = (0..4).map(|n| profile.entry(n).map(|entry| entry.killed.is_some())).collect();
        assert_eq!(killed, [Some(false), Some(false), Some(true), None]);
    }

    #[test]
    fn a_fleet_is_said_in_a_line() {
        for (text, said) in [
            ("", "1 backend that the run starts"),
            ("backends: [{count: 3}, {count: 2, killed: 5s}]", "5 backends that the run starts; 2 are killed at 5s"),
            (
                "routing: {}\nbackends: [{count: 3}, {joins: 4s}, {count: 2, killed: 5s}]",
                "6 backends that the run starts; 1 joins at 4s; 2 are killed at 5s",
            ),
            ("target: ['a:1', 'b:2']", "2 backends that run already"),
            ("target: ['lb:1']\nbackends: ['a:1']", "1 backend behind the balancer lb:1"),
            ("backends: {dns: 'agents:7000'}", "every address of agents:7000"),
        ] {
            assert_eq!(fleet(text).to_string(), said);
        }
    }
}
