#!/bin/sh
# Checks what is for CI systems without one: schemas of both files, the shell in them, and their steps run for real with a made-up environment.
# Usage: scripts/ci/check.sh [PROGRAM]      without a program it builds one
set -eu
cd "$(dirname "$0")/../.."
venv=${CHECK_CI_VENV:-target/check-ci-venv}
if ! [ -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/ci/check.requirements.txt
if [ $# -eq 0 ]; then
    cargo build --quiet --locked --package load-driver
    set -- target/debug/load-driver
fi
"$venv/bin/check-jsonschema" --builtin-schema vendor.github-actions scripts/ci/action.yml
"$venv/bin/check-jsonschema" --builtin-schema vendor.gitlab-ci scripts/ci/gitlab-ci.yml
"$venv/bin/shellcheck" scripts/ci/*.sh
exec "$venv/bin/python" scripts/ci/check.py "$1"
