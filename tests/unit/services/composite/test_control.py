"""The control channel of a composite: requests, errors and limits."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from diem.links.internal import InternalListener
from diem.links.mutual_auth import PeerNotAuthenticated
from diem.process.auth import SharedKey
from services.composite.control import MAX_LINKS, PATH, SUBPROTOCOL, ControlChannel
from tests.support.internal import InternalConnect
from tests.support.security_events import recorded_events

Dial = Callable[..., Any]


@asynccontextmanager
async def served(tmp_path: Path, pairs: list[int]) -> AsyncIterator[tuple[ControlChannel, Dial, InternalListener]]:
    key = SharedKey.create(tmp_path / "key")
    control = ControlChannel(lambda: pairs[-1], pairs.append, 64)
    listener = InternalListener("127.0.0.1", 0, key=key, ready=lambda: None, status=dict, channels={PATH: control})
    listener.start()

    def dial(key: SharedKey = key) -> InternalConnect:
        url = f"ws://127.0.0.1:{listener.port}{PATH}"
        return InternalConnect(url, key, subprotocols=[Subprotocol(SUBPROTOCOL)])

    try:
        yield control, dial, listener
    finally:
        listener.stop()


async def request(link: ClientConnection, text: str) -> dict[str, Any]:
    await link.send(text)
    answer: dict[str, Any] = orjson.loads(await link.recv())
    return answer


async def test_number_of_pairs_is_queried_and_changed(tmp_path: Path) -> None:
    pairs = [2]
    async with served(tmp_path, pairs) as (_, dial, _listener), dial() as link:
        assert link.subprotocol == SUBPROTOCOL
        assert await request(link, "{}") == {"pairs": 2}
        assert await request(link, '{"pairs": 5}') == {"pairs": 5}
        assert await request(link, "{}") == {"pairs": 5}
        assert await request(link, '{"pairs": 64}') == {"pairs": 64}
    assert pairs == [2, 5, 64]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "5", "[]", "null", '{"x": 1}'),
        *(
            '{"pairs": 0}',
            '{"pairs": 65}',
            '{"pairs": 2.0}',
            '{"pairs": true}',
            '{"pairs": "2"}',
            '{"pairs": 2, "x": 1}',
        ),
    ],
)
async def test_invalid_request_is_answered_with_an_error_and_changes_nothing(tmp_path: Path, text: str) -> None:
    pairs = [2]
    async with served(tmp_path, pairs) as (_, dial, _listener), dial() as link:
        assert list(await request(link, text)) == ["error"]
        assert await request(link, "{}") == {"pairs": 2}
    assert pairs == [2]


async def test_channel_needs_the_key(tmp_path: Path) -> None:
    async with served(tmp_path, [2]) as (_, dial, _listener):
        with pytest.raises(PeerNotAuthenticated):
            await dial(SharedKey("a-wrong-key-of-a-test"))


async def test_number_of_links_is_bounded(tmp_path: Path) -> None:
    async with served(tmp_path, [2]) as (control, dial, _listener):
        links = [await dial() for _ in range(MAX_LINKS)]
        assert not control.accepting
        with pytest.raises(InvalidStatus) as refused:
            await dial()
        assert refused.value.response.status_code == 503
        for link in links:
            await link.close()
        assert control.accepting


async def test_scaling_and_wrong_keys_are_security_events(tmp_path: Path) -> None:
    pairs = [2]
    with recorded_events() as events:
        async with served(tmp_path, pairs) as (_, dial, _listener):
            async with dial() as link:
                for text in ('{"pairs": 3}', '{"pairs": 3}', "{}", '{"pairs": 0}'):
                    await request(link, text)
            with pytest.raises(PeerNotAuthenticated):
                await dial(SharedKey("a-wrong-key-of-a-test"))
    assert [(line["kind"], line["address"]) for line in events.all()] == [
        ("scaled", "127.0.0.1"),
        ("wrong_internal_key", "127.0.0.1"),
    ]
    assert (events.all()[0]["before"], events.all()[0]["pairs"]) == (2, 3)
