"""Refuses JSON objects that have a field twice: parsers disagree which one counts."""

import json
from typing import Any

from services.data.errors import InvalidDataset


def refuse_repeated_keys(body: bytes, expected: dict[str, int]) -> None:
    """Refuse an object with two fields of one name, of which parsers disagree which one counts (RFC 8259 section 4).

    In a body that was found valid, a field's name can occur as nothing but a field, unless it is written with escapes;
    so counting the names proves it without a second parser. Only when the count is off is the body read again.
    """
    if b"\\" not in body and all(body.count(f'"{name}"'.encode()) == n for name, n in expected.items()):
        return
    json.loads(body, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise InvalidDataset(
            f"the field {next(n for n in names if names.count(n) > 1)[:40]!r} is there twice in one object"
        )
    return found
