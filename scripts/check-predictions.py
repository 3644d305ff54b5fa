"""Runs experiments on real agent-servers and looks at the simulator's predictions in their comparisons. A prediction that is missing fails."""

import json
import pathlib
import subprocess
import sys
import tempfile

# The ghosts' run must be told of its ghosts: exit 98, which hides a prediction that failed. So each prediction is looked at, whatever the exit.
EXPERIMENTS = {"remaining-lies": 0, "hybrid-feeds": 0, "ghosts": 98}


def faults(program, name, expected):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [program, "run", f"profiles/routing/{name}.yaml", "--out", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        found = list(pathlib.Path(folder).glob("*/comparison.json"))
        comparison = json.loads(found[0].read_text()) if len(found) == 1 else {}
    _, heading, table = run.stdout.partition("predictions of the simulator")
    print(f"{name}: {heading}{table.partition('results in')[0].rstrip()}\n")
    faults = []
    if run.returncode != expected:
        print(run.stdout[-3000:] + run.stderr[-2000:])
        faults.append(f"{name}: run ended with {run.returncode}, not {expected}")
    # Each policy that ran, and what is predicted of it.
    ran = {row["policy"] for row in comparison.get("policies", [])}
    predictions = comparison.get("predictions", [])
    if not ran or {one["policy"] for one in predictions} != ran:
        faults.append(f"{name}: not every policy is predicted")
    faults += [f"{name}: {one['policy']}.{one['metric']}" for one in predictions if one["holds"] is not True]
    faults += [f"{name}: {one['text']}" for one in comparison.get("expectations", []) if one["holds"] is not True]
    return faults


def main():
    program = sys.argv[1]
    found = [fault for name, expected in EXPERIMENTS.items() for fault in faults(program, name, expected)]
    print("\n".join(found) if found else "all within tolerance")
    return 1 if found else 0


sys.exit(main())
