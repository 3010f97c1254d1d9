"""Servers that share one port without nginx: they die, hang, come and go, and limit an address together (ADR 43)."""

import asyncio
import contextlib
import os
import signal
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, Self

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Origin, Subprotocol

from diem.process.tls import client_context
from tests.integration.deploy.clients import clients, put, scale
from tests.integration.deploy.running import Running, fine, up
from tests.support.certificates import Authority, serial_of
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.required import in_cluster
from tests.support.stalls import stalls

pytestmark = [in_cluster("servers hang for seconds"), pytest.mark.skipif("sys.platform != 'linux'")]

UP: Final = ("--mode", "x-broadcast", "--servers", "3")
SERVERS: Final = ("websocket-1", "websocket-2", "websocket-3")
DIVERTED_S: Final = 6.0
"""Clients reach other servers than one that hangs within this time."""
NEW: Final = 24
"""New clients, of which the kernel would send any of three servers some: with a probability of 0.99994."""


class Dialler:
    """Opens connections to the shared port, as clients do."""

    def __init__(self, running: Running) -> None:
        (self._url,) = running.described()["urls"]["websocket"]
        self._origin = running.described()["urls"]["page"].rstrip("/").replace("127.0.0.1", "localhost")
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stack.aclose()

    async def open(self) -> str:
        """Open a connection that stays; return the name of its server."""
        return await _server(await self._stack.enter_async_context(self._dial()))

    async def server(self) -> str:
        """Return the name of the server that a new client reaches."""
        async with self._dial() as connection:
            return await _server(connection)

    async def servers(self) -> set[str]:
        """Return the servers that new clients reach."""
        return {await self.server() for _ in range(NEW)}

    async def certified(self, host: str, context: ssl.SSLContext) -> tuple[str, int]:
        """Return the server that a new client reaches at an address, and the serial number of its certificate."""
        async with self._dial(host=host, ssl=context, server_hostname="localhost") as connection:
            return await _server(connection), serial_of(
                connection.transport.get_extra_info("ssl_object").getpeercert(True)
            )

    @contextlib.asynccontextmanager
    async def _dial(self, **more: Any) -> AsyncIterator[ClientConnection]:
        async with connect(
            self._url,
            origin=Origin(self._origin),
            subprotocols=[Subprotocol("diem.v1.json")],
            proxy=None,
            close_timeout=1,
            **more,
        ) as connection:
            yield connection


async def _server(connection: ClientConnection) -> str:
    return str(orjson.loads(await connection.recv())["server"])


async def test_servers_die_come_and_go_without_new_clients_being_refused(tmp_path: Path) -> None:
    async with up(tmp_path, *UP) as running, clients(running, 6) as many, Dialler(running) as dialler:
        assert await dialler.servers() == {"websocket-1", "websocket-2", "websocket-3"}
        os.kill(running.pids()["websocket-2"], signal.SIGKILL)
        # No queue is left for a moment: new clients have others at once, or a server that is ready.
        await until(lambda: any("websocket-2 died" in line for line in running.output))
        await dialler.servers()
        version = await put(running, 1)
        await until(lambda: all(version in each.versions for each in many))
        await running.until_status(fine)
        await until_reached(dialler, "websocket-2")

        await scale(running, 4)
        await until_reached(dialler, "websocket-4")
        await scale(running, 1)
        assert await dialler.servers() == {"websocket-1"}
        version = await put(running, 2)
        await until(lambda: all(version in each.versions for each in many))
        assert {code for each in many for code in each.closed} <= {1006, 1012, None}


