"""A peer: ``websockets.broadcast`` on uvloop, as in its documentation. Payloads arrive on standard input."""

import logging
import sys
from collections.abc import Sequence

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve

from tests.bench.stdin import lines
from tests.support.commandline import parser


async def run(port: int) -> None:
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


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser(__spec__, __doc__)
    arguments.add_argument("port", type=int, help="where it listens")
    port = arguments.parse_args(argv).port
    # At the end all connections are cut, which it would report one by one.
    logging.getLogger("websockets.server").setLevel(logging.CRITICAL)
    uvloop.run(run(port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
