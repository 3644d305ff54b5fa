//! `report DIR`: the report of a run again, from its results.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};

use super::{emit, fail};
use crate::report::{Exit, Style, annotations, json, junit, markdown, results, terminal};
use crate::run::lock::Lock;

/// `load-driver report DIR`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// A folder of results, or the `summary.json` (of a run that is not over: the `checkpoint.json`) in it.
    pub results: PathBuf,
    /// How to print it.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people at a terminal.
    #[default]
    Terminal,
    /// For people at a page.
    Markdown,
    /// For CI.
    Junit,
    /// Lines that a GitHub Actions runner turns into marks.
    Annotations,
    /// The summary itself.
    Json,
}

/// Reads and prints; ends as the run did, and one that is not over is no pass.
pub fn report(args: &ReportArgs) -> ExitCode {
    let (found, mut summary) = match results::read(&args.results) {
        Ok(read) => read,
        Err(error) => return fail(&error.to_string(), Exit::InvalidProfile),
    };
    // What else the summary says may forbid a pass, whatever verdict stands in it.
    let told = [summary.exit.reasons.clone(), vec![summary.exit.reason]].concat();
    summary.conclude(&told);
    let style = Style::detect(std::io::stdout().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
    let text = match args.format {
        Format::Terminal => Ok(style.harmless(&terminal::render(&summary, style))),
        Format::Markdown => Ok(markdown::render(&summary)),
        Format::Junit => junit::render(&summary).map(|text| uncommanding_as(&text, "&#91;")),
        Format::Annotations => Ok(annotations::render(&annotations::of(&summary))),
        Format::Json => json::render(&summary).map(|text| uncommanding_as(&text, "\\u005b")),
    };
    if summary.unfinished {
        // Nobody reads it when even stderr is gone.
        let _ = writeln!(std::io::stderr(), "{}", unfinished(&found.folder));
    }
    let over = if summary.unfinished { Exit::Interrupted } else { Exit::Ok };
    match text {
        Ok(text) => emit(&text, Exit::worst([summary.exit.reason, over])),
        Err(error) => fail(&format!("failed to make the report: {error}"), Exit::InternalFault),
    }
}

/// The same document, in which GitHub's runner finds no command: the bracket of `##[` stands there by its code.
fn uncommanding_as(text: &str, bracket: &str) -> String {
    text.replace("##[", &format!("##{bracket}"))
}

/// What to do about a run that is not over.
fn unfinished(folder: &Path) -> String {
    match Lock::holder(folder) {
        Some(pid) => format!("unfinished: the run goes on (driver pid {pid}); this is its last checkpoint"),
        None => format!("unfinished: the driver of this run was killed; `load-driver resume {}` goes on with it", folder.display()),
    }
}
