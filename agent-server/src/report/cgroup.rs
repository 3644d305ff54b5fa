//! The control group of this process: where its files are, and what they say.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// CPU time of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupCpu {
    file: PathBuf,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `cpuacct.usage` of version 1: nanoseconds.
    Nanoseconds,
    /// `cpu.stat` of version 2: a line `usage_usec N`.
    Stat,
}

impl CgroupCpu {
    /// Of this process's group.
    ///
    /// # Errors
    /// When there is none with CPU accounting.
    pub fn open() -> anyhow::Result<Self> {
        let groups = Groups::read();
        // A machine that has both versions mounted accounts CPU in version 1.
        let files = [("cpuacct", "cpuacct.usage", Form::Nanoseconds), ("", "cpu.stat", Form::Stat)];
        let candidates = files.into_iter().filter_map(|(controller, name, form)| {
            let (_, directory) = groups.directory(controller)?;
            Some(Self { file: directory.join(name), form })
        });
        let mut tried = Vec::new();
        for candidate in candidates {
            if candidate.used_us().is_some() {
                return Ok(candidate);
            }
            tried.push(candidate.file.display().to_string());
        }
        let place = if tried.is_empty() { "/proc/self/cgroup names none that is mounted".to_owned() } else { tried.join(", ") };
        Err(anyhow::anyhow!(place)).context("found no CPU accounting of this process's control group: use --report-cpu process")
    }

    /// CPU time of the group since its creation, microseconds; none when its file cannot be read any more.
    pub fn used_us(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.file).ok()?;
        match self.form {
            Form::Nanoseconds => text.trim().parse::<u64>().ok().map(|ns| ns / 1_000),
            Form::Stat => text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok(),
        }
    }
}

/// Smallest memory limit of this process's control group and of those around it, bytes.
pub fn memory_limit() -> Option<u64> {
    Groups::read().memory_limit()
}

/// What `/proc/self/cgroup` and `/proc/self/mountinfo` say.
struct Groups {
    cgroup: String,
    mounts: String,
}

impl Groups {
    fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { cgroup: read("/proc/self/cgroup"), mounts: read("/proc/self/mountinfo") }
    }

    /// Mount point and directory of this process's group under a controller of version 1, or in version 2 when its name is empty.
    fn directory(&self, controller: &str) -> Option<(PathBuf, PathBuf)> {
        let listed = |list: &str| list.split(',').any(|name| name == controller);
        // ID:CONTROLLERS:PATH; version 2 has the one line without controllers.
        let group = self.cgroup.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            parts.next().filter(|list| listed(list)).and(parts.next())
        })?;
        // ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS... - TYPE SOURCE SUPEROPTIONS
        let (root, mount) = self.mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let (mut before, mut after) = (before.split(' ').skip(3), after.split(' '));
            let kind = after.next()?;
            let ours = if controller.is_empty() { kind == "cgroup2" } else { kind == "cgroup" && listed(after.nth(1)?) };
            ours.then_some((before.next()?, before.next()?))
        })?;
        // A container sees its own group as the mount's root, whatever its path is called outside.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let below = if group.contains("..") { Path::new("") } else { below };
        let mount = PathBuf::from(mount);
        let directory = mount.join(below);
        Some((mount, directory))
    }

    fn memory_limit(&self) -> Option<u64> {
        let files = [("memory", "memory.limit_in_bytes"), ("", "memory.max")];
        let limits = files.into_iter().filter_map(|(controller, name)| {
            let (mount, directory) = self.directory(controller)?;
            let around = directory.ancestors().take_while(|d| d.starts_with(&mount));
            // `max` is no number, and no limit.
            around.filter_map(|d| fs::read_to_string(d.join(name)).ok()?.trim().parse().ok()).min()
        });
        limits.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(cgroup: &str, mounts: &str) -> Groups {
        Groups { cgroup: cgroup.to_owned(), mounts: mounts.to_owned() }
    }

    const V2: &str =
        "22 1 0:20 / / rw - ext4 /dev/root rw\n29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
                      35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";

    #[test]
    fn the_directory_is_found_in_both_versions() {
        let at = |groups: &Groups, controller| groups.directory(controller).map(|(_, directory)| directory.display().to_string());
        let v2 = groups("0::/system.slice/agent.service\n", V2);
        assert_eq!(at(&v2, "").as_deref(), Some("/sys/fs/cgroup/system.slice/agent.service"));
        assert_eq!(at(&v2, "cpuacct"), None);
        let v1 = groups("4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc/inner\n1:name=systemd:/x\n", V1);
        assert_eq!(at(&v1, "cpuacct").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct/inner"));
        assert_eq!(at(&v1, "memory").as_deref(), Some("/sys/fs/cgroup/memory/"));
        assert_eq!(at(&v1, ""), None);
        assert_eq!(at(&groups("0::/../other\n", V2), "").as_deref(), Some("/sys/fs/cgroup/"), "a path outside of our view");
        for (cgroup, mounts) in [("", V2), ("0::/a", ""), ("nonsense", "nonsense - x"), (":::", " - cgroup2")] {
            assert_eq!(at(&groups(cgroup, mounts), ""), None, "{cgroup}, {mounts}");
        }
    }

    #[test]
    fn cpu_time_is_read_in_both_forms() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let read = |text: &str, form| {
            fs::write(&file, text).unwrap();
            CgroupCpu { file: file.clone(), form }.used_us()
        };
        assert_eq!(read("1234567\n", Form::Nanoseconds), Some(1_234));
        assert_eq!(read("nr_periods 1\nusage_usec 77\nuser_usec 7\n", Form::Stat), Some(77));
        assert_eq!(read("user_usec 7\n", Form::Stat), None);
        assert_eq!(CgroupCpu { file: dir.path().join("none"), form: Form::Stat }.used_us(), None);
    }

    #[test]
    fn the_smallest_memory_limit_of_the_groups_around_holds() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        let mounts = format!("29 22 0:26 / {} rw - cgroup2 cgroup2 rw\n", dir.path().display());
        let groups = groups("0::/outer/inner\n", &mounts);
        assert_eq!(groups.memory_limit(), None);
        fs::write(dir.path().join("outer/memory.max"), "4096\n").unwrap();
        assert_eq!(groups.memory_limit(), Some(4_096));
    }
}
