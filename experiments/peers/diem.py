"""DIEM as ``diem up`` starts it, in each of the modes that are measured."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import orjson

from experiments.peers.contenders import Contender, Http, Update
from tests.bench.phases import subscribe
from tests.load.locator import Locator
from tests.load.system import System

MODES: Final = ("single", "x-broadcast", "x", "z-client", "z-proxy")
BATCH: Final = 50
"""Most datasets of one request."""
_TABLES: Final = '[[inline]]\nprefix = "/plain"\nmax_bytes = 0\n[[inline]]\nprefix = "/inline"\nmax_bytes = 8192\n'


class Diem(Contender):
    """A system of DIEM: it stores every dataset, and serves it by REST besides."""

    dialect = "diem"
    keeps = "all versions, on disk"

    def __init__(self, mode: str, system: System) -> None:
        _, port, self._path = system.servers[0]
        super().__init__(mode, port)
        self._system = system
        data = system.process("data").public_port or 0
        self._http = Http(data, f"Authorization: Bearer {system.write_key}\r\n")

    def roots(self) -> Iterator[tuple[str, int]]:
        yield "diem up", self._system.supervisor_pid
        for process in self._system.processes():
            if process.pid is not None:
                yield process.name.rstrip("-0123456789"), process.pid

    async def publish(self, updates: Sequence[Update]) -> None:
        datasets = [{"endpoint": each.endpoint, **each.dataset} for each in updates]
        batches = [datasets[at : at + BATCH] for at in range(0, len(datasets), BATCH)]
        await self._http.send("PUT", [("/v1/data", orjson.dumps({"datasets": batch})) for batch in batches])

    async def doors(self, endpoints: Sequence[str]) -> Mapping[int, Sequence[str]]:
        if self._system.metadata is None:
            return await super().doors(endpoints)
        found: dict[int, list[str]] = {}
        async with httpx.AsyncClient(base_url=self._system.metadata, trust_env=False) as http:
            located = await Locator(http).locate([*endpoints], None)
        for name, owner in (located.owners if located else {}).items():
            found.setdefault(urlsplit(owner or "").port or self.port, []).append(name)
        return found

    def path(self, _endpoints: Sequence[str]) -> str:
        return self._path

    def join(self, endpoints: Sequence[str]) -> list[str]:
        kinds = {data: [name for name in endpoints if name.startswith("/inline") is data] for data in (False, True)}
        return [subscribe(*names, data=data) for data, names in kinds.items() if names]

    async def crash(self) -> None:
        edge = "proxy" if self.name == "z-proxy" else "websocket"
        names = [each.name for each in self._system.processes() if each.name.rstrip("-0123456789") == edge]
        killed = {name: await self._system.kill(name) for name in names}
        for name, pid in killed.items():
            await self._system.back(name, pid)


@contextlib.asynccontextmanager
async def diem(mode: str, folder: Path) -> AsyncIterator[Diem]:
    """Run a mode with its usual options."""
    async with System(mode, folder, tables=_TABLES) as system:
        yield Diem(mode, system)
