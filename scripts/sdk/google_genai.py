"""google-genai's Live API against `agent-server`, over TLS (the SDK takes nothing else): what its sessions and messages held."""

import asyncio
import contextlib
import importlib.metadata
import os
import pathlib
import tempfile

from google import genai
from google.genai import errors, types

from harness import Report, Server, speech, talk

RATE = 16000
MIME = "audio/pcm;rate=16000"
# The harness lets an answer last 1.5 s; the agent speaks PCM16 at 24 kHz.
ANSWER = 1500 * 48
LOOKUP = types.Tool(function_declarations=[types.FunctionDeclaration(name="lookup", description="looks an order up")])


class Turn:
    """What `session.receive()` gave, up to the end of a turn."""

    def __init__(self):
        self.audio, self.heard, self.said, self.text = 0, "", "", ""
        self.heard_finished = self.generation_complete = self.interrupted = self.turn_complete = False
        self.after_interruption = 0
        self.usage, self.calls, self.cancelled, self.handles = None, [], [], []

    def take(self, message):
        content = message.server_content
        if message.data:
            self.audio += len(message.data)
            if self.interrupted:
                self.after_interruption += len(message.data)
        if message.tool_call:
            self.calls.extend(message.tool_call.function_calls)
        if message.tool_call_cancellation:
            self.cancelled.extend(message.tool_call_cancellation.ids)
        if message.session_resumption_update:
            self.handles.append(message.session_resumption_update.new_handle)
        if message.usage_metadata:
            self.usage = message.usage_metadata
        if content is None:
            return
        for part in (content.model_turn.parts if content.model_turn else None) or []:
            self.text += part.text or ""
        if content.input_transcription:
            self.heard += content.input_transcription.text or ""
            self.heard_finished |= bool(content.input_transcription.finished)
        if content.output_transcription:
            self.said += content.output_transcription.text or ""
        self.generation_complete |= bool(content.generation_complete)
        self.interrupted |= bool(content.interrupted)
        self.turn_complete |= bool(content.turn_complete)


async def until(session, done=lambda turn: False, turn=None):
    """To the end of the turn, or as soon as `done(turn)`."""
    turn = turn or Turn()
    async for message in session.receive():
        turn.take(message)
        if done(turn):
            break
    return turn


def connect(**config):
    config.setdefault("response_modalities", ["AUDIO"])
    client = genai.Client(api_key="none", http_options={"base_url": BASE})
    return client.aio.live.connect(model="gemini-live", config=types.LiveConnectConfig(**config))


async def say(session, name="weather"):
    await talk(lambda piece: session.send_realtime_input(audio=types.Blob(data=piece, mime_type=MIME)), speech(RATE, name), RATE)


def completed(turn):
    assert turn.turn_complete and turn.generation_complete and not turn.interrupted, vars(turn)
    assert turn.usage and turn.usage.total_token_count > 0, turn.usage


async def audio_turns():
    async with connect(input_audio_transcription={}, output_audio_transcription={}) as session:
        for name in ("weather", "order"):
            turn, _ = await asyncio.gather(until(session), say(session, name))
            completed(turn)
            assert turn.audio == ANSWER, turn.audio
            assert turn.heard.split() and turn.heard_finished, turn.heard
            assert len(turn.said.split()) == 3, turn.said
    return f"{turn.audio} bytes of audio; heard {len(turn.heard.split())} words, said {turn.said!r}"


async def text_turn():
    async with connect() as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "hello"}]})
        turn = await until(session)
        completed(turn)
        assert turn.audio == ANSWER and not turn.heard and not turn.said, vars(turn)
    async with connect(response_modalities=["TEXT"]) as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "hello"}]})
        turn = await until(session)
        completed(turn)
        assert turn.audio == 0 and len(turn.text.split()) == 3, vars(turn)
    return turn.text


async def tool_call():
    async with connect(tools=[LOOKUP]) as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "please call lookup"}]})
        turn = await until(session, lambda turn: turn.calls)
        (call,) = turn.calls
        assert call.name == "lookup" and call.args["query"] == "please call lookup", call
        assert turn.audio == 0, turn.audio
        answer = types.FunctionResponse(id=call.id, name=call.name, response={"order": "on its way"})
        await session.send_tool_response(function_responses=[answer])
        completed(await until(session, turn=turn))
        assert turn.audio == ANSWER, turn.audio
    return str(call.args)


