"""What every system is asked for: updates in, the connections of clients out, its processes, and to crash."""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import orjson

from diem.protocol.update import iso, next_version
from tests.bench import procfs
from tests.load.processes import children
from tests.support.patience import PATIENCE_S

BROKER: Final = "kafka"
"""Its CPU is without that of the JVM's compiler, and its memory is not that of connections."""
IDLE_S: Final = 3.0
"""After this time a new connection is used: servers close those that were idle for long."""
_POINT_BYTES: Final = 46


class Refused(Exception):
    """A publication was not accepted."""


class Absent(Exception):
    """A peer is not installed, or does not start."""


class Update(NamedTuple):
    """One update; below ``/inline`` clients get the dataset with it."""

    endpoint: str
    dataset: dict[str, Any]

    @property
    def has_data(self) -> bool:
        return self.endpoint.startswith("/inline")


_numbers: Final = itertools.count(1)


def update(endpoint: str, size: int = 0, value: float | None = None) -> Update:
    """Return an update whose dataset takes about ``size`` bytes of JSON, other than the one before.

    DIEM takes the same data again for no change.
    """
    other = 1000 + next(_numbers) % 9000 / 10
    points = [
        {"time": f"2026-01-{1 + i // 24:02d}T{i % 24:02d}:00:00Z", "value": value or other}
        for i in range(max(1, round((size - 54) / _POINT_BYTES)))
    ]
    return Update(endpoint, {"unit": "MW", "resolution": "PT1H", "points": points})


class Payloads:
    """Messages as DIEM's clients get them, for peers that pass on what they are given."""

    def __init__(self) -> None:
        self._version = 1_700_000_000_000

    def of(self, each: Update) -> dict[str, Any]:
        """Return the message of an update."""
        self._version = next_version(self._version, 0)
        message = {"type": "update", "endpoint": each.endpoint, "version": self._version, "time": iso(self._version)}
        return message | ({"data": each.dataset} if each.has_data else {})


class Http:
    """One connection of HTTP, with few instructions; several requests may be sent at once."""

    def __init__(self, port: int, fields: str = "") -> None:
        self.port = port
        self._fields = f"{fields}Content-Type: application/json\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used = 0.0

    async def send(self, method: str, requests: Iterable[tuple[str, bytes]]) -> None:
        """Send requests, targets and bodies, and wait for their answers. Raises ``Refused``."""
        fields = f" HTTP/1.1\r\nHost: 127.0.0.1\r\n{self._fields}Content-Length: "
        texts = [f"{method} {target}{fields}{len(body)}\r\n\r\n".encode() + body for target, body in requests]
        if monotonic() - self._used > IDLE_S:
            self.close()
        try:
            async with asyncio.timeout(PATIENCE_S):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self.port)
                self._streams[1].write(b"".join(texts))
                answers = [await self._answer(self._streams[0]) for _ in texts]
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.close()
            raise Refused(repr(error)) from error
        self._used = monotonic()
        for status, body in answers:
            if status >= 300:
                raise Refused(f"{status} {body[:200]!r}")

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ", 2)[1])
        if b"\r\ntransfer-encoding: chunked" not in head:
            length = head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
            return status, await reader.readexactly(int(length or 0))
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return status, body


class Contender(ABC):
    """A running system."""

    dialect = "plain"
    """Of drain.c."""
    keeps = "nothing"
    """Kept of updates, for the report."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        """Where clients connect."""

    @abstractmethod
    def roots(self) -> Iterator[tuple[str, int]]:
        """Yield its processes: kind and process id. Their children belong to them."""

    @abstractmethod
    async def publish(self, updates: Sequence[Update]) -> None:
        """Publish updates at once, and wait until they are accepted. Raises ``Refused``."""

    @abstractmethod
    async def crash(self) -> None:
        """Kill what holds the clients' connections, and return when it is ready again."""

    async def doors(self, endpoints: Sequence[str]) -> Mapping[int, Sequence[str]]:
        """Return the ports that clients connect to for endpoints."""
        return {self.port: endpoints}

    def path(self, _endpoints: Sequence[str]) -> str:
        """Return the path of connections."""
        return "/"

    def join(self, endpoints: Sequence[str]) -> list[str]:
        """Return the messages that subscribe a connection; at most four."""
        return [f'{{"subscribe":{orjson.dumps([*endpoints]).decode()}}}']

    def pids(self) -> Iterator[tuple[str, int]]:
        """Yield all processes."""
        roots = {pid: kind for kind, pid in self.roots()}
        for pid, kind in roots.items():
            yield kind, pid
            yield from ((kind, child) for child in children(pid) if child not in roots)

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far by kind of process."""
        spent: dict[str, float] = {}
        for kind, pid in self.pids():
            seconds = procfs.serving_seconds(pid) if kind == BROKER else procfs.cpu_seconds(pid)
            spent[kind] = spent.get(kind, 0.0) + seconds
        return spent

    def memory_mib(self, of: Callable[[int], int]) -> dict[str, float]:
        """Return the memory by kind of process; ``of`` returns that of a process in KiB."""
        held: dict[str, float] = {}
        for kind, pid in self.pids():
            held[kind] = held.get(kind, 0.0) + of(pid) / 1024
        return held


async def listening(port: int, process: asyncio.subprocess.Process, name: str) -> None:
    """Wait until a process accepts connections. Raises ``Absent``: it has ended, or does not in time."""
    text = f":{port:04X} 00000000:0000 0A"
    for _ in range(int(PATIENCE_S / 0.02)):
        if process.returncode is None and text in Path("/proc/net/tcp").read_text(encoding="ascii"):
            return
        await asyncio.sleep(0.02)
    raise Absent(f"{name} does not start")
