#!/usr/bin/env bash
# A step of action.yml: runs the profile, and tells where the results are, whatever came of it. The page of the step and the annotations are
# load-driver's own doing: it sees GITHUB_STEP_SUMMARY and GITHUB_ACTIONS.
set -euo pipefail
warn() { echo "::warning title=load-driver::$1"; }
# A mark, a line on the page, and the exit code: of what has no results, which would have all of them. Takes the code, the mark and the line.
fail() {
    echo "::error title=load-driver::$2"
    if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
        echo "$3" >> "$GITHUB_STEP_SUMMARY"
    fi
    echo "exit-code=$1" >> "$GITHUB_OUTPUT"
    exit "$1"
}
wrong_input() { fail 104 "$1" "**load-driver was not run** (exit code 104): $1."; }
# Words of the input, quoted nearly as in a shell, but without anything that a shell would run.
args=()
words=$(printf '%s' "${INPUT_ARGS:-}" | xargs -r -n1 printf '%s\n') || wrong_input "the quotes in the input \`args\` do not match"
if [ -n "$words" ]; then
    mapfile -t args <<< "$words"
fi
case "${INPUT_NEW_BASELINE:-}" in
    '' | true | false) ;;
    *) wrong_input "the input \`new-baseline\` is neither true nor false" ;;
esac
baseline=()
if [ -n "${INPUT_BASELINE:-}" ]; then
    # Also where nothing is compared: a wrong one must not look like a baseline that does not fit.
    args+=(--tolerance "${INPUT_TOLERANCE:-5%}")
    if [ "${INPUT_NEW_BASELINE:-}" = true ]; then
        warn "a new baseline is asked for: this run is compared with nothing"
    elif [ -e "$INPUT_BASELINE" ]; then
        baseline=(--baseline "$INPUT_BASELINE")
    else
        warn "there is no baseline yet: the run is compared with nothing"
    fi
fi
# Runs of other events can bear the name of the default branch and be of somebody's change.
on_default_branch() {
    [ -n "${DEFAULT_BRANCH:-}" ] && [ "${GITHUB_REF:-}" = "refs/heads/$DEFAULT_BRANCH" ] || return 1
    case "${GITHUB_EVENT_NAME:-}" in push | schedule | workflow_dispatch) ;; *) return 1 ;; esac
}
out=${INPUT_OUT:-load-driver-results}
mkdir -p "$out"
# A folder of its own, so that what lies there from before is not taken for this run's.
mine=$(mktemp -d "$out/run-XXXXXX")
code=0
run() { "$LOAD_DRIVER" run "$INPUT_PROFILE" --out "$mine" "$@" ${args[@]+"${args[@]}"} || code=$?; }
run ${baseline[@]+"${baseline[@]}"}
# Refused before it began. Should it be for the baseline: what is merged cannot be compared with what was before, today or ever.
if [ "$code" -eq 104 ] && [ ${#baseline[@]} -gt 0 ] && [ -z "$(ls -A "$mine")" ] && on_default_branch; then
    code=0
    run
    if [ "$code" -ne 104 ]; then
        warn "the run cannot be compared with the baseline (its log says why): it is compared with nothing, and starts a new baseline if it passes"
    fi
fi
for folder in "$mine"/*/; do
    if [ -d "$folder" ]; then
        echo "results=${folder%/}" >> "$GITHUB_OUTPUT"
    fi
done
# What never began, or was killed, has no page and no marks of its own.
if [ -z "$(find "$mine" -name summary.json -print -quit)" ]; then
    profile=$(printf '%s' "$INPUT_PROFILE" | tr -cd '[:alnum:]._/-')
    case $code in
        104) fail 104 "it refused to run \`$profile\` (104): the log of this step says why" "**load-driver refused to run** (exit code 104): the log of the step says why." ;;
        # As after --help: what tested nothing is no pass.
        0) fail 104 "nothing was run: there are no results of \`$profile\`" "**load-driver ran nothing** (exit code 104): there are no results." ;;
        *) fail "$code" "it ended without results of \`$profile\` ($code): the log of this step says why" "**load-driver ended without results** (exit code $code): the log of the step says why." ;;
    esac
fi
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
exit "$code"
