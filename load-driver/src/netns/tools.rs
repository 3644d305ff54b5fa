//! The programs that speak to the kernel, and what they say when they cannot.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::plan::FaultName;

/// Where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// Needed for everything.
    pub(super) ip: PathBuf,
    pub(super) tc: Option<PathBuf>,
    pub(super) ss: Option<PathBuf>,
    pub(super) nft: Option<PathBuf>,
}

impl Tools {
    /// Those of this machine, if this process may use them at all.
    pub fn find() -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("needs Linux".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("needs root".to_owned());
        }
        let ip = super::find("ip").ok_or_else(|| not_installed("ip", "iproute2"))?;
        Ok(Self { ip, tc: super::find("tc"), ss: super::find("ss"), nft: super::find("nft") })
    }

    pub(super) fn ip(&self, arguments: &[&str]) -> Result<String, String> {
        run(&self.ip, arguments, "")
    }
}

/// Where a program is, or that it is to be installed.
pub(super) fn need(tool: Option<&PathBuf>, name: &str, package: &str) -> Result<PathBuf, String> {
    tool.cloned().ok_or_else(|| not_installed(name, package))
}

fn not_installed(name: &str, package: &str) -> String {
    format!("{name} is not installed: apt install {package}")
}

/// Runs a program to its end: what it printed, or what it complained of.
pub(super) fn run(program: &Path, arguments: &[&str], input: &str) -> Result<String, String> {
    let shown = || format!("{} {}", program.file_name().unwrap_or_default().to_string_lossy(), arguments.join(" "));
    let failed = |error: std::io::Error| format!("`{}`: {error}", shown());
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read has its reasons, and tells them.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    let said = said.into_iter().find(|text| !text.is_empty()).unwrap_or_else(|| output.status.to_string());
    Err(format!("{said} (`{}`)", shown()))
}

/// The first line of a complaint.
pub(super) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// What a complaint means for a kind of fault.
pub(super) fn explain(kind: FaultName, why: &str) -> String {
    let module = match kind {
        FaultName::Netem => "sch_netem",
        FaultName::Tbf => "sch_tbf",
        FaultName::NftDrop => "nf_tables",
        _ => "",
    };
    let unknown = ["qdisc kind is unknown", "RTNETLINK answers: No such file", "Operation not supported", "cache initialization failed"];
    if !module.is_empty() && unknown.iter().any(|words| why.contains(words)) {
        return format!("the kernel has no {module}");
    }
    first_line(why).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_has_its_exact_reason() {
        for (kind, why, reason) in [
            (FaultName::Netem, "Error: Specified qdisc kind is unknown. (`tc qdisc add`)", "the kernel has no sch_netem"),
            (FaultName::Tbf, "RTNETLINK answers: No such file or directory (`tc`)", "the kernel has no sch_tbf"),
            (FaultName::NftDrop, "nft is not installed: apt install nftables", "nft is not installed: apt install nftables"),
            (FaultName::NftDrop, "Operation not permitted (you must be root)\nmore", "Operation not permitted (you must be root)"),
        ] {
            assert_eq!(explain(kind, why), reason);
        }
    }

    #[test]
    fn a_program_is_told_by_its_complaint() {
        assert_eq!(run(Path::new("/bin/cat"), &[], "heard").as_deref(), Ok("heard"));
        let error = run(Path::new("/bin/sh"), &["-c", "echo no >&2; exit 3"], "").unwrap_err();
        assert!(error.starts_with("no (`sh"), "{error}");
        assert!(run(Path::new("/nowhere/ip"), &[], "").is_err());
    }
}
