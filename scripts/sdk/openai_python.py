"""The `openai` package (Python) against agent-server: the client of the current API, of its first version, and the one without asyncio.

Every event is also checked against the package's own types: the client itself takes whatever comes.
"""

import asyncio
import base64
import json
import time

import openai
import pydantic
from harness import Report, Server, frames, speech, talk
from openai.types.beta.realtime import RealtimeServerEvent as BetaEvent
from openai.types.realtime import RealtimeServerEvent

RATE = 24_000
MODEL = "gpt-realtime"
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
GA = pydantic.TypeAdapter(RealtimeServerEvent)
BETA = pydantic.TypeAdapter(BetaEvent)


def b64(pcm):
    return base64.b64encode(pcm).decode()


def audio(events):
    """The bytes of all audio deltas."""
    return b"".join(base64.b64decode(e.delta) for e in events if e.type in ("response.output_audio.delta", "response.audio.delta"))


def said(events):
    names = ("response.output_audio_transcript.delta", "response.audio_transcript.delta")
    return "".join(e.delta for e in events if e.type in names)


def of(events, kind):
    return [e for e in events if e.type == kind]


def one(events, kind):
    all_of = of(events, kind)
    assert len(all_of) == 1, f"{len(all_of)} {kind} in {[e.type for e in events]}"
    return all_of[0]


class Ears:
    """What a connection hears, each event checked against the types of the API."""

    def __init__(self, connection, types):
        self.connection, self.types = connection, types

    def read(self, data):
        self.types.validate_json(data)
        return self.connection.parse_event(data)

    async def until(self, kind, errors=False):
        """Every event up to one of this type; an error is a failure unless it is wanted."""
        events = []
        while True:
            event = self.read(await self.connection.recv_bytes())
            assert errors or event.type != "error", event
            events.append(event)
            if event.type == kind:
                return events

    async def error(self, code):
        event = (await self.until("error", errors=True))[-1]
        assert event.error.code == code, event
        return event.error

    async def speak(self, pcm):
        await talk(lambda piece: self.connection.input_audio_buffer.append(audio=b64(piece)), pcm, RATE)


class AsyncCheck:
    """Opens a connection for a check, closes it in order, and looks at the server's books."""

    def __init__(self, server, beta=False):
        self.server, self.beta = server, beta
        self.client = openai.AsyncOpenAI(
            api_key="none", base_url=f"http://{server.address}/v1", websocket_base_url=f"ws://{server.address}/v1"
        )

    def __call__(self, check, *args):
        async def run():
            api = self.client.beta.realtime if self.beta else self.client.realtime
            before = self.server.snapshot()["ended"]["completed"]
            async with api.connect(model=MODEL) as connection:
                ears = Ears(connection, BETA if self.beta else GA)
                created = (await ears.until("session.created"))[0]
                assert created.session.id and created.session.model == MODEL, created
                detail = await check(connection, ears, *args)
            settled = self.server.settled()
            assert settled["ended"]["completed"] == before + 1 and settled["active"] == 0, settled
            return detail

        return run


def heard_in_full(events):
    """A spoken answer, whole: gives its seconds."""
    done = one(events, "response.done").response
    pcm = audio(events)
    assert done.status == "completed" and len(pcm) > 0, done
    assert done.output[0].content[0].transcript == said(events) != "", done
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens > 0, done.usage
    return len(pcm) / 2 / RATE


async def turns(connection, ears, session):
    await connection.session.update(session=session)
    updated = (await ears.until("session.updated"))[-1].session
    assert updated.instructions == "Be brief.", updated
    seconds = 0
    for clip in ("weather", "order", "weather"):
        speaking = asyncio.create_task(ears.speak(speech(RATE, clip)))
        events = await ears.until("response.done")
        await speaking
        assert of(events, "input_audio_buffer.speech_started") and of(events, "input_audio_buffer.speech_stopped"), events
        heard = one(events, "conversation.item.input_audio_transcription.completed")
        assert heard.transcript and heard.item_id == one(events, "input_audio_buffer.committed").item_id, heard
        seconds += heard_in_full(events)
    return f"3 turns, {seconds:.1f} s of audio, transcripts of both sides"


