//! `resume DIR`: the rest of a run whose driver was killed, into the same folder.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, Parser};
use tokio::runtime::Builder;

use super::{
    Job, Prepared, ReachArgs, RunArgs, RunError, begin,
    checkpoint::{FORMAT, State},
    descriptors,
    former::Former,
    lock::Lock,
    new_run_id, reach, remote, thresholds,
};
use crate::{
    plan::{MAX_SEGMENTS, Plan},
    profile::{self, MASK, Override, Profile, Source},
    report::{
        Exit, Summary, hlog,
        results::{CHECKPOINT, SUMMARY},
    },
};

/// Sessions of a driver that was held up may end so long after the last one should.
const LATE: Duration = Duration::from_mins(2);

/// `load-driver resume DIR`.
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// The folder of results of a run whose driver was killed.
    pub results: PathBuf,
    /// As for `run`: the same backends, where they are known by another address now.
    #[arg(long, value_name = "ADDRESSES")]
    pub target: Option<String>,
    /// As for `run`.
    #[arg(long)]
    pub allow_remote: bool,
    /// As for `run`; no results hold secrets, so they are to be given again.
    #[command(flatten)]
    pub reach: ReachArgs,
}

/// Goes on with a run.
pub fn resume(args: &ResumeArgs) -> Result<Exit, RunError> {
    let invalid = |why: String| RunError::new(Exit::InvalidProfile, format!("failed to resume {}: {why}", args.results.display()));
    let folder = &args.results;
    // Before the lock, or a folder that is none would get one.
    if !folder.join(CHECKPOINT).is_file() {
        let over = folder.join(SUMMARY).is_file();
        return Err(invalid(if over {
            format!("the run is over: there is a {SUMMARY}")
        } else {
            format!("there is no {CHECKPOINT} in it")
        }));
    }
    let _lock = Lock::take(folder).map_err(|e| invalid(e.to_string()))?;
    if folder.join(SUMMARY).is_file() {
        return Err(invalid(format!("the run is over: there is a {SUMMARY}")));
    }
    let (mut state, summary) = read(&folder.join(CHECKPOINT)).map_err(invalid)?;
    let run_id = new_run_id();
    let prepared = prepared(args, &state, &run_id).map_err(|e| invalid(e.to_string()))?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| RunError::new(Exit::InternalFault, format!("failed to start the controller: {e}")))?;
    if let Some(baseline) = &state.baseline {
        tracing::warn!(
            "the run was to be compared with {}: a resumed one is not; `load-driver compare {} {}` does it once it is over",
            baseline.display(),
            baseline.display(),
            folder.display()
        );
    }
    runtime.block_on(remote::allow(&prepared, args.allow_remote))?;
    cut_logs(folder, &state.logs).map_err(|e| invalid(format!("failed to cut the latency log to the checkpoint: {e}")))?;
    let run_args = run_args(&prepared.profile, &state, folder).map_err(|e| invalid(e.to_string()))?;
    descriptors(&prepared, prepared.profile.fleet().doors())?;
    let lost = state.carried.funnels.write_off();
    let former = Some(Arc::new(Former { state, summary, lost }));
    let job = Job { args: run_args, prepared: Arc::new(prepared), run_id, out: folder.clone(), baseline: None, former };
    let outcome = runtime.block_on(Box::pin(begin::conduct(job)))?;
    // A reader that went away has seen enough.
    let _ = writeln!(std::io::stdout(), "\nresults in {}", folder.display());
    Ok(outcome.exit)
}

