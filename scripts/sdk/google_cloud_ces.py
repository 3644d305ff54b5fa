"""google-cloud-ces's `bidi_run_session` against `agent-server`, over a plain channel: what its response stream held."""

import asyncio
import contextlib
import importlib.metadata

import grpc
from google.cloud import ces_v1
from google.cloud.ces_v1.services.session_service.transports import SessionServiceGrpcAsyncIOTransport
from google.protobuf import json_format

from harness import Report, Server, speech, talk

RATE = 16000
# The harness lets an answer last 1.5 s.
ANSWER = 1500 * 32
SESSION = "projects/p/locations/us/apps/shop/sessions/check"


class Session:
    """A session under way: `say()` in, `turn()` out."""

    def __init__(self, responses, messages):
        self.responses, self.messages = responses, messages

    async def say(self, **message):
        await self.messages.put(ces_v1.BidiSessionClientMessage(realtime_input=ces_v1.SessionInput(**message)))

    async def speak(self, name):
        await talk(lambda piece: self.say(audio=piece), speech(RATE, name), RATE, ms=40)

    async def half_close(self):
        """And all that still comes."""
        await self.messages.put(None)
        return [message async for message in self.responses]

    async def turn(self, done=lambda turn: False, turn=None):
        """To the end of the turn, or as soon as `done(turn)`."""
        turn = turn or Turn()
        async for message in self.responses:
            turn.take(message)
            if turn.completed or done(turn):
                return turn
        raise AssertionError(f"the stream ended in a turn: {vars(turn)}")


class Turn:
    def __init__(self):
        self.understood, self.text, self.audio, self.index, self.calls = [], "", 0, None, []
        self.completed = self.interrupted = False
        self.after_interruption = 0

    def take(self, message):
        kind = ces_v1.BidiSessionServerMessage.pb(message).WhichOneof("message_type")
        if kind == "recognition_result":
            self.understood.append(message.recognition_result.transcript)
        elif kind == "interruption_signal":
            self.interrupted = message.interruption_signal.barge_in
        elif kind == "session_output":
            output = message.session_output
            self.after_interruption += len(output.audio) if self.interrupted and output.turn_index == self.index else 0
            self.index = output.turn_index if not self.interrupted else self.index
            self.text += output.text
            self.audio += len(output.audio)
            self.calls.extend(output.tool_calls.tool_calls)
            self.completed |= output.turn_completed
        else:
            raise AssertionError(f"unexpected: {message}")


@contextlib.asynccontextmanager
async def session(server, encoding=ces_v1.AudioEncoding.LINEAR16, rate=RATE, **config):
    messages = asyncio.Queue()

    async def requests():
        audio = {"audio_encoding": encoding, "sample_rate_hertz": rate}
        yield ces_v1.BidiSessionClientMessage(
            config=ces_v1.SessionConfig(session=SESSION, input_audio_config=audio, output_audio_config=audio, **config)
        )
        while (message := await messages.get()) is not None:
            yield message

    async with grpc.aio.insecure_channel(server.address) as channel:
        client = ces_v1.SessionServiceAsyncClient(transport=SessionServiceGrpcAsyncIOTransport(channel=channel))
        yield Session(await client.bidi_run_session(requests=requests()), messages)


async def audio_turns(server):
    async with session(server) as one:
        for index, name in enumerate(("weather", "order"), 1):
            turn, _ = await asyncio.gather(one.turn(), one.speak(name))
            assert turn.index == index and turn.audio == ANSWER, vars(turn)
            assert len(turn.understood) > 1 and turn.understood[-1].startswith(turn.understood[0]), turn.understood
            assert len(turn.text.split()) == 3, turn.text
        assert await one.half_close() == []
    return f"{turn.audio} bytes of audio; understood {turn.understood[-1]!r}"


async def telephone(server):
    async with session(server, ces_v1.AudioEncoding.MULAW, 8000) as one:
        await one.say(text="hello")
        turn = await one.turn()
        assert turn.audio == 12000, turn.audio
        await one.half_close()
    return f"{turn.audio} bytes of mu-law"


async def text_turn(server):
    async with session(server, enable_text_streaming=True) as one:
        await one.say(text="good", will_continue=True)
        await one.say(text="morning")
        turn = await one.turn()
        assert turn.audio == ANSWER and len(turn.text.split()) == 3, vars(turn)
        await one.say(event=ces_v1.Event(event="welcome"))
        assert (await one.turn()).index == 2
        await one.say(dtmf="1")
        assert (await one.turn()).index == 3
        await one.half_close()
    return turn.text


async def tool_call(server):
    async with session(server) as one:
        await one.say(variables={"tools": ["lookup"]})
        await one.say(text="please call lookup")
        turn = await one.turn(lambda turn: turn.calls)
        (call,) = turn.calls
        args = json_format.MessageToDict(ces_v1.ToolCall.pb(call).args)
        assert call.tool == "projects/p/locations/us/apps/shop/tools/lookup" and args["query"] == "please call lookup", call
        assert turn.audio == 0, turn.audio
        response = {"id": call.id, "tool": call.tool, "response": {"order": "on its way"}}
        await one.say(tool_responses={"tool_responses": [response]})
        await one.turn(turn=turn)
        assert turn.audio == ANSWER and turn.index == 1, vars(turn)
        await one.half_close()
    return str(args)


async def barge_in(server):
    async with session(server) as one:
        await one.say(text="talk")
        turn = await one.turn(lambda turn: turn.audio)
        speaking = asyncio.create_task(one.speak("stop"))
        await one.turn(lambda turn: turn.interrupted, turn)
        assert turn.interrupted and not turn.completed and turn.audio < ANSWER, vars(turn)
        before = turn.audio
        # What was said over it is answered, and nothing more comes of the old answer.
        await one.turn(turn=turn)
        await speaking
        assert turn.after_interruption == 0 and turn.audio == before + ANSWER, vars(turn)
        await one.half_close()
    return f"{before} bytes before it, 0 after it"


async def bad_input(server):
    try:
        async with session(server, rate=11025) as one:
            await one.turn()
        raise AssertionError("11025 Hz were taken")
    except Exception as error:
        assert "LINEAR16 at 11025 Hz" in str(error), error
        return str(error)[:120]


def settled(server, **expected):
    snapshot = server.settled()
    ended = {name: count for name, count in snapshot["ended"].items() if count}
    assert snapshot["active"] == 0 and snapshot["started"] == sum(ended.values()) and ended == expected, snapshot
    return str(ended)


report = Report("google-cloud-ces", importlib.metadata.version("google-cloud-ces"))
with Server() as server:
    for feature, check in [
        ("audio turns", audio_turns),
        ("telephone audio", telephone),
        ("text turns", text_turn),
        ("tool call", tool_call),
        ("barge-in", barge_in),
    ]:
        report.run(feature, check, server)
    report.run("clean close", lambda: settled(server, completed=5))
    report.run("bad input", bad_input, server)
report.done()
