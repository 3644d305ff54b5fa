//! Subcommands.

pub mod check;
pub mod compare;
pub mod profiles;
pub mod report;
pub mod schema;
pub mod simulate;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use proto::time::Micros;

use crate::{
    engine::{BalancerConfig, worker::Work},
    plan::Plan,
    profile::{self, Source},
    report::{Exit, Style, uncommanding},
    run::{self, ReachArgs, RunArgs},
};

/// Load testing with synthetic voice agents: thousands of streams, counters proven.
#[derive(Debug, Parser)]
#[command(name = "load-driver", version, about, after_help = crate::report::exit::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a profile and judges it.
    Run(RunArgs),
    /// Checks a profile, prints it as it is understood and when its sessions begin. Touches no network.
    Check {
        /// A profile: a path, or the name of a shipped one.
        profile: String,
        /// Changes a value of the profile: `scenarios.talk.sessions=50`. May be repeated.
        #[arg(long = "set", value_name = "PATH=VALUE")]
        set: Vec<String>,
        /// As for `run`.
        #[arg(long, value_name = "ADDRESSES")]
        target: Option<String>,
        /// As for `run`.
        #[arg(long)]
        seed: Option<String>,
        /// As for `run`.
        #[command(flatten)]
        reach: ReachArgs,
    },
    /// Runs a profile in virtual time, under each policy in turn, and compares them. Touches no network.
    Simulate(simulate::SimulateArgs),
    /// Compares two runs of the same load: is the second one worse, or is it noise?
    Compare(compare::CompareArgs),
    /// Prints the report of a run again, from its results; also of one that is not over. Ends as that run did.
    Report(report::ReportArgs),
    /// Goes on with a run whose driver was killed, from its last checkpoint, into the same folder.
    Resume(run::ResumeArgs),
    /// Prints the JSON Schema of a profile, for editors.
    Schema,
    /// Lists the shipped profiles.
    Profiles,
    /// An embedded backend: `agent-server serve` in this binary.
    #[command(hide = true)]
    Backend(Box<agent_server::serve::ServeArgs>),
    /// A process that runs sessions for a driver: a job on standard input, events on standard output.
    #[command(hide = true)]
    Worker,
}

/// What a command prints, and whether it went well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// For stdout when `ok`, else for stderr.
    pub text: String,
    /// False: the profile is invalid, exit code 104.
    pub ok: bool,
}

impl Printed {
    fn ok(text: String) -> Self {
        Self { text, ok: true }
    }

    fn invalid(error: &dyn std::error::Error) -> Self {
        Self { text: Style::default().harmless(&format!("{error}\n")), ok: false }
    }

    /// A reader that went away has seen enough.
    fn print(&self) -> ExitCode {
        let written = if self.ok { io::stdout().write_all(self.text.as_bytes()) } else { io::stderr().write_all(self.text.as_bytes()) };
        match (self.ok, written) {
            (true, Ok(())) => Exit::Ok.into(),
            (true, Err(e)) if e.kind() == io::ErrorKind::BrokenPipe => Exit::Ok.into(),
            (true, Err(_)) => Exit::InternalFault.into(),
            (false, _) => Exit::InvalidProfile.into(),
        }
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; clap knows where each is printed.
            let _ = error.print();
            return if error.use_stderr() { Exit::InvalidProfile.into() } else { Exit::Ok.into() };
        }
    };
    match cli.command {
        Command::Run(args) => {
            log_to_stderr();
            warn_of_secrets(&args.reach, args.target.as_deref(), &args.set);
            match run::run(&args) {
                Ok(exit) => exit.into(),
                Err(error) => fail(&error.to_string(), error.exit),
            }
        }
        Command::Resume(args) => {
            log_to_stderr();
            warn_of_secrets(&args.reach, args.target.as_deref(), &[]);
            match run::resume(&args) {
                Ok(exit) => exit.into(),
                Err(error) => fail(&error.to_string(), error.exit),
            }
        }
        Command::Check { profile, set, target, seed, reach } => {
            log_to_stderr();
            warn_of_secrets(&reach, target.as_deref(), &set);
            match run::overrides(&set, target.as_deref(), seed.as_deref()) {
                Ok(overrides) => check::check_with(&Source::of(&profile), &overrides, &reach).print(),
                Err(error) => Printed::invalid(&error).print(),
            }
        }
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Report(args) => report::report(&args),
        Command::Schema => schema::schema().print(),
        Command::Profiles => profiles::profiles().print(),
        Command::Backend(args) => {
            end_with_parent();
            match agent_server::serve::run(*args) {
                Ok(code) => code,
                Err(error) => fail(&format!("{error:#}"), Exit::InvalidProfile),
            }
        }
        Command::Worker => {
            end_with_parent();
            log_to_stderr();
            match worker() {
                Ok(()) => Exit::Ok.into(),
                Err(error) => fail(&format!("{error:#}"), Exit::InternalFault),
            }
        }
    }
}