async def turns_ga(connection, ears):
    return await turns(connection, ears, {
        "type": "realtime", "instructions": "Be brief.",
        "audio": {"input": {"transcription": {"model": "gpt-4o-transcribe"}, "turn_detection": {"type": "server_vad", "silence_duration_ms": 700}}},
    })  # fmt: skip


async def turns_beta(connection, ears):
    return await turns(connection, ears, {
        "instructions": "Be brief.", "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 700},
    })  # fmt: skip


async def by_hand(connection, ears, off):
    await connection.session.update(session=off)
    await ears.until("session.updated")
    await ears.speak(speech(RATE))
    await connection.input_audio_buffer.commit()
    await ears.until("input_audio_buffer.committed")
    await connection.response.create(response={"metadata": {"turn": "one"}})
    events = await ears.until("response.done")
    for event in (one(events, "response.created"), one(events, "response.done")):
        assert event.response.metadata == {"turn": "one"}, event
    return f"commit, response.create, metadata echoed, {heard_in_full(events):.1f} s of audio"


async def text(connection, ears, name):
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello?"}]}
    await connection.conversation.item.create(item=item)
    added = (await ears.until("conversation.item.created" if name == "modalities" else "conversation.item.added"))[-1]
    assert added.item.content[0].text == "Hello?", added
    await connection.response.create(response={name: ["text"]})
    events = await ears.until("response.done")
    kind = "response.text.delta" if name == "modalities" else "response.output_text.delta"
    words = "".join(e.delta for e in of(events, kind))
    done = one(events, "response.done").response
    assert words and not audio(events) and done.output[0].content[0].text == words, done
    return f"{len(words.split())} words and no audio"


async def tool(connection, ears, by_voice):
    await connection.session.update(session={**({} if ears.types is BETA else {"type": "realtime"}), "tools": [TOOL]})
    updated = (await ears.until("session.updated"))[-1]
    assert updated.session.tools[0].name == "get_weather", updated
    if by_voice:
        choice = {"type": "realtime", "tool_choice": {"type": "function", "name": "get_weather"}}
        await connection.session.update(session=choice)
        await ears.until("session.updated")
        await ears.speak(speech(RATE))
    else:
        await connection.response.create(response={"tool_choice": "required"})
    events = await ears.until("response.done")
    arguments = one(events, "response.function_call_arguments.done")
    call = one(events, "response.output_item.done").item
    assert call.type == "function_call" and call.name == "get_weather" and call.status == "completed", call
    assert "query" in json.loads(arguments.arguments) and arguments.arguments == call.arguments, arguments
    assert "".join(e.delta for e in of(events, "response.function_call_arguments.delta")) == call.arguments
    output = {"type": "function_call_output", "call_id": call.call_id, "output": json.dumps({"sky": "blue"})}
    await connection.conversation.item.create(item=output)
    await connection.response.create(response={"tool_choice": "auto"})
    events = await ears.until("response.done")
    return f"arguments {call.arguments}, then {heard_in_full(events):.1f} s of audio"


async def barge_in(connection, ears):
    await ears.speak(speech(RATE))
    events = await ears.until("response.output_audio.delta" if ears.types is GA else "response.audio.delta")
    old = events[-1]
    speaking = asyncio.create_task(ears.speak(speech(RATE)))
    events += await ears.until("response.done")
    stopped = events[-1].response
    assert stopped.status == "cancelled" and stopped.status_details.reason == "turn_detected", stopped
    assert of(events, "input_audio_buffer.speech_started"), events
    played = len(audio(events)) // 2 * 1000 // RATE - 20
    await connection.conversation.item.truncate(item_id=old.item_id, content_index=0, audio_end_ms=played)
    events = await ears.until("conversation.item.truncated")
    assert events[-1].audio_end_ms == played
    events += await ears.until("response.done")
    await speaking
    assert not [e for e in events if getattr(e, "response_id", None) == old.response_id and "audio" in e.type], "the old answer goes on"
    heard_in_full(events)
    return f"stopped after {played} ms, truncated, nothing of it later, next answer whole"


async def cancel(connection, ears):
    await connection.response.create()
    response = (await ears.until("response.output_audio.delta"))[-1]
    await connection.response.cancel()
    events = await ears.until("response.done")
    assert events[-1].response.id == response.response_id and events[-1].response.status_details.reason == "client_cancelled", events[-1]
    await connection.response.cancel(event_id="again")
    error = await ears.error("response_cancel_not_active")
    assert error.event_id == "again", error
    return "stopped at once; a second cancel is an error and no more"


