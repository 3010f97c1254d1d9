"""Problem instance: endpoints with their rates, and the subscription sets of clients."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from diem.protocol.traffic import decode
from learning.modes.load import USUAL_BATCH, Load
from learning.placement.blocks import (
    Block,
    Floats,
    Ints,
    Parts,
    concatenate,
    deduplicate_pins,
    merge_equal_sets,
    shift_weights,
    weight_shift,
)
from learning.statistics import reference
from learning.statistics.constants import BUSY_SHARE, MINUTE_MS
from learning.statistics.model import Statistics
from learning.statistics.window import Window

MINUTE_S = MINUTE_MS / 1000
BLOCK_PINS = 2_000_000
"""Pins per block, about, when no number of blocks is given."""


@dataclass(frozen=True)
class Instance:
    """A window of traffic. Subscription sets are in CSR form: set i has ``pins[starts[i]:starts[i + 1]]``.

    Built by :meth:`of`, which puts endpoints (by name) and sets into a canonical order: equal input, equal arrays.
    """

    endpoints: tuple[str, ...]
    rate: Floats
    """Updates a second of each endpoint."""
    subscribers: Floats
    """Mean number of subscribers of each endpoint over the window."""
    starts: Ints
    pins: Parts
    weight: Ints
    """Connected seconds of clients with this set; equal sets are merged."""
    clients: Ints
    """Clients with each set."""
    seconds: float = 1.0
    """Length of the window: seconds connected divided by it are a mean number of connections."""
    busy: Floats | None = None
    """Updates per second of each endpoint in the busy minutes; None if not recorded."""
    halvings: int = 0
    """How often the clients were halved: each in the sets stands for 2**halvings, and has the weight of so many."""
    batch: float = USUAL_BATCH
    """Updates written together, not in recorded traffic: counted by the running Data Service."""
    share: float = 1.0
    """Share of the clients that ``subscribers`` are known from."""

    @classmethod
    def of(
        cls,
        endpoints: Sequence[str],
        rate: Sequence[float] | Floats,
        subscribers: Sequence[float] | Floats,
        sets: Block,
        seconds: float = 1.0,
        *,
        busy: Sequence[float] | Floats | None = None,
        halvings: int = 0,
    ) -> "Instance":
        """Build from endpoints and sets of their indices, both in any order; equal sets may repeat.

        The sets have the clients and weights of the sample.

        Raises:
            ValueError: two endpoints have the same name, or the lengths differ.
        """
        if len(set(endpoints)) != len(endpoints) or not len(endpoints) == len(rate) == len(subscribers):
            raise ValueError("every endpoint has one name, one rate and one number of subscribers")
        order = np.array(sorted(range(len(endpoints)), key=endpoints.__getitem__), dtype=np.int64)
        place = np.empty(len(endpoints), np.int32)
        place[order] = np.arange(len(endpoints), dtype=np.int32)
        sets = _canonicalise(sets._replace(pins=place[sets.pins]), len(endpoints))
        starts = np.append(0, np.cumsum(sets.sizes, dtype=np.int64))
        names = tuple(endpoints[each] for each in order.tolist())
        rates, counts = np.asarray(rate, float)[order], np.asarray(subscribers, float)[order]
        busy_rates = None if busy is None else np.asarray(busy, float)[order]
        weights = sets.weights << halvings
        return cls(names, rates, counts, starts, sets.pins, weights, sets.clients, seconds, busy_rates, halvings)

    @cached_property
    def expected(self) -> Floats:
        """Expected updates a second (:func:`expected_counts`); above 0, as an idle endpoint may be updated again."""
        counts = expected_counts(self.rate * self.seconds)
        return np.where(counts > 0, counts, 1.0) / self.seconds

    @cached_property
    def expected_subscribers(self) -> Floats:
        """Expected number of subscribers of each endpoint (:func:`expected_counts`).

        In counts of clients: means of clients who stay for a short time vary less than as many clients would.
        """
        unit = self.client_weight / self.seconds / self.share or 1.0
        return expected_counts(self.subscribers / unit) * unit

    @property
    def client_weight(self) -> float:
        """Weight of the client of a mean second, in seconds: the sum of squared weights of clients over their sum."""
        return float((self.weight * (self.weight / self.clients)).sum()) / max(float(self.weight.sum()), 1e-300)

    @cached_property
    def expected_busy(self) -> tuple[Floats, Floats]:
        """Expected updates a second in busy minutes, and the counts that they are known from.

        They are the expected updates times a factor: of each endpoint where endpoints differ in how their updates
        bunch, else of all together, because the few updates of few minutes say little (:func:`expected_factors`).
        """
        if self.busy is None:
            return self.expected, self.expected * self.seconds
        seconds = MINUTE_S * max(1.0, np.ceil(BUSY_SHARE * np.ceil(self.seconds / MINUTE_S)))
        factors, known = expected_factors(self.busy * seconds, self.expected * seconds)
        # The errors of the mean rate and of the factor add up.
        return self.expected * factors, 1 / (1 / (self.expected * self.seconds) + 1 / known)

    @cached_property
    def load(self) -> Load:
        """The load for the model of modes."""
        clients = float(self.weight.sum()) / self.seconds
        updates = float(self.rate.sum())
        frames = float((self.rate * self.subscribers).sum())
        return Load(
            clients=clients,
            endpoints=float(len(self.endpoints)),
            updates=updates,
            subscriptions=float(self.subscribers.sum()) / clients if clients else 0.0,
            batch=self.batch,
            subscribers=frames / updates if updates else 0.0,
        )

    @property
    def sampled_subscribers(self) -> float:
        """Mean number of subscribers of an endpoint in the sample."""
        used = self.subscribers[self.subscribers > 0]
        return float(used.mean()) / 2**self.halvings if used.size else 0.0

    @property
    def shift(self) -> int:
        """Bits by which weights are shifted right in :meth:`blocks`."""
        return weight_shift(int(self.weight.sum()))

    def blocks(self, count: int | None = None) -> list[Block]:
        """Return the sets in ``count`` blocks of similar size, with weights in the planner's unit."""
        sets, shift = self.weight.size, self.shift
        count = count or 1 + self.pins.size // BLOCK_PINS
        cuts = [sets * each // count for each in range(count + 1)]
        sizes = np.diff(self.starts).astype(np.int32)
        return [
            Block(
                self.pins[self.starts[a] : self.starts[b]],
                sizes[a:b],
                shift_weights(self.weight[a:b], shift),
                self.clients[a:b],
            )
            for a, b in pairwise(cuts)
        ]


def split_time(
    latest: Instance, earlier: Sequence[Instance], shares: Sequence[float]
) -> tuple[Instance, tuple[Instance, ...]]:
    """Return the latest window, and windows to learn from: all ``earlier`` ones combined, and the last of them.

    The last alone knows a change at once, all together know more of what stays. They have the same endpoints.
    ``earlier`` begins with the last, as ``shares`` (:func:`combine`).
    """
    names = sorted(set(latest.endpoints).union(*(each.endpoints for each in earlier)))
    learnt = [combine(names, earlier, shares), *([combine(names, earlier[:1], [1.0])] if len(earlier) > 1 else [])]
    return combine(names, [latest], [1.0]), tuple(learnt)


def combine(names: Sequence[str], windows: Sequence[Instance], shares: Sequence[float]) -> Instance:
    """Return one instance, of the endpoints ``names``, of windows that each have a share (above 0 to 1) of influence.

    Rates and numbers of subscribers are weighted means over the time of the windows, and a set weighs the time that its
    clients were connected, times the share.
    """
    number = {name: index for index, name in enumerate(names)}
    seconds = sum(each.seconds * share for each, share in zip(windows, shares, strict=True))
    rate, subscribers, busy = np.zeros((3, len(names)))
    parts = []
    for each, share in zip(windows, shares, strict=True):
        rows = np.array([number[name] for name in each.endpoints], np.int64)
        weight = each.seconds * share / seconds
        rate[rows] += weight * each.rate
        subscribers[rows] += weight * each.subscribers
        busy[rows] += weight * (each.rate if each.busy is None else each.busy)
        weights, clients = (np.maximum(np.rint(share * own), 1).astype(np.int64) for own in (each.weight, each.clients))
        parts.append(Block(rows[each.pins].astype(np.int32), np.diff(each.starts).astype(np.int32), weights, clients))
    made = Instance.of(names, rate, subscribers, concatenate(parts), seconds, busy=busy)
    busy_rates = made.busy if any(each.busy is not None for each in windows) else None
    return replace(made, busy=busy_rates, halvings=max(each.halvings for each in windows))


def expected_counts(counts: Floats) -> Floats:
    """Return the expected counts of another window like this one: empirical Bayes with a gamma prior (Robbins, 1956).

    Counts are taken as Poisson, of means that are gamma distributed over the endpoints, with the parameters that fit
    mean and variance of the counts. Small counts are weak evidence, and shrink towards the overall mean; their sum is
    preserved. Without this, an endpoint without chance viewers would weigh next to nothing in the balance of loads.
    """
    if not counts.size:
        return counts
    mean, variance = float(counts.mean()), float(counts.var())
    if variance <= mean:
        return np.full_like(counts, mean)
    inverse_scale = mean / (variance - mean)
    result: Floats = (counts + mean * inverse_scale) / (1 + inverse_scale)
    return result


def expected_factors(counts: Floats, expected: Floats) -> tuple[Floats, Floats]:
    """Return the factors by which ``counts`` exceed what was ``expected``, and the counts that they are known from.

    Empirical Bayes as in :func:`expected_counts`: Poisson counts, factors gamma distributed over the endpoints. Where
    chance explains all differences there is one factor for all, known from all counts.
    """
    total = float(expected.sum())
    mean = float(counts.sum()) / total if total > 0 else 1.0
    excess = float(((counts - mean * expected) ** 2 - mean * expected).sum())
    if mean <= 0 or excess <= 0:
        return np.full_like(counts, mean if mean > 0 else 1.0), np.full_like(counts, max(float(counts.sum()), 1.0))
    inverse_scale = mean * float((expected**2).sum()) / excess
    known: Floats = counts + mean * inverse_scale
    return known / (expected + inverse_scale), known


def _canonicalise(sets: Block, count: int) -> Block:
    """Sort and deduplicate pins, drop empty sets, merge equal ones, and order sets."""
    return merge_equal_sets([deduplicate_pins(sets, max(count, 1))], count)


def from_events(lines: Iterable[bytes | str], window: Window) -> Instance:
    """Build an instance from traffic events (docs/traffic.md section 1), one a line, in any order.

    Raises:
        BadEvent: a line is not an event.
    """
    events = (decode(line) for line in lines)
    return from_statistics(reference.statistics((reference.Arrival(event, event.time) for event in events), window))


def from_statistics(statistics: Statistics) -> Instance:
    """Build an instance from statistics in memory."""
    endpoints = statistics.endpoints
    sets = Block(
        np.array([pin for row in statistics.sets for pin in row.endpoints], np.int32),
        np.array([len(row.endpoints) for row in statistics.sets], np.int32),
        np.array([row.weight for row in statistics.sets], np.int64),
        np.array([row.clients for row in statistics.sets], np.int64),
    )
    rates, subscribers = [row.rate for row in endpoints], [row.subscribers for row in endpoints]
    names, busy = [row.endpoint for row in endpoints], [row.busy_rate for row in endpoints]
    seconds, halvings = statistics.window.ms / 1000, statistics.summary.halvings
    return Instance.of(names, rates, subscribers, sets, seconds, busy=busy, halvings=halvings)


def read_statistics(folder: Path) -> Instance:
    """Read an instance from the files of a window (docs/traffic.md section 3.4). Needs PyArrow.

    Raises:
        OSError: a file is missing.
    """
    endpoints = _read_table(folder / "endpoints.parquet")
    rate, subscribers, busy = (endpoints.column(name).to_numpy() for name in ("rate", "subscribers", "busy_rate"))
    names, window = endpoints.column("endpoint").to_pylist(), orjson.loads((folder / "window.json").read_bytes())
    start, end = (datetime.fromisoformat(window[name]) for name in ("from", "to"))
    sets, seconds = read_sets(folder / "sets.parquet"), (end - start).total_seconds()
    return Instance.of(names, rate, subscribers, sets, seconds, busy=busy, halvings=window.get("halvings", 0))


def read_sets(table: Path) -> Block:
    """Read the table of sets. Needs PyArrow.

    Raises:
        OSError: it is missing.
    """
    sets = _read_table(table, columns=["endpoints", "weight", "clients"])
    lists = sets.column("endpoints").combine_chunks()
    return Block(
        lists.flatten().to_numpy(zero_copy_only=False).astype(np.int32),
        lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int32),
        sets.column("weight").to_numpy().astype(np.int64),
        sets.column("clients").to_numpy().astype(np.int64),
    )


def read_waste(folder: Path) -> tuple[int, int]:
    """Return the updates that all processes consumed, and those of them for which the process had no subscriber.

    Raises:
        OSError: the table is missing.
    """
    table = _read_table(folder / "waste.parquet", columns=["taken", "discarded"])
    consumed, discarded = (sum(table.column(name).to_pylist()) for name in ("taken", "discarded"))
    return consumed, discarded


def _read_table(file: Path, columns: list[str] | None = None) -> Any:  # noqa: ANN401  # PyArrow has no types
    from pyarrow import parquet  # noqa: PLC0415  # an extra, and large

    return parquet.read_table(file, columns=columns)
