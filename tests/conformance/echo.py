"""An echo server made of the production connection and listener, for test suites that need one.

It has the frame and message handling of every listener of DIEM, and none of the client protocol's limits of rate, which
a conformance suite exceeds on purpose. ``python -m tests.conformance.echo`` prints its port and serves until standard
input ends.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import uvloop
from websockets.http11 import Request

from diem.links.compression import SHARED_DEFLATE
from diem.links.edge_connection import is_utf8
from diem.links.listener import Listener, ServerConnection
from diem.process.listeners import bind
from diem.protocol.codes import Close

MAX_MESSAGE_BYTES: Final = 1024 * 1024


class EchoConnection(ServerConnection):
    """Sends every message back."""

    def __init__(self) -> None:
        super().__init__(subprotocols=(), max_size=MAX_MESSAGE_BYTES, extensions=SHARED_DEFLATE)

    def on_request(self, request: Request) -> None:
        self.upgrade(request)

    def on_text(self, data: bytes) -> None:
        """Send a text message back, or close with 1007 as ``EdgeConnection`` does."""
        if is_utf8(data):
            self.send_text(data)
        else:
            self.fail(Close.INVALID_DATA, "text must be UTF-8")

    def on_binary(self, data: bytes) -> None:
        """Send a binary message back; the production connections close with 1003."""
        self.send_binary(data)


@contextlib.contextmanager
def echo_server() -> Iterator[str]:
    """Run the server in a process of its own; yield its URL."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.echo"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield f"ws://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.stdin.close()
    assert server.returncode == 0


async def serve() -> None:
    """Serve on a free port, which is printed, until standard input ends."""
    listener = Listener((bind("127.0.0.1", 0),), EchoConnection)
    listener.start()
    print(listener.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    listener.stop()


if __name__ == "__main__":
    uvloop.run(serve())
