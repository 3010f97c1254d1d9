"""Measured recovery times and delays, not derived by the model (docs/performance.md, docs/benchmarks)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from learning.modes.configuration import Configuration


class Measured(NamedTuple):
    """Seconds of the committed runs; None where there is no run."""

    loss_s: float | None
    """Longest time for which a subscriber was behind when a server was killed (in partitioned modes: and held down)."""
    edge_loss_s: float | None = None
    """The same for the proxy or composite that clients connect to; None: they connect to servers."""
    p99_s: float | None = None
    """From the accepted write to the client's event, 99th percentile, 25,000 to 30,000 frames a second on two cores."""


RUNS: Final[Mapping[Configuration, Measured]] = {
    Configuration.SINGLE: Measured(3.3, p99_s=0.014),
    Configuration.ALL_TO_ALL: Measured(3.3, p99_s=0.019),
    Configuration.X_BROADCAST: Measured(1.2, p99_s=0.013),
    Configuration.X: Measured(0.5, p99_s=0.050),
    Configuration.Z_CLIENT: Measured(11.5),
    Configuration.Z_PROXY: Measured(6.1, 3.3),
    Configuration.Z_COMPOSITE: Measured(6.0, 7.6),
    Configuration.XZ: Measured(6.3, 1.9),
}
"""``make faults`` and ``make bench-convergence``; the p99 of x is that of one server, with three it was 0.136 s."""


class Range(NamedTuple):
    """Greatest values of the runs behind the constants."""

    clients: float = 10_000
    endpoints: float = 1_000
    updates: float = 2_500
    writes: float = 20
    frames: float = 30_000
    servers: int = 4


CALIBRATED: Final = Range()
