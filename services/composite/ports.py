"""Free ports of this machine for the children of a composite: one of each, chosen once and kept."""

import asyncio
import json
import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from diem.process.listeners import BindFailed, PortTaken, bind
from services.composite.plan import HOST, Ports

RANGE: Final = range(10_000, 20_000)
"""Below the range from which systems take the ports of outgoing connections: a restarted child finds its port free."""
STEP: Final = 8
"""Composites that start at the same moment choose from ports of their own, by their numbers: a port that is chosen is
free until the child has started."""
TRIES: Final = 100
POLL_S: Final = 0.05


class FreePorts:
    """Gives every child of composite `number` its ports when it is first asked for, and writes them down in `file`.

    A composite that is started again has the ports of the one before: members of its group are known to Kafka by their
    URLs, and one that was killed may still be in the group. Ports that somebody else has taken meanwhile are replaced.
    """

    def __init__(self, rng: random.Random, number: int, file: Path) -> None:
        self._rng = rng
        self._range = range(RANGE.start + number % STEP, RANGE.stop, STEP)
        self._file = file
        self._before = _read(file)
        self._given: dict[str, Ports] = {}
        self._taken: set[int] = set()

    def reserve(self, port: int) -> None:
        """Give this port to no child."""
        self._taken.add(port)

    async def settle(self, seconds: float) -> None:
        """Wait until the ports of the composite before are free: its children may be about to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(_is_free(port) for pair in self._before.values() for port in pair):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)

    def of(self, child: str) -> Ports:
        """Return the ports of a child.

        Raises:
            PortTaken: none was found.
        """
        if child not in self._given:
            before = self._before.get(child)
            self._given[child] = before if before and self._take(before) else Ports(self.one(), self.one())
            self._write()
        return self._given[child]

    def one(self) -> int:
        """Return a port that is free now and that nobody here has been given. Raises `PortTaken`."""
        kept = {port for pair in self._before.values() for port in pair}
        for port in (self._rng.choice(self._range) for _ in range(TRIES)):
            if port not in kept and self._take([port]):
                return port
        raise PortTaken(HOST, RANGE.start)

    def _take(self, ports: Ports | list[int]) -> bool:
        if any(port in self._taken or not _is_free(port) for port in ports):
            return False
        self._taken.update(ports)
        return True

    def _write(self) -> None:
        # Those of pairs that are not there now are kept too. On a full disk the next composite chooses others.
        with suppress(OSError):
            new = self._file.with_name(f".{self._file.name}.new")
            new.write_text(json.dumps({**self._before, **self._given}), encoding="utf-8")
            new.replace(self._file)


def _read(file: Path) -> Mapping[str, Ports]:
    try:
        read = {name: Ports(int(public), int(own)) for name, (public, own) in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return {}
    return {name: ports for name, ports in read.items() if ports.public != ports.internal}


def _is_free(port: int) -> bool:
    try:
        bind(HOST, port).close()
    except (PortTaken, BindFailed, OverflowError):
        return False
    return True
