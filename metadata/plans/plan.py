"""A plan and its JSON: the body of ``POST /v1/plans`` and the output file of ``diem plan``."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import orjson

from diem.errors import DiemError
from diem.protocol import endpoints
from diem.protocol.partition_map import HOT, MAX_PARTITIONS

FORMAT: Final = "diem.plan/1"
MAX_BYTES: Final = 64 << 20
"""Maximum size of a plan as JSON: about a million endpoints."""


class BadPlan(DiemError):
    """The document is not a plan."""


class PlanTooLarge(DiemError):
    """The document is larger than a plan may be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Target homes of endpoints. Times are ISO 8601 in UTC."""

    epoch: int
    """Epoch of the map at the plan's computation."""
    partitions: int
    """Minimum number of partitions of the updates topic; homes are below it."""
    homes: Mapping[str, int]
    """Endpoint -> partition, or :data:`HOT`. Other endpoints do not move."""
    servers: tuple[int, ...] = ()
    """Numbers of servers planned for."""
    seed: int = 0
    created: str = ""
    window: Mapping[str, str] = field(default_factory=dict)
    """``from`` and ``to`` of the underlying traffic."""
    costs: Mapping[str, Any] = field(default_factory=dict)
    """Constants of the load model."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """Expected results of the plan, beside those of baselines."""

    @property
    def id(self) -> str:
        """``p-<time>-<digest>``: equal plans have equal names."""
        time = "".join(character for character in self.created[:19] if character in "0123456789T").replace("T", "-")
        content = orjson.dumps([self.epoch, self.partitions, self.homes], option=orjson.OPT_SORT_KEYS)
        return f"p-{time}-{hashlib.sha256(content).hexdigest()[:8]}"


def overfull(report: Mapping[str, Any]) -> str | None:
    """Describe the server that a plan's ``report`` expects to exceed a limit by most, and the remedy.

    Over all planned numbers of servers. None: there is none, or the report has no such figures.
    """
    try:
        known = report["capacity"]
        _, used, limit, name, server, servers = max(
            (
                float(used) / float(known["limits"][name]),
                float(used),
                float(known["limits"][name]),
                name,
                server,
                len(each),
            )
            for resources in known["servers"].values()
            for name, each in resources.items()
            for server, used in enumerate(each, 1)
        )
        enough = int(known["enough"] or 0)
    except (TypeError, ValueError, LookupError, AttributeError, ZeroDivisionError):
        return None
    if used <= limit:
        return None
    return (
        f"server {server} of {servers} would have {used:,.0f} {name} of {limit:,.0f}: plan without --movement, with a "
        f"larger --hot-budget or for {enough or 'more'} --servers, or raise --capacity (of clients: "
        "DIEM_WEBSOCKET_CAPACITY, too)"
    )


def encode(plan: Plan) -> bytes:
    """Return a plan as indented JSON."""
    content = {each.name: getattr(plan, each.name) for each in fields(plan)}
    return orjson.dumps({"format": FORMAT, "id": plan.id, **content}, option=orjson.OPT_INDENT_2)


def decode(data: bytes) -> Plan:
    """Decode the plan in ``data``.

    Raises:
        BadPlan: not a plan, with the first fault.
    """
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadPlan(f"a plan is JSON: {error}") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise BadPlan(f'a plan has "format": "{FORMAT}"')
    partitions = _whole(body, "partitions", 1, MAX_PARTITIONS)
    plan = Plan(
        epoch=_whole(body, "epoch", 0, 1 << 53),
        partitions=partitions,
        homes=_homes(body.get("homes"), partitions),
        servers=_servers(body.get("servers") or []),
        seed=_whole({"seed": 0, **body}, "seed", 0, 1 << 63),
        created=str(body.get("created", "")),
        **{name: _mapping(body, name) for name in ("window", "costs", "report")},
    )
    if "id" in body and body["id"] != plan.id:
        raise BadPlan(f"the plan's id is {body['id']}, but its content is that of {plan.id}: it was changed")
    return plan


def _whole(body: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadPlan(f'"{name}" is a whole number from {least} to {most}, not {value!r}')
    return value


def _mapping(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise BadPlan(f'"{name}" is an object')
    try:
        orjson.dumps({name: value})
    except orjson.JSONEncodeError as error:
        # orjson reads deeper nesting than it can write.
        raise BadPlan(f'"{name}" cannot be stored: {error}') from None
    return value


def _servers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise BadPlan('"servers" is a list of whole numbers')
    return tuple(value)


def _homes(value: object, partitions: int) -> dict[str, int]:
    if not isinstance(value, dict):
        raise BadPlan('"homes" is an object: endpoint -> partition')
    for name, home in value.items():
        if not endpoints.is_valid(name):
            raise BadPlan(f'"homes" names {name!r}, which is not an endpoint')
        if not isinstance(home, int) or isinstance(home, bool) or not HOT <= home < partitions:
            expected = f"a partition from 0 to {partitions - 1}, or {HOT} for hot"
            raise BadPlan(f"the home of {name} is {home!r}: it must be {expected}")
    return value
