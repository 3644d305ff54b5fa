"""Health, reflection and one session, as a stock gRPC client sees them. Exits with 1 at the first thing that is not as it should be."""

import json
import os
import pathlib
import queue
import subprocess
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "voiceagent.v1.VoiceAgent"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1.ServerReflection"
TIMEOUT_S = 20


def check(condition, what):
    print(("ok    " if condition else "FAIL  ") + what, flush=True)
    if not condition:
        sys.exit(1)


def start_server():
    target = os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).resolve().parent.parent / "target")
    flags = ["serve", "--listen=127.0.0.1:0", "--think=20ms", "--stop-on-stdin-eof"]
    binary = pathlib.Path(target) / "debug" / "agent-server"
    server = subprocess.Popen([binary, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    if not line:
        sys.exit(f"the server did not start: exit code {server.wait()}")
    return server, json.loads(line)["address"]


def check_health(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", SERVICE):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S)
        check(answer.status == health_pb2.HealthCheckResponse.SERVING, f"health of {name!r} is SERVING")
    code = grpc.StatusCode.OK
    try:
        stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        code = error.code()
    check(code == grpc.StatusCode.NOT_FOUND, "health of an unknown service is NOT_FOUND")


def check_reflection_v1(channel):
    # The stock package knows v1alpha alone; v1 is the same messages under another name.
    ask = channel.stream_stream(
        f"/{REFLECTION}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]
    listed, described = list(ask(iter(requests), timeout=TIMEOUT_S))
    services = [service.name for service in listed.list_services_response.service]
    check(SERVICE in services and HEALTH in services, f"reflection v1 lists {', '.join(sorted(services))}")
    files = [descriptor_pb2.FileDescriptorProto.FromString(f) for f in described.file_descriptor_response.file_descriptor_proto]
    methods = [f"{f.package}.{s.name}/{m.name}" for f in files for s in f.service for m in s.method]
    check(f"{SERVICE}/Session" in methods, f"reflection v1 describes {', '.join(methods)}")


def check_session(channel, database):
    pool = descriptor_pool.DescriptorPool(database)
    method = pool.FindServiceByName(SERVICE).FindMethodByName("Session")
    check(method is not None, "reflection describes the Session method")
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)

    outbound = queue.Queue()
    session = channel.stream_stream(
        f"/{SERVICE}/Session", request_serializer=request.SerializeToString, response_deserializer=response.FromString
    )
    call = session(iter(outbound.get, None), timeout=TIMEOUT_S)

    def send(**event):
        outbound.put(request(**event))

    def wait_for(kind):
        for message in call:
            got = message.WhichOneof("event")
            if got == "error":
                check(False, f"no error: {message.error.message}")
            if got == kind:
                return getattr(message, kind)
        return check(False, f"the server sent {kind}")

    send(start={"client_ref": "check-grpc", "encoding": "AUDIO_ENCODING_PCM16", "sample_rate": 16000})
    accepted = wait_for("accepted")
    check(bool(accepted.session_id), f"the session was accepted as {accepted.session_id} by {accepted.backend_id}")
    send(hint={"response_ms": 100, "text": "hello"})
    send(speech={"kind": "KIND_STARTED"})
    for sequence in range(5):
        send(audio={"sequence": sequence, "timestamp_us": sequence * 20_000, "payload": bytes(640)})
    send(speech={"kind": "KIND_STOPPED", "timestamp_us": 100_000})
    wait_for("response_start")
    audio = wait_for("audio")
    check(len(audio.payload) == 640, "the agent answers with audio frames of 20 ms")
    done = wait_for("response_end")
    check(done.frames == 5, "the answer is as long as asked for")
    send(end={"reason": "checked"})
    ended = wait_for("ended")
    check(ended.frames_in == 5 and ended.frames_out == 5, "both sides counted the same frames")
    check(list(call) == [] and call.code() == grpc.StatusCode.OK, "the stream closed with OK")
    outbound.put(None)


def main():
    server, address = (None, sys.argv[1]) if len(sys.argv) > 1 else start_server()
    try:
        with grpc.insecure_channel(address) as channel:
            check_health(channel)
            database = ProtoReflectionDescriptorDatabase(channel)
            services = list(database.get_services())
            check(SERVICE in services and HEALTH in services, f"reflection v1alpha lists {', '.join(sorted(services))}")
            check_reflection_v1(channel)
            check_session(channel, database)
    finally:
        if server:
            server.stdin.close()
            try:
                server.wait(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                server.kill()
    if server:
        check(server.returncode == 0, "the server exits with 0")


if __name__ == "__main__":
    main()
