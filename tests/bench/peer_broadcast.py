"""A peer: ``websockets.broadcast`` on uvloop, as its documentation has it. Payloads arrive on standard input."""

import logging
import sys

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve

from tests.bench.stdin import lines


async def main(port: int) -> None:
    connections: set[ServerConnection] = set()

    async def serve_one(connection: ServerConnection) -> None:
        connections.add(connection)
        try:
            async for _ in connection:
                pass
        finally:
            connections.discard(connection)

    async with serve(serve_one, "127.0.0.1", port, compression=None, ping_interval=None, backlog=2048):
        async for line in lines():
            if line:
                broadcast(connections, line)


if __name__ == "__main__":
    # At the end all connections are cut, which it would report one by one.
    logging.getLogger("websockets.server").setLevel(logging.CRITICAL)
    uvloop.run(main(int(sys.argv[1])))
