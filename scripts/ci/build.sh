#!/usr/bin/env bash
# A step of action.yml: the program that is given, or one that is built; its path as the output `program`.
set -euo pipefail
if [ -n "${INPUT_PATH:-}" ]; then
    program=$INPUT_PATH
    if ! [ -x "$program" ]; then
        echo "::error title=load-driver::nothing that can be run at the input \`path\`"
        exit 104
    fi
else
    root=$(cd "$ACTION_PATH/../.." && pwd)
    cargo build --release --locked --package load-driver --manifest-path "$root/Cargo.toml"
    program=${CARGO_TARGET_DIR:-$root/target}/release/load-driver
fi
version=$("$program" --version)
echo "$version"
if [ -n "${INPUT_VERSION:-}" ] && [ "$version" != "load-driver ${INPUT_VERSION#v}" ]; then
    echo "::error title=load-driver::the input \`version\` is not that of the program"
    exit 104
fi
echo "program=$program" >> "$GITHUB_OUTPUT"
