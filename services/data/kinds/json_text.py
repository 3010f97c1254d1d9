"""JSON of requests: bounded nesting, unique field names, and exact numbers."""

import json
import re
from collections import Counter
from functools import cache
from typing import Any, Final

import orjson

from services.data.errors import InvalidDataset, MalformedBody
from services.data.large import LARGE_BYTES

MAX_DEPTH: Final = 32
MAX_NESTED: Final = 500_000
"""Maximum number of arrays and objects."""
MAX_FIELDS: Final = 400_000
"""Maximum number of fields. With as many, all of different names, parsing takes 0.15 s in one step of the interpreter,
during which the event loop waits; usual JSON of 4 MiB takes a third."""


def load(body: bytes) -> Any:  # noqa: ANN401  # any JSON value
    """Parse JSON.

    Raises:
        MalformedBody: not JSON in UTF-8, a number beyond all doubles, or beyond the bounds of :func:`check_bounds`.
    """
    try:
        check_bounds(body)
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        found = "this is a page of HTML, or XML" if body.lstrip()[:1] == b"<" else str(error)
        raise MalformedBody(f"not JSON: {found}") from None


def check_bounds(text: bytes) -> None:
    """Check the nesting of JSON.

    Raises:
        MalformedBody: arrays and objects nested more than :data:`MAX_DEPTH` deep, or more than :data:`MAX_NESTED`, or
            more than :data:`MAX_FIELDS`.
    """
    structure = _outside_strings(text, _BRACKETS)
    nested = structure.count(b"[") + structure.count(b"{")
    if nested > MAX_NESTED:
        raise MalformedBody(f"JSON with more than {MAX_NESTED} arrays and objects")
    if len(text) > _FIELD_BYTES * MAX_FIELDS and _outside_strings(text, b":").count(b":") > MAX_FIELDS:
        raise MalformedBody(f"JSON with more than {MAX_FIELDS} fields")
    if nested > MAX_DEPTH and _remains(structure, MAX_DEPTH):
        raise MalformedBody(f"JSON nested more than {MAX_DEPTH} deep")


def canonical(body: bytes) -> bytes:
    """Return JSON without blanks, each number and text in one form, and fields in the given order.

    Raises:
        MalformedBody: as :func:`load` and :func:`written`.
    """
    return written(load(body), body)


def written(value: Any, body: bytes) -> bytes:  # noqa: ANN401  # any JSON value
    """Return the canonical form of a ``value`` parsed from ``body``.

    Raises:
        InvalidDataset, MalformedBody: a field appears twice in one object, or a whole number has more than 64 bits, so
            that parsers would differ (RFC 8259 sections 4 and 6).
    """
    made = orjson.dumps(value)
    if made == body:
        return made
    _refuse_long_numbers(body)
    # A repeated field is lost in parsing, with its colon.
    if _outside_strings(body, b":") != _outside_strings(made, b":"):
        if len(body) <= LARGE_BYTES:
            json.loads(body, object_pairs_hook=_unique)
        # The parser that finds the name takes several times as long.
        raise InvalidDataset("a field appears twice in one object")
    return made


# Every step over the whole text is one call of a method of bytes: a regular expression would block other threads for
# longer than the parser does.
_BRACKETS: Final = b"[]{}"
_FIELD_BYTES: Final = len('"":0')
"""Least length of a field."""
_NUMBERS: Final = b"0123456789+-.eE,:[]{}"
_AS_ARRAYS: Final = bytes.maketrans(b"{}", b"[]")
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_STEP_BYTES: Final = 256 * 1024
"""Bytes of a step that makes an object of every string."""
_LEAST, _GREATEST = -(2**63), 2**64 - 1
_LONG: Final = b"0" * 19
_WHOLE: Final = re.compile(rb"(?<![0-9.eE+-])-?[0-9]{19,}(?![0-9.eE])")


def _outside_strings(text: bytes, kept: bytes) -> bytes:
    """Return the ``kept`` characters of JSON that are not within a string."""
    if b"\\" in text:
        # Backslashes before quotes: pairs from the left, then what escapes a quote.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    found = text.translate(None, _others(kept)).replace(b'""', b"")
    if b'"' not in found:
        return found
    parts: list[bytes] = []
    outside = 0
    for start in range(0, len(found), _STEP_BYTES):
        split = found[start : start + _STEP_BYTES].split(b'"')
        parts += split[outside::2]
        outside ^= len(split) % 2 == 0
    return b"".join(parts)


@cache
def _others(kept: bytes) -> bytes:
    return bytes(byte for byte in range(256) if byte not in kept + b'"')


def _refuse_long_numbers(body: bytes) -> None:
    if _LONG not in body.translate(_AS_ZEROS):
        return
    for found in _WHOLE.finditer(_outside_strings(body, _NUMBERS)):
        digits = found[0].decode()
        # Not int() of any length, which is quadratic.
        if len(digits) > 20 or not _LEAST <= int(digits) <= _GREATEST:
            raise MalformedBody(f"the number {digits[:24]} has more than 64 bits: send it as a string")


def _remains(structure: bytes, rounds: int) -> bool:
    """Return whether brackets are left after some rounds, each of which removes the innermost level."""
    structure = structure.translate(_AS_ARRAYS)
    for _ in range(rounds):
        if not structure:
            return False
        structure = structure.replace(b"[]", b"")
    return bool(structure)


def refuse_repeated_keys(body: bytes, strings: int) -> None:
    """Refuse an object with two fields of the same name: parsers differ in which they use (RFC 8259 section 4).

    A body without backslashes has two quotes for each string. So if there are only those of the ``strings`` that the
    parser has found, names of fields among them, none was repeated. Only another count causes a second parse.

    Raises:
        InvalidDataset: a field is repeated.
    """
    if b"\\" in body or body.count(b'"') != 2 * strings:
        json.loads(body, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise InvalidDataset(f"the field {name[:40]!r} appears twice in one object")
    return found
