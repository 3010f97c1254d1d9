"""Entry points of installed packages, found once for a ``sys.path``: that takes 13 ms of CPU time, in each command."""

import functools
import sys
from importlib import metadata
from typing import Any, Final

_find: Final = metadata.entry_points


@functools.cache
def _found(_path: tuple[str, ...], group: str) -> metadata.EntryPoints:
    return _find(group=group)


def _entry_points(**select: Any) -> Any:
    return _found(tuple(sys.path), **select) if select.keys() == {"group"} else _find(**select)


metadata.entry_points = _entry_points
