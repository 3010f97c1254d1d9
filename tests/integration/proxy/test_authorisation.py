"""No token, no data (docs/reliability.md I12), over real proxies and servers, also while endpoints move."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Self

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from tests.integration.proxy.group import System, proxied
from tests.support.patience import until
from tests.support.tokens import Issuer, key_set

ISSUER = Issuer()


def token(*prefixes: str) -> str:
    return ISSUER.token(time.time(), prefixes=list(prefixes))


class Recorder:
    """A client that keeps every frame that it is sent."""

    def __init__(self, url: str, bearer: str | None) -> None:
        self.frames: list[str] = []
        self._protocols = ["diem.v1.json", *([] if bearer is None else [f"bearer.{bearer}"])]
        self._url = url

    async def __aenter__(self) -> Self:
        protocols = [Subprotocol(name) for name in self._protocols]
        self._link = await connect(self._url, proxy=None, compression=None, subprotocols=protocols)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._link.close()
        await self._reading

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for frame in self._link:
                assert isinstance(frame, str)
                self.frames.append(frame)

    async def send(self, **message: Any) -> None:
        await self._link.send(orjson.dumps(message).decode())

    async def subscribe(self, *names: str, id_: int = 1) -> None:
        await self.send(type="subscribe", id=id_, endpoints=dict.fromkeys(names))

    async def has(self, *wanted: str) -> None:
        """Wait until there is a frame with all of these texts."""
        await until(lambda: any(all(text in frame for text in wanted) for frame in self.frames))

    def naming(self, names: Iterable[str], since: int = 0) -> list[dict[str, Any]]:
        """Return the messages that contain one of these names."""
        quoted = [f'"{name}"' for name in names]
        return [orjson.loads(frame) for frame in self.frames[since:] if any(name in frame for name in quoted)]


@contextlib.asynccontextmanager
async def system_with_tokens(directory: Path) -> AsyncIterator[System]:
    keys = directory / "keys.json"
    keys.write_bytes(key_set(ISSUER))
    async with proxied(directory, anonymous="off", token_keys=[str(keys)]) as system:
        yield system


async def test_no_frame_names_an_endpoint_without_the_right_while_endpoints_move(tmp_path: Path) -> None:
    async with system_with_tokens(tmp_path) as system:
        group = system.group
        (a, x), (b, y) = group.names(0, 2), group.names(1, 2)
        group.put(a, b, x, y)
        async with (
            Recorder(system.url, None) as stranger,
            Recorder(system.url, token(a, b)) as limited,
            Recorder(system.url, token("/")) as full,
        ):
            for client in (stranger, limited, full):
                await client.subscribe(a, b, x, y, "/e/none")
            await full.has('"subscribed"')
            for turn in range(4):
                group.resync(a, x, y)
                version = group.put(a, x, b, y)
                group.assign(dict.fromkeys(group.assigned, turn % 2))
                if turn % 2:
                    group.publish_snapshot()
                for client in (stranger, limited):
                    await client.subscribe(x, y, id_=10 + turn)
                await full.has(f'"{y}"', f":{version},")
                await limited.has(f'"{b}"', f":{version - 1},")
            await group.stop_server(1)
            await group.start_server(1)
            group.put(x, y, gone=True)
            version = group.put(a, b)
            for client in (limited, full):
                await client.has(f'"{b}"', f":{version},")
        assert len(full.naming([x, y])) > 8, "the other clients would have been sent as much"
        rejected = limited.naming([x, y])
        assert {message["type"] for message in rejected} == {"subscribed"}
        for message in rejected:
            assert not {x, y, "/e/none"} & message["endpoints"].keys()
            assert {why["code"] for why in message["rejected"].values()} == {"forbidden"}
        assert not stranger.naming([a, b, x, y])
        for message in map(orjson.loads, stranger.frames):
            assert message["type"] in {"welcome", "status", "error"}
            assert "endpoints" not in message
        assert sum('"unauthorised"' in frame for frame in stranger.frames) == 5


async def test_nothing_follows_for_endpoints_that_a_refreshed_token_does_not_cover(tmp_path: Path) -> None:
    async with system_with_tokens(tmp_path) as system, Recorder(system.url, token("/e")) as client:
        group = system.group
        (a, x), (b, y) = group.names(0, 2), group.names(1, 2)
        await client.subscribe(a, x, b, y)
        for name in (a, x, b, y):
            await client.has('"subscribed"', f'"{name}"')
        stopping = asyncio.Event()

        async def put() -> None:
            turn = 0
            while not stopping.is_set():
                group.put(a, x, b, y)
                await asyncio.sleep(0)
                turn += 1
                if turn % 50 == 0:
                    group.assign(dict.fromkeys(group.assigned, turn // 50 % 2))
                    group.publish_snapshot()
                    await asyncio.sleep(0.05)

        putting = asyncio.create_task(put())
        for name in (a, x, b, y):
            await client.has('"update"', f'"{name}"')
        await client.send(type="auth", id=7, token=token(a, b))
        await client.has('"authenticated"', '"id":7')
        ended = next(n for n, frame in enumerate(client.frames) if '"id":7' in frame)
        await asyncio.sleep(0.3)
        await until(lambda: len(client.naming([a, b], ended)) > 2)
        stopping.set()
        await putting
        version = group.put(a, b)
        await client.has(f'"{b}"', f":{version},")
        assert [set(message["rejected"]) for message in client.naming([x, y], ended)] == [{x, y}]


async def test_rights_that_come_back_bring_the_updates_back(tmp_path: Path) -> None:
    async with system_with_tokens(tmp_path) as system, Recorder(system.url, token("/")) as client:
        (a, x) = system.group.names(0, 2)
        await client.subscribe(a, x)
        await client.has('"subscribed"', f'"{x}"')
        await client.send(type="auth", id=2, token=token(a))
        await client.send(type="auth", id=3, token=token("/"))
        await client.subscribe(x, id_=4)
        await client.has('"id":4', f'"{x}"')
        version = system.group.put(a, x)
        await client.has('"update"', f'"{x}"', f":{version},")
        assert (await system.status())["clients_by_access"] == {"anonymous": 0, "authenticated": 1, "pending": 0}
        assert (await system.status())["tokens"]["keys"] == 1


async def test_handshake_with_a_token_of_another_issuer_is_refused(tmp_path: Path) -> None:
    async with system_with_tokens(tmp_path) as system:
        with pytest.raises(InvalidStatus) as caught:
            async with Recorder(system.url, Issuer().token(time.time())):
                pass
        assert caught.value.response.status_code == 401
