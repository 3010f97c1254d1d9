"""Constants of the load model, as measured: CPU time of updates, frames and connections.

``Costs`` has those of a server with its bridge, for plans; ``RoleCosts`` those of every kind of process, with standard
errors, for the comparison of modes. One file of ``make bench-cost`` has both.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from diem.errors import DiemError
from diem.process.limits import CAPACITY


class Resources(NamedTuple):
    """Resources of one server: what it uses, or may use at most."""

    clients: float
    memory_bytes: float
    sent_bytes_per_s: float
    """To clients: frames with their data."""
    cpu_us_per_s: float


UTILISATION: Final = 0.7
"""Maximum utilisation of a process's cores, beyond which waiting times grow fast."""
SERVER_LIMITS: Final = Resources(CAPACITY, 2.0**30, 125e6, UTILISATION * 1e6)
"""Limits of a server: the default of ``DIEM_WEBSOCKET_CAPACITY``, a GiB (``MemoryMax=`` of its unit), a gigabit a
second, and its one core."""


@dataclass(frozen=True)
class Costs:
    """CPU time of a server with its bridge: load = sum of rate x (update + delivery x subscribers) + connections."""

    update_us: float
    """Microseconds for one more update in a batch; the cost of waking up for the batch is in ``write_us``."""
    delivery_us: float
    """Microseconds for one frame to one subscriber, over its own connection."""
    connection_us_per_s: float
    """Microseconds per second for one open connection: its share of pings and status frames."""
    source: str = "given"
    """Human-readable origin of the figures."""
    move_us: float | None = None
    """Microseconds for moving one subscription; None for the cost of three frames."""
    write_us: float = 1750.0
    """Microseconds for waking up for a write, independent of its number of updates and of the placement."""
    idle_us_per_s: float = 6500.0
    """Microseconds per second of an idle server; like ``write_us``, it does not affect plans."""
    link_delivery_us: float = 3.5
    """Microseconds for one frame over a proxy's link, a Unix socket; replaces ``delivery_us`` there."""
    merged_saving_us: float = 0.0
    """Microseconds saved by a frame that shares a send with another of its write (``learning.modes.model``)."""
    proxy_merged_saving_us: float = 0.0
    """The same for processes between the server and the client."""

    connect_us: float = 550.0
    """Microseconds for a client that comes back: handshake and subscriptions (``make bench-scale``)."""
    connection_bytes: float = 3900.0
    """Memory of one open connection, without subscriptions (docs/performance.md)."""

    @property
    def moved_us(self) -> float:
        """Cost of moving one subscription: drop it, recreate it, and answer with a snapshot."""
        return 3 * self.delivery_us if self.move_us is None else self.move_us

    @property
    def over_links(self) -> "Costs":
        """These costs for servers with proxies as clients."""
        return replace(self, delivery_us=self.link_delivery_us)


@dataclass(eq=False)
class BadCosts(DiemError):
    """A file of costs cannot be used."""

    template = "{path} has no costs: {reason}; `make bench-cost` writes such a file"

    path: Path
    reason: str


DEFAULT: Final = Costs(
    update_us=5.0,
    delivery_us=10.0,
    connection_us_per_s=1.7,
    source="built in: make bench-cost, median of three runs on two shared cores",
)
"""Defaults without measurements. Runs differ by 10 %; ``update_us`` and ``connection_us_per_s`` by up to 50 %."""


def read_costs(path: Path) -> Costs:
    """Return the costs in a file of ``make bench-cost``: ``{"figures": {"update_us": 5.4, ...}}``.

    Raises:
        BadCosts: it cannot be read, or a figure is missing or not a number above 0.
    """
    figures = _figures(path)
    return Costs(
        update_us=_figure(path, figures, "update_us"),
        delivery_us=_figure(path, figures, "delivery_us"),
        connection_us_per_s=_figure(path, figures, "connection_us_per_s"),
        source=str(path),
        write_us=_figure(path, figures, "write_us", DEFAULT.write_us),
        idle_us_per_s=_figure(path, figures, "idle_us_per_s", DEFAULT.idle_us_per_s),
        link_delivery_us=_figure(path, figures, "link_delivery_us", DEFAULT.link_delivery_us),
    )


class Constant(NamedTuple):
    """A measured constant."""

    value: float
    error: float
    """Its standard error."""


Amounts = Mapping[str, float]
"""Coefficient of each constant by name: a linear form."""


class Total(NamedTuple):
    """The value of a linear form."""

    value: float
    """A lower bound: without unmeasured constants."""
    error: float
    """Standard error, of independent constants."""
    unmeasured: tuple[str, ...] = ()
    """Contributing constants without a measurement."""


