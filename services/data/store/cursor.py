"""How far the publisher is: kept in the store, so that its next process goes on there."""

from typing import NamedTuple


class Cursor(NamedTuple):
    """The changes up to ``sequence`` are in the log whose id is ``source``; another log may have none of them."""

    source: str
    sequence: int
