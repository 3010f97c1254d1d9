"""JSON of requests: bounded nesting, unique field names, and exact numbers."""

import json
import re
from typing import Any, Final

import orjson

from services.data.errors import InvalidDataset, MalformedBody

MAX_DEPTH: Final = 32


def load(body: bytes) -> Any:  # noqa: ANN401  # any JSON value
    """Parse JSON.

    Raises:
        MalformedBody: not JSON in UTF-8, nested more than :data:`MAX_DEPTH` deep, or a number beyond all doubles.
    """
    if deeper_than(body, MAX_DEPTH):
        raise MalformedBody(f"JSON nested more than {MAX_DEPTH} deep")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        found = "this is a page of HTML, or XML" if body.lstrip()[:1] == b"<" else str(error)
        raise MalformedBody(f"not JSON: {found}") from None


_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LONG_NUMBER: Final = re.compile(rb"\d{19}")
_LEAST, _GREATEST = -(2**63), 2**64 - 1


def canonical(body: bytes) -> bytes:
    """Return JSON without blanks, each number and text in one form, and fields in the given order.

    Raises:
        MalformedBody: as :func:`load`; a field appears twice in one object, or a whole number has more than 64 bits,
            so that parsers would differ (RFC 8259 sections 4 and 6).
    """
    value = load(body)
    made = orjson.dumps(value)
    if made == body:
        return made
    if _LONG_NUMBER.search(body):
        json.loads(body, parse_int=_exact)
    # A repeated field is lost in parsing, with its colon.
    if _STRING.sub(b"", body).count(b":") != _STRING.sub(b"", made).count(b":"):
        json.loads(body, object_pairs_hook=_unique)
    return made


def _exact(digits: str) -> int:
    # Not int() of any length, which is quadratic.
    if len(digits) > 20 or not _LEAST <= int(digits) <= _GREATEST:
        raise MalformedBody(f"the number {digits[:24]} has more than 64 bits: send it as a string")
    return 0


# One pass drops everything but structure, a few hundred brackets of a usual body.
_KEEP: Final = b'[]{}"\\'
_DROP: Final = bytes(byte for byte in range(256) if byte not in _KEEP)
_AS_ARRAYS: Final = bytes.maketrans(b"{}", b"[]")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def deeper_than(text: bytes, limit: int) -> bool:
    """Return whether arrays and objects are nested more than ``limit`` deep; arbitrary for text that is not JSON.

    Linear, and for usual bodies without a Python step per byte: after dropping all else, strings without brackets are
    ``""``; removing those leaves pure structure, and each round removes its innermost level.
    """
    skeleton = text.translate(_AS_ARRAYS, _DROP)
    if b"\\" not in skeleton:
        structure = skeleton.replace(b'""', b"")
        if b'"' not in structure:
            for _ in range(limit):
                if not structure:
                    return False
                structure = structure.replace(b"[]", b"")
            if not structure:
                return False
    # A string contains brackets or escapes, or the nesting is really deep: count token by token.
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in (b"[", b"{"):
            depth += 1
            if depth > limit:
                return True
        elif token in (b"]", b"}"):
            depth -= 1
    return False


def refuse_repeated_keys(body: bytes, expected: dict[str, int]) -> None:
    """Refuse an object with two fields of the same name: parsers differ in which they use (RFC 8259 section 4).

    In a valid body a field's name occurs only as a field, unless written with escapes; so counting the names proves
    their uniqueness without a second parser. Only a wrong count causes a second parse.

    Raises:
        InvalidDataset: a field is repeated.
    """
    if b"\\" not in body and all(body.count(f'"{name}"'.encode()) == n for name, n in expected.items()):
        return
    json.loads(body, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise InvalidDataset(
            f"the field {next(n for n in names if names.count(n) > 1)[:40]!r} appears twice in one object"
        )
    return found
