//! `agent-server serve`: see `--help`.

use std::process::ExitCode;

use agent_server::serve::{ServeArgs, run};
use clap::{Parser, Subcommand};

/// A mock real-time voice agent backend with exact session accounting
#[derive(Debug, Parser)]
#[command(version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve sessions until SIGTERM
    Serve(Box<ServeArgs>),
}

fn main() -> ExitCode {
    let Command::Serve(args) = Cli::parse().command;
    run(*args).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
