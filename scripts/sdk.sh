#!/bin/sh
# Stock SDKs of real voice services against agent-server: what each of them saw, as a table of clients and features.
# Usage: scripts/sdk.sh [--fast] [CLIENT..]      without names all of them; --list names them; --fast takes those that CI runs
# Needs Python 3.10 or later, and Node 20 or later with npm for clients in JavaScript. Packages are pinned and come from PyPI and npm, into target/sdk.
# AGENT_SERVER names a program to check instead of building one.
set -eu
cd "$(dirname "$0")/.."
exec python3 scripts/sdk/run.py "$@"
