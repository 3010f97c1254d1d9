"""The plan that is learnt from a trace's subscriptions, in-process, and what it gains in connections."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from experiments.modes.regimes import START_MS
from learning.costs import DEFAULT
from learning.modes.configuration import PARTITIONS
from learning.placement.backend import Backend
from learning.placement.baselines import murmur2
from learning.placement.blocks import Parts
from learning.placement.instance import from_events
from learning.placement.objective import fan_out, server_of_endpoint
from learning.placement.options import PlanOptions
from learning.placement.planner import plan as make_plan
from learning.statistics.window import Window
from metadata.plans.plan import Plan, encode

CREATED: Final = "2026-01-01T00:00:00+00:00"
"""Of every plan: equal traces have equal plans."""


class Learnt(NamedTuple):
    """A plan, and the mean number of servers that a client of the trace needs."""

    plan: Plan
    hashed: float
    """With endpoints where their hash puts them."""
    planned: float


def learn(events: Iterable[bytes], seconds: float, servers: int) -> Learnt:
    """Return the plan for a number of servers from the events of a generated trace of so many seconds."""
    instance = from_events(events, Window(START_MS, START_MS + int(seconds * 1000)))
    backend = Backend(instance.blocks(), len(instance.endpoints))
    # It is for the clients that it is learnt from: none are held out.
    options = PlanOptions((servers,), partitions=PARTITIONS, current_partitions=PARTITIONS, hold_out=0.0)
    now = murmur2(instance.endpoints, PARTITIONS)
    found = make_plan(instance, options, DEFAULT, now, backend).placement

    def mean(placement: Parts) -> float:
        return fan_out(backend, server_of_endpoint(placement, PARTITIONS, servers), servers).mean

    moved = np.flatnonzero(found != now).tolist()
    homes = {instance.endpoints[at]: int(found[at]) for at in moved}
    return Learnt(Plan(0, PARTITIONS, homes, servers=(servers,), created=CREATED), mean(now), mean(found))


def write_plan(path: Path, found: Learnt) -> None:
    """Write the plan as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(found.plan))
