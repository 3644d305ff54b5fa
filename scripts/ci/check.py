"""Runs the steps of action.yml and the script of gitlab-ci.yml as their runners would, with a made-up environment and a tiny profile."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent
PROFILE = """
name: tiny
driver: {shards: 1, max_schedule_lag: 5s}
scenarios:
  talk:
    executor: constant-sessions
    sessions: 4
    duration: 2s
    gracefulStop: 10s
    conversations: [{turns: [{wait: 100ms, say: {synth: 300ms}, response: 300ms}]}]
thresholds:
  sessions_failed: ['rate==0']
"""
checked = 0


def check(holds, what):
    global checked
    checked += 1
    if not holds:
        sys.exit(f"not so: {what}")


class Action:
    """The composite action, as far as this one goes: expressions of inputs and of outputs of steps, `env`, `run`."""

    def __init__(self, program):
        self.action = yaml.safe_load((ROOT / "action.yml").read_text())
        self.program = program

    def run(self, folder, event=None, **inputs):
        values = {f"inputs.{name}": of.get("default", "") for name, of in self.action["inputs"].items()}
        values |= {f"inputs.{name}": text for name, text in {"path": self.program, **inputs}.items()}
        values |= {"github.action_path": str(ROOT), "github.event.repository.default_branch": "main"}
        event, ref = event or ("pull_request", "refs/pull/1/merge")
        page, output = folder / "page.md", folder / "output"
        page.touch()
        code, log = 0, ""
        for step in self.action["runs"]["steps"]:
            if "uses" in step or code != 0:
                continue
            output.write_text("")
            check("${{" not in step["run"], "no expression is part of a script")
            environment = {name: self.fill(text, values) for name, text in step.get("env", {}).items()}
            environment |= {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page), "GITHUB_OUTPUT": str(output)}
            environment |= {"GITHUB_EVENT_NAME": event, "GITHUB_REF": ref}
            plain = {name: text for name, text in os.environ.items() if not name.startswith(("GITHUB_", "LOAD_DRIVER", "INPUT_"))}
            # As the runner starts `shell: bash`.
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            ran = subprocess.run(command, cwd=folder, env=plain | environment, capture_output=True, text=True, timeout=300)
            code, log = ran.returncode, log + ran.stdout + ran.stderr
            for line in output.read_text().splitlines():
                name, _, value = line.partition("=")
                values[f"steps.{step['id']}.outputs.{name}"] = value
        outputs = {name: self.fill(of["value"], values) for name, of in self.action["outputs"].items()}
        return code, log, outputs, page.read_text()

    @staticmethod
    def fill(text, values):
        return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda found: str(values.get(found[1], "")), str(text))


def results(folder, outputs):
    files = folder / outputs["results"]
    for name in ["summary.json", "summary.md", "junit.xml", "latencies.hlog"]:
        check((files / name).is_file(), f"{name} is among the results")
    return files, json.loads((files / "summary.json").read_text()), xml.parse(files / "junit.xml").getroot()


def action(program):
    runner = Action(program)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a profile.yaml").write_text(PROFILE)
        first = {"profile": "a profile.yaml", "baseline": "none/yet"}
        code, log, outputs, page = runner.run(folder, **first, args="--seed 7 --set 'scenarios.talk.sessions=3'")
        check(code == 0 and outputs["exit-code"] == "0", f"a good run passes: {log}")
        check("::warning title=load-driver::there is no baseline yet" in log, "that there is no baseline is said")
        check("::error" not in log and "## ✅ PASSED: tiny" in page, f"the page of the step: {page}")
        files, summary, junit = results(folder, outputs)
        check((summary["run"]["seed"], summary["resolved_profile"]["scenarios"]["talk"]["sessions"]) == (7, 3), "arguments arrive, quoted ones too")
        check(int(junit.get("failures")) == 0, "JUnit without failures")

        code, log, outputs, page = runner.run(folder, profile="a profile.yaml", args="--set thresholds.turn_response=['p(50)<1']")
        check(code == 99 and outputs["exit-code"] == "99", f"a broken threshold fails the step: {log}")
        check("::error title=threshold%3A turn_response::turn_response must be p(50)<1" in log, f"and is annotated: {log}")
        check("## ❌ FAILED (exit code 99): tiny" in page, f"and on the page: {page}")
        _, _, junit = results(folder, outputs)
        failed = [case for case in junit.iter("testcase") if case.find("failure") is not None]
        check(len(failed) == 2 and all(case.find("failure").text for case in failed), "and in JUnit, with words")

        code, log, outputs, _ = runner.run(folder, profile="a profile.yaml", args="--seed 7 --set scenarios.talk.sessions=3", baseline=str(files))
        _, summary, _ = results(folder, outputs)
        check(summary["comparison"]["baseline"]["run_id"] in str(files), "the baseline is compared with")

        # The profile changes: its load is not the baseline's any more.
        changed = {"profile": "a profile.yaml", "args": "--set scenarios.talk.sessions=2", "baseline": str(files)}
        main = "refs/heads/main"
        for event in [None, ("pull_request_target", main), ("workflow_run", main), ("push", "refs/heads/topic")]:
            code, log, outputs, _ = runner.run(folder, event, **changed)
            check(code == 104 and outputs["results"] == "" and "nothing could be compared with it" in log, f"{event} fails and says so: {log}")
        for event in [("push", main), ("workflow_dispatch", main)]:
            code, log, outputs, _ = runner.run(folder, event, **changed)
            check(code == 0 and outputs["exit-code"] == "0", f"the default branch goes on after {event}: {log}")
            check("scenarios.talk" in log and "::warning title=load-driver::the run cannot be compared" in log, f"and says so: {log}")
            check(results(folder, outputs)[1].get("comparison") is None, "such a run claims no comparison")
        for wrong in [{"profile": "none.yaml"}, {"tolerance": "much"}, {"args": "--no-such-flag"}]:
            code, log, _, page = runner.run(folder, ("push", main), **changed | wrong)
            check(code == 104 and "::warning" not in log, f"what is wrong otherwise stays wrong: {log}")
            check("::error title=load-driver::it refused to run" in log and "refused to run" in page, f"a refusal is marked: {log}")
        code, log, _, _ = runner.run(folder, ("push", main), **changed | {"args": changed["args"] + " --set thresholds.turn_response=['p(50)<1']"})
        check(code == 99, f"and a bad run is no baseline: {log}")
        # Nothing but the same load can be worse: the default branch stays red until somebody says that it is meant.
        same = {"profile": "a profile.yaml", "args": "--seed 7 --set scenarios.talk.sessions=3", "baseline": str(files), "tolerance": "0%"}
        code, log, _, _ = runner.run(folder, ("push", main), **same)
        check(code == 99, f"so short a run decides nothing, which is no pass: {log}")
        code, log, outputs, _ = runner.run(folder, **same, **{"new-baseline": "true"})
        check(code == 0 and "::warning title=load-driver::a new baseline is asked for" in log, f"a new baseline can be asked for: {log}")
        check(results(folder, outputs)[1].get("comparison") is None, "and is compared with nothing")
        code, log, _, _ = runner.run(folder, **same, **{"new-baseline": "perhaps"})
        check(code == 104 and "::error title=load-driver::the input `new-baseline`" in log, f"in one of two words: {log}")

        for quotes in ["--seed 7 --set 'x", 'a "b', r'--set "x=\"y\""']:
            code, log, outputs, page = runner.run(folder, profile="a profile.yaml", args=quotes)
            marked = "::error title=load-driver::the quotes in the input `args` do not match" in log and "was not run" in page
            check(code == 104 and outputs["exit-code"] == "104" and marked, f"quotes that do not match are refused: {log}")
        for blank in ["", " ", " \n "]:
            code, log, _, _ = runner.run(folder, profile="a profile.yaml", args=blank)
            check(code == 0, f"nothing is no argument: {log}")
        # Nobody listens there: it ends before its first session.
        code, log, outputs, page = runner.run(folder, profile="a profile.yaml", args="--target 127.0.0.1:1")
        check(code == 106 and outputs["exit-code"] == "106", f"a target that is not there: {log}")
        marked = "::error title=load-driver::it ended without results of `aprofile.yaml` (106)" in log
        check(marked and "ended without results** (exit code 106)" in page, f"is marked: {log}")
        code, log, outputs, _ = runner.run(folder, profile="a profile.yaml", args="--help")
        check(code == 104 and outputs["exit-code"] == "104" and "::error title=load-driver::nothing was run" in log, f"help is no pass: {log}")

        spy = folder / "spy"
        code, log, _, _ = runner.run(folder, profile=f"x; touch {spy}", args=f"$(touch {spy}) `touch {spy}` ; touch {spy}")
        check(code == 104 and not spy.exists(), f"inputs are never run: {log}")
        code, log, _, _ = runner.run(folder, **first, version="0.0.0-none")
        check(code == 104 and "::error title=load-driver::the input `version`" in log, f"another version is refused: {log}")
        code, log, _, _ = runner.run(folder, profile="a profile.yaml", path="no/such/program")
        check(code == 104 and "::error title=load-driver::nothing that can be run" in log, f"no program is said: {log}")


def gitlab(program):
    job = yaml.safe_load((ROOT / "gitlab-ci.yml").read_text())[".load-driver"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.yaml").write_text(PROFILE)

        def run(**more):
            plain = {name: text for name, text in os.environ.items() if not name.startswith(("GITHUB_", "CI", "LOAD_DRIVER"))}
            environment = plain | job["variables"] | {"LOAD_DRIVER": program, "LOAD_DRIVER_PROFILE": "tiny.yaml"} | more
            # As the runner starts a script: line by line, the first failure ends it.
            script = "\n".join(["set -eo pipefail", *job["script"]])
            return subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)

        ran = run(CI_COMMIT_BRANCH="main", CI_DEFAULT_BRANCH="main")
        check(ran.returncode == 0 and "there is no baseline yet" in ran.stdout, f"the first run passes: {ran.stdout}{ran.stderr}")
        check((folder / "load-driver-baseline/latencies.hlog").is_file(), "it is the baseline of the next")
        reports = list(folder.glob(job["artifacts"]["reports"]["junit"]))
        check(len(reports) == 1 and int(xml.parse(reports[0]).getroot().get("failures")) == 0, "one JUnit report where the job looks for it")
        kept = (folder / "load-driver-baseline/summary.json").read_text()
        ran = run(CI_COMMIT_BRANCH="topic", CI_DEFAULT_BRANCH="main", LOAD_DRIVER_ARGS="--set thresholds.turn_response=['p(50)<1']")
        check(ran.returncode == 99, f"a failed run fails the job: {ran.stdout}{ran.stderr}")
        check(job["cache"][0].get("unprotect") is True, "merge requests see what a protected branch stored")
        changed = {"CI_DEFAULT_BRANCH": "main", "LOAD_DRIVER_ARGS": "--set 'scenarios.talk.sessions= 3'"}
        ran = run(CI_MERGE_REQUEST_IID="1", **changed)
        check(ran.returncode == 104 and "nothing could be compared" in ran.stderr, f"nor can a merge request of another load: {ran.stderr}")
        ran = run(CI_COMMIT_BRANCH="main", **changed | {"LOAD_DRIVER_ARGS": "--no-such-flag"})
        check(ran.returncode == 104 and "WARNING" not in ran.stdout, f"what is wrong otherwise stays wrong: {ran.stdout}")
        ran = run(CI_MERGE_REQUEST_IID="1", LOAD_DRIVER_NEW_BASELINE="true", **changed)
        check(ran.returncode == 0 and "a new baseline is asked for" in ran.stdout, f"unless it is meant: {ran.stdout}{ran.stderr}")
        check((folder / "load-driver-baseline/summary.json").read_text() == kept, "none of these is a baseline")
        ran = run(CI_COMMIT_BRANCH="main", **changed)
        check(ran.returncode == 0 and "WARNING: the run cannot be compared" in ran.stdout, f"the default branch goes on: {ran.stdout}{ran.stderr}")
        now = json.loads((folder / "load-driver-baseline/summary.json").read_text())
        check(now["resolved_profile"]["scenarios"]["talk"]["sessions"] == 3, "with a new baseline")
        ran = run(LOAD_DRIVER_ARGS="--seed 7 --set 'x")
        check(ran.returncode == 104 and "do not match" in ran.stdout, f"quotes that do not match are refused: {ran.stdout}{ran.stderr}")
        ran = run(LOAD_DRIVER_ARGS=" ", LOAD_DRIVER_NEW_BASELINE="true")
        check(ran.returncode == 0, f"nothing is no argument: {ran.stderr}")
        for args, code in [("--target 127.0.0.1:1", 106), ("--help", 104)]:
            ran = run(CI_COMMIT_BRANCH="main", LOAD_DRIVER_ARGS=args, LOAD_DRIVER_NEW_BASELINE="true")
            check(ran.returncode == code and "ended without results" in ran.stdout, f"{args} is no pass: {ran.stdout}{ran.stderr}")
        spy = folder / "spy"
        ran = run(LOAD_DRIVER_ARGS=f"$(touch {spy}) `touch {spy}` ; touch {spy}")
        check(ran.returncode == 104 and not spy.exists(), f"arguments are never run: {ran.stderr}")
        ran = run(LOAD_DRIVER="", LOAD_DRIVER_SOURCES="")
        check(ran.returncode == 104 and "neither LOAD_DRIVER" in ran.stdout, f"no program is said: {ran.stdout}")
        check([name for name in yaml.safe_load((ROOT / "gitlab-ci.yml").read_text()) if not name.startswith(".")] == [], "to include it starts nothing")

program = shutil.which(sys.argv[1])
if not program:
    sys.exit(f"no program {sys.argv[1]}")
program = os.path.abspath(program)
action(program)
gitlab(program)
print(f"{checked} passed, 0 failed")
