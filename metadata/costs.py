"""Constants of the load model, as measured: CPU time of updates, frames and connections."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from diem.errors import DiemError


@dataclass(frozen=True)
class Costs:
    """CPU time of a server with its bridge: load = sum of rate x (update + delivery x subscribers) + connections."""

    update_us: float
    """Microseconds for one more update in a batch; the cost of waking up for the batch is in ``write_us``."""
    delivery_us: float
    """Microseconds for one frame to one subscriber, over a connection of its own."""
    connection_us_per_s: float
    """Microseconds per second for one open connection: its share of pings and status frames."""
    source: str = "given"
    """Human-readable origin of the figures."""
    move_us: float | None = None
    """Microseconds for one subscription that moves; None for the cost of three frames."""
    write_us: float = 1750.0
    """Microseconds for waking up for a write, whatever its number of updates; independent of the placement."""
    idle_us_per_s: float = 6500.0
    """Microseconds per second of an idle server; like ``write_us``, it does not affect plans."""
    link_delivery_us: float = 3.5
    """Microseconds for one frame over a proxy's link, a Unix socket; replaces ``delivery_us`` there."""

    connection_bytes: float = 3900.0
    """Memory of one open connection, without subscriptions (docs/performance.md)."""

    @property
    def moved_us(self) -> float:
        """Cost of one subscription that moves: it is dropped, made again, and answered with a snapshot."""
        return 3 * self.delivery_us if self.move_us is None else self.move_us

    @property
    def over_links(self) -> "Costs":
        """These costs for servers whose clients are proxies."""
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
"""Used where nothing was measured. Runs differ by 10 %; ``update_us`` and ``connection_us_per_s`` by up to 50 %."""


def read_costs(path: Path) -> Costs:
    """Return the costs in a file of ``make bench-cost``: ``{"figures": {"update_us": 5.4, ...}}``.

    Raises:
        BadCosts: it cannot be read, or a figure is missing or not a number above 0.
    """
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
    return Costs(
        update_us=_figure(path, figures, "update_us"),
        delivery_us=_figure(path, figures, "delivery_us"),
        connection_us_per_s=_figure(path, figures, "connection_us_per_s"),
        source=str(path),
        write_us=_figure(path, figures, "write_us", DEFAULT.write_us),
        idle_us_per_s=_figure(path, figures, "idle_us_per_s", DEFAULT.idle_us_per_s),
        link_delivery_us=_figure(path, figures, "link_delivery_us", DEFAULT.link_delivery_us),
    )


def _figure(path: Path, figures: dict[str, Any], name: str, default: float | None = None) -> float:
    value = figures.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise BadCosts(path, f'"{name}" must be a number above 0')
    return float(value)
