"""A real voice bot that needs no network: Pipecat with its own Silero VAD and smart-turn models, pocketsphinx, a scripted model, espeak-ng.

`/ws` speaks Twilio Media Streams, `/ws-client` Pipecat's protobuf frames. `python bot.py [PORT]`; it says `listening` when it is there.
"""

import asyncio
import pathlib
import sys
import wave
from io import BytesIO

import pocketsphinx
import uvicorn
from fastapi import FastAPI, WebSocket
from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import (
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.services.settings import STTSettings, TTSSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.utils.time import time_now_iso8601
from pipecat.workers.runner import WorkerRunner

RATE = 16_000
GRAMMAR = str(pathlib.Path(__file__).with_name("commands.jsgf"))
# What it says, by a word of what it understood. Long enough to be interrupted.
ANSWERS = {
    "weather": "Tomorrow will be sunny in the morning, with some clouds in the afternoon, and a light wind from the west.",
    "order": "Certainly. I have put that into your basket, and it will be delivered by this evening, between six and eight.",
    "stop": "All right, I will stop.",
    "": "I am sorry, I did not understand that. Please say it again.",
}


class Sphinx(SegmentedSTTService):
    """One utterance at a time, by a small grammar."""

    def __init__(self):
        super().__init__(sample_rate=RATE, settings=STTSettings(model="pocketsphinx", language=None))
        self.decoder = pocketsphinx.Decoder(samprate=RATE, jsgf=GRAMMAR, loglevel="FATAL")

    @property
    def wants_wav_segments(self):
        return False

    def decode(self, audio):
        self.decoder.start_utt()
        self.decoder.process_raw(audio, full_utt=True)
        self.decoder.end_utt()
        best = self.decoder.hyp()
        return best.hypstr if best else ""

    async def run_stt(self, audio):
        text = await asyncio.to_thread(self.decode, audio)
        yield TranscriptionFrame(text or "hello", "user", time_now_iso8601())


class Script(FrameProcessor):
    """Stands where the language model would."""

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        said = str(frame.context.messages[-1].get("content", ""))
        answer = next(answer for word, answer in ANSWERS.items() if word in said)
        await self.push_frame(LLMFullResponseStartFrame())
        await self.push_frame(LLMTextFrame(answer))
        await self.push_frame(LLMFullResponseEndFrame())


class Espeak(TTSService):
    """espeak-ng, a process for each sentence."""

    def __init__(self):
        super().__init__(sample_rate=RATE, push_start_frame=True, push_stop_frames=True, settings=TTSSettings(model=None, voice="en", language=None))

    def can_generate_metrics(self):
        return True

    async def run_tts(self, text, context_id):
        espeak = await asyncio.create_subprocess_exec("espeak-ng", "--stdout", text, stdout=asyncio.subprocess.PIPE)
        spoken, _ = await espeak.communicate()
        with wave.open(BytesIO(spoken)) as clip:
            rate, samples = clip.getframerate(), clip.readframes(-1)

        async def pieces():
            for at in range(0, len(samples), 8_192):
                yield samples[at : at + 8_192]

        async for frame in self._stream_audio_frames_from_iterator(pieces(), in_sample_rate=rate, context_id=context_id):
            yield frame


app = FastAPI()


async def talk(socket, serializer):
    transport = FastAPIWebsocketTransport(
        websocket=socket,
        params=FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True, add_wav_header=False, serializer=serializer),
    )
    pair = LLMContextAggregatorPair(LLMContext(), user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer()))
    pipeline = Pipeline([transport.input(), Sphinx(), pair.user(), Script(), Espeak(), transport.output(), pair.assistant()])
    worker = PipelineWorker(pipeline, params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE))

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_):
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


@app.websocket("/ws")
async def twilio(socket: WebSocket):
    await socket.accept()
    _, call = await parse_telephony_websocket(socket)
    parameters = TwilioFrameSerializer.InputParams(auto_hang_up=False)
    await talk(socket, TwilioFrameSerializer(stream_sid=call["stream_id"], call_sid=call["call_id"], params=parameters))


@app.websocket("/ws-client")
async def protobuf(socket: WebSocket):
    await socket.accept()
    await talk(socket, ProtobufFrameSerializer())


async def serve(port):
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():
        await asyncio.sleep(0.05)
    if server.started:
        print(f"listening {server.servers[0].sockets[0].getsockname()[1]}", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