async def errors(connection, ears):
    await connection.input_audio_buffer.commit(event_id="empty")
    assert (await ears.error("input_audio_buffer_commit_empty")).event_id == "empty"
    await connection.conversation.item.delete(item_id="none")
    await ears.error("item_delete_invalid_item_id")
    await connection.send({"type": "no.such.event"})
    assert (await ears.error("invalid_value")).param == "type"
    await connection.input_audio_buffer.append(audio="!")
    assert (await ears.error("invalid_value")).param == "audio"
    await connection.response.create()
    created = (await ears.until("response.created"))[-1]
    await connection.response.create()
    assert created.response.id in (await ears.error("conversation_already_has_active_response")).message
    done = (await ears.until("response.done"))[-1]
    assert done.response.id == created.response.id and done.response.status == "completed"
    item = done.response.output[0]
    await connection.conversation.item.truncate(item_id=item.id, content_index=0, audio_end_ms=10**6)
    await ears.error("invalid_value")
    await connection.conversation.item.retrieve(item_id=item.id)
    assert (await ears.until("conversation.item.retrieved"))[-1].item.id == item.id
    return "7 errors, the session lives"


def without_asyncio(server):
    client = openai.OpenAI(api_key="none", base_url=f"http://{server.address}/v1", websocket_base_url=f"ws://{server.address}/v1")
    before = server.snapshot()["ended"]["completed"]
    with client.realtime.connect(model=MODEL) as connection:

        def until(kind):
            events = []
            while not events or events[-1].type != kind:
                data = connection.recv_bytes()
                GA.validate_json(data)
                events.append(connection.parse_event(data))
                assert events[-1].type != "error", events[-1]
            return events

        until("session.created")
        connection.session.update(session={"type": "realtime", "tools": [TOOL]})
        until("session.updated")
        start = time.monotonic()
        for n, piece in enumerate(frames(speech(RATE), RATE)):
            time.sleep(max(0.0, start + n * 0.02 - time.monotonic()))
            connection.input_audio_buffer.append(audio=b64(piece))
        seconds = heard_in_full(until("response.done"))
        connection.response.create(response={"tool_choice": "required"})
        call = one(until("response.done"), "response.output_item.done").item
        json.loads(call.arguments)
        connection.conversation.item.create(item={"type": "function_call_output", "call_id": call.call_id, "output": "{}"})
        connection.response.create(response={"metadata": {"after": "tool"}})
        events = until("response.done")
        assert one(events, "response.created").response.metadata == {"after": "tool"}
        seconds += heard_in_full(events)
        connection.response.create()
        until("response.output_audio.delta")
        connection.response.cancel()
        assert until("response.done")[-1].response.status == "cancelled"
    settled = server.settled()
    assert settled["ended"]["completed"] == before + 1, settled
    return f"turn, tool, cancel, {seconds:.1f} s of audio"


def books(server):
    snapshot = server.settled()
    assert snapshot["active"] == 0 and snapshot["started"] == sum(snapshot["ended"].values()) == snapshot["ended"]["completed"], snapshot
    return f"{snapshot['started']} sessions, all completed"


def main():
    with Server() as server:
        ga, beta = AsyncCheck(server), AsyncCheck(server, beta=True)
        report = Report("openai (Python)", openai.__version__)
        report.run("audio turns", ga(turns_ga))
        report.run("manual turn", ga(by_hand, {"type": "realtime", "audio": {"input": {"turn_detection": None}}}))
        report.run("text turns", ga(text, "output_modalities"))
        report.run("tool call", ga(tool, False))
        report.run("tool call after speech", ga(tool, True))
        report.run("barge-in by speech, truncate", ga(barge_in))
        report.run("response.cancel", ga(cancel))
        report.run("errors", ga(errors))
        report.run("beta: audio turns", beta(turns_beta))
        report.run("beta: manual turn", beta(by_hand, {"turn_detection": None}))
        report.run("beta: text turn", beta(text, "modalities"))
        report.run("beta: tool call", beta(tool, False))
        report.run("beta: barge-in by speech, truncate", beta(barge_in))
        report.run("sync client", without_asyncio, server)
        report.run("counters", books, server)
        report.done()


if __name__ == "__main__":
    main()
