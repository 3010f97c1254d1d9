"""Clients of a running `diem up`, and the commands that a person gives meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from diem.client import Event, UpdatesClient
from tests.integration.deploy.running import Running, diem, fine
from tests.support.patience import PATIENCE_S, until

NAME = "/my/endpoint"
DECLARED = ("--type", "csv", "--unit", "MW", "--resolution", "PT1H")


class Client:
    """A client that records all events."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    @property
    def closed(self) -> list[int | None]:
        return [event.code for event in self.seen if event.kind == "closed"]

    @property
    def versions(self) -> list[int | None]:
        return [event.version for event in self.seen if event.kind == "update" and event.endpoint == NAME]

    @property
    def live(self) -> bool:
        """Whether the server has said that updates are current."""
        said = {event.endpoint: event.live for event in self.seen if event.kind == "status"}
        return bool(said) and all(said.values())

    @property
    def subscribed(self) -> int:
        """How often it has subscribed: once for each connection."""
        return sum(event.kind == "subscribed" for event in self.seen)

    async def sees(self, version: int) -> None:
        """Wait for the update to a version."""
        await until(lambda: version in self.versions)

    async def follow(self, url: str, origin: str) -> None:
        async with UpdatesClient(url, origin=origin) as client:
            await client.subscribe({NAME: None})
            async for event in client:
                self.seen.append(event)


@contextlib.asynccontextmanager
async def clients(running: Running, count: int) -> AsyncIterator[list[Client]]:
    """Connect subscribed clients through the common address: nginx, a proxy, a composite."""
    (url,) = running.described()["urls"]["websocket"]
    async with clients_at(running, [url] * count) as made:
        yield made


@contextlib.asynccontextmanager
async def clients_at(running: Running, urls: Sequence[str]) -> AsyncIterator[list[Client]]:
    """Connect a subscribed client to each of `urls`, with the origin of the page."""
    origin = running.described()["urls"]["page"].rstrip("/").replace("127.0.0.1", "localhost")
    made = [Client() for _ in urls]
    tasks = [asyncio.create_task(client.follow(url, origin)) for client, url in zip(made, urls, strict=True)]
    try:
        await until(lambda: all(any(event.kind == "subscribed" for event in client.seen) for client in made))
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def put(running: Running, value: int) -> int:
    """Store a dataset through nginx and return its version."""
    csv = f"time,value\n2026-01-01T00:00:00Z,{value}\n".encode()
    code, out, err = await diem("put", NAME, "-", *DECLARED, cwd=running.cwd, stdin=csv)
    assert code == 0, err
    return int(out.split()[-1])


async def scale(running: Running, servers: int) -> set[str]:
    """Scale, and return the names of the running processes."""
    code, out, err = await diem("scale", str(servers), cwd=running.cwd)
    assert code == 0, err
    assert out.startswith(f"{servers} server")
    # They are ready by now; the ones that were there may still take over what others had.
    return set(await running.until_status(fine))


async def put_when_possible(running: Running, value: int) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(AssertionError):
                return await put(running, value)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
