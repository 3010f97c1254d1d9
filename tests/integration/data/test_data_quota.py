"""The quota of an API key against clients that ask for the same data again and again."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from diem.protocol.messages import SUBPROTOCOL
from tests.e2e.test_public import create_key, wait_for_token_keys
from tests.support.patience import PATIENCE_S
from tests.support.running import Running, running

pytestmark = pytest.mark.takes(30)

PER_MINUTE: Final = 60
PLAN: Final = f"""
source = []
[[plan]]
name = "page"
per_minute = {PER_MINUTE}
"""
CLIENTS, ROUNDS = 60, 6
NAMES: Final = [f"/dam/{number}" for number in range(15)]


async def client(url: str, token: str, system: Running) -> int:
    """Subscribe to all with data, and unsubscribe, several times; return the updates that had data."""
    protocols = [Subprotocol(SUBPROTOCOL), Subprotocol(f"bearer.{token}")]
    with_data = 0
    async with connect(url, subprotocols=protocols, proxy=None, open_timeout=PATIENCE_S) as link:
        await until_type(link, "welcome")
        for number in range(ROUNDS):
            await send(link, type="subscribe", id=2 * number + 1, endpoints=dict.fromkeys(NAMES), data=True)
            await send(link, type="unsubscribe", id=2 * number + 2, endpoints=NAMES)
            with_data += sum("data" in message for message in await until_type(link, "unsubscribed"))
            if number == ROUNDS // 2:
                # One of them has all of the others sent an update, too.
                await system.put({NAMES[0]: time.monotonic()})
    return with_data


async def send(link: ClientConnection, **message: Any) -> None:
    await link.send(orjson.dumps(message).decode())


async def until_type(link: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """Return the messages up to one of this type."""
    messages: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while not messages or messages[-1]["type"] != kind:
            messages.append(orjson.loads(await link.recv()))
    return messages


async def test_sixty_clients_of_a_key_are_sent_no_more_data_in_a_minute_than_its_plan_has(tmp_path: Path) -> None:
    options = ("--nginx", "--anonymous", "off", "--set", "data:DIEM_DATA_ANONYMOUS_READS=off")
    async with running(tmp_path, "x-broadcast", servers=2, config=PLAN, options=options) as system:
        await wait_for_token_keys(system)
        text = (await create_key(system))["key"]
        await system.put(dict.fromkeys(NAMES, 1.0))
        answer = await system.http.post(f"{system.page}v1/tokens", headers={"Authorization": f"Bearer {text}"})
        token = answer.json()["token"]
        urls = [
            f"ws://127.0.0.1:{urlsplit(process['urls']['public']).port}/ws"
            for name, process in system.processes.items()
            if name.startswith("websocket-")
        ]
        began = time.monotonic()
        counts = await asyncio.gather(*(client(urls[n % len(urls)], token, system) for n in range(CLIENTS)))
        minutes = 1 + (time.monotonic() - began) / 60
        assert 0 < sum(counts) <= 1.1 * PER_MINUTE * minutes, counts
