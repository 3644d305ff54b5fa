#!/bin/sh
# Checks a server from a stock Python gRPC client: health, reflection, and one session through descriptors got by reflection.
# Usage: scripts/check-grpc.sh [ADDRESS]      without an address it builds and starts a server of its own
set -eu
cd "$(dirname "$0")/.."
venv=${CHECK_GRPC_VENV:-target/check-grpc-venv}
if ! [ -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/check-grpc.requirements.txt
if [ $# -eq 0 ]; then
    cargo build --quiet --package agent-server
fi
exec "$venv/bin/python" scripts/check-grpc.py "$@"