fn read(path: &Path) -> Result<(State, Summary), String> {
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    let wrong = |why: String| format!("{CHECKPOINT} is none of this version of load-driver: {why}");
    let mut value: serde_json::Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    let version = value.pointer("/run/version").and_then(|v| v.as_str()).unwrap_or("unknown").to_owned();
    if version != env!("CARGO_PKG_VERSION") {
        return Err(wrong(format!("version {version} wrote it, this is {}", env!("CARGO_PKG_VERSION"))));
    }
    let state = value.get_mut("resume").map(serde_json::Value::take).ok_or_else(|| wrong("it has no `resume`".to_owned()))?;
    let format = state.get("format").and_then(serde_json::Value::as_u64);
    if format != Some(u64::from(FORMAT)) {
        return Err(wrong(format!("its format is {}, this reads {FORMAT}", format.map_or("unknown".to_owned(), |n| n.to_string()))));
    }
    let state: State = serde_json::from_value(state).map_err(|e| wrong(e.to_string()))?;
    let summary: Summary = serde_json::from_value(value).map_err(|e| wrong(e.to_string()))?;
    // Read here, where it costs nothing yet.
    state.totals().map_err(wrong)?;
    if (state.at.0 as f64 / 1e6 - summary.duration_s).abs() > 1.0 {
        let at_s = state.at.0 as f64 / 1e6;
        return Err(format!("{CHECKPOINT} is damaged: `resume.at` says {at_s} s of the run, and its summary {} s", summary.duration_s));
    }
    if state.run_ids.len() as u32 >= MAX_SEGMENTS {
        return Err(format!("it was resumed {} times already, which is the most", state.run_ids.len() - 1));
    }
    Ok((state, summary))
}

fn prepared(args: &ResumeArgs, state: &State, run_id: &str) -> anyhow::Result<Prepared> {
    let overrides: Vec<Override> = args.target.as_deref().map(|value| Override::target(value, "--target")).into_iter().collect();
    let source = Source::Shipped(CHECKPOINT.to_owned());
    let mut loaded = profile::open_text(&source, CHECKPOINT, &state.profile, &overrides)?;
    reach_again(args, &mut loaded.profile)?;
    anyhow::ensure!(
        loaded.profile.expectations.is_empty() && loaded.profile.predictions.0.is_empty(),
        "`expectations` and `predictions` are of a whole run, and a resumed one has no such figures; `load-driver report` tells what there is"
    );
    reach::ready(&loaded)?;
    let thresholds = thresholds(&loaded)?;
    let plan = Plan::build(&loaded.profile, run_id)?;
    anyhow::ensure!(
        state.at <= plan.ends_at() + LATE,
        "{CHECKPOINT} is damaged: it is of {} s of a run that ends at {} s",
        state.at.0 / 1_000_000,
        plan.ends_at().0 / 1_000_000
    );
    let at = crate::plan::Resumed { from: state.at, segment: state.run_ids.len() as u32 };
    Ok(Prepared { profile: loaded.profile, plan: plan.resumed(at), thresholds })
}

/// Puts what is given again over the masks of the results.
fn reach_again(args: &ResumeArgs, profile: &mut Profile) -> anyhow::Result<()> {
    // A subprotocol stands beside the others, not in the place of its mask.
    let offered = &mut profile.connection.subprotocols;
    let due = offered.len();
    offered.retain(|name| !name.contains(MASK));
    args.reach.apply(&mut profile.connection)?;
    missing_secrets(profile, due)?.map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
}

/// Secrets that the run was given and that no results hold, and what to do: the mask must not be sent in their place. So many subprotocols are due.
fn missing_secrets(profile: &Profile, subprotocols: usize) -> serde_json::Result<Option<String>> {
    let masked = |text: &str| text.contains(MASK);
    let connection = &profile.connection;
    let mut again = Vec::new();
    let mut when = |missing: bool, flag: &'static str| again.extend(missing.then_some(flag));
    when(connection.headers.values().any(|value| masked(value)), "--header");
    when(connection.query.values().any(|value| masked(value)), "--query");
    when(connection.subprotocols.len() < subprotocols, "--subprotocol");
    when(connection.admin_token.as_deref().is_some_and(masked), "--admin-token");
    when(masked(&serde_json::to_string(&profile.target)?), "--target");
    if !again.is_empty() {
        return Ok(Some(format!("the run was given secrets that no results hold: give them again with {}", again.join(", "))));
    }
    let counters = &profile.counters;
    let of_counters = [
        ("counters.connection", "in its place", counters.connection.values().any(|(_, value)| masked(value))),
        ("counters.url", "in `counters.connection` instead", counters.url.0.iter().any(|url| masked(url))),
    ];
    Ok(of_counters.into_iter().find(|(.., missing)| *missing).map(|(key, place, _)| {
        format!(
            "`{key}` of the profile has a secret written out, which no results hold and no flag gives: run the profile anew with ${{NAME}}, an \
             environment variable, {place}; such a run can be resumed"
        )
    }))
}

