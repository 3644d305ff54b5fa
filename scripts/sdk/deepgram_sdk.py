"""The Deepgram SDK's voice agent against `agent-server`: the typed events that its own objects held."""

import asyncio
import importlib.metadata
import json
import time

from deepgram import AsyncDeepgramClient
from deepgram.agent.v1.types import (
    AgentV1AgentAudioDone,
    AgentV1AgentStartedSpeaking,
    AgentV1ConversationText,
    AgentV1FunctionCallRequest,
    AgentV1InjectAgentMessage,
    AgentV1InjectUserMessage,
    AgentV1SendFunctionCallResponse,
    AgentV1Settings,
    AgentV1SettingsAgentContext,
    AgentV1SettingsApplied,
    AgentV1SettingsAudio,
    AgentV1SettingsAudioInput,
    AgentV1SettingsAudioOutput,
    AgentV1UpdatePrompt,
    AgentV1UserStartedSpeaking,
    AgentV1Welcome,
)
from deepgram.core.events import EventType
from deepgram.environment import DeepgramClientEnvironment

from harness import Report, Server, frames, silence, speech

RATE = 16000
SECONDS = 30
# The harness lets each answer last 1.5 s.
ANSWER = 3 * RATE


def settings(**agent):
    return AgentV1Settings(
        audio=AgentV1SettingsAudio(
            input=AgentV1SettingsAudioInput(encoding="linear16", sample_rate=RATE),
            output=AgentV1SettingsAudioOutput(encoding="linear16", sample_rate=RATE, container="none"),
        ),
        agent=AgentV1SettingsAgentContext(
            **{
                "listen": {"provider": {"type": "deepgram", "version": "v1", "model": "nova-3"}},
                "think": {"provider": {"type": "open_ai", "model": "gpt-4o-mini"}, "functions": []},
                "speak": {"provider": {"type": "deepgram", "model": "aura-2-thalia-en"}},
                **agent,
            }
        ),
    )


class Call:
    """A conversation: a microphone that says what it is given, else silence, and all that the SDK emitted."""

    def __init__(self, server, **agent):
        at = f"ws://{server.address}"
        http = f"http://{server.address}"
        environment = DeepgramClientEnvironment(base=http, production=at, agent=at, agent_rest=http)
        self.client = AsyncDeepgramClient(api_key="none", environment=environment)
        self.settings = settings(**agent)
        self.events, self.errors, self.lines, self.heard = [], [], [], 0

    async def __aenter__(self):
        self.connecting = self.client.agent.v1.connect()
        self.socket = await self.connecting.__aenter__()
        self.socket.on(EventType.MESSAGE, self.take)
        self.socket.on(EventType.ERROR, self.errors.append)
        self.listening = asyncio.create_task(self.socket.start_listening())
        await self.socket.send_settings(self.settings)
        await self.until(lambda: self.of(AgentV1SettingsApplied), "the settings")
        self.speaking = asyncio.create_task(self.talk())
        return self

    async def __aexit__(self, *_):
        self.speaking.cancel()
        await self.connecting.__aexit__(None, None, None)
        await asyncio.wait_for(self.listening, 5)

    async def talk(self):
        due = time.monotonic()
        quiet = silence(RATE, 0.02)
        while True:
            due += 0.02
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self.socket.send_media(self.lines.pop(0) if self.lines else quiet)

    def say(self, pcm):
        self.lines = frames(pcm, RATE)

    def take(self, message):
        if isinstance(message, bytes):
            self.heard += len(message)
        self.events.append(message)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def texts(self, role):
        return [event.content for event in self.of(AgentV1ConversationText) if event.role == role]

    async def until(self, done, what):
        end = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < end, f"never: {what}; {[e for e in self.events if not isinstance(e, bytes)]}"
            assert not self.errors, f"{self.errors} before {what}"
            await asyncio.sleep(0.01)


def completed(server):
    settled = server.settled()
    assert settled["active"] == 0 and settled["started"] == settled["ended"]["completed"] == 1, settled


