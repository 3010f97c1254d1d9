"""Clients of one network that uses up new connections, beside those of others."""

import asyncio
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from diem.process.tasks import cancelled_at_the_end
from diem.protocol.messages import SUBPROTOCOL
from tests.support.patience import PATIENCE_S
from tests.support.running import running

pytestmark = pytest.mark.takes(20)

ORIGIN: Final = "https://app.example"
RATE: Final = 20
"""New connections of the server a second; a fifth of a burst of five times as many is shared among networks."""
OTHERS: Final = 15
OPTIONS: Final = (
    *("--front-proxy", "127.0.0.1/32", "--anonymous", "on", "--origin", ORIGIN),
    *("--set", f"websocket-1:DIEM_WEBSOCKET_CONNECTION_RATE={RATE}"),
)


async def handshake(url: str, address: str) -> int:
    """Connect as a proxy does for a client of this address; return the HTTP status."""
    headers = {"X-Forwarded-For": address, "Origin": ORIGIN}
    try:
        async with connect(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            additional_headers=headers,
            proxy=None,
            open_timeout=PATIENCE_S,
        ):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


async def test_clients_of_one_56_do_not_use_up_the_new_connections_of_others(tmp_path: Path) -> None:
    async with running(tmp_path, options=OPTIONS) as system, cancelled_at_the_end() as tasks:
        (url,) = system.websocket_urls
        felt = asyncio.Event()

        async def attack(first: int) -> None:
            for number in cycle(range(first, 64, 8)):
                with suppress(OSError, TimeoutError):
                    if await handshake(url, f"2001:db8:0:{number:x}::1") == 503:
                        felt.set()

        tasks += [asyncio.create_task(attack(number)) for number in range(8)]
        async with asyncio.timeout(PATIENCE_S):
            await felt.wait()
        assert [await handshake(url, f"198.51.100.{number}") for number in range(OTHERS)] == [101] * OTHERS
