"""What the metadata service answers, and what follows from it for one endpoint at one server."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple


class Located(NamedTuple):
    """An answer of the metadata service, with URLs that may be dialled."""

    owners: Mapping[str, str | None]
    """None = nobody owns it now, or it is hot."""
    hot: frozenset[str] = frozenset()
    servers: Sequence[str] = ()
    """The servers of the clone, the one with the fewest clients first."""
    rejected: Mapping[str, Mapping[str, str]] = {}
    older: bool = False
    """It comes of an older epoch than one before: good enough for what has no place, no reason to leave one."""


class Step(NamedTuple):
    """What is to be done with one endpoint at one server. A join of what is joined already asks again."""

    kind: Literal["join", "leave"]
    name: str
    url: str
