"""Runs an experiment on real agent-servers, simulates it, and holds the one against the other. Stated tolerances; a missing figure fails."""

import json
import pathlib
import subprocess
import sys
import tempfile

# Metric: what it may differ by, absolute (in its unit) or as a share of the larger; within either is within.
# Shares and rates: a report more or less decides a few sessions of a hundred. Startups: the model's network is a constant, the real one a driver and
# a server that wake each millisecond.
TOLERANCES = {
    "overload_rate": (0.06, 0.15),
    "utilization_mean": (0.05, 0.10),
    "startup_p50_ms": (10.0, 0.15),
    "startup_p99_ms": (60.0, 0.15),
    "share_0": (0.05, 0.0),
}
# The ghosts' run must be told of its ghosts: exit 98.
EXPERIMENTS = {"remaining-lies": 0, "hybrid-feeds": 0, "ghosts": 98}


def figure(balance, name):
    if name == "share_0":
        assigned = balance["assigned"]
        return assigned[0] / sum(assigned) if sum(assigned) else None
    if name == "utilization_mean":
        return (balance.get("utilization") or {}).get("mean")
    return balance.get(name)


def rows(path):
    return {row["policy"]: row["balance"] for row in json.loads(path.read_text())["policies"]}


def main():
    program = sys.argv[1]
    bad = 0
    print(f"{'experiment':16}{'policy':20}{'figure':18}{'measured':>12}{'predicted':>12}")
    for name, expected in EXPERIMENTS.items():
        profile = f"profiles/routing/{name}.yaml"
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            run = subprocess.run([program, "run", profile, "--out", str(folder / "live")], capture_output=True, text=True)
            if run.returncode != expected:
                print(f"{name}: run ended with {run.returncode}, not {expected}\n{run.stdout[-3000:]}{run.stderr[-2000:]}")
                bad += 1
                continue
            simulated = subprocess.run([program, "simulate", profile, "--json", str(folder / "sim.json")], capture_output=True, text=True)
            if simulated.returncode != 0:
                print(f"{name}: simulate ended with {simulated.returncode}\n{simulated.stdout}{simulated.stderr}")
                bad += 1
                continue
            measured = rows(next((folder / "live").glob("*/comparison.json")))
            predicted = rows(folder / "sim.json")
        if set(measured) != set(predicted):
            print(f"{name}: policies differ: {sorted(measured)} {sorted(predicted)}")
            bad += 1
            continue
        for policy in measured:
            for metric, (absolute, share) in TOLERANCES.items():
                real, model = figure(measured[policy], metric), figure(predicted[policy], metric)
                within = None not in (real, model) and abs(real - model) <= max(absolute, share * max(abs(real), abs(model)))
                bad += not within
                show = lambda x: "-" if x is None else f"{x:.3f}"
                print(f"{name:16}{policy:20}{metric:18}{show(real):>12}{show(model):>12}  {'ok' if within else 'OUT OF TOLERANCE'}")
    print("all within tolerance" if not bad else f"{bad} out of tolerance")
    return 1 if bad else 0


sys.exit(main())
