"""pipecat's OpenAIRealtimeLLMService in a pipeline of its own: what the frames downstream of it hold."""

import asyncio
import importlib.metadata
import time

from harness import Report, Server, speech, talk
from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner

RATE = 24_000


class Listener(FrameProcessor):
    """Notes what the service says."""

    def __init__(self):
        super().__init__()
        self.frames = []

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        await self.push_frame(frame, direction)

    def of(self, kind):
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def audio(self):
        """Bytes of audio of each answer."""
        answers = [0]
        for frame in self.frames:
            if isinstance(frame, TTSAudioRawFrame):
                answers[-1] += len(frame.audio)
            elif isinstance(frame, TTSStoppedFrame) and answers[-1]:
                answers.append(0)
        return [count for count in answers if count]


class Bot:
    """A pipeline that runs, and its conversation."""

    def __init__(self, server, tools=None):
        properties = events.SessionProperties(
            instructions="Be brief.",
            audio=events.AudioConfiguration(input=events.AudioInput(transcription=events.InputAudioTranscription())),
        )
        self.llm = OpenAIRealtimeLLMService(
            api_key="unused",
            base_url=f"ws://{server.address}/v1/realtime",
            settings=OpenAIRealtimeLLMService.Settings(model="gpt-realtime", session_properties=properties),
        )
        self.context = LLMContext([{"role": "user", "content": "Say hello."}], **({"tools": tools} if tools else {}))
        pair = LLMContextAggregatorPair(self.context)
        # What was understood goes back to where the user's audio came from.
        self.understood, self.heard = Listener(), Listener()
        pipeline = Pipeline([pair.user(), self.understood, self.llm, self.heard, pair.assistant()])
        params = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE)
        self.worker = PipelineWorker(pipeline, params=params, idle_timeout_secs=None)

    async def __aenter__(self):
        self.runner = WorkerRunner(handle_sigint=False)
        await self.runner.add_workers(self.worker)
        self.running = asyncio.create_task(self.runner.run())
        # The context's first frame asks for an answer.
        await self.worker.queue_frame(LLMRunFrame())
        return self

    async def __aexit__(self, *_):
        await self.worker.queue_frame(EndFrame())
        await asyncio.wait_for(self.running, 15)

    async def say(self, clip="weather"):
        async def send(piece):
            await self.worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=RATE, num_channels=1))

        await talk(send, speech(RATE, clip), RATE)

    async def until(self, what, look, seconds=20):
        end = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < end, f"never: {what}; errors: {[frame.error for frame in self.heard.of(ErrorFrame)]}"
            await asyncio.sleep(0.01)
        return found

    def no_errors(self):
        errors = [frame.error for frame in self.heard.of(ErrorFrame)]
        assert not errors, errors


def settles(server):
    """One session was made, and it was completed."""
    snapshot = server.settled()
    ended = snapshot["ended"]
    exact = snapshot["active"] == 0 and snapshot["started"] == sum(ended.values()) == ended["completed"] == 1
    assert exact, f"one session was made, and the counters say {snapshot}"
    return "1 completed"


async def audio_turn():
    with Server() as server:
        async with Bot(server) as bot:
            await bot.until("the greeting", lambda: len(bot.heard.of(TTSStoppedFrame)) == 1)
            await bot.say()
            await bot.until("the answer", lambda: len(bot.heard.of(TTSStoppedFrame)) == 2)
            await bot.until("what the user said", lambda: bot.understood.of(TranscriptionFrame))
        bot.no_errors()
        audio = bot.heard.audio()
        assert len(audio) == 2 and min(audio) > RATE, f"{audio} bytes of audio"
        assert bot.heard.of(TTSTextFrame), "an answer without transcript"
        assert bot.understood.of(TranscriptionFrame)[0].text, "nothing was understood"
        return f"{audio} bytes; {settles(server)}"


async def tool_call():
    called = []

    async def weather(params):
        called.append(dict(params.arguments))
        await params.result_callback({"weather": "sunny"})

    with Server("--tool-rate=1") as server:
        schema = FunctionSchema(name="weather", description="The weather.", properties={}, required=[])
        bot = Bot(server, ToolsSchema(standard_tools=[schema]))
        bot.llm.register_function("weather", weather)
        async with bot:
            await bot.until("the greeting", lambda: len(bot.heard.audio()) == 1 and bot.heard.of(TTSStoppedFrame))
            calls = len(called)
            await bot.say()
            await bot.until("the call", lambda: len(called) > calls)
            await bot.until("the answer", lambda: len(bot.heard.audio()) == 2)
            await bot.until("its end", lambda: len(bot.heard.of(TTSStoppedFrame)) >= 2)
        bot.no_errors()
        results = [message for message in bot.context.messages if message.get("role") == "tool"]
        assert len(results) == len(called), f"{len(called)} calls, and in the context {results}"
        assert "sunny" in results[-1]["content"], results
        return f"{called[-1]}; {settles(server)}"


async def barge_in():
    with Server("--response=constant(8s)") as server:
        async with Bot(server) as bot:
            await bot.until("half a second of the greeting", lambda: sum(bot.heard.audio()) > RATE)
            await bot.say("stop")
            await bot.until("the interruption", lambda: bot.heard.of(InterruptionFrame))
            before = sum(bot.heard.audio())
            await bot.until("the answer", lambda: sum(bot.heard.audio()) > before + RATE)
        bot.no_errors()
        kinds = [type(frame) for frame in bot.heard.frames]
        cut = kinds.index(InterruptionFrame)
        old = sum(len(frame.audio) for frame in bot.heard.frames[:cut] if isinstance(frame, TTSAudioRawFrame))
        assert old < 8 * 2 * RATE / 2, f"{old} bytes of an answer that was interrupted early"
        return f"cut after {old} bytes; {settles(server)}"


report = Report("pipecat_openai", importlib.metadata.version("pipecat-ai"))
report.run("audio turns", audio_turn)
report.run("tool call", tool_call)
report.run("barge-in", barge_in)
report.done()
