#!/usr/bin/env bash
# Runs many seeds of the simulation (docs/testing.md), with the planted defects beside them: scripts/simulation.sh [SEEDS] [FROM]
# A seed that fails is printed as the command that runs it again; the exit code is then not 0.
set -euo pipefail
cd "$(dirname "$0")/.."
export SIM_SEEDS="${1:-10000}" SIM_FROM="${2:-0}"
export SIM_PLANTED="${SIM_PLANTED:-$((SIM_SEEDS < 1000 ? SIM_SEEDS : 1000))}"
exec cargo test --locked --profile simulation -p load-driver --test simulation -- --nocapture --test-threads 1
