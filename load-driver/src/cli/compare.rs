//! `compare BASELINE CURRENT`: is a run worse than another one, or is it noise?

use std::{io::IsTerminal, path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};

use super::{emit, fail};
use crate::{
    compare::{self, Recorded},
    report::{Exit, Style, annotations, ci, comparison, markdown},
    run::Matters,
};

/// `load-driver compare BASELINE CURRENT`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// What to compare with: a folder of results, or the `summary.json` in it.
    pub baseline: PathBuf,
    /// What to judge: the same.
    pub current: PathBuf,
    /// What is worse.
    #[command(flatten)]
    pub matters: Matters,
    /// How to print it.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// How a comparison is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people at a terminal; figures that show no difference, or can show none, are counted only.
    #[default]
    Terminal,
    /// For people at a page.
    Markdown,
    /// For programs: as `comparison` in `summary.json`.
    Json,
}

/// Compares, prints, judges.
pub fn compare(args: &CompareArgs) -> ExitCode {
    super::log_to_stderr();
    let read = Recorded::read(&args.baseline).and_then(|baseline| Ok((baseline, Recorded::read(&args.current)?)));
    let (baseline, current) = match read {
        Ok(both) => both,
        Err(error) => return fail(&error.to_string(), Exit::InvalidProfile),
    };
    let compared = compare::compare(&baseline, &current, args.matters.into());
    let style = Style::detect(std::io::stdout().is_terminal(), std::env::var_os("NO_COLOR").as_deref());
    let mut text = match args.format {
        Format::Terminal => style.harmless(&comparison::render(&compared, style)),
        Format::Markdown => markdown::render_comparison(&compared),
        Format::Json => match serde_json::to_string_pretty(&compared) {
            Ok(text) => text + "\n",
            Err(error) => return fail(&format!("failed to write the comparison: {error}"), Exit::InternalFault),
        },
    };
    let marks = ci::tell(&markdown::render_comparison(&compared), &annotations::of_comparison(&compared));
    // Marks are no JSON and no page.
    if args.format == Format::Terminal {
        text.push_str(&marks);
    }
    emit(&text, compared.exit())
}
