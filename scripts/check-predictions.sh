#!/bin/sh
# Three experiments of profiles/routing on real agent-servers, with the simulator's prediction beside each figure; fails when one is out of the tolerance
# that its profile states. Some 4 minutes. Needs Python 3. Usage: scripts/check-predictions.sh [path of load-driver; absent: builds it]
set -eu
cd "$(dirname "$0")/.."
program=${1:-target/release/load-driver}
[ $# -gt 0 ] || cargo build --quiet --release --package load-driver
exec python3 scripts/check-predictions.py "$program"