async def until_reached(dialler: Dialler, server: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await dialler.server() != server:
            pass


async def test_rolling_restart_refuses_no_new_client_and_leaves_none_behind(tmp_path: Path) -> None:
    async with up(tmp_path, *UP) as running, clients(running, 12) as many, Dialler(running) as dialler:
        refused: list[InvalidStatus] = []
        new = asyncio.create_task(dial_continuously(dialler, refused))
        for name in SERVERS:
            before = running.pids()[name]
            os.kill(before, signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                while running.pids().get(name) in {None, before}:
                    await asyncio.sleep(0.05)
            await running.until_status(fine)
            assert f"{name} died (exit 0): restarted at once" in running.output
        version = await put(running, 1)
        await until(lambda: all(version in each.versions for each in many))
        assert {code for each in many for code in each.closed} == {1012}
        assert not new.done()
        assert len(refused) <= len(SERVERS), "not one alone, accepted in the moment in which a server stopped"
        new.cancel()


async def dial_continuously(dialler: Dialler, refused: list[InvalidStatus]) -> None:
    while True:
        try:
            await dialler.server()
        except InvalidStatus as error:
            refused.append(error)
        except (ConnectionError, EOFError):
            pass  # of the kernel, while a server ends its listening


async def test_certificate_is_replaced_in_all_servers_at_both_families_of_addresses(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first, context = authority.issue(), client_context(authority.file)
    files = ("--tls-certificate", str(first.certificate), "--tls-key", str(first.key))
    async with up(tmp_path, *UP, "--no-nginx", "--listen", "[::]", *files, "--anonymous", "on") as running:
        dialler = Dialler(running)
        for issued in (first, authority.issue()):
            if issued is not first:
                os.kill(running.process.pid, signal.SIGHUP)
                await until(lambda: any("certificate was read again" in line for line in running.output))
            for host in ("127.0.0.1", "::1"):
                missing = {(name, issued.serial) for name in SERVERS}
                async with asyncio.timeout(PATIENCE_S):
                    while missing:
                        missing.discard(await dialler.certified(host, context))


async def test_clients_leave_a_server_that_hangs_and_new_ones_reach_others(tmp_path: Path) -> None:
    async with up(tmp_path, *UP) as running, clients(running, 6) as many, Dialler(running) as dialler:
        before = running.pids()["websocket-1"]
        os.kill(before, signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with stalls() as counted:
            # Those in its queue are disconnected, and dial again.
            new = [asyncio.create_task(redial(dialler)) for _ in range(NEW)]
            assert "websocket-1" not in {await each for each in new}
            assert loop.time() - began - counted.seconds < DIVERTED_S * FACTOR
            assert await dialler.servers() == {"websocket-2", "websocket-3"}
        version = await put(running, 1)
        await until(lambda: all(version in each.versions for each in many))
        await until(lambda: running.pids().get("websocket-1") not in {None, before})
        await until_reached(dialler, "websocket-1")


async def redial(dialler: Dialler) -> str:
    while True:
        with contextlib.suppress(OSError, InvalidHandshake, EOFError):
            return await dialler.server()


async def test_server_that_hung_for_seconds_gets_clients_again_without_a_restart(tmp_path: Path) -> None:
    async with up(tmp_path, *UP) as running, Dialler(running) as dialler:
        pid = running.pids()["websocket-1"]
        os.kill(pid, signal.SIGSTOP)
        new = [asyncio.create_task(redial(dialler)) for _ in range(NEW)]
        assert "websocket-1" not in {await each for each in new}
        os.kill(pid, signal.SIGCONT)
        await until_reached(dialler, "websocket-1")
        assert running.pids()["websocket-1"] == pid


async def test_limit_of_an_address_is_for_all_servers_together(tmp_path: Path) -> None:
    async with up(tmp_path, *UP, "--clients-per-address", "8") as running, Dialler(running) as dialler:
        found = Counter([await dialler.open() for _ in range(8)])
        for _ in range(NEW):
            with pytest.raises(InvalidStatus, match="429"):
                await dialler.server()
        name, number = found.most_common(1)[0]
        os.kill(running.pids()[name], signal.SIGKILL)
        await until(lambda: any(f"{name} died" in line for line in running.output))
        for _ in range(number):
            await dialler.open()
        for _ in range(NEW):
            with pytest.raises(InvalidStatus, match="429"):
                await dialler.server()
