"""The ElevenLabs SDK's conversations against `agent-server`: what its callbacks and its audio interface were given."""

import importlib.metadata
import threading
import time

from elevenlabs.client import ElevenLabs
from elevenlabs.conversational_ai.conversation import AudioInterface, ClientTools, Conversation, ConversationInitiationData

from harness import Report, Server, frames, silence, speech

RATE = 16000
SECONDS = 30
# The harness lets each answer last 1.5 s.
ANSWER = 3 * RATE


class Telephone(AudioInterface):
    """A microphone that says what it is given, else silence, in real time; a loudspeaker that counts."""

    def __init__(self):
        self.heard = 0
        self.interrupted = []
        self.lines = []
        self.going = threading.Event()

    def start(self, input_callback):
        self.going.set()
        self.thread = threading.Thread(target=self.run, args=(input_callback,))
        self.thread.start()

    def run(self, say):
        due = time.monotonic()
        quiet = silence(RATE, 0.02)
        while self.going.is_set():
            due += 0.02
            time.sleep(max(0.0, due - time.monotonic()))
            say(self.lines.pop(0) if self.lines else quiet)

    def say(self, pcm):
        self.lines = frames(pcm, RATE)

    def stop(self):
        self.going.clear()
        self.thread.join(5)

    def output(self, audio):
        self.heard += len(audio)

    def interrupt(self):
        self.interrupted.append(self.heard)


class Call:
    """A conversation and all that its callbacks were told."""

    def __init__(self, server, tools=(), **override):
        self.said, self.understood, self.corrections, self.latencies, self.ends, self.calls = [], [], [], [], [], []
        client_tools = ClientTools()
        for name in tools:
            client_tools.register(name, self.tool)
        self.phone = Telephone()
        data = ConversationInitiationData(conversation_config_override=override, dynamic_variables={"client_tools": ",".join(tools)})
        self.conversation = Conversation(
            ElevenLabs(api_key="none", base_url=f"http://{server.address}"),
            "agent",
            requires_auth=False,
            audio_interface=self.phone,
            config=data,
            client_tools=client_tools,
            callback_agent_response=self.said.append,
            callback_agent_response_correction=lambda was, now: self.corrections.append((was, now)),
            callback_user_transcript=self.understood.append,
            callback_latency_measurement=self.latencies.append,
            callback_disconnect=self.ends.append,
        )

    def tool(self, parameters):
        self.calls.append(parameters)
        return "sunny"

    def __enter__(self):
        self.conversation.start_session()
        self.until(self.phone.going.is_set, "the session")
        return self

    def __exit__(self, *_):
        self.conversation.end_session()
        self.id = self.conversation.wait_for_session_end()

    def until(self, done, what):
        end = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < end, f"never: {what}"
            assert not self.ends, f"ended before {what}: {self.ends}"
            time.sleep(0.01)


def turns():
    with Server() as server:
        with Call(server) as call:
            for turn in (1, 2):
                call.phone.say(speech(RATE))
                call.until(lambda: len(call.understood) == turn, f"transcript {turn}")
                call.until(lambda: call.phone.heard == turn * ANSWER, f"audio of answer {turn}")
                assert len(call.said) == turn, call.said
            call.until(lambda: call.latencies, "a round trip")
        assert all(call.said) and all(call.understood), (call.said, call.understood)
        assert call.id and not call.phone.interrupted
        settled = server.settled()
        assert settled["active"] == 0 and settled["started"] == settled["ended"]["completed"] == 1, settled
        assert call.ends[0].reason == "user", call.ends
        return f"{call.phone.heard} bytes of audio in 2 turns, round trip {call.latencies[-1]} ms"


def greeting():
    with Server() as server:
        with Call(server, agent={"first_message": "Hello!"}) as call:
            call.until(lambda: call.phone.heard == ANSWER, "the greeting's audio")
        assert len(call.said) == 1 and not call.understood
        settled = server.settled()
        assert settled["active"] == 0 and settled["started"] == settled["ended"]["completed"] == 1, settled


def tool_call():
    with Server("--tool-rate=1") as server:
        with Call(server, tools=["weather"]) as call:
            call.phone.say(speech(RATE))
            call.until(lambda: call.phone.heard == ANSWER, "the answer after the tool's result")
        assert len(call.calls) == 1 and call.calls[0]["query"] and call.calls[0]["tool_call_id"], call.calls
        settled = server.settled()
        assert settled["active"] == 0 and settled["started"] == settled["ended"]["completed"] == 1, settled
        return f"called with {sorted(call.calls[0])}"


def text_turn():
    with Server() as server:
        with Call(server) as call:
            call.conversation.send_contextual_update("it rains")
            call.conversation.register_user_activity()
            call.conversation.send_user_message("how are you")
            call.until(lambda: call.phone.heard == ANSWER, "the answer's audio")
        settled = server.settled()
        assert settled["active"] == 0 and settled["started"] == settled["ended"]["completed"] == 1, settled


def barge_in():
    with Server() as server:
        with Call(server) as call:
            call.phone.say(speech(RATE))
            call.until(lambda: call.phone.heard > RATE // 2, "a quarter of a second of the answer")
            call.phone.say(speech(RATE, "stop"))
            call.until(lambda: call.phone.interrupted, "the interruption")
            call.until(lambda: call.corrections, "the correction")
            was, now = call.corrections[0]
            assert was == call.said[0] and was.startswith(now) and now != was, call.corrections
            heard = call.phone.heard
            call.until(lambda: len(call.said) == 2, "the answer to the interruption")
            # Nothing of the old answer after the interruption.
            assert call.phone.interrupted == [heard], (call.phone.interrupted, heard)
            call.until(lambda: call.phone.heard > heard, "its audio")
        settled = server.settled()
        assert settled["active"] == 0 and settled["started"] == settled["ended"]["completed"] == 1, settled
        return f"interrupted after {heard} bytes"


if __name__ == "__main__":
    report = Report("elevenlabs (Python)", importlib.metadata.version("elevenlabs"))
    report.run("audio turns", turns)
    report.run("greeting", greeting)
    report.run("tool call", tool_call)
    report.run("text turns", text_turn)
    report.run("barge-in", barge_in)
    report.done()
