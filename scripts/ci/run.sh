#!/usr/bin/env bash
# A step of action.yml: runs the profile, and tells where the results are, whatever came of it. The page of the step and the annotations are
# load-driver's own doing: it sees GITHUB_STEP_SUMMARY and GITHUB_ACTIONS.
set -euo pipefail
# Words of the input, quoted as in a shell, but without anything that a shell would run.
args=()
if [ -n "${INPUT_ARGS:-}" ]; then
    words=$(printf '%s' "$INPUT_ARGS" | xargs -n1 printf '%s\n')
    mapfile -t args <<< "$words"
fi
if [ -n "${INPUT_BASELINE:-}" ]; then
    if [ -e "$INPUT_BASELINE" ]; then
        args+=(--baseline "$INPUT_BASELINE" --tolerance "${INPUT_TOLERANCE:-5%}")
    else
        echo "::warning title=load-driver::there is no baseline yet: the run is compared with nothing"
    fi
fi
out=${INPUT_OUT:-load-driver-results}
mkdir -p "$out"
# A folder of its own, so that what lies there from before is not taken for this run's.
mine=$(mktemp -d "$out/run-XXXXXX")
code=0
"$LOAD_DRIVER" run "$INPUT_PROFILE" --out "$mine" ${args[@]+"${args[@]}"} || code=$?
for folder in "$mine"/*/; do
    if [ -d "$folder" ]; then
        echo "results=${folder%/}" >> "$GITHUB_OUTPUT"
    fi
done
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
exit "$code"