async def cancelled_tool_call():
    async with connect(tools=[LOOKUP]) as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "lookup"}]})
        turn = await until(session, lambda turn: turn.calls)
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "never mind"}]})
        await until(session, turn=turn)
        assert turn.cancelled == [turn.calls[0].id], turn.cancelled
        completed(turn)
    return turn.cancelled[0]


async def barge_in():
    async with connect() as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "talk"}]})
        turn = await until(session, lambda turn: turn.audio)
        await asyncio.gather(until(session, turn=turn), say(session, "stop"))
        assert turn.interrupted and turn.turn_complete and not turn.generation_complete, vars(turn)
        assert turn.audio < ANSWER and turn.after_interruption == 0, vars(turn)
        # What was said over it is answered.
        answer = await until(session)
        completed(answer)
        assert answer.audio == ANSWER, answer.audio
    return f"{turn.audio} bytes before it, 0 after it"


async def manual_activity():
    detection = {"automatic_activity_detection": {"disabled": True}}
    async with connect(realtime_input_config=detection, input_audio_transcription={}) as session:
        for _ in range(2):
            await session.send_realtime_input(activity_start=types.ActivityStart())
            await say(session)
            await session.send_realtime_input(activity_end=types.ActivityEnd())
            turn = await until(session)
            completed(turn)
            assert turn.audio == ANSWER and turn.heard_finished, vars(turn)
        # A marker interrupts.
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "talk"}]})
        turn = await until(session, lambda turn: turn.audio)
        await session.send_realtime_input(activity_start=types.ActivityStart())
        await until(session, turn=turn)
        assert turn.interrupted and turn.turn_complete and turn.after_interruption == 0, vars(turn)
    return "two turns, and an interruption"


async def resumption():
    async with connect(session_resumption=types.SessionResumptionConfig()) as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "hello"}]})
        turn = await until(session)
        # The newest comes after the end of the turn.
        turn = await until(session, lambda turn: len(turn.handles) > 1, turn)
    async with connect(session_resumption=types.SessionResumptionConfig(handle=turn.handles[-1])) as session:
        await session.send_client_content(turns={"role": "user", "parts": [{"text": "again"}]})
        completed(await until(session))
    try:
        async with connect(session_resumption=types.SessionResumptionConfig(handle="made-up")):
            raise AssertionError("a handle that was never issued was taken")
    except Exception as error:
        assert "handle was not issued here" in str(error), error
    return turn.handles[-1]


async def going_away():
    async with connect() as session:
        left, code = None, None
        with contextlib.suppress(asyncio.CancelledError):
            try:
                while True:
                    async for message in session.receive():
                        if message.go_away:
                            left = message.go_away.time_left
            except errors.APIError as error:
                code, reason = error.code, str(error)
    assert left and left.endswith("s") and float(left[:-1]) <= 0.3, left
    assert code == 1011 and "Deadline expired" in reason, (code, reason)
    return f"timeLeft {left}, then {code}"


async def bad_input():
    async with connect() as session:
        await session.send_realtime_input(audio=types.Blob(data=b"\0\0\0", mime_type=MIME))
        try:
            await until(session)
            raise AssertionError("half a sample was taken")
        except errors.APIError as error:
            assert error.code == 1007 and "whole samples" in str(error), error
            return str(error)[:120]


def settled(server, **expected):
    snapshot = server.settled()
    assert snapshot["active"] == 0, snapshot
    ended = {name: count for name, count in snapshot["ended"].items() if count}
    assert snapshot["started"] == sum(ended.values()) and ended == expected, snapshot
    return str(ended)


report = Report("google-genai", importlib.metadata.version("google-genai"))
with tempfile.TemporaryDirectory() as folder:
    certificate = str(pathlib.Path(folder) / "certificate.pem")
    os.environ["SSL_CERT_FILE"] = certificate
    tls = ("--tls-listen=127.0.0.1:0", f"--tls-self-signed={certificate}")
    with Server(*tls) as server:
        BASE = f"https://{server.ready['tls_address']}"
        for feature, check in [
            ("audio turns", audio_turns),
            ("text turns", text_turn),
            ("tool call", tool_call),
            ("tool call cancelled", cancelled_tool_call),
            ("barge-in", barge_in),
            ("manual activity", manual_activity),
            ("session resumption", resumption),
        ]:
            report.run(feature, check)
        report.run("clean close", lambda: settled(server, completed=9))
        report.run("bad input", bad_input)
    with Server(*tls, "--max-duration=3s") as server:
        BASE = f"https://{server.ready['tls_address']}"
        report.run("going away", going_away)
        report.run("going away: counters", lambda: settled(server, timed_out=1))
report.done()
