"""Mode ``z-client`` with the latest plan's placement, beside hashed endpoints.

A plan (``diem plan``) changes the number of servers a client needs, which are the connections of ``z-client``. Proxies
have one connection to each server whatever the placement.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from learning.costs import RoleCosts
from learning.modes.configuration import Configuration, Size
from learning.modes.load import Load
from learning.modes.model import Prediction, predict
from learning.modes.recommend import Requirements
from metadata.plans.plan import MAX_BYTES


class ModeFanOut(NamedTuple):
    """Mean number of servers that a client needs."""

    hashed: float
    planned: float
    """For clients the plan was not made from, if any."""


class PlannedFanOut(NamedTuple):
    """Fan-out in a plan file, for its input traffic."""

    plan: str
    """Its id."""
    start: str
    end: str
    fan_out: Mapping[int, ModeFanOut]
    """By number of servers."""


class Comparison(NamedTuple):
    """``z-client`` at one size under a load, with hashed and with planned endpoints."""

    servers: int
    fan_out: ModeFanOut
    hashed: Prediction
    planned: Prediction


def latest_plan(folder: Path) -> PlannedFanOut | None:
    """Return the fan-out by the latest plan file in a folder; None: there is none, or it has no report."""
    try:
        file = max(folder.glob("*.json"), key=lambda each: each.stat().st_mtime, default=None)
        if file is None or file.stat().st_size > MAX_BYTES:
            return None
        return _parse(orjson.loads(file.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _parse(plan: Mapping[str, Any]) -> PlannedFanOut | None:
    found = {}
    for servers, figures in plan["report"]["servers"].items():
        hashed, planned = figures["murmur2"], figures["plan"]
        key = "held_out_fan_out" if "held_out_fan_out" in planned and "held_out_fan_out" in hashed else "fan_out"
        found[int(servers)] = ModeFanOut(float(hashed[key]), float(planned[key]))
    if not found:
        return None
    window = plan["window"]
    return PlannedFanOut(str(plan["id"]), str(window["from"]), str(window["to"]), found)


def compare(planned: PlannedFanOut, load: Load, needs: Requirements) -> Iterator[Comparison]:
    """Yield the comparison at the numbers of servers that the plan was made for."""
    for servers, fan_out in sorted(planned.fan_out.items()):
        hashed, by_plan = (
            predict(
                Configuration.Z_CLIENT,
                Size(servers),
                load,
                workers=needs.workers,
                brokers=needs.brokers,
                fan_out=each,
            )
            for each in fan_out
        )
        yield Comparison(servers, fan_out, hashed, by_plan)


def as_json(planned: PlannedFanOut, found: Comparison, costs: RoleCosts) -> dict[str, Any]:
    """Return a comparison as a JSON object; CPU in microseconds a second."""
    return {
        "plan": planned.plan,
        "configuration": str(Configuration.Z_CLIENT),
        "servers": found.servers,
        "fan_out": found.fan_out._asdict(),
        "cpu": {"hashed": found.hashed.cpu(costs).value, "planned": found.planned.cpu(costs).value},
        "connections": {"hashed": found.hashed.connections, "planned": found.planned.connections},
    }