/// Everybody on this machine can read the arguments of a process.
fn warn_of_secrets(reach: &run::ReachArgs, target: Option<&str>, set: &[String]) {
    for flag in reach.shown_secrets() {
        tracing::warn!("{flag} shows a secret in the list of processes: write ${{NAME}}, an environment variable, in its place");
    }
    for flag in run::reach::other_shown_secrets(target, set) {
        tracing::warn!(
            "{flag} shows a secret in the list of processes: give it by --query or --header, with ${{NAME}}, an environment variable, in its place"
        );
    }
}

/// A child of the driver must not outlive it, not even while it is stopped by a fault and cannot see that its stdin is closed.
fn end_with_parent() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) {
        // The end of stdin is still there.
        tracing::debug!("the kernel tells nothing of the parent's end: {error}");
    }
}

/// Prints and ends; a reader that went away has seen enough.
fn emit(text: &str, exit: Exit) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(&format!("failed to print: {error}"), Exit::InternalFault),
        _ => exit.into(),
    }
}

fn fail(message: &str, exit: Exit) -> ExitCode {
    // Profile errors come with their own heading. When even stderr is gone, the exit code still tells.
    let heading = if message.starts_with("error:") { "" } else { "error: " };
    let _ = writeln!(io::stderr(), "{heading}{}", Style::default().harmless(message.trim_end()));
    exit.into()
}

fn log_to_stderr() {
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("LOAD_DRIVER_LOG").unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    // A log that cannot be written must not end the run: complaining about it on the same stderr would panic.
    // A second one in the same process would be a fault of a test, not of a user.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Uncommanding(io::stderr()))
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .log_internal_errors(false)
        .try_init();
}

/// A log may quote a backend, and GitHub's runner obeys what it reads in it. Whole lines come in one piece.
struct Uncommanding<W>(W);

impl<W: Write> Write for Uncommanding<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(uncommanding(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn worker() -> anyhow::Result<()> {
    crate::transport::fds::ensure(0)?;
    crate::engine::worker::run_worker(io::stdin().lock(), io::stdout(), |job| {
        let mut profile = profile::from_json(&job.profile)?;
        profile.connection = job.connection.clone();
        // Of its own: it shares no grants with the engine of the driver's process, nor with other workers.
        let first = job.scenarios.iter().flatten().next().copied().unwrap_or_default();
        let mix = (u64::from(first) + 1) << 32 | job.worker as u64;
        let from = job.resumed.map_or(Micros::ZERO, |at| at.from);
        let balancer = BalancerConfig::of(&profile, job.targets.len(), mix)?.map(|config| config.from(from));
        let plan = Plan::build(&profile, &job.run_id)?;
        Ok(Work { plan: if let Some(at) = job.resumed { plan.resumed(at) } else { plan }, balancer })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_commands_no_runner() {
        let mut log = Uncommanding(Vec::new());
        let line = b"WARN the backend said: ##[stop-commands]x\n::error::y\xff\n";
        assert_eq!(log.write(line).unwrap(), line.len());
        assert_eq!(String::from_utf8(log.0).unwrap(), "WARN the backend said: ##\u{fffd}stop-commands]x\n:\u{fffd}error::y\u{fffd}\n");
    }
}
