"""Keeps a composite at as many pairs as `diem scale` asked for last, over its control channel."""

import asyncio
from contextlib import suppress
from typing import Final

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from deploy.scale import Scaler
from diem.process.auth import SharedKey
from services.composite.control import PATH, SUBPROTOCOL

RETRY_S: Final = 0.5


async def keep(internal_url: str, key: SharedKey, wanted: Scaler) -> None:
    """Tell the composite the number, now and whenever it changes, until cancelled.

    A composite that was restarted begins with its first number, so it is told again with each connection.
    """
    url = f"ws{internal_url.removeprefix('http')}{PATH}"
    while True:
        with suppress(OSError, TimeoutError, InvalidHandshake, ConnectionClosed):
            async with connect(
                url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers={"Authorization": key.header},
                proxy=None,
                compression=None,
            ) as connection:
                await _tell(connection, wanted)
        await asyncio.sleep(RETRY_S)


async def _tell(connection: ClientConnection, wanted: Scaler) -> None:
    while True:
        wanted.changed.clear()
        await connection.send(orjson.dumps({"pairs": wanted.servers}), text=True)
        await connection.recv()
        waiting = [asyncio.ensure_future(wait) for wait in (wanted.changed.wait(), connection.wait_closed())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