/// What came into the log after the checkpoint is in no total: it is cut off, so that log and summary add up.
fn cut_logs(folder: &Path, logs: &[(String, u64)]) -> std::io::Result<()> {
    for (path, bytes) in hlog::parts(folder)? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match logs.iter().find(|(log, _)| *log == name) {
            Some((_, length)) if *length < bytes => fs::OpenOptions::new().write(true).open(&path)?.set_len(*length)?,
            Some(_) => {}
            None => fs::remove_file(&path)?,
        }
    }
    Ok(())
}

/// As if the command line had said so.
fn run_args(profile: &Profile, state: &State, folder: &Path) -> Result<RunArgs, clap::Error> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }
    let mut line = vec!["run".to_owned(), profile.name.clone()];
    line.extend(state.defects.iter().map(|defect| format!("--defect={defect}")));
    line.extend(state.faults.iter().map(|fault| format!("--fault={fault}")));
    let mut run = Line::try_parse_from(line)?.run;
    folder.clone_into(&mut run.out);
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run of this profile says to the one who resumes it with these flags.
    fn refused(connection: &str, more: &str, flags: &[&str]) -> Option<String> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            resume: ResumeArgs,
        }
        let text = format!(
            "connection: {{{connection}}}\n{more}\nscenarios: {{talk: {{protocol: websocket, executor: constant-sessions, sessions: 1, duration: 10s, \
             conversations: [{{turns: [{{wait: 1s}}]}}]}}}}"
        );
        let loaded = profile::open_text(&Source::Shipped("test".into()), "test", &text, &[]).unwrap_or_else(|e| panic!("{e}"));
        let stored = serde_json::to_string(&loaded.profile).unwrap();
        assert!(!stored.contains("hunter2"), "{stored}");
        let mut read = profile::open_text(&Source::Shipped("test".into()), "test", &stored, &[]).unwrap_or_else(|e| panic!("{e}"));
        let args = Line::try_parse_from([&["resume", "x"], flags].concat()).unwrap_or_else(|e| panic!("{e}")).resume;
        reach_again(&args, &mut read.profile).err().map(|e| e.to_string())
    }

    #[test]
    fn no_mask_is_sent_for_a_secret() {
        let url = "counters: {source: json, active: /a, url: 'http://127.0.0.1:9/m?token=hunter2'}";
        let header = "counters: {source: json, active: /a, url: 'http://127.0.0.1:9/m', connection: {headers: {Authorization: hunter2}}}";
        for (connection, more, flags, says) in [
            ("headers: {Authorization: hunter2}", "", vec![], Some("again with --header")),
            ("headers: {Authorization: hunter2}", "", vec!["--header", "Authorization: hunter3"], None),
            ("headers: {Authorization: '${NAME}'}", "", vec![], None),
            ("query: {api_key: hunter2}, admin_token: hunter2", "", vec![], Some("again with --query, --admin-token")),
            ("admin_token: hunter2", "", vec!["--admin-token", "hunter3"], None),
            ("subprotocols: [plain, api-key.hunter2]", "", vec![], Some("again with --subprotocol")),
            ("subprotocols: [plain, api-key.hunter2]", "", vec!["--subprotocol", "api-key.hunter3"], None),
            ("", "target: ['ws://127.0.0.1:9/a?token=hunter2']", vec![], Some("again with --target")),
            ("", url, vec![], Some("`counters.url` of the profile has a secret written out")),
            ("", header, vec![], Some("`counters.connection` of the profile has a secret written out")),
            ("", &header.replace("hunter2", "'${NAME}'"), vec![], None),
        ] {
            let more = if more.starts_with("counters") { format!("target: ['127.0.0.1:7000']\n{more}") } else { more.to_owned() };
            let told = refused(connection, &more, &flags);
            assert_eq!(told.is_some(), says.is_some(), "{connection} {more}: {told:?}");
            assert!(says.is_none_or(|says| told.as_ref().is_some_and(|told| told.contains(says))), "{connection} {more}: {told:?}");
        }
    }
}
