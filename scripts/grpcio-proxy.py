"""A balancer made of stock gRPC C-core: takes streams, and sends each over a channel to several backends that balances by its service config.

Usage: grpcio-proxy.py SERVICE_CONFIG_FILE BACKEND,BACKEND..      prints {"address": ..} when ready; ends with its standard input
"""

import asyncio
import json
import sys

import grpc

# Sessions are small messages and many streams.
OPTIONS = [("grpc.max_concurrent_streams", 4096), ("grpc.max_receive_message_length", 16 * 1024 * 1024)]
HOP_BY_HOP = ("grpc-", "user-agent", "te", "content-type", ":")


def forwarded(metadata):
    return tuple((key, value) for key, value in metadata or () if not key.startswith(HOP_BY_HOP))


class Forward(grpc.GenericRpcHandler):
    """Any method, as a stream of bytes in both directions."""

    def __init__(self, channel):
        self.channel = channel

    def service(self, details):
        async def stream(requests, context):
            call = self.channel.stream_stream(details.method)(requests, metadata=forwarded(details.invocation_metadata))
            try:
                async for message in call:
                    yield message
                context.set_trailing_metadata(forwarded(await call.trailing_metadata()))
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details(), forwarded(error.trailing_metadata()))
            finally:
                # A client that has gone takes its backend's stream along; after an end this does nothing.
                call.cancel()

        return grpc.stream_stream_rpc_method_handler(stream)


async def main(config, backends):
    with open(config, encoding="utf-8") as file:
        text = json.dumps(json.load(file))
    options = [*OPTIONS, ("grpc.service_config", text), ("grpc.service_config_disable_resolution", 1)]
    # Without a name the list of addresses is the `:authority`, which is none: strict servers reset every stream.
    options.append(("grpc.default_authority", "agents"))
    async with grpc.aio.insecure_channel(f"ipv4:{backends}", options=options) as channel:
        channel.get_state(try_to_connect=True)
        await asyncio.wait_for(channel.channel_ready(), timeout=20)
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((Forward(channel),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(json.dumps({"address": f"127.0.0.1:{port}"}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await server.stop(grace=1)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
