"""The least that an HTTP answer costs in Python: a bare loop that finds the end of a request and writes fixed bytes.

It prints its port, and answers every request with the content of a file until its standard input ends.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import uvloop

from tests.support.commandline import parser


class FixedAnswer(asyncio.Protocol):
    """Answers each read that ends with an empty line."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n") and self._transport is not None:
            self._transport.write(self._answer)


async def serve(answer: bytes) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: FixedAnswer(answer), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the loop; return the exit code."""
    options = parser(__spec__, __doc__)
    options.add_argument("file", type=Path, help="the whole answer, with its head")
    uvloop.run(serve(options.parse_args(argv).file.read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