async def turns():
    with Server() as server:
        async with Call(server) as call:
            assert isinstance(call.events[0], AgentV1Welcome) and call.events[0].request_id
            for turn in (1, 2):
                call.say(speech(RATE))
                await call.until(lambda: len(call.of(AgentV1AgentAudioDone)) == turn, f"the end of answer {turn}")
                assert call.heard == turn * ANSWER, call.heard
            user, agent = call.texts("user"), call.texts("assistant")
            assert len(user) == len(agent) == 2 and all(user + agent), (user, agent)
            spoke = call.of(AgentV1AgentStartedSpeaking)
            assert len(spoke) == 2 and 0.0 < spoke[0].total_latency < 5.0, spoke
        assert not call.errors, call.errors
        completed(server)
        return f"{call.heard} bytes of audio in 2 turns, latency {spoke[0].total_latency} s"


async def greeting():
    with Server() as server:
        async with Call(server, greeting="Hello!") as call:
            await call.until(lambda: call.of(AgentV1AgentAudioDone), "the greeting")
            assert call.heard == ANSWER and not call.texts("user")
        completed(server)


async def tool_call():
    with Server("--tool-rate=1") as server:
        function = {"name": "weather", "description": "of a place", "parameters": {"type": "object", "properties": {}}}
        think = {"provider": {"type": "open_ai", "model": "gpt-4o-mini"}, "functions": [function]}
        async with Call(server, think=think) as call:
            call.say(speech(RATE))
            await call.until(lambda: call.of(AgentV1FunctionCallRequest), "the request")
            wanted = call.of(AgentV1FunctionCallRequest)[0].functions[0]
            assert wanted.name == "weather" and wanted.client_side and json.loads(wanted.arguments)["query"], wanted
            assert call.heard == 0
            await call.socket.send_function_call_response(AgentV1SendFunctionCallResponse(id=wanted.id, name=wanted.name, content="sunny"))
            await call.until(lambda: call.of(AgentV1AgentAudioDone), "the answer after the function's result")
            assert call.heard == ANSWER
        completed(server)
        return f"called with {wanted.arguments}"


async def messages():
    with Server() as server:
        async with Call(server) as call:
            await call.socket.send_keep_alive()
            await call.socket.send_update_prompt(AgentV1UpdatePrompt(prompt="be brief"))
            await call.until(lambda: any(type(e).__name__ == "AgentV1PromptUpdated" for e in call.events), "the prompt's update")
            await call.socket.send_inject_user_message(AgentV1InjectUserMessage(content="how are you"))
            await call.until(lambda: call.of(AgentV1AgentAudioDone), "the answer")
            assert call.texts("user") == ["how are you"]
            await call.socket.send_inject_agent_message(AgentV1InjectAgentMessage(message="still there?"))
            await call.until(lambda: len(call.of(AgentV1AgentAudioDone)) == 2, "what the agent was told to say")
            assert call.heard == 2 * ANSWER
        completed(server)


async def barge_in():
    with Server() as server:
        async with Call(server) as call:
            call.say(speech(RATE))
            await call.until(lambda: call.heard > RATE // 2, "a quarter of a second of the answer")
            call.say(speech(RATE, "stop"))
            await call.until(lambda: len(call.of(AgentV1UserStartedSpeaking)) == 2, "the interruption")
            heard = call.heard
            assert heard < ANSWER
            await call.until(lambda: len(call.of(AgentV1AgentStartedSpeaking)) == 2, "the answer to the interruption")
            kinds = [type(event) for event in call.events]
            first = kinds.index(AgentV1UserStartedSpeaking)
            second = kinds.index(AgentV1UserStartedSpeaking, first + 1)
            third = len(kinds) - 1 - kinds[::-1].index(AgentV1AgentStartedSpeaking)
            assert bytes not in kinds[second:third], "audio of the old answer after the interruption"
            await call.until(lambda: call.heard > heard, "its audio")
        completed(server)
        return f"interrupted after {heard} bytes"


if __name__ == "__main__":
    report = Report("deepgram-sdk (Python)", importlib.metadata.version("deepgram-sdk"))
    report.run("audio turns", turns)
    report.run("greeting", greeting)
    report.run("tool call", tool_call)
    report.run("messages", messages)
    report.run("barge-in", barge_in)
    report.done()
