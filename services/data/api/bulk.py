"""Parses requests with content for several endpoints."""

from typing import Any, Final

import orjson

from diem.protocol import endpoints
from services.data.errors import InvalidDataset
from services.data.kinds import DOCUMENT, Representation, seal
from services.data.kinds.json_text import load, written
from services.data.kinds.series import parse_bulk

MAX_ENDPOINTS: Final = 1000


def parse(body: bytes) -> list[Representation]:
    """Parse ``{"datasets": [...], "documents": [{"endpoint", "value"}, ...]}``, of which either may be missing.

    Raises:
        MalformedBody, InvalidDataset: the body is refused as a whole.
    """
    raw = load(body)
    if type(raw) is not dict or not raw or not raw.keys() <= {"datasets", "documents"}:
        raise InvalidDataset('expected an object with "datasets" or "documents", arrays, and nothing else', "$")
    if any(type(items) is not list for items in raw.values()):
        raise InvalidDataset('"datasets" and "documents" are arrays', "$")
    count = sum(map(len, raw.values()))
    if not 1 <= count <= MAX_ENDPOINTS:
        raise InvalidDataset(f"1 to {MAX_ENDPOINTS} endpoints in one request, not {count}", "$")
    if "documents" not in raw:
        return list(parse_bulk(body, raw))
    # Refuses repeated fields.
    written(raw, body)
    found: list[Representation] = [_document(item, f"$.documents[{at}]") for at, item in enumerate(raw["documents"])]
    if "datasets" in raw:
        found += parse_bulk(body, raw, unique=True)
    names = [each.endpoint for each in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidDataset(f"{twice} appears twice", "$")
    return found


def _document(item: Any, where: str) -> Representation:  # noqa: ANN401  # any JSON value
    if type(item) is not dict or item.keys() != {"endpoint", "value"} or type(item["endpoint"]) is not str:
        raise InvalidDataset('a document is an object with "endpoint" and "value"', where)
    try:
        name = endpoints.check_written(item["endpoint"])
    except endpoints.BadName as error:
        raise InvalidDataset(str(error), f"{where}.endpoint") from None
    return seal(name, DOCUMENT, orjson.dumps(item["value"]))
