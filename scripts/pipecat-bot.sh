#!/usr/bin/env bash
# Runs load-driver against a real voice bot that needs no network (scripts/sdk/pipecat_bot), over Twilio Media Streams and Pipecat's protobuf frames, with so many
# calls at once (default 1 2 4), and prints a table. Installs the bot under target/ first (Python 3.11 or later, pip), and espeak-ng by apt if root and missing.
# scripts/pipecat-bot.sh [CALLS...]          LOAD_DRIVER_BIN names another build than target/release/load-driver
set -euo pipefail
cd "$(dirname "$0")/.."
driver=${LOAD_DRIVER_BIN:-target/release/load-driver}
calls=("$@")
[ ${#calls[@]} -gt 0 ] || calls=(1 2 4)
bot=scripts/sdk/pipecat_bot
work=target/pipecat-bot
mkdir -p "$work"

[ -x "$driver" ] || cargo build --release -p load-driver
if ! command -v espeak-ng >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "espeak-ng is missing: install it, and run this again" >&2; exit 1; }
    { apt-get update && apt-get install -y --no-install-recommends espeak-ng; } >"$work/apt.log" 2>&1
fi
if ! cmp -s scripts/sdk/requirements/pipecat_bot.txt "$work/installed.txt"; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet -r scripts/sdk/requirements/pipecat_bot.txt
    cp scripts/sdk/requirements/pipecat_bot.txt "$work/installed.txt"
fi

PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" "$bot/bot.py" >"$work/bot.out" 2>"$work/bot.log" &
pid=$!
trap 'kill "$pid" 2>/dev/null || true' EXIT
port=
for _ in $(seq 240); do
    port=$(sed -n 's/^listening //p' "$work/bot.out")
    [ -n "$port" ] && break
    kill -0 "$pid" 2>/dev/null || { cat "$work/bot.log" >&2; exit 1; }
    sleep 0.5
done
[ -n "$port" ] || { echo "the bot does not listen; see $work/bot.log" >&2; exit 1; }

echo "| endpoint | calls | voice-to-voice p50 / p95, ms | barge-in signal p50, ms | turns | missed | barge-ins missed | gaps, total |"
echo "|---|---:|---:|---:|---:|---:|---:|---:|"
for endpoint in twilio:ws pipecat:ws-client; do
    for count in "${calls[@]}"; do
        out=$work/${endpoint%%:*}-$count
        rm -rf "$out"
        # Its counters cannot be read; what it missed is in the table.
        "$driver" run "$bot/calls.yaml" --target "ws://127.0.0.1:$port/${endpoint##*:}" --out "$out" \
            --set "scenarios.calls.dialect=${endpoint%%:*}" --set "defaults.sessions=$count" >"$out.log" 2>&1 || true
        python3 - "$out" "${endpoint##*:}" "$count" <<'PYTHON'
import glob, json, sys

out, endpoint, calls = sys.argv[1:]
paths = glob.glob(f"{out}/*/summary.json")
if not paths:
    sys.exit(f"no result: see {out}.log")
summary = json.load(open(paths[0]))
latency = {row["metric"]: row["response"] for row in summary["latencies"]}


def ms(metric, figure):
    row = latency.get(metric) or {}
    return f"{row[figure]:,.0f}" if row.get("count") else "-"


counts = summary["counts"]
print(
    f"| /{endpoint} | {calls} | {ms('turn_response', 'p50_ms')} / {ms('turn_response', 'p95_ms')} | {ms('barge_in_signal', 'p50_ms')} "
    f"| {counts['turns']} | {counts['turns_missed']} | {counts['barge_ins_missed']} of {counts['barge_ins']} "
    f"| {counts['underruns']}, {counts['underrun_us'] / 1e6:.1f} s |",
    flush=True,
)
PYTHON
    done
done