@dataclass(frozen=True)
class RoleCosts:
    """Constants of every kind of process, in microseconds, those of ``_us_per_s`` per second (``MEANINGS``)."""

    constants: Mapping[str, Constant | None]
    """By name; None or missing: not measured."""
    source: str
    """Human-readable origin of the constants."""
    built_in: tuple[str, ...] = ()
    """Constants missing in the file, for which built-in ones are used."""
    memory: Mapping[str, float] = field(default_factory=dict)
    """Resident memory of a process of each kind without clients, in bytes."""

    def total(self, amounts: Amounts) -> Total:
        """Return the value of a linear form of the constants."""
        value = variance = 0.0
        unmeasured = []
        for name, amount in amounts.items():
            constant = self.constants.get(name)
            if constant is not None:
                value += amount * constant.value
                variance += (amount * constant.error) ** 2
            elif amount:
                unmeasured.append(name)
        return Total(value, math.sqrt(variance), tuple(unmeasured))

    def value(self, amounts: Amounts) -> float:
        """Return the value of a linear form alone."""
        constants = self.constants
        return sum(amount * constant[0] for name, amount in amounts.items() if (constant := constants.get(name)))


MEANINGS: Final[Mapping[str, str]] = {
    "server_update_us": "server: an update",
    "server_watched_update_us": "server: an update that any of its clients is subscribed to, more than another one",
    "server_part_us": "server: waking up for a part of a write",
    "server_idle_us_per_s": "server: being there",
    "delivery_us": "server: a send to a client, with its first frame",
    "merged_frame_us": "server, proxy: a further frame in the same send",
    "inline_frame_us": "server, proxy: a frame with data, more than without",
    "connection_us_per_s": "server, proxy: an open connection of a client",
    "link_delivery_us": "server: a send to a proxy",
    "bridge_update_us": "bridge: an update",
    "bridge_part_us": "bridge: a part of a write, one for each partition",
    "bridge_group_us_per_s": "bridge: being a member of a group that shares the partitions",
    "bridge_idle_us_per_s": "bridge: being there",
    "proxy_update_us": "proxy: an update that a server sends it",
    "proxy_frame_us": "proxy: a send to a client",
    "proxy_write_us": "proxy: waking up for a write of one server",
    "proxy_idle_us_per_s": "proxy: being there",
    "metadata_idle_us_per_s": "metadata service: being there",
    "composite_idle_us_per_s": "composite: being there, without its children",
    "data_update_us": "Data Service: an update",
    "data_write_us": "Data Service: a request that writes",
    "data_idle_us_per_s": "Data Service: being there",
    "data_get_us": "Data Service: a GET",
    "publisher_update_us": "Data Service: publishing an update to Kafka",
    "publisher_idle_us_per_s": "Data Service: being connected to Kafka",
    "publisher_write_us": "Data Service: publishing a write to Kafka",
    "broadcast_update_us": "Broadcast node: an update that it receives",
    "broadcast_write_us": "Broadcast node: waking up for a write",
    "broadcast_reader_update_us": "Broadcast node: an update for one server",
    "broadcast_reader_write_us": "Broadcast node: a write for one server",
    "broadcast_idle_us_per_s": "Broadcast node: being there",
    "broker_update_us": "broker: an update",
    "broker_part_us": "broker: a part of a write, one for each partition",
    "broker_reader_part_us": "broker: a part of a write for a further reader",
    "broker_bridge_us_per_s": "broker: a further bridge",
    "broker_idle_us_per_s": "broker: being there",
    "nginx_frame_us": "nginx: a send to a client that it passes on",
    "nginx_inline_frame_us": "nginx: a frame with data, more than without",
    "nginx_write_us": "nginx: waking up for a write",
    "nginx_get_us": "nginx: a GET that it answers from its cache",
    "nginx_idle_us_per_s": "nginx: being there",
}
"""The constants of ``RoleCosts``."""


