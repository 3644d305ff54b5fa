//! Network namespaces for embedded backends (Linux, root): faults that only a kernel can make.
//!
//! A namespace has a pair of veth interfaces to the machine, with addresses of the range that is set aside for measurements (198.18.0.0/15, RFC 2544). Sessions go
//! that way; counters are read over the namespace's own loopback, where no fault is. Whatever ends the run removes it: a namespace is removed when it
//! is dropped, and what a killed run left is known by its name (the run and its process are in it) and removed at the next start.

pub mod tools;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use self::tools::{Tools, first_line};
use crate::plan::{FaultKind, FaultName};

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";
const PREFIX: &str = "load-driver-";
/// Of the pair, the end in the namespace.
const INNER: &str = "sessions";
/// Subnets of four addresses in 198.18.0.0/15.
const SUBNETS: u32 = 1 << 15;
/// A narrow link lets a full packet pass at once.
const TBF_BURST: u64 = 16 * 1_024;
/// Rules of packets that vanish.
const TABLE: &str = "load_driver";

/// A namespace, until it is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    outer: String,
    inside: Ipv4Addr,
    tools: Tools,
}

/// What the name of a namespace says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Label {
    run_id: String,
    pid: u32,
    number: usize,
}

impl Label {
    fn name(&self) -> String {
        format!("{PREFIX}{}-{}-{}", self.run_id, self.pid, self.number)
    }

    /// Of the interface that stays outside; the kernel takes 15 characters.
    fn outer(&self) -> String {
        format!("ld{}x{}", self.pid, self.number)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.rsplitn(3, '-');
        let (number, pid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { run_id: parts.next()?.to_owned(), pid, number })
    }
}

/// Who may remove it: nobody while its run lives.
fn is_left(label: &Label, lives: impl Fn(u32) -> bool) -> bool {
    !lives(label.pid)
}

/// A process of this program has this number.
fn lives(pid: u32) -> bool {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    let own = std::env::current_exe().ok().and_then(|path| name(&path));
    match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(path) => name(&path) == own,
        // It is not ours to look at: then it is not ours to clear up after, either.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Removes what killed runs have left. Gives back the names.
pub fn clear_left(tools: &Tools) -> Vec<String> {
    let names = fs::read_dir(NAMES).into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left = names.filter_map(|name| Label::parse(&name)).filter(|label| is_left(label, lives));
    left.map(|label| {
        remove(tools, &label.name(), &label.outer());
        label.name()
    })
    .collect()
}

fn remove(tools: &Tools, name: &str, outer: &str) {
    // It may be gone with its namespace, or not have come about.
    let _ = tools.ip(&["link", "del", outer]);
    if let Err(why) = tools.ip(&["netns", "del", name])
        && Path::new(NAMES).join(name).exists()
    {
        tracing::error!("failed to remove the network namespace {name}: {why}");
    }
}

/// The address of the machine's end and of the namespace's in a subnet.
fn addresses(subnet: u32) -> (Ipv4Addr, Ipv4Addr) {
    let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + (subnet % SUBNETS) * 4;
    (Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2))
}

