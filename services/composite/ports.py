"""Free ports of this machine for the children of a composite: one of each, chosen once and kept."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from diem.process.ports import PortReservations, is_free
from services.composite.plan import ChildPorts

RANGE: Final = range(10_000, 14_000)
"""Below the range from which systems take the ports of outgoing connections: a restarted child finds its port free."""
POLL_S: Final = 0.05


class FreePorts:
    """Gives every child of a composite its ports when it is first asked for, and writes them down in `file`.

    A composite that is started again has the ports of the one before: members of its group are known to Kafka by their
    URLs, and one that was killed may still be in the group. Ports that somebody else has taken meanwhile are replaced.
    """

    def __init__(self, reservations: PortReservations, file: Path) -> None:
        self._reservations = reservations
        self._file = file
        self._before = _read(file)
        self._given: dict[str, ChildPorts] = {}

    def reserve(self, port: int) -> None:
        """Give this port to no child."""
        self._reservations.reserve(port)

    async def settle(self, seconds: float) -> None:
        """Wait until the ports of the composite before are free: its children may be about to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(is_free(port) for pair in self._before.values() for port in pair):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)

    def of(self, child: str) -> ChildPorts:
        """Return the ports of a child.

        Raises:
            PortTaken: none was found.
        """
        if child not in self._given:
            before = self._before.get(child)
            kept = before is not None and all(map(self._reservations.reserve, before))
            self._given[child] = before if before and kept else ChildPorts(self._choose(), self._choose())
            self._write()
        return self._given[child]

    def _choose(self) -> int:
        """Reserve a port that no child of the composite before had. Raises `PortTaken`."""
        return self._reservations.choose(RANGE, {port for pair in self._before.values() for port in pair})

    def _write(self) -> None:
        # Those of pairs that are not there now are kept too. On a full disk the next composite chooses others.
        with suppress(OSError):
            new = self._file.with_name(f".{self._file.name}.new")
            new.write_text(json.dumps({**self._before, **self._given}), encoding="utf-8")
            new.replace(self._file)


def _read(file: Path) -> Mapping[str, ChildPorts]:
    try:
        read = {name: ChildPorts(int(public), int(own)) for name, (public, own) in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return {}
    return {name: ports for name, ports in read.items() if ports.public != ports.internal}
