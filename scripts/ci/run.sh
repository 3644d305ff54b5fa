#!/usr/bin/env bash
# A step of action.yml: runs the profile, and tells where the results are, whatever came of it. The page of the step and the annotations are
# load-driver's own doing: it sees GITHUB_STEP_SUMMARY and GITHUB_ACTIONS.
set -euo pipefail
warn() { echo "::warning title=load-driver::$1"; }
# Words of the input, quoted as in a shell, but without anything that a shell would run.
args=()
if [ -n "${INPUT_ARGS:-}" ]; then
    words=$(printf '%s' "$INPUT_ARGS" | xargs -n1 printf '%s\n')
    mapfile -t args <<< "$words"
fi
case "${INPUT_NEW_BASELINE:-}" in
    '' | true | false) ;;
    *)
        echo "::error title=load-driver::the input \`new-baseline\` is neither true nor false"
        exit 104
        ;;
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
# What never began has no results, and so no page and no marks of its own.
if [ "$code" -eq 104 ] && [ -z "$(ls -A "$mine")" ]; then
    echo "::error title=load-driver::it refused to run \`$(printf '%s' "$INPUT_PROFILE" | tr -cd '[:alnum:]._/-')\` (104): the log of this step says why"
    if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
        echo "**load-driver refused to run** (exit code 104): the log of the step says why." >> "$GITHUB_STEP_SUMMARY"
    fi
fi
for folder in "$mine"/*/; do
    if [ -d "$folder" ]; then
        echo "results=${folder%/}" >> "$GITHUB_OUTPUT"
    fi
done
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
exit "$code"
