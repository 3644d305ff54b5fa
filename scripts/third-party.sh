#!/bin/sh
# load-driver against a voice agent of somebody else's (Python, websockets, prometheus-client): its counters are read as any backend's are, and
# what it counts wrongly on purpose is named with its size.
# Usage: scripts/third-party.sh [CASE..]
# Needs Python 3.10 or later. Packages are pinned and come from PyPI, into target/third-party. LOAD_DRIVER names a program to use instead of building one.
set -eu
cd "$(dirname "$0")/.."
venv=target/third-party
if ! cmp -s scripts/third-party/requirements.txt "$venv/made-of.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/third-party/requirements.txt
    cp scripts/third-party/requirements.txt "$venv/made-of.txt"
fi
PYTHONDONTWRITEBYTECODE=1 exec "$venv/bin/python" scripts/third-party/run.py "$@"
