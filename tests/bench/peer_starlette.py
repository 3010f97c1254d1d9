"""A peer: Starlette on uvicorn and uvloop, deflate off. Payloads arrive on standard input."""

import asyncio
import sys
from collections.abc import Sequence

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.bench.stdin import lines
from tests.support.commandline import parser


async def run(port: int) -> None:
    sockets: set[WebSocket] = set()

    async def serve_one(socket: WebSocket) -> None:
        await socket.accept()
        sockets.add(socket)
        try:
            while True:
                await socket.receive_text()
        except WebSocketDisconnect:
            pass
        finally:
            sockets.discard(socket)

    async def publish() -> None:
        async for line in lines():
            if line:
                for socket in sockets:
                    await socket.send_text(line)
        server.should_exit = True

    app = Starlette(routes=[WebSocketRoute("/ws", serve_one)])
    config = uvicorn.Config(
        app, port=port, ws_per_message_deflate=False, ws_ping_interval=None, log_level="warning", lifespan="off"
    )
    server = uvicorn.Server(config)
    publishing = asyncio.create_task(publish())
    await server.serve()
    publishing.cancel()


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser(__spec__, __doc__)
    arguments.add_argument("port", type=int, help="where it listens")
    port = arguments.parse_args(argv).port
    uvloop.run(run(port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
