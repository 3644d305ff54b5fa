"""Runs load-driver against agent.py, counting rightly and wrongly, and holds what it says against what was true: see third-party.sh."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# No run takes so long unless it hangs.
PATIENCE = 240

# What is done to the agent, what the driver is told, the exit code, the finding, and which figure of the truth is its size.
CASES = [
    ("clean", [], [], 0, None, None),
    ("leak", ["--leak", "10"], [], 98, "ghost", "leaked"),
    ("double decrement", ["--double", "10"], [], 98, "double_decrement", "doubled"),
    ("double, gauge alone", ["--double", "10"], ["counters.started=null", "counters.ended=null"], 98, "false_capacity", "doubled"),
    ("never added", ["--never", "10"], [], 98, "lost", "never"),
    ("guests", ["--guests", "6"], ["counters.other_traffic=true"], 0, None, None),
    ("guests, not told of", ["--guests", "6"], ["counters.baseline=5s"], 98, "unverified", None),
    ("guests and a leak", ["--guests", "6", "--leak", "2"], ["counters.other_traffic=true"], 98, "ghost", None),
]


def program():
    if "LOAD_DRIVER" in os.environ:
        return str(pathlib.Path(os.environ["LOAD_DRIVER"]).resolve())
    subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "load-driver"], check=True, cwd=ROOT)
    return str(ROOT / "target/release/load-driver")


def once(driver, flags, settings, out):
    """The driver's exit code and summary, and what was true."""
    command = [sys.executable, HERE / "agent.py", "--port", "0", "--metrics-port", "0", *flags]
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        ready = json.loads(agent.stdout.readline())
        words = [driver, "run", "third-party", "--target", ready["address"], "--out", out]
        for setting in [f"counters.url=http://{{host}}:{ready['metrics']}/metrics", *settings]:
            words += ["--set", setting]
        run = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        agent.stdin.close()
        truth = json.loads(agent.stdout.readline())
    finally:
        agent.kill()
        agent.wait()
    found = sorted(pathlib.Path(out).glob("*/summary.json"))
    return run, json.loads(found[0].read_text()) if found else None, truth


def faults(run, summary, truth, code, name, figure):
    if summary is None or run.returncode != code:
        yield f"exit code {run.returncode}, {code} is due"
        return
    findings = [(one["name"], one["size"]) for one in summary["counters"]["findings"]]
    if [found for found, _ in findings] != ([name] if name else []):
        yield f"findings {findings}, {name} is due"
    elif figure and findings[0][1] != truth[figure]:
        yield f"{name} {findings[0][1]}, {truth[figure]} are true"
    if not summary["counters"]["cannot_see"]:
        yield "it does not say what it cannot see"
    # Its own word and the agent's.
    established = sum(row["funnel"]["established"] for row in summary["scenarios"])
    if established != truth["started"]:
        yield f"{established} sessions established, {truth['started']} are true"
    if truth["live"] != 0:
        yield f"{truth['live']} sessions live at the end"


def main():
    driver = program()
    wanted = sys.argv[1:]
    cases = [case for case in CASES if not wanted or case[0] in wanted]
    if not cases:
        sys.exit(f"the cases are: {', '.join(case[0] for case in CASES)}")
    failed = 0
    for label, flags, settings, code, name, figure in cases:
        with tempfile.TemporaryDirectory() as out:
            run, summary, truth = once(driver, flags, settings, out)
        wrong = list(faults(run, summary, truth, code, name, figure))
        failed += bool(wrong)
        found = summary and [f"{one['name']} x {one['size']}" for one in summary["counters"]["findings"]]
        confidence = summary and summary["counters"]["confidence"]
        print(f"{'FAILED' if wrong else 'ok':6}  {label:20}  exit {run.returncode:3}  {', '.join(found or ['agree']):24}  {confidence}", flush=True)
        if label == "clean" and not wrong:
            print("".join(f"        cannot see: {line}\n" for line in summary["counters"]["cannot_see"]), end="", flush=True)
        if wrong:
            print("".join(f"        {line}\n" for line in wrong) + f"        truth: {truth}\n{run.stdout}{run.stderr}", flush=True)
    sys.exit(failed > 0)


main()