ROLES: Final = RoleCosts(
    {
        # make bench-cost: medians of runs on two shared cores, as in DEFAULT.
        "server_part_us": Constant(60.0, 25.0),
        "server_idle_us_per_s": Constant(2600.0, 980.0),
        "delivery_us": Constant(10.0, 0.8),
        "connection_us_per_s": Constant(1.7, 0.13),
        "link_delivery_us": Constant(3.5, 1.0),
        "bridge_update_us": Constant(3.9, 1.2),
        # make bench-modes on a shared port: a bridge passes on at once what a fetch brought. 130 before.
        "bridge_part_us": Constant(90.0, 20.0),
        "bridge_idle_us_per_s": Constant(4000.0, 1000.0),
        # Between the fits with one server, 600 and 1,040, and make bench-modes, where each of four adds half of that.
        "proxy_write_us": Constant(400.0, 200.0),
        "proxy_idle_us_per_s": Constant(2200.0, 790.0),
        # Between the fits, 7.2 and 9.8, the ratios to a server in make bench-proxy (1.02) and bench-display (0.94), and
        # make bench-modes.
        "proxy_frame_us": Constant(9.5, 1.3),
        # make bench-fanout: eight frames in one send against one.
        "merged_frame_us": Constant(0.2, 0.1),
        # make bench-fanout, 1.4 for endpoints that are in the processor's caches; make bench-modes, 3.0 for 20,000.
        "server_update_us": Constant(2.5, 1.0),
        # make bench-modes: 6 with 20,000 updates a second, of which 22 % have subscribers; at most 3 in committed runs
        # with few updates and many subscribers.
        "server_watched_update_us": Constant(3.0, 2.0),
        # make bench-modes, at the speed of the others.
        "bridge_group_us_per_s": Constant(4500.0, 1500.0),
        "proxy_update_us": Constant(6.0, 3.0),
        # make bench-display: inline data against none, GETs against none, idle processes; make bench-reads.
        "inline_frame_us": Constant(1.5, 0.6),
        "nginx_inline_frame_us": Constant(2.2, 0.5),
        "nginx_get_us": Constant(41.0, 4.0),
        "data_get_us": Constant(52.0, 4.0),
        "data_idle_us_per_s": Constant(4000.0, 1500.0),
        "publisher_idle_us_per_s": Constant(5000.0, 3000.0),
        # Whole systems under make bench-cost, at the speed at which a server's send takes 10 us: 1.09 of it in nginx.
        "nginx_frame_us": Constant(10.9, 0.7),
        "nginx_write_us": Constant(220.0, 150.0),
        "nginx_idle_us_per_s": Constant(1100.0, 1200.0),
        "metadata_idle_us_per_s": Constant(5000.0, 1500.0),
        "composite_idle_us_per_s": Constant(5600.0, 1400.0),
        # The same beside make bench-convergence and make bench-ingest, which agree on sums: between updates and writes
        # the cost may be divided otherwise. Data of 1 to 3.5 KB.
        "data_update_us": Constant(200.0, 100.0),
        "data_write_us": Constant(4000.0, 2000.0),
        "publisher_update_us": Constant(7.0, 7.0),
        "publisher_write_us": Constant(400.0, 400.0),
        "broadcast_update_us": Constant(1.4, 1.4),
        "broadcast_write_us": Constant(200.0, 200.0),
        "broadcast_reader_update_us": Constant(1.4, 1.4),
        "broadcast_reader_write_us": Constant(45.0, 100.0),
        "broadcast_idle_us_per_s": Constant(2200.0, 1400.0),
        # make bench-modes: a broker does not look into the records of a batch.
        "broker_update_us": Constant(0.6, 0.5),
        "broker_part_us": Constant(250.0, 150.0),
        "broker_reader_part_us": Constant(40.0, 30.0),
        # make bench-modes: it answers the requests of each bridge, whether they share the partitions or not.
        "broker_bridge_us_per_s": Constant(5000.0, 1500.0),
        "broker_idle_us_per_s": Constant(42_000.0, 10_000.0),
    },
    "built in",
    memory={
        # Of make bench-cost, in KiB.
        "data": 95_600.0 * 1024,
        "broadcast": 44_300.0 * 1024,
        "websocket": 45_200.0 * 1024,
        "bridge": 49_600.0 * 1024,
        "nginx": 41_400.0 * 1024,
        "kafka": 203_800.0 * 1024,
        "proxy": 44_700.0 * 1024,
        "metadata": 55_400.0 * 1024,
        "composite": 46_800.0 * 1024,
    },
)
"""Defaults without measurements; if only sums of several constants were measured, the errors reflect that."""


def read_role_costs(path: Path, default: RoleCosts) -> RoleCosts:
    """Return the constants in a file of ``make bench-cost``; missing ones, as in earlier files, from ``default``.

    Raises:
        BadCosts: the file cannot be read, or a figure is not a number of at least 0.
    """
    figures = dict(_figures(path))
    # Earlier files have a server with its bridge, and the bridge alone.
    for name in ("update_us", "write_us", "idle_us_per_s"):
        both, bridge = figures.get(name), figures.get(f"{name}_bridge")
        if bridge is not None and both is not None:
            least = _figure(path, figures, name), _figure(path, figures, f"{name}_bridge")
            errors = [_error(path, figures, each) for each in (name, f"{name}_bridge")]
            figures.setdefault(f"bridge_{name}", least[1])
            figures.setdefault(f"bridge_{name}_se", errors[1])
            figures.setdefault(f"server_{name}", max(0.0, least[0] - least[1]))
            figures.setdefault(f"server_{name}_se", math.hypot(*errors))
    found: dict[str, Constant | None] = {}
    for name in MEANINGS:
        if name in figures:
            value = figures[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise BadCosts(path, f'"{name}" must be a number of at least 0')
            found[name] = Constant(float(value), _error(path, figures, name))
    built_in = tuple(name for name, constant in default.constants.items() if name not in found and constant is not None)
    return RoleCosts({**default.constants, **found}, str(path), built_in, default.memory)


def _error(path: Path, figures: Mapping[str, Any], name: str) -> float:
    """Return the standard error of a figure; without one, the figure itself."""
    value = figures.get(f"{name}_se", figures[name])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadCosts(path, f'"{name}_se" must be a number of at least 0')
    return float(value)


def _figures(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise BadCosts(path, error.strerror or str(error)) from None
    # RecursionError: arrays nested too deeply.
    except (ValueError, RecursionError):
        raise BadCosts(path, "it is not JSON") from None
    figures = document.get("figures") if isinstance(document, dict) else None
    if not isinstance(figures, dict):
        raise BadCosts(path, '"figures" is missing')
    return figures


def _figure(path: Path, figures: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = figures.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise BadCosts(path, f'"{name}" must be a number above 0')
    return float(value)
