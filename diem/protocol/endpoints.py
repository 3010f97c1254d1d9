"""Endpoint names (docs/protocol.md section 1): validated once at the edge, then compared as bytes.

The SDK has the same rule (``isEndpoint`` of ``messages.ts``; cases in ``tests/cases``), and ``openapi.json`` states it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from diem.errors import DiemError

MAX_NAME_BYTES = 256
"""Longest name (docs/reliability.md S11)."""
MAX_COVERAGES = 1024
"""Maximum number of cached prefix sets; the least recently used is evicted."""

CANARY = "/canary/"
"""Prefix of the endpoints of ``diem canary``, excluded from the catalogue and recorded traffic."""

CHARACTERS = r"A-Za-z0-9._~!$'()*+,;=:@-"
"""Those of a segment, for a set of a regular expression."""
PATTERN = rf"(?:/[{CHARACTERS}]+)+/?"
"""Regular expression of names; those that match can still be too long, or have a ``.`` or ``..`` segment."""

_NAME = re.compile(PATTERN)


@dataclass(eq=False)
class BadName(DiemError):
    """A string that is not an endpoint name."""

    name: str
    reason: str

    def __str__(self) -> str:
        """Return one line with the string, truncated to a readable length, and the reason."""
        shown = self.name if len(self.name) <= 64 else self.name[:61] + "..."
        return f"{shown!r} is not an endpoint name: {self.reason}"


def check(name: str) -> str:
    """Return ``name`` if it is an endpoint name: of a collection, if it ends with a slash.

    Raises:
        BadName: it is too long, has a forbidden character, an empty segment, or a ``.`` or ``..`` segment (which HTTP
            clients resolve away).
    """
    if len(name) > MAX_NAME_BYTES:
        raise BadName(name, f"longer than {MAX_NAME_BYTES} bytes")
    if _NAME.fullmatch(name) is None:
        raise BadName(name, "it must be '/' and segments of letters, digits and -._~!$'()*+,;=:@")
    if "/." in name and not {".", ".."}.isdisjoint(name.split("/")):
        raise BadName(name, "a segment is '.' or '..'")
    return name


def check_single(name: str) -> str:
    """Return ``name`` if it is that of an endpoint with data of its own, not of a collection.

    Raises:
        BadName: as :func:`check`, or it ends with a slash.
    """
    if is_collection(check(name)):
        raise BadName(name, "it ends with '/', as collections do, which list their members by themselves")
    return name


def check_written(name: str) -> str:
    """Return ``name`` if a new endpoint may have it: that of a single one, without ``*``.

    Endpoints with ``*`` that earlier releases accepted are read and written as others.

    Raises:
        BadName: as :func:`check_single`, or it has a ``*``.
    """
    if "*" in check_single(name):
        raise BadName(name, "'*' is no wildcard: subscribe to the collection, the name up to a '/', for all below it")
    return name


def is_prefix(name: str) -> bool:
    """Return whether ``name`` is that of an endpoint, or of all below it."""
    return is_valid(name) and not is_collection(name)


def is_collection(name: str) -> bool:
    """Return whether a valid name is that of a collection."""
    return name.endswith("/")


def collection_of(name: str) -> str:
    """Return the collection with an endpoint or collection as its member: ``/game/`` of ``/game/42`` and ``/game/42/``.

    Empty for a name of one segment: the catalogue lists these.
    """
    head = name.rstrip("/").rpartition("/")[0]
    return head + "/" if head else ""


def is_valid(name: str) -> bool:
    """Return whether :func:`check` accepts ``name``."""
    try:
        check(name)
    except BadName:
        return False
    return True


def ancestors(name: str) -> Iterator[str]:
    """Yield the ancestors of ``name``, longest first: ``/dam/prices``, ``/dam`` of ``/dam/prices/GR``."""
    name = name.rpartition("/")[0]
    while name:
        yield name
        name = name.rpartition("/")[0]


@lru_cache(MAX_COVERAGES)
def coverage(prefixes: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a predicate for endpoints equal to or below one of the prefixes.

    ``/dam`` does not cover ``/damage``; ``/`` covers all. The prefixes are prepared once, and the tokens of a plan
    share one function.
    """
    below = tuple(f"{prefix.rstrip('/')}/" for prefix in prefixes)

    def covers(endpoint: str) -> bool:
        return endpoint.startswith(below) or endpoint in prefixes

    return covers
