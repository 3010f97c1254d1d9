"""What of a plan its status says: a small file beside it, so that nobody decodes a plan to be told how far it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

from metadata.plans.plan import Plan


class Brief(NamedTuple):
    """A plan in short."""

    epoch: int
    """Of the map that it was made for."""
    created: str
    partitions: int
    endpoints: int
    """That it names."""
    moves: int
    """Endpoints that it moved when it was begun; 0 before."""


def brief_of(plan: Plan, before: Mapping[str, int] | None) -> Brief:
    """What is said of ``plan``, which moves the endpoints of ``before``."""
    return Brief(plan.epoch, plan.created, plan.partitions, len(plan.homes), len(before or ()))


def encode_brief(brief: Brief, sizes: tuple[int, int]) -> bytes:
    """The content of the file. ``sizes`` are those of the files that it was made from."""
    return orjson.dumps({"sizes": sizes, **brief._asdict()})


def read_brief(path: Path, sizes: tuple[int, int]) -> Brief | None:
    """What the file says; None without one that was made from files of these ``sizes``."""
    try:
        match orjson.loads(path.read_bytes()):
            case {
                "sizes": [int(plan), int(before)],
                "epoch": int(epoch),
                "created": str(created),
                "partitions": int(partitions),
                "endpoints": int(endpoints),
                "moves": int(moves),
            } if (plan, before) == sizes:
                return Brief(epoch, created, partitions, endpoints, moves)
    except (OSError, orjson.JSONDecodeError):
        pass
    return None
