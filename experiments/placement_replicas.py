"""Whether an endpoint should be on more than one server and not on all: an experiment.

Starts from finished plans, with the built-in costs. Endpoints are replicated greedily: a copy goes to the server where
it saves more CPU time for connections than it costs for updates, among clients that need the endpoint's server for it
alone and are connected to the copy's server anyway. For comparison, hot sets that add as much load.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from learning.costs import DEFAULT
from learning.placement.backend import NumpyBackend
from learning.placement.baselines import Infeasible
from learning.placement.blocks import Block, Floats, Ints, Parts, set_starts, sum_by_cell
from learning.placement.instance import Instance
from learning.placement.objective import server_of_endpoint
from learning.placement.options import PlanOptions
from learning.placement.planner import plan
from tests.bench.report import Report
from tests.support.commandline import parser
from tests.support.instances import A, dashboards, page, population

ROUNDS: Final = 12
"""Rounds of the greedy choice; each adds at most one copy of an endpoint."""
Servers = npt.NDArray[np.uint64]
"""A bit for each server."""
_NONE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)


@dataclass(frozen=True)
class Copies:
    """A placement on ``k`` servers with copies."""

    instance: Instance
    sets: Block
    k: int
    home: Parts
    """First server of every endpoint; negative: hot."""
    servers: Servers
    """All servers of every endpoint; none for hot ones."""

    @classmethod
    def of(cls, instance: Instance, home: Parts, k: int) -> "Copies":
        """Return a placement without copies."""
        (sets,) = instance.blocks(1)
        return cls(instance, sets, k, home, _bits(home))

    @property
    def row(self) -> Ints:
        """Set of each pin."""
        return np.repeat(np.arange(self.sets.sizes.size), self.sets.sizes)

    @property
    def connections(self) -> Floats:
        """Mean number of clients with each set."""
        return self.sets.weights.astype(np.float64) * (2.0**self.instance.shift / self.instance.seconds)

    @property
    def consumed(self) -> Floats:
        """CPU time of each endpoint's updates on one server, us/s."""
        return self.instance.expected * DEFAULT.update_us

    def used(self) -> Servers:
        """Return the servers that each set needs: those of endpoints without copies, then of the others in turn."""
        sets, row, own = self.sets, self.row, _bits(self.home)
        single = np.where(self.servers == own, own, _NONE)
        used: Servers = np.bitwise_or.reduceat(single[sets.pins], set_starts(sets.sizes))
        while True:
            missing = np.flatnonzero((self.home[sets.pins] >= 0) & (self.servers[sets.pins] & used[row] == _NONE))
            if not missing.size:
                return used
            of_set, first = np.unique(row[missing], return_index=True)
            used[of_set] |= own[sets.pins[missing[first]]]

    def served_by(self, used: Servers, *, spread: bool) -> Parts:
        """Return the server of each pin, negative for hot endpoints: the first possible one, or ``spread`` over all."""
        possible = self.servers[self.sets.pins] & used[self.row]
        turn = (self.row % self.k if spread else np.zeros(possible.size)).astype(np.uint64)
        turned = (possible >> turn) | (possible << (np.uint64(self.k) - turn)) & np.uint64((1 << self.k) - 1)
        lowest = np.log2(np.maximum(turned & (~turned + _ONE), _ONE)).astype(np.uint64)
        return np.where(self.home[self.sets.pins] < 0, -1, (lowest + turn) % np.uint64(self.k)).astype(np.int32)

    def savings(self) -> Floats:
        """Return the mean number of connections that one more copy of each endpoint saves on each server."""
        used, row = self.used(), self.row
        by = self.served_by(used, spread=False)
        placed = np.flatnonzero(by >= 0)
        counts = np.bincount(row[placed] * self.k + by[placed], minlength=used.size * self.k)
        alone = placed[counts[row[placed] * self.k + by[placed]] == 1]
        result = np.zeros((self.home.size, self.k))
        for server in range(self.k):
            found = alone[_has(used[row[alone]], server) & (by[alone] != server)]
            result[:, server] = sum_by_cell(self.sets.pins[found], self.connections[row[found]], self.home.size)
        return result

    def figures(self) -> dict[str, float]:
        """Return J, the CPU time with deliveries, the fan-out, the added load and the balance."""
        used, clients = self.used(), self.connections
        number = np.where(self.home < 0, self.k, np.bitwise_count(self.servers))
        upstream = float((np.maximum(np.bitwise_count(used), 1) * clients).sum())
        added = float((self.consumed * (number - 1)).sum())
        j = float(self.consumed.sum()) + added + DEFAULT.connection_us_per_s * upstream
        frames = self.instance.expected * DEFAULT.delivery_us
        delivered = float((frames * self.instance.subscribers).sum())
        by, pins = self.served_by(used, spread=True), self.sets.pins
        placed = by >= 0
        filled = sum_by_cell(by[placed], (frames[pins] * clients[self.row])[placed], self.k)
        filled += [float(self.consumed[_has(self.servers, server)].sum()) for server in range(self.k)]
        several = (number > 1) & (self.home >= 0)
        figures = {
            "fan-out": upstream / float(clients.sum()),
            "J, ms/s": j / 1000,
            "all CPU, ms/s": (j + delivered) / 1000,
            "hot": int((self.home < 0).sum()),
            "with copies": int(several.sum()),
            "their servers": float(number[several].mean()) if several.any() else 1.0,
            "added load, %": 100 * added / (float(self.consumed.sum()) + delivered),
            "max/mean load": float(filled.max() / filled.mean()) if filled.any() else 1.0,
        }
        return {name: float(f"{value:.4g}") for name, value in figures.items()}


