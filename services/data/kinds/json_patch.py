"""Merge Patch (RFC 7396) and JSON Patch (RFC 6902) with bounds."""

from typing import Any, Final

import jsonpatch
import jsonpointer
import orjson

from services.data.errors import InvalidDataset, PatchRefused

MAX_OPERATIONS: Final = 1000
MAX_COPIED_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of everything that the ``copy`` operations of one patch copy: each can double the document."""


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
    """Return a document with all operations of a JSON Patch applied, in order.

    Raises:
        InvalidDataset: not a JSON Patch, or beyond its bounds.
        PatchRefused: a ``test`` fails, or a path does not exist.
    """
    if not isinstance(patch, list):
        raise InvalidDataset("a JSON Patch is an array of operations", "$")
    if len(patch) > MAX_OPERATIONS:
        raise InvalidDataset(f"a JSON Patch has at most {MAX_OPERATIONS} operations, not {len(patch)}", "$")
    room = MAX_COPIED_BYTES
    for index, operation in enumerate(patch):
        where = f"$[{index}]"
        try:
            if isinstance(operation, dict) and operation.get("op") == "copy":
                room -= len(orjson.dumps(jsonpointer.resolve_pointer(document, operation["from"])))
                if room < 0:
                    raise InvalidDataset(f"the copies exceed {MAX_COPIED_BYTES} bytes", where)
            document = jsonpatch.apply_patch(document, [operation], in_place=True)
        except jsonpatch.JsonPatchTestFailed:
            raise PatchRefused("the test fails", where) from None
        except (jsonpatch.JsonPatchConflict, jsonpointer.JsonPointerException) as error:
            raise PatchRefused(_reason(error), where) from None
        except (jsonpatch.JsonPatchException, KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidDataset(f"not an operation of a JSON Patch: {_reason(error)}", where) from None
    return document


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
