"""Assigns ports to processes: the requested one, else the documented one, else the next free one."""

import random
from collections.abc import Callable, Mapping
from typing import Final

from deploy.topology.model import HOST, SCALED, Ports, Slot
from deploy.topology.public_address import BadTopology
from diem.process.listeners import PortInUse

PORT_STEP: Final = 20
PORT_TRIES: Final = 50


def assign_ports(
    wanted: tuple[Slot, ...], fixed: Mapping[str, int], first: Callable[[int], int], reserve: Callable[[int], bool]
) -> dict[str, Ports]:
    """Assign ports to every process: the fixed one of its name (public), else the next free one from its default.

    ``first`` maps a default port to the start of the search. ``reserve`` returns whether a port is free, and reserves
    it. No port is assigned twice, except to processes that share it.

    Raises:
        PortInUse: a fixed port is not free, or no free one was found.
    """
    used: set[int] = set(fixed.values())
    shared: dict[str, int] = {}

    def choose(default: int) -> int:
        port = next_free(default, first, lambda port: port not in used and reserve(port))
        used.add(port)
        return port

    def public(slot: Slot) -> int | None:
        if slot.shares_port and slot.process in shared:
            return shared[slot.process]
        if slot.name not in fixed:
            return None if slot.public is None else choose(slot.public)
        if not reserve(fixed[slot.name]):
            raise PortInUse(HOST, fixed[slot.name])
        return fixed[slot.name]

    def internal(slot: Slot) -> int | None:
        return None if slot.internal is None else choose(slot.internal)

    found = {}
    for slot in wanted:
        found[slot.name] = own = Ports(public(slot), internal(slot))
        if slot.shares_port and own.public is not None:
            shared[slot.process] = own.public
    return found


def next_free(default: int, first: Callable[[int], int], reserve: Callable[[int], bool]) -> int:
    """Reserve the next free port from a default one; the arguments are those of :func:`assign_ports`.

    Raises:
        PortInUse: none was found.
    """
    start = first(default)
    for port in range(start, start + PORT_STEP * PORT_TRIES, PORT_STEP):
        if port < 65536 and reserve(port):
            return port
    raise PortInUse(HOST, default)


def fixed_ports(wanted: tuple[Slot, ...], page: int | None, websocket: int | None) -> dict[str, int]:
    """Return the requested public ports by name; processes that serve clients count up from the first one's.

    Those are proxies or composites if any, else the WebSocket servers. In modes behind nginx, the page's port is
    nginx's.

    Raises:
        BadTopology: a port would be beyond 65535, or given twice.
    """
    there = {slot.process for slot in wanted}
    edge = next(process for process in ("proxy", "composite", "websocket") if process in there)
    # Of those that share a port, the first one's.
    edges = [slot.name for slot in wanted if slot.process == edge and (slot.number == 1 or not slot.shares_port)]
    fixed = {} if websocket is None else {name: websocket + count for count, name in enumerate(edges)}
    if page is not None:
        fixed["nginx" if any(slot.name == "nginx" for slot in wanted) else "data"] = page
    if len(set(fixed.values())) < len(fixed) or max(fixed.values(), default=0) > 65535:
        raise BadTopology("the requested ports overlap or are above 65535")
    return fixed


def protectable(wanted: tuple[Slot, ...], chosen: Mapping[str, Ports]) -> list[int]:
    """Return the ports with listeners that set SO_REUSEPORT: all but the brokers'.

    Those prove knowledge of a user's password (SCRAM), so nobody can impersonate them.
    """
    own = [chosen[slot.name] for slot in wanted if slot.process != "kafka"]
    # Without duplicates: several may share a port.
    return list(dict.fromkeys(port for ports in own for port in (ports.public, ports.internal) if port is not None))


def moved_ports(wanted: tuple[Slot, ...], chosen: Mapping[str, Ports], servers: int) -> list[str]:
    """Return a line for each public listener not on its documented port; ``servers`` run at first."""
    return [
        f"port {slot.public} is taken: {slot.name} listens on {chosen[slot.name].public}"
        for slot in wanted
        if slot.public not in {None, chosen[slot.name].public}
        and (slot.process not in SCALED or slot.number <= (1 if slot.shares_port else servers))
    ]


OWN_RANGE: Final = range(24_000, 30_000)
"""Below the ephemeral ports; children of composites and the tests have other ranges."""


def start_at_default(default: int) -> int:
    """Start the search at the documented port."""
    return default


def start_at_random(rng: random.Random) -> Callable[[int], int]:
    """Start each search at a random port, to avoid collisions of several systems on one machine."""
    return lambda _default: rng.choice(OWN_RANGE)