impl Namespace {
    /// Makes one. The error says what could not be done.
    pub fn create(run_id: &str, number: usize, tools: &Tools) -> Result<Self, String> {
        let label = Label { run_id: run_id.to_owned(), pid: std::process::id(), number };
        let (name, outer) = (label.name(), label.outer());
        let used = tools.ip(&["-o", "-4", "addr", "show"])?;
        let first = label.pid.wrapping_mul(64).wrapping_add(number as u32);
        let free =
            (0..SUBNETS).map(|further| addresses(first.wrapping_add(further))).find(|(outside, _)| !used.contains(&format!(" {outside}/")));
        let (outside, inside) = free.ok_or("no address of 198.18.0.0/15 is free")?;
        tools.ip(&["netns", "add", &name])?;
        // From here on its drop removes it, whatever fails.
        let made = Self { name: name.clone(), outer: outer.clone(), inside, tools: tools.clone() };
        tools.ip(&["link", "add", &outer, "type", "veth", "peer", "name", INNER, "netns", &name])?;
        tools.ip(&["addr", "add", &format!("{outside}/30"), "dev", &outer])?;
        tools.ip(&["link", "set", &outer, "up"])?;
        tools.ip(&["-n", &name, "link", "set", "lo", "up"])?;
        tools.ip(&["-n", &name, "addr", "add", &format!("{inside}/30"), "dev", INNER])?;
        tools.ip(&["-n", &name, "link", "set", INNER, "up"])?;
        Ok(made)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sessions go to this address of it.
    pub const fn address(&self) -> Ipv4Addr {
        self.inside
    }

    /// To enter it.
    pub fn file(&self) -> io::Result<File> {
        File::open(Path::new(NAMES).join(&self.name))
    }

    /// What stands before a command that is to run in it.
    pub fn prefix(&self) -> Vec<String> {
        vec![self.tools.ip.display().to_string(), "netns".to_owned(), "exec".to_owned(), self.name.clone()]
    }

    fn exec(&self, tool: &Path, arguments: &[&str], input: &str) -> Result<String, String> {
        let tool = tool.display().to_string();
        let mut all = vec!["netns", "exec", self.name.as_str(), tool.as_str()];
        all.extend_from_slice(arguments);
        tools::run(&self.tools.ip, &all, input)
    }

    /// Connections at a port of it.
    pub fn connections(&self, port: u16) -> Result<u64, String> {
        let ss = tools::need(self.tools.ss.as_ref(), "ss", "iproute2")?;
        let listed = self.exec(&ss, &["-H", "-t", "-n", "state", "established", "sport", "=", &format!(":{port}")], "")?;
        Ok(listed.lines().filter(|line| !line.trim().is_empty()).count() as u64)
    }

    /// Begins a fault.
    pub fn begin(&self, kind: FaultKind, port: u16) -> Result<(), String> {
        match kind {
            FaultKind::Tbf { bytes_per_s } => {
                let rate = format!("{}bit", bytes_per_s.saturating_mul(8));
                self.shape(&["tbf", "rate", &rate, "burst", &TBF_BURST.to_string(), "latency", "400ms"])
            }
            FaultKind::Netem { delay, loss } => {
                let (delay, loss) = (format!("{}us", delay.as_micros()), format!("{}%", loss * 100.0));
                self.shape(&["netem", "delay", &delay, "loss", &loss])
            }
            FaultKind::NftDrop => {
                let nft = tools::need(self.tools.nft.as_ref(), "nft", "nftables")?;
                let rules = format!(
                    "table inet {TABLE} {{\n\
                     chain i {{ type filter hook input priority 0; policy accept; iifname \"{INNER}\" drop; }}\n\
                     chain o {{ type filter hook output priority 0; policy accept; oifname \"{INNER}\" drop; }}\n}}\n"
                );
                self.exec(&nft, &["-f", "-"], &rules).map(drop)
            }
            FaultKind::SocketKill => {
                let ss = tools::need(self.tools.ss.as_ref(), "ss", "iproute2")?;
                let before = self.connections(port)?;
                self.exec(&ss, &["-K", "-t", "-n", "state", "established", "sport", "=", &format!(":{port}")], "")?;
                let after = self.connections(port)?;
                if before > 0 && after >= before {
                    return Err("the kernel destroys no sockets (CONFIG_INET_DIAG_DESTROY)".to_owned());
                }
                Ok(())
            }
            _ => Err("no namespace makes it".to_owned()),
        }
    }

    /// Ends a fault.
    pub fn end(&self, kind: FaultKind) -> Result<(), String> {
        match kind {
            FaultKind::Tbf { .. } | FaultKind::Netem { .. } => self.unshape(),
            FaultKind::NftDrop => {
                let nft = tools::need(self.tools.nft.as_ref(), "nft", "nftables")?;
                self.exec(&nft, &["delete", "table", "inet", TABLE], "").map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Each end of the pair shapes what leaves by it.
    fn shape(&self, discipline: &[&str]) -> Result<(), String> {
        let tc = tools::need(self.tools.tc.as_ref(), "tc", "iproute2")?;
        let inner = [&["qdisc", "add", "dev", INNER, "root"], discipline].concat();
        let outer = [&["qdisc", "add", "dev", &self.outer, "root"], discipline].concat();
        self.exec(&tc, &inner, "")?;
        tools::run(&tc, &outer, "").map(drop).inspect_err(|_| drop(self.unshape()))
    }

    fn unshape(&self) -> Result<(), String> {
        let tc = tools::need(self.tools.tc.as_ref(), "tc", "iproute2")?;
        let inside = self.exec(&tc, &["qdisc", "del", "dev", INNER, "root"], "");
        let outside = tools::run(&tc, &["qdisc", "del", "dev", &self.outer, "root"], "");
        inside.and(outside).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.tools, &self.name, &self.outer);
    }
}

/// Which of these kinds cannot be made here, and why: tried in a namespace that is removed again.
pub fn missing(kinds: &BTreeSet<FaultName>, run_id: &str, tools: &Result<Tools, String>) -> BTreeMap<FaultName, String> {
    let all = |why: &str| kinds.iter().map(|kind| (*kind, why.to_owned())).collect();
    let tools = match tools {
        Ok(tools) => tools,
        Err(why) => return all(why),
    };
    let trial = match Namespace::create(run_id, 99_999, tools) {
        Ok(trial) => trial,
        Err(why) => return all(&format!("no network namespace can be made here: {}", first_line(&why))),
    };
    let why_not = |kind: FaultName| -> Option<String> {
        let sample = match kind {
            FaultName::Tbf => FaultKind::Tbf { bytes_per_s: 100_000 },
            FaultName::Netem => FaultKind::Netem { delay: std::time::Duration::from_millis(1), loss: 0.0 },
            FaultName::NftDrop => FaultKind::NftDrop,
            _ => FaultKind::SocketKill,
        };
        trial.begin(sample, 1).and_then(|()| trial.end(sample)).err().map(|why| tools::explain(kind, &why))
    };
    kinds.iter().filter_map(|kind| Some((*kind, why_not(*kind)?))).collect()
}

/// The path of a program, as this process or root would find it.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let everywhere = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    everywhere.map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_run_and_its_process() {
        let label = Label { run_id: "0f3c-x".into(), pid: 4_194_303, number: 99_999 };
        assert_eq!(Label::parse(&label.name()), Some(label.clone()));
        assert!(label.outer().len() <= 15, "{}", label.outer());
        for other in ["load-driver-", "load-driver-a-b-c", "somebody-a-1-2", "load-driver-1-2"] {
            assert_eq!(Label::parse(other), None, "{other}");
        }
    }

    #[test]
    fn only_what_a_dead_run_left_is_removed() {
        let label = |pid| Label { run_id: "r".into(), pid, number: 0 };
        assert!(is_left(&label(1), |pid| pid != 1) && !is_left(&label(2), |pid| pid != 1));
        assert!(lives(std::process::id()));
        assert!(!lives(u32::MAX));
    }

    #[test]
    fn subnets_stay_in_their_range_and_apart() {
        let all: BTreeSet<Ipv4Addr> = [0, 1, SUBNETS - 1].into_iter().flat_map(|n| <[Ipv4Addr; 2]>::from(addresses(n))).collect();
        assert_eq!(all.len(), 6);
        assert!(all.iter().all(|one| one.octets()[0] == 198 && [18, 19].contains(&one.octets()[1])), "{all:?}");
        assert_eq!(addresses(SUBNETS), addresses(0));
    }
}
