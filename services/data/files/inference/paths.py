"""Finds the rows of JSON and XML: arrays of objects, and objects of arrays."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from services.data.files.grid import FileLimits
from services.data.files.inference.times import infer_formats
from services.data.files.trees import read_tree

MAX_PATHS: Final = 12
MAX_NODES: Final = 200_000
MAX_CONTEXT: Final = 200
_NESTED: Final = frozenset([dict, list])


def row_paths(body: bytes, form: Literal["json", "xml"], limits: FileLimits) -> Iterator[tuple[str, str]]:
    """Yield paths to what may be rows, and the texts around them, the likeliest first.

    Raises:
        DataError: the body cannot be parsed.
    """
    tree = read_tree(body, form, limits)
    scores: Counter[str] = Counter()
    context: list[str] = []
    _walk(tree, "", scores, context, [0])
    text = "\n".join(context)
    for path, _ in scores.most_common(MAX_PATHS):
        yield path, text


def _walk(value: Any, path: str, scores: Counter[str], context: list[str], nodes: list[int]) -> None:  # noqa: ANN401
    """Count what may be rows at each path; arrays on the way are iterated."""
    nodes[0] += 1
    if nodes[0] > MAX_NODES:
        return
    if type(value) is list:
        if (
            value
            and all(type(each) is list for each in value[:100])
            and not any(type(part) in _NESTED for part in value[0])
        ):
            scores[path] += 2 * len(value)
            return
        if value and all(type(each) is dict for each in value[:100]):
            scores[path] += len(value)
        mixed = {*map(type, value[:100])} & _NESTED == _NESTED
        for index, each in enumerate(value[:2000], 1):
            if type(each) in _NESTED:
                # Beside objects, an array is one of several things, and has its number.
                own = f"{path}/{index}".lstrip("/") if mixed and type(each) is list else path
                _walk(each, own, scores, context, nodes)
    elif type(value) is dict:
        _walk_object(value, path, scores, context, nodes)


def _walk_object(value: dict[str, Any], path: str, scores: Counter[str], context: list[str], nodes: list[int]) -> None:
    lengths = Counter(
        len(each)
        for each in value.values()
        if type(each) is list and not any(type(part) in _NESTED for part in each[:100])
    )
    for length, count in lengths.items():
        if count > 1 and length > 1:
            scores[path] += length * count
    if len(value) > 1 and all(infer_formats([key]) for key in [*value][:50]):
        scores[f"{path}/*".lstrip("/")] += len(value) * 2
        return
    alike = _are_alike([*value.values()])
    for key, each in value.items():
        if type(each) in _NESTED and "/" not in key:
            _walk(each, f"{path}/{'*' if alike else key}".lstrip("/"), scores, context, nodes)
        elif isinstance(each, str | int | float) and len(context) < MAX_CONTEXT:
            context.append(f"{key}: {str(each)[:200]}")


def _are_alike(values: Sequence[Any]) -> bool:
    """Return whether the members of an object are the rows or tables of several things."""
    if len(values) < 2 or any(type(each) is not dict or len(each) < 2 for each in values):
        return False
    return all(each.keys() == values[0].keys() for each in values)
