"""What the SDK checks share: a server of their own, speech to say, and a table of what each client saw.

A check is a script that runs its client against `agent-server`, asserts on what the client's own objects held, and prints one JSON line a feature.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback
import urllib.request
import wave
from array import array

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Server:
    """`agent-server serve` on free ports; flags as on its command line."""

    def __init__(self, *flags):
        program = os.environ.get("AGENT_SERVER", str(ROOT / "target/release/agent-server"))
        common = ["--listen=127.0.0.1:0", "--think=50ms", "--response=constant(1500ms)", "--stop-on-stdin-eof"]
        own = {flag.split("=")[0] for flag in flags}
        common = [flag for flag in common if flag.split("=")[0] not in own]
        self.process = subprocess.Popen([program, "serve", *common, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = json.loads(self.process.stdout.readline())
        self.address = self.ready["address"]
        self.admin = self.ready["admin"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def snapshot(self):
        with urllib.request.urlopen(f"http://{self.admin}/snapshot", timeout=5) as answer:
            return json.load(answer)

    def settled(self, seconds=10):
        """The snapshot once no session is active: every client is gone and counted."""
        end = time.monotonic() + seconds
        while True:
            snapshot = self.snapshot()
            if snapshot["active"] == 0 or time.monotonic() > end:
                return snapshot
            time.sleep(0.05)


def speech(rate, name="weather"):
    """A shipped clip as mono PCM16 at `rate` Hz, and half a second of silence after it."""
    with wave.open(str(ROOT / f"profiles/audio/{name}.wav")) as clip:
        own = clip.getframerate()
        samples = array("h", clip.readframes(clip.getnframes()))
    count = len(samples) * rate // own
    out = array("h", bytes(2 * count))
    for n in range(count):
        at = n * own / rate
        low = int(at)
        high = min(low + 1, len(samples) - 1)
        out[n] = int(samples[low] + (samples[high] - samples[low]) * (at - low))
    return out.tobytes() + silence(rate, 0.8)


def silence(rate, seconds):
    return bytes(2 * int(rate * seconds))


def frames(pcm, rate, ms=20):
    """`pcm` (16 bit) in pieces of `ms`."""
    size = 2 * rate * ms // 1000
    return [pcm[at : at + size] for at in range(0, len(pcm), size)]


async def talk(send, pcm, rate, ms=20):
    """Awaits `send(piece)` for each piece, in real time."""
    start = time.monotonic()
    for n, piece in enumerate(frames(pcm, rate, ms)):
        await asyncio.sleep(max(0.0, start + n * ms / 1000 - time.monotonic()))
        await send(piece)


class Report:
    """Collects features of one client; `done()` ends the script."""

    def __init__(self, client, version):
        self.client, self.version, self.failed = client, version, 0

    def line(self, feature, ok, detail=""):
        self.failed += not ok
        print(json.dumps({"client": self.client, "version": self.version, "feature": feature, "ok": bool(ok), "detail": detail}), flush=True)

    def run(self, feature, check, *args, seconds=60):
        """Runs a check (a function, or a coroutine function): what it raises is a failure, what it gives is the detail."""
        try:
            if asyncio.iscoroutinefunction(check):
                detail = asyncio.run(asyncio.wait_for(check(*args), seconds))
            else:
                detail = check(*args)
            self.line(feature, True, detail or "")
        except BaseException as error:  # noqa: BLE001: whatever it is, it is what the table says
            traceback.print_exc()
            self.line(feature, False, f"{type(error).__name__}: {error}"[:200])

    def done(self):
        sys.exit(1 if self.failed else 0)
