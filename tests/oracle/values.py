"""Values of documents: short forms, fingerprints, and patches as the RFCs have them, apart from the code under test."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson

LONG: Final = 64
"""Strings with more characters are recorded as digests."""
_MARK: Final = 1 << 48
"""Keeps fingerprints apart from the numbers in series."""


class NotPatchable(Exception):
    """A patch does not fit the value that it is applied to."""


def condensed(value: Any) -> Any:
    """Return a value with its long strings replaced by digests, so that a history with documents of 1 MiB is small."""
    if isinstance(value, str):
        return f"~{blake2b(value.encode(), digest_size=12).hexdigest()}" if len(value) > LONG else value
    if isinstance(value, list):
        return [condensed(item) for item in value]
    if isinstance(value, dict):
        return {name: condensed(item) for name, item in value.items()}
    return value


def fingerprint(value: Any) -> int:
    """Return a positive number that equal values have, condensed or not, in whatever order their fields are."""
    text = orjson.dumps(condensed(value), option=orjson.OPT_SORT_KEYS)
    return int.from_bytes(blake2b(text, digest_size=6).digest()) | _MARK


def merged(value: Any, patch: Any) -> Any:
    """Return a value after a Merge Patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, item in patch.items():
        if item is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), item)
    return result


def patched(value: Any, operations: list[dict[str, Any]]) -> Any:
    """Return a value after a JSON Patch (RFC 6902) with ``add``, ``copy``, ``remove``, ``replace`` and ``test``.

    Raises:
        NotPatchable: a test fails, or a place does not exist.
    """
    result = orjson.loads(orjson.dumps(value))
    for each in operations:
        *path, last = each["path"].split("/")[1:]
        place = _at(result, path)
        match each["op"]:
            case "test":
                if _at(place, [last]) != each["value"]:
                    raise NotPatchable(f"{each['path']} is another")
            case "remove":
                _at(place, [last])
                del place[int(last) if isinstance(place, list) else last]
            case "add" if isinstance(place, list):
                place.insert(len(place) if last == "-" else int(last), each["value"])
            case "copy":
                place[last] = _at(result, each["from"].split("/")[1:])
            case "add" | "replace":
                place[last] = each["value"]
    return result


def _at(value: Any, path: list[str]) -> Any:
    try:
        for name in path:
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (LookupError, TypeError, ValueError) as error:
        raise NotPatchable(f"no {name}") from error
    return value


def applied(value: Any, change: Mapping[str, Any]) -> Any:
    """Return the value after a change: ``{"put": value}``, ``{"merge": patch}`` or ``{"json": operations}``.

    Raises:
        NotPatchable: the patch does not fit; nothing is there to be patched (None).
    """
    if "put" in change:
        return change["put"]
    if value is None:
        raise NotPatchable("there is no document")
    return merged(value, change["merge"]) if "merge" in change else patched(value, change["json"])
