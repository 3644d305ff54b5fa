"""A voice agent of somebody else's, for load-driver to be tried on: it says back what it heard. It counts its sessions with the stock Prometheus client,
and it can count wrongly on purpose.

    agent.py [--port 9400] [--metrics-port 9401] [--leak 10] [--double 10] [--never 10] [--guests N]

--leak N      of every Nth abrupt end, the decrement is forgotten
--double N    of every Nth abrupt end, it is made twice
--never N     every Nth session is never added to `started` and to the gauge, but subtracted from the gauge
--guests N    so many other sessions come and go all the time

The wire: JSON over WebSocket at /talk. `{"op": "hello", "rate": 16000}` -> `{"op": "welcome", "session": ...}`; `{"op": "mic", "pcm": base64}` ->
after 300 ms of silence `{"op": "heard"}`, then the user's words in `{"op": "speak", "pcm": ...}` as fast as they are spoken, and `{"op": "spoken"}`.
Close code 1000 is a goodbye; every other end is abrupt.

It says where it listens in a line of JSON, and when it is told to end (SIGTERM, or the end of its standard input) what was true.
"""

import argparse
import asyncio
import base64
import json
import random
import signal
import sys
import uuid
from array import array

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, start_http_server
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

FRAME_MS = 20
LOUD = 500
PAUSE_FRAMES = 15
LONGEST_FRAMES = 500

registry = CollectorRegistry()
ProcessCollector(registry=registry)
ACTIVE = Gauge("voice_sessions_active", "Live sessions", registry=registry)
STARTED = Counter("voice_sessions_started", "Sessions that began", registry=registry)
ENDED = Counter("voice_sessions_ended", "Sessions that ended", ["reason"], registry=registry)


class Truth:
    """What is so, whatever the metrics say."""

    def __init__(self):
        self.live = self.started = self.ended = self.abrupt = 0
        self.leaked = self.doubled = self.never = 0


class Agent:
    def __init__(self, flags):
        self.flags = flags
        self.truth = Truth()

    def strikes(self, name, count):
        every = getattr(self.flags, name)
        return every > 0 and count % every == 0

    def begin(self):
        truth = self.truth
        truth.live += 1
        truth.started += 1
        if self.strikes("never", truth.started):
            truth.never += 1
            return
        STARTED.inc()
        ACTIVE.inc()

    def end(self, abrupt):
        truth = self.truth
        truth.live -= 1
        truth.ended += 1
        truth.abrupt += abrupt
        if abrupt and self.strikes("leak", truth.abrupt):
            truth.leaked += 1
            return
        twice = abrupt and self.strikes("double", truth.abrupt)
        truth.doubled += twice
        for _ in range(2 if twice else 1):
            ENDED.labels("abrupt" if abrupt else "goodbye").inc()
            ACTIVE.dec()

    async def session(self, socket):
        if socket.request.path != "/talk":
            await socket.close(4404, "sessions are at /talk")
            return
        self.begin()
        talk = None
        try:
            talk = Talk(socket)
            async for message in socket:
                talk.hear(json.loads(message))
        except ConnectionClosed:
            pass
        finally:
            if talk is not None:
                talk.stop()
            self.end(abrupt=socket.close_code != 1000)

    async def guest(self):
        """Somebody else's session, again and again."""
        while True:
            await asyncio.sleep(random.uniform(0, 2))
            STARTED.inc()
            ACTIVE.inc()
            await asyncio.sleep(random.uniform(0.5, 2))
            ENDED.labels("goodbye").inc()
            ACTIVE.dec()


class Talk:
    """One conversation: it listens for the end of a turn and says it back."""

    def __init__(self, socket):
        self.socket = socket
        self.heard = []
        self.still = 0
        self.answer = None

    def stop(self):
        if self.answer is not None:
            self.answer.cancel()

    def hear(self, message):
        match message.get("op"):
            case "hello":
                self.answer = asyncio.create_task(self.say({"op": "welcome", "session": uuid.uuid4().hex}))
            case "mic":
                self.listen(base64.b64decode(message["pcm"]))

    def listen(self, pcm):
        samples = array("h", pcm)
        loud = sum(abs(sample) for sample in samples[::8]) > LOUD * (len(samples) // 8)
        if loud:
            self.still = 0
            if len(self.heard) < LONGEST_FRAMES:
                self.heard.append(pcm)
        elif self.heard:
            self.still += 1
            if self.still == PAUSE_FRAMES:
                words, self.heard = self.heard, []
                self.stop()
                self.answer = asyncio.create_task(self.say_back(words))

    async def say_back(self, words):
        await self.say({"op": "heard", "text": f"{len(words) * FRAME_MS} ms"})
        for pcm in words:
            await self.say({"op": "speak", "pcm": base64.b64encode(pcm).decode()})
            await asyncio.sleep(FRAME_MS / 1000)
        await self.say({"op": "spoken"})

    async def say(self, message):
        try:
            await self.socket.send(json.dumps(message))
        except ConnectionClosed:
            pass


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=9400)
    parser.add_argument("--metrics-port", type=int, default=9401)
    for name in ["leak", "double", "never", "guests"]:
        parser.add_argument(f"--{name}", type=int, default=0)
    flags = parser.parse_args()
    agent = Agent(flags)
    for reason in ["goodbye", "abrupt"]:
        ENDED.labels(reason)
    metrics, _ = start_http_server(flags.metrics_port, addr="127.0.0.1", registry=registry)
    guests = [asyncio.create_task(agent.guest()) for _ in range(flags.guests)]
    # A silent peer is found by pings.
    async with serve(agent.session, "127.0.0.1", flags.port, ping_interval=2, ping_timeout=4, close_timeout=1) as server:
        port = server.sockets[0].getsockname()[1]
        print(json.dumps({"address": f"127.0.0.1:{port}", "metrics": metrics.server_port}), flush=True)
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, over.set)
        if not sys.stdin.isatty():
            loop.run_in_executor(None, lambda: (sys.stdin.read(), loop.call_soon_threadsafe(over.set)))
        await over.wait()
        for guest in guests:
            guest.cancel()
        print(json.dumps(vars(agent.truth)), flush=True)


asyncio.run(main())
