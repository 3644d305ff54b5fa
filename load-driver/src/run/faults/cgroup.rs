//! Less CPU for a process: a control group of its own, v2 (`cpu.max`), or v1 (`cpu.cfs_quota_us`) where v2 has no cpu controller.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Pid;

/// The period over which the quota holds, microseconds: short, so that a process with little is slow rather than stopped for long.
const PERIOD_US: u64 = 20_000;

/// Names of groups begin with it, and end with the driver's process.
pub(super) const PREFIX: &str = "load-driver-";

/// A process with less CPU, until it is dropped.
#[derive(Debug)]
pub(super) struct Squeeze {
    group: PathBuf,
    /// Where the process was before.
    home: PathBuf,
    pid: Pid,
}

/// A hierarchy that has the cpu controller.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hierarchy {
    V2(PathBuf),
    V1(PathBuf),
}

impl Squeeze {
    /// Moves a process into a new group. The error says why that cannot be done here.
    pub(super) fn begin(name: &str, pid: Pid, cores: f64) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|e| format!("failed to read /proc/self/mounts: {e}"))?;
        let controllers = |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let hierarchy = find(&mounts, controllers).ok_or("no control group hierarchy with a cpu controller is mounted")?;
        let own = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).map_err(|e| format!("the process is gone: {e}"))?;
        let (root, v2) = match &hierarchy {
            Hierarchy::V2(root) => (root, true),
            Hierarchy::V1(root) => (root, false),
        };
        let home = root.join(place(&own, v2).trim_start_matches('/'));
        // In v2 a group with processes cannot hand out controllers: the new group stands beside the tree of the process, at the root.
        if v2 {
            // It may be on already, or be refused: the quota below tells.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        }
        let beside = if v2 { root } else { &home };
        remove_left(beside, |driver| Path::new("/proc").join(driver.to_string()).exists());
        let group = beside.join(name);
        let needs = |e: std::io::Error| format!("less CPU needs root and a writable control group at {}: {e}", group.display());
        fs::create_dir(&group).map_err(needs)?;
        let squeeze = Self { group: group.clone(), home, pid };
        let quota = (PERIOD_US as f64 * cores).max(1_000.0) as u64;
        if v2 {
            fs::write(group.join("cpu.max"), format!("{quota} {PERIOD_US}")).map_err(needs)?;
        } else {
            fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string()).map_err(needs)?;
            fs::write(group.join("cpu.cfs_quota_us"), quota.to_string()).map_err(needs)?;
        }
        fs::write(group.join("cgroup.procs"), pid.as_raw_nonzero().to_string()).map_err(needs)?;
        Ok(squeeze)
    }
}

impl Drop for Squeeze {
    fn drop(&mut self) {
        // A process that is gone needs no moving, and then the group is empty.
        let _ = fs::write(self.home.join("cgroup.procs"), self.pid.as_raw_nonzero().to_string());
        if let Err(error) = fs::remove_dir(&self.group) {
            tracing::error!("failed to remove the control group {}: {error}", self.group.display());
        }
    }
}

/// Removes what drivers that were killed left here: an empty group goes, one with a process stays.
fn remove_left(beside: &Path, lives: impl Fn(u32) -> bool) {
    for entry in fs::read_dir(beside).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let driver = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.rsplit('-').next()?.parse().ok());
        if driver.is_some_and(|driver| !lives(driver)) {
            // The kernel refuses where somebody is in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The hierarchy to use, by the mounts of this machine.
fn find(mounts: &str, controllers: impl Fn(&Path) -> String) -> Option<Hierarchy> {
    let mut v1 = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(at), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let at = PathBuf::from(at);
        match kind {
            "cgroup2" if controllers(&at).split_whitespace().any(|one| one == "cpu") => return Some(Hierarchy::V2(at)),
            "cgroup" if options.split(',').any(|one| one == "cpu") => v1 = Some(Hierarchy::V1(at)),
            _ => {}
        }
    }
    v1
}

/// Where a process is in the hierarchy, by its `/proc/PID/cgroup`.
fn place(own: &str, v2: bool) -> &str {
    let of = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (number, names) = (fields.next()?, fields.next()?);
        let fits = if v2 { number == "0" } else { names.split(',').any(|one| one == "cpu") };
        fits.then(|| line.splitn(3, ':').nth(2).unwrap_or("/").len())
    };
    own.lines().find_map(|line| of(line).map(|length| &line[line.len() - length..])).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    #[test]
    fn v2_is_used_where_it_has_the_controller() {
        assert_eq!(find(V1, |_| String::new()), Some(Hierarchy::V1("/sys/fs/cgroup/cpu".into())));
        assert_eq!(find(V1, |_| "cpuset memory".to_owned()), Some(Hierarchy::V1("/sys/fs/cgroup/cpu".into())));
        assert_eq!(find(V1, |_| "cpuset cpu io".to_owned()), Some(Hierarchy::V2("/sys/fs/cgroup/unified".into())));
        assert_eq!(find("proc /proc proc rw 0 0\n", |_| "cpu".to_owned()), None);
    }

    #[test]
    fn a_process_is_found_in_its_hierarchy() {
        let own = "4:memory:/process/a\n2:cpuacct,cpu:/batch/b\n0::/user.slice/c:d\n";
        assert_eq!((place(own, true), place(own, false)), ("/user.slice/c:d", "/batch/b"));
        assert_eq!(place("1:cpuset:/x\n", false), "/");
    }

    #[test]
    fn only_what_a_dead_driver_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let groups = ["load-driver-1f-0-77-5", "load-driver-1f-0-77-6", "load-driver-1f-1-77-5", "other-1f-0-77-5", "load-driver-x"];
        for group in groups {
            fs::create_dir(folder.path().join(group)).unwrap();
        }
        fs::create_dir(folder.path().join(groups[2]).join("used")).unwrap();
        remove_left(folder.path(), |driver| driver == 6);
        let left = groups.map(|group| folder.path().join(group).exists());
        assert_eq!(left, [false, true, true, true, true]);
    }
}
