"""Merge Patch (RFC 7396) and JSON Patch (RFC 6902) with bounds.

No library: those that there are copy the value of each operation step by step, for seconds where values are large, and
take ``true`` for 1 in tests.
"""

import re
from typing import Any, Final

import orjson

from services.data.errors import InvalidDataset, PatchRefused
from services.data.kinds.json_text import MAX_DEPTH, check_bounds

MAX_OPERATIONS: Final = 1000
MAX_COPIED_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of everything that the ``copy`` operations of one patch copy: each can double the document."""
_TOO_DEEP: Final = "the document would be nested too deeply"
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")


def merge(document: Any, patch: Any) -> Any:  # noqa: ANN401  # JSON values
    """Return a document with a Merge Patch applied; a null removes its field."""
    if not isinstance(patch, dict):
        return patch
    made = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merge(made.get(name), value)
    return made


def apply(document: Any, patch: Any) -> Any:  # noqa: ANN401  # JSON values
    """Return a document with all operations of a JSON Patch applied, in order. Both are changed.

    Raises:
        InvalidDataset: not a JSON Patch, or beyond its bounds.
        PatchRefused: a ``test`` fails, or a path does not exist.
    """
    if not isinstance(patch, list):
        raise InvalidDataset("a JSON Patch is an array of operations", "$")
    if len(patch) > MAX_OPERATIONS:
        raise InvalidDataset(f"a JSON Patch has at most {MAX_OPERATIONS} operations, not {len(patch)}", "$")
    patched = _Patched(document)
    for index, operation in enumerate(patch):
        where = f"$[{index}]"
        try:
            patched.apply(operation)
        except LookupError as error:
            raise PatchRefused(str(error.args[0]), where) from None
        except ValueError as error:
            raise InvalidDataset(str(error), where) from None
        except (RecursionError, orjson.JSONEncodeError):
            raise InvalidDataset(_TOO_DEEP, where) from None
    return patched.document


def write(document: Any) -> bytes:  # noqa: ANN401  # a JSON value
    """Return a patched document as canonical JSON.

    Raises:
        MalformedBody, InvalidDataset: it has grown beyond the bounds of JSON.
    """
    try:
        made = orjson.dumps(document)
    except orjson.JSONEncodeError:
        raise InvalidDataset(_TOO_DEEP, "$") from None
    check_bounds(made)
    return made


class _Patched:
    """A document with the operations so far applied.

    Methods raise LookupError for a path that does not exist, and ValueError for what is no operation.
    """

    def __init__(self, document: Any) -> None:  # noqa: ANN401
        self.document = document
        self._room = MAX_COPIED_BYTES

    def apply(self, operation: Any) -> None:  # noqa: ANN401
        """Apply one operation."""
        match operation:
            case {"op": "add", "path": str(path), "value": value}:
                self._add(path, value)
            case {"op": "remove", "path": str(path)}:
                self._remove(path)
            case {"op": "replace", "path": str(path), "value": value}:
                if path:
                    container, key = self._place(path)
                    container[key] = value
                else:
                    self.document = value
            case {"op": "move", "from": str(source), "path": str(path)}:
                if path.startswith(f"{source}/"):
                    raise ValueError("a value cannot move into itself")
                self._add(path, self._remove(source))
            case {"op": "copy", "from": str(source), "path": str(path)}:
                self._add(path, self._copy(source))
            case {"op": "test", "path": str(path), "value": value}:
                if not _equal(self._get(path), value):
                    raise LookupError("the test fails")
            case _:
                raise ValueError("not an operation of a JSON Patch")

    def _add(self, path: str, value: Any) -> None:  # noqa: ANN401
        if not path:
            self.document = value
            return
        *above, last = _pointer(path)
        container = self._walk(above)
        match container:
            case list():
                container.insert(len(container) if last == "-" else _index(container, last, len(container)), value)
            case dict():
                container[last] = value
            case _:
                raise LookupError(f"nothing can be added at {path[:100]!r}")

    def _remove(self, path: str) -> Any:  # noqa: ANN401
        if not path:
            raise ValueError("a whole document is not removed by a patch: DELETE the endpoint")
        container, key = self._place(path)
        return container.pop(key)

    def _copy(self, path: str) -> Any:  # noqa: ANN401
        copied = orjson.dumps(self._get(path))
        self._room -= len(copied)
        if self._room < 0:
            raise ValueError(f"the copies exceed {MAX_COPIED_BYTES} bytes")
        return orjson.loads(copied)

    def _get(self, path: str) -> Any:  # noqa: ANN401
        return self._walk(_pointer(path))

    def _place(self, path: str) -> tuple[Any, int | str]:
        """Return the container of an existing value, and its key there."""
        *above, last = _pointer(path)
        container = self._walk(above)
        return container, _key(container, last)

    def _walk(self, tokens: list[str]) -> Any:  # noqa: ANN401
        value = self.document
        for token in tokens:
            value = value[_key(value, token)]
        return value


def _pointer(path: str) -> list[str]:
    """Return the reference tokens of a JSON Pointer (RFC 6901)."""
    if (path and not path.startswith("/")) or path.count("/") > MAX_DEPTH or re.search("~(?![01])", path):
        raise ValueError(f"{path[:100]!r} is no JSON Pointer with at most {MAX_DEPTH} levels")
    return [token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]]


def _key(container: Any, token: str) -> int | str:  # noqa: ANN401
    """Return the key of an existing value in an object or array."""
    if isinstance(container, list):
        return _index(container, token, len(container) - 1)
    if isinstance(container, dict) and token in container:
        return token
    raise LookupError(f"there is no {token[:100]!r}")


def _index(container: list[Any], token: str, greatest: int) -> int:
    if _INDEX.fullmatch(token) is None or int(token) > greatest:
        raise LookupError(f"an array of {len(container)} has no place {token[:100]!r}")
    return int(token)


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Return whether JSON values are equal; Python takes booleans for numbers."""
    if isinstance(one, dict):
        return one == other and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return one == other and all(map(_equal, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
