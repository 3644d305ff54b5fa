//! What a run says of itself before and after.

use std::{io, path::Path, time::Duration};

use proto::time::Micros;

use super::{
    Job, Outcome, RunError, baseline,
    controller::{Run, complain},
    targets::TargetSet,
};
use crate::{
    engine::EngineOptions,
    ledger::{self, Funnels, Judgement, Verdict},
    profile::{Profile, Reach},
    record::{Counter, Measurements},
    report::{
        Event, Exit, Hlog, Json, Junit, Markdown, Reporters, RunInfo, Style, Terminal,
        build::{self, Known},
        ci,
        results::CHECKPOINT,
        summary::{ConvergenceRow, CountersSection, CountersStatus, FindingRow, ProcessCost},
    },
    system::SaturationLimits,
    transport::TransportOptions,
    voice::VoiceSection,
};

/// How the profile wants the engine to run.
pub(super) fn engine_options(profile: &Profile, shards: usize) -> EngineOptions {
    let driver = &profile.driver;
    EngineOptions {
        shards,
        handshakes: driver.handshakes as usize,
        front: matches!(profile.fleet().reach, Reach::Front(_)),
        transport: TransportOptions {
            stream_window: driver.http2.stream_window,
            connection_window: driver.http2.connection_window,
            connections: driver.connections as usize,
            streams_per_connection: driver.streams_per_connection as usize,
            connect_timeout: driver.connect_timeout.0,
        },
        ..EngineOptions::default()
    }
}

/// What is known before the first session.
pub(super) fn run_info(job: &Job, set: &TargetSet, start_us: u64) -> RunInfo {
    if let Some(former) = &job.former {
        return RunInfo { targets: set.names.clone(), ..former.summary.run.clone() };
    }
    let (plan, profile) = (&job.prepared.plan, &job.prepared.profile);
    let s = |at: Micros| at.0 as f64 / 1e6;
    RunInfo {
        run_id: job.run_id.clone(),
        seed: plan.seed,
        profile: profile.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        targets: set.names.clone(),
        started_at_us: start_us,
        planned_s: s(plan.stops_at()),
        graceful_stop_s: s(plan.ends_at()) - s(plan.stops_at()),
        warmup_s: plan.warmup.as_secs_f64(),
        scenarios: plan.scenarios.iter().map(|scenario| scenario.name.clone()).collect(),
        injected: injected(job),
    }
}

