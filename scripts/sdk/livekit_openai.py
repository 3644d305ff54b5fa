"""livekit-plugins-openai's RealtimeModel, without a room: what its session's generations hold."""

import asyncio
import importlib.metadata
import json
import time

import aiohttp
from harness import Report, Server, speech, talk
from livekit import rtc
from livekit.agents import llm
from livekit.plugins import openai

RATE = 24_000


class Generation:
    """One answer, read to its end."""

    def __init__(self, event):
        self.response_id, self.wished = event.response_id, event.user_initiated
        self.calls, self.text, self.bytes, self.message = [], "", 0, None
        self.ended = None
        self.reading = asyncio.create_task(self.read(event))

    async def read(self, event):
        async def messages():
            async for message in event.message_stream:
                self.message = message.message_id
                await asyncio.gather(self.words(message), self.sound(message))

        async def calls():
            async for call in event.function_stream:
                self.calls.append(call)

        await asyncio.gather(messages(), calls())
        self.ended = time.monotonic()

    async def words(self, message):
        async for text in message.text_stream:
            self.text += text

    async def sound(self, message):
        async for frame in message.audio_stream:
            self.bytes += len(frame.data.tobytes())


class Talk:
    """A session of a model, and what it saw."""

    def __init__(self, server):
        self.server = server

    async def __aenter__(self):
        self.http = aiohttp.ClientSession()
        self.model = openai.realtime.RealtimeModel(
            model="gpt-realtime", api_key="unused", base_url=f"http://{self.server.address}/v1", http_session=self.http
        )
        self.session = self.model.session()
        self.generations, self.understood, self.speech, self.errors, self.raw = [], [], [], [], []
        self.session.on("generation_created", lambda event: self.generations.append(Generation(event)))
        self.session.on("input_audio_transcription_completed", self.understood.append)
        self.session.on("input_speech_started", lambda _: self.speech.append(time.monotonic()))
        self.session.on("error", lambda event: self.errors.append(str(event.error)))
        self.session.on("openai_server_event_received", self.raw.append)
        await self.until("the session", lambda: self.of("session.updated"))
        return self

    async def __aexit__(self, *_):
        await self.session.aclose()
        await self.model.aclose()
        await self.http.close()

    def of(self, kind):
        return [event for event in self.raw if event.get("type") == kind]

    async def say(self, clip="weather"):
        async def send(piece):
            self.session.push_audio(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))

        await talk(send, speech(RATE, clip), RATE)

    async def until(self, what, look, seconds=20):
        end = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < end, f"never: {what}; errors: {self.errors}"
            await asyncio.sleep(0.01)
        return found

    async def answer(self, number):
        """The answer of this number, from 1, once it is over."""
        await self.until(f"answer {number}", lambda: len(self.generations) >= number and self.generations[number - 1].ended)
        return self.generations[number - 1]


def settles(server):
    """One session was made, and it was completed."""
    snapshot = server.settled()
    ended = snapshot["ended"]
    exact = snapshot["active"] == 0 and snapshot["started"] == sum(ended.values()) == ended["completed"] == 1
    assert exact, f"one session was made, and the counters say {snapshot}"
    return "1 completed"


async def audio_turn():
    with Server() as server:
        async with Talk(server) as it:
            await it.say()
            answer = await it.answer(1)
            await it.until("what the user said", lambda: [event for event in it.understood if event.is_final])
            roles = [item.role for item in it.session.chat_ctx.items]
        assert not it.errors, it.errors
        assert answer.bytes > RATE and answer.text, f"{answer.bytes} bytes, {answer.text!r}"
        assert it.understood[-1].transcript and it.speech, "nothing was understood"
        assert roles == ["user", "assistant"], roles
        return f"{answer.bytes} bytes; {settles(server)}"


async def wished():
    with Server() as server:
        async with Talk(server) as it:
            # Its future is only done when the server echoes the metadata.
            event = await asyncio.wait_for(it.session.generate_reply(instructions="Say hello."), 10)
            assert event.user_initiated
            answer = await it.answer(1)
        assert not it.errors, it.errors
        assert answer.bytes > RATE, f"{answer.bytes} bytes"
        return f"{answer.bytes} bytes; {settles(server)}"


async def tool_call():
    @llm.function_tool(raw_schema={"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {}}})
    async def weather(raw_arguments: dict):
        return "sunny"

    with Server("--tool-rate=1") as server:
        async with Talk(server) as it:
            await it.session.update_tools([weather])
            await it.say()
            first = await it.answer(1)
            (call,) = first.calls
            arguments = json.loads(call.arguments)
            context = it.session.chat_ctx.copy()
            context.items.append(llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output="sunny", is_error=False))
            await it.session.update_chat_ctx(context)
            await asyncio.wait_for(it.session.generate_reply(), 10)
            answer = await it.answer(2)
        assert not it.errors, it.errors
        assert call.name == "weather" and isinstance(arguments, dict), call
        assert first.bytes == 0 and answer.bytes > RATE, f"{first.bytes} and {answer.bytes} bytes"
        return f"{arguments}; {settles(server)}"


async def barge_in():
    with Server("--response=constant(8s)") as server:
        async with Talk(server) as it:
            await it.say()
            await it.until("half a second of the answer", lambda: it.generations and it.generations[0].bytes > RATE)
            first, heard = it.generations[0], len(it.speech)
            await it.say("stop")
            await it.answer(1)
            assert len(it.speech) == heard + 1, f"speech was heard {len(it.speech)} times"
            it.session.truncate(message_id=first.message, modalities=["audio"], audio_end_ms=300)
            await it.until("what stays of it", lambda: it.of("conversation.item.truncated"))
            await it.until("the second answer", lambda: len(it.generations) == 2 and it.generations[1].bytes > RATE)
            done = [event["response"] for event in it.of("response.done")]
        assert not it.errors, it.errors
        assert done[0]["id"] == first.response_id and done[0]["status"] == "cancelled", done[0]
        assert first.bytes < 8 * 2 * RATE / 2, f"{first.bytes} bytes of an answer that was interrupted early"
        return f"cut after {first.bytes} bytes; {settles(server)}"


report = Report("livekit_openai", importlib.metadata.version("livekit-plugins-openai"))
report.run("audio turns", audio_turn)
report.run("answer asked for", wished)
report.run("tool call", tool_call)
report.run("barge-in", barge_in)
report.done()
