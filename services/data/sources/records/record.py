"""A record of a log of changes, decoded, and the paths to its parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from services.data.errors import DataError, InvalidDataset

MISSING: Final = object()
"""The part of a record at a path that it does not have."""
Getter = Callable[["Record"], Any]
"""Returns a part of a record, or :data:`MISSING`."""


@dataclass(slots=True)
class Record:
    """One change of a source.

    Attributes:
        position: after it, in the source's format. value: a JSON value, text or bytes; ``MISSING``: the end of an
        endpoint. key: a JSON value or text; None without one. raw: the JSON text, of which ``json_text.load`` has made
        the value; None: it is of another format. headers: texts by name. names: of its origin, such as the topic.
        time_ms: when it was written, in Unix ms; 0: unknown. fault: why it cannot be decoded; None: it can.
    """

    position: str
    value: Any
    key: Any = None
    raw: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    time_ms: int = 0
    fault: DataError | None = None


def is_of_key(path: str) -> bool:
    """Return whether a path leads to the key."""
    return path.partition("/")[0] == "key"


def getter(path: str) -> Getter:
    """Return the function for a path.

    ``key``, ``key/id``, ``header/NAME`` and names of the origin, such as ``topic``, are parts of the record; all other
    paths, and those below ``value/``, lead to members of its value. A record without a value has those of its key.
    """
    first, *rest = path.split("/")
    if first == "header" and rest:
        name = "/".join(rest)
        return lambda record: record.headers.get(name, MISSING)
    if first == "key":
        return lambda record: MISSING if record.key is None else member(record.key, rest)
    within = rest if first == "value" and rest else [first, *rest]

    def find(record: Record) -> Any:  # noqa: ANN401  # any JSON value
        if path in record.names:
            return record.names[path]
        if record.value is MISSING:
            return member(record.key, within)
        return member(record.value, within)

    return find


def member(value: Any, names: list[str]) -> Any:  # noqa: ANN401  # any JSON value
    """Return a member of a JSON value, through objects and arrays; ``MISSING`` without it."""
    for name in names:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return MISSING
    return value


def text_of(value: Any, path: str) -> str:  # noqa: ANN401  # any JSON value
    """Return a text or a whole number as text; raises InvalidDataset for anything else."""
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    if type(value) is bool:
        return "true" if value else "false"
    found = "is missing" if value is MISSING else "is neither a text nor a whole number"
    raise InvalidDataset(f"{path} {found}")