def replicate(start: Copies) -> Copies:
    """Return the cheapest placement of the greedy choice."""
    best = now = start
    for _ in range(ROUNDS):
        gain = now.savings() * DEFAULT.connection_us_per_s - now.consumed[:, None]
        to = gain.argmax(1)
        chosen = (gain[np.arange(to.size), to] > 0) & (now.home >= 0) & ~_has(now.servers, to)
        if not chosen.any():
            break
        more = np.where(chosen, _bits(to.astype(np.int32)), _NONE)
        now = Copies(now.instance, now.sets, now.k, now.home, now.servers | more)
        best = min(best, now, key=lambda each: each.figures()["J, ms/s"])
    return best


def measure(name: str, instance: Instance, k: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the rows of one instance."""
    backend = NumpyBackend(instance.blocks(), len(instance.endpoints))

    def planned(budget: float) -> Copies:
        options = PlanOptions(servers=(k,), partitions=k, hot_budget=budget)
        return Copies.of(
            instance, server_of_endpoint(plan(instance, options, DEFAULT, None, backend).placement, k, k), k
        )

    for budget in (0.0, 0.005):
        try:
            start = planned(budget)
        except Infeasible:
            continue
        yield f"{name}: hot endpoints for {100 * budget:g} %", start.figures()
        best = replicate(start).figures()
        yield f"{name}: the same with copies", best
    share = best["added load, %"] / 100
    yield f"{name}: hot endpoints for {100 * share:.3g} %", planned(share).figures()


def _bits(server: npt.NDArray[Any]) -> Servers:
    bits: Servers = np.where(server < 0, _NONE, np.left_shift(_ONE, np.maximum(server, 0).astype(np.uint64)))
    return bits


def _has(servers: Servers, server: int | Ints) -> npt.NDArray[np.bool_]:
    has: npt.NDArray[np.bool_] = (servers >> np.asarray(server, np.uint64) & _ONE) == _ONE
    return has


def main(argv: Sequence[str] | None = None) -> int:
    """Measure A, T and P, and print the table."""
    parser(__spec__, __doc__, report="standard output").parse_args(argv)
    rows: dict[str, dict[str, float]] = {}
    with Report(3) as report:
        for name, made, k in (("A", population(A), 16), ("T", dashboards(), 8), ("P", page(), 8)):
            report.step(name)
            rows |= measure(name, made.instance(), k)
    report.rows("Copies on several servers", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