/// What embedded backends are told to do wrong, by flags and by the profile, each once.
fn injected(job: &Job) -> Vec<String> {
    let flags = [("defect", &job.args.defects), ("fault", &job.args.faults)];
    let mut all: Vec<String> = flags.iter().flat_map(|(kind, texts)| texts.iter().map(move |text| format!("{kind} {text}"))).collect();
    for member in job.prepared.profile.fleet().members {
        for kind in ["defect", "fault"] {
            let texts = match member.server.get(kind) {
                Some(serde_json::Value::Array(texts)) => texts.as_slice(),
                Some(text) => std::slice::from_ref(text),
                None => &[],
            };
            let named = texts.iter().filter_map(serde_json::Value::as_str).map(|text| format!("{kind} {text}"));
            all.extend(named);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|text| seen.insert(text.clone()));
    all
}

/// The files of a run, and the summary on standard output.
pub(super) fn add_files(reporters: &mut Reporters, out: &Path, rotate: Duration, style: Style) -> io::Result<()> {
    reporters.add(Hlog::rotating(out, rotate)?);
    reporters.add(Json::new(out.join("summary.json")));
    reporters.add(Junit::new(out.join("junit.xml")));
    reporters.add(Markdown::new(out.join("summary.md")));
    reporters.add(Terminal::new(io::stdout(), style));
    ci::add(reporters);
    Ok(())
}

/// Judges, tells the sinks, stops what was started.
pub(super) async fn conclude(mut run: Run, over_at: Micros, reporters: &mut Reporters) -> Result<Outcome, RunError> {
    let verdict = run.ledger.verdict();
    let convergence = run.convergence_report(over_at);
    let mut closed = run.registry.add(convergence);
    closed.extend(run.registry.finish());
    run.seconds_closed(&closed, reporters);
    for backend in std::mem::take(&mut run.set.backends) {
        backend.stop().await;
    }
    let balance = run.balancing.close(&verdict, &run.registry);
    let balance = balance.inspect_err(|why| tracing::info!("the quality of balance is not known: {why}")).ok();
    let voice = run.voice.close(super::poller::unix_now(&run.clock));
    let summed = run.job.prepared.profile.counters.sum.then_some(run.set.members);
    let counters = counters(&verdict, summed, &run.set.unwatched, run.gave_up());
    run.balance.clone_from(&balance);
    let known = known(&run, over_at, (&verdict.funnels, counters, voice), &verdict.convergence, verdict.irregular.clone());
    let mut reasons = run.reasons.clone();
    reasons.extend(run.job.former.iter().flat_map(|former| former.state.reasons.iter().copied()));
    reasons.dedup();
    let mut summary = build::summary(&run.registry, &verdict.funnels, known, &reasons);
    if summary.segments.len() < 2 {
        summary.segments.clear();
    }
    baseline::judge(&run.job, &mut summary, &reasons);
    let lost = complain(&reporters.emit(Event::Finished(&summary)));
    run.checkpoints.finish().await;
    if !lost {
        // The summary takes its place.
        let _ = std::fs::remove_file(run.job.out.join(CHECKPOINT));
    }
    let exit = if lost { Exit::InternalFault } else { summary.exit.reason };
    Ok(Outcome { exit, interrupted: summary.exit.reasons.contains(&Exit::Interrupted), balance })
}

/// What the controller knows, with what a killed driver knew before.
pub(super) fn known(
    run: &Run,
    at: Micros,
    (funnels, counters, voice): (&Funnels, CountersSection, VoiceSection),
    convergence: &[ledger::ConvergenceRow],
    irregular: Vec<String>,
) -> Known {
    let profile = &run.job.prepared.profile;
    let limits = SaturationLimits {
        lag_p99_ms: profile.driver.max_schedule_lag.micros() as f64 / 1e3,
        ..SaturationLimits::for_shards(super::shards(&run.job.prepared))
    };
    let mut known = Known {
        voice,
        run: run.info.clone(),
        segments: vec![run.job.segment(run.clock.unix_us(Micros::ZERO), at)],
        duration_s: at.0 as f64 / 1e6,
        stopped_early: run.stopped_early.clone(),
        thresholds: run.monitor.results(&Measurements {
            registry: &run.registry,
            funnels,
            leaks: Some(&run.leaks),
            drift: Some(run.ledger.drift_sum()),
        }),
        irregular,
        counters,
        convergence: convergence.iter().map(convergence_row).collect(),
        faults: run.timeline.rows(),
        generator: build::generator(&run.registry, &run.driver.track, limits),
        costs: costs(run),
        leaks: run.leaks.rows(),
        workers_lost: run.workers_lost,
        said: run.said.clone(),
        balance: run.balance.clone(),
        resolved_profile: serde_json::to_value(profile).unwrap_or_default(),
    };
    if let Some(former) = &run.job.former {
        former.join(&mut known, &run.leftover);
    }
    known
}

/// As the summary tells it.
pub(super) fn finding(f: &ledger::Finding) -> FindingRow {
    FindingRow {
        name: f.name.name().to_owned(),
        class: name_of(&f.class),
        size: f.size,
        evidence: f.evidence.clone(),
        consequences: f.consequences.clone(),
        session_ids: f.session_ids.clone(),
    }
}

fn counters(verdict: &Verdict, summed: Option<usize>, unwatched: &[String], gave_up: bool) -> CountersSection {
    // Interrupted twice: what could not be looked at any more says nothing of the backend. What was proven before stays.
    let excused = |f: &&ledger::Finding| gave_up && f.name == ledger::DefectName::Unverified;
    let mut basis = vec![looked_at(verdict, summed)];
    basis.extend(unwatched.iter().cloned());
    basis.extend(verdict.notes.iter().cloned());
    if gave_up {
        basis.push("interrupted before the counters could be compared to the end".to_owned());
    }
    CountersSection {
        status: match verdict.judgement {
            Judgement::Unverified if gave_up => CountersStatus::NotChecked,
            Judgement::Agree => CountersStatus::Agree,
            Judgement::Disagree => CountersStatus::Disagree,
            Judgement::Unverified => CountersStatus::Unverified,
            Judgement::NotWatched => CountersStatus::NotChecked,
        },
        basis: basis.join("; "),
        confidence: verdict.confidence,
        cannot_see: verdict.cannot_see.clone(),
        findings: verdict.findings.iter().filter(|f| !excused(f)).map(finding).collect(),
        drift: verdict.drift.clone(),
        ghost_ages: verdict.ghost_ages.clone(),
    }
}

/// What the proof rests on; `summed` is how many backends have one reading for all.
fn looked_at(verdict: &Verdict, summed: Option<usize>) -> String {
    let looks: u64 = verdict.backends.iter().map(|b| b.samples).sum();
    let accepted: u64 = verdict.backends.iter().map(|b| b.accepted).sum();
    let of = match (summed, verdict.backends.len()) {
        (Some(backends), _) => format!("the sum of {backends} backends"),
        (None, 1) => "1 backend process".to_owned(),
        (None, processes) => format!("{processes} backend processes"),
    };
    format!("{looks} looks at {of}, {accepted} sessions")
}

/// The name under which serde writes a value without fields.
fn name_of(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

fn convergence_row(row: &ledger::ConvergenceRow) -> ConvergenceRow {
    let ms = |us: Option<u64>| us.map(|us| us as f64 / 1_000.0);
    let by_name = |n: u64| (!row.sums).then_some(n);
    ConvergenceRow {
        kind: row.kind,
        protocol: row.protocol,
        dialect: row.dialect,
        killed: row.killed,
        // That the counters followed all of them, sums do tell.
        detected: by_name(row.detected).or((row.detected == row.killed).then_some(row.killed)),
        written_off: by_name(row.written_off),
        ghosts: by_name(row.ghosts),
        false_capacity: by_name(row.false_capacity),
        p50_ms: ms(row.p50_us),
        p95_ms: ms(row.p95_us),
        p99_ms: ms(row.p99_us),
        max_ms: ms(row.max_us),
    }
}

fn costs(run: &Run) -> Vec<ProcessCost> {
    let cost = |name: String, usage: &super::controller::Usage| {
        let track = &usage.track;
        ProcessCost::new(name, track.cpu_us(), usage.frames, track.rss_first_bytes(), track.rss_peak_bytes(), usage.sessions_peak)
    };
    let mut all = vec![cost("driver".to_owned(), &run.driver)];
    all.extend(run.backends.iter().map(|(index, usage)| cost(format!("backend {index}"), usage)));
    all
}

/// Frames of this process, both ways.
pub(super) fn frames(counts: &[(Counter, u64)]) -> u64 {
    counts.iter().filter(|(c, _)| matches!(c, Counter::FramesSent | Counter::FramesReceived)).map(|(_, n)| n).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Dialect, EndKind, Protocol};

    #[test]
    fn of_sums_only_what_they_tell_is_in_the_results() {
        let row = |detected, sums| {
            let row = ledger::ConvergenceRow {
                kind: EndKind::Cancel,
                protocol: Protocol::Grpc,
                dialect: Dialect::Native,
                killed: 24,
                detected,
                written_off: 0,
                ghosts: 0,
                false_capacity: 0,
                sums,
                p50_us: Some(2_000),
                p95_us: None,
                p99_us: None,
                max_us: None,
            };
            let told = convergence_row(&row);
            assert_eq!((told.killed, told.p50_ms), (24, Some(2.0)));
            (told.detected, told.written_off, told.ghosts, told.false_capacity)
        };
        assert_eq!(row(4, false), (Some(4), Some(0), Some(0), Some(0)));
        assert_eq!(row(4, true), (None, None, None, None), "anybody may be among the ghosts");
        assert_eq!(row(24, true), (Some(24), None, None, None));
    }
}
