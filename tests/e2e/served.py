"""A real HTTP server for a file that changes: what an operator of a data source would run."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.ports import free_port


class Served:
    """A directory served over HTTP, with ETags; counts requests and answers of 304."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.url = f"http://127.0.0.1:{port}"
        self.requests = 0
        self.not_modified = 0

    def write(self, name: str, text: str) -> None:
        """Replace a file as a whole."""
        temporary = self.directory / f".{name}"
        temporary.write_text(text)
        temporary.replace(self.directory / name)

    async def get(self, request: Request) -> Response:
        self.requests += 1
        content = (self.directory / request.path_params["name"]).read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        if request.headers.get("If-None-Match") == etag:
            self.not_modified += 1
            return Response(status_code=304, headers={"ETag": etag})
        return Response(content, media_type="text/csv", headers={"ETag": etag})


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    directory.mkdir(exist_ok=True)
    port = free_port()
    files = Served(directory, port)
    app = Starlette(routes=[Route("/{name}", files.get)])
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off")
    )
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment] # signals are pytest's
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield files
    server.should_exit = True
    await task
    for listening in server.servers:
        listening.close()


def csv(*values: float) -> str:
    """An hourly series of one day."""
    lines = [f"2026-01-01T{hour:02d}:00:00Z,{value}" for hour, value in enumerate(values)]
    return "\n".join(["time,value", *lines, ""])
